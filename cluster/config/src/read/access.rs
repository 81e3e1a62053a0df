//! `listen` and who may call.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::fields::{Complaint, Fields};
use crate::{ApiKey, Deployment};

/// Shortest key that is worth the name.
const KEY_LENGTH: usize = 8;

/// The top of the file.
pub(super) struct Access {
    pub(super) listen: SocketAddr,
    pub(super) allow_unauthenticated: bool,
    pub(super) api_keys: Vec<ApiKey>,
    pub(super) api_keys_file: Option<PathBuf>,
    pub(super) api_keys_env: bool,
}

pub(super) fn read(root: &mut Fields<'_>) -> Access {
    let listen = root.text("listen");
    let allow_unauthenticated = root.flag("allow_unauthenticated").unwrap_or(false);
    let api_keys = api_keys(root);
    let api_keys_file = root.text("api_keys_file").map(|at| PathBuf::from(at.value));
    let api_keys_env = root.flag("api_keys_env").unwrap_or(false);
    let mut address = Deployment::LISTEN;
    if let Some(at) = listen {
        match at.value.parse::<SocketAddr>() {
            Ok(parsed) => address = parsed,
            Err(_) => {
                let complaint = Complaint::new(format!("`{}` is no address", at.value));
                root.complain(
                    &at.span,
                    "listen",
                    complaint.allowed("an IP address and a port, such as 127.0.0.1:8000"),
                );
            }
        }
        let guarded = allow_unauthenticated || !api_keys.is_empty() || api_keys_file.is_some() || api_keys_env;
        if !address.ip().is_loopback() && !guarded {
            let complaint = Complaint::new(format!("`{address}` can be reached by others and nobody needs a key"));
            root.complain(
                &at.span,
                "listen",
                complaint.allowed("a loopback address, or one of api_keys, api_keys_file, api_keys_env = true, allow_unauthenticated = true"),
            );
        }
    }
    Access { listen: address, allow_unauthenticated, api_keys, api_keys_file, api_keys_env }
}

fn api_keys(root: &mut Fields<'_>) -> Vec<ApiKey> {
    // A key stays out of the report, which may end up in a log: what is wrong with one is said here.
    let keys = root.list("api_keys", |value| Some(value.as_str()), "strings").unwrap_or_default();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, at) in keys.iter().enumerate() {
        let path = format!("api_keys[{index}]");
        let key = at.value.unwrap_or_default();
        if key.chars().count() < KEY_LENGTH || key.chars().any(char::is_whitespace) {
            let allowed = format!("a string of {KEY_LENGTH} characters or more, without spaces");
            root.complain(&at.span, &path, Complaint::new("is too weak a key").allowed(allowed));
        } else if let Some(first) = seen.insert(key, index) {
            root.complain(&at.span, &path, Complaint::new(format!("is the same key as api_keys[{first}]")));
        }
    }
    seen.into_keys().map(|key| ApiKey(key.to_owned())).collect()
}
