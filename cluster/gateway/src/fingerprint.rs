//! What a form asks for, in a few bytes per field, to tell whether another asks for the same.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::body::Form;

/// A digest of each field of a form that has a part in the request's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(BTreeMap<String, [u8; 32]>);

/// Fields that say which request it is and how its outcome is to be sent, not what it asks for.
const NO_PART: [&str; 2] = ["request_id", "streaming"];

// --- impl Fingerprint ---

impl Fingerprint {
    /// Returns the fingerprint of a form.
    pub(crate) fn of(form: &Form) -> Self {
        let mut digests = BTreeMap::new();
        for (name, values) in form.fields.iter().filter(|(name, _)| !NO_PART.contains(&name.as_str())) {
            digests.insert(name.clone(), digest(values.iter().map(String::as_bytes)));
        }
        for (i, file) in form.files.iter().enumerate() {
            digests.insert(format!("files[{i}]"), digest(std::iter::once(&*file.bytes)));
        }
        Self(digests)
    }

    /// Returns a field that differs, or that only one of the two has.
    pub(crate) fn differs(&self, other: &Self) -> Option<String> {
        let mut names = self.0.keys().chain(other.0.keys());
        names.find(|name| self.0.get(*name) != other.0.get(*name)).cloned()
    }
}

/// Digests values so that no two lists of them give the same.
fn digest<'a>(values: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for value in values {
        digest.update((value.len() as u64).to_le_bytes());
        digest.update(value);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Upload;

    fn form(fields: &[(&str, &str)], files: &[&'static [u8]]) -> Form {
        let mut form = Form::default();
        for (name, value) in fields {
            form.fields.entry((*name).to_owned()).or_default().push((*value).to_owned());
        }
        let upload = |bytes: &&'static [u8]| Upload {
            field: "files".to_owned(),
            file_name: None,
            content_type: None,
            bytes: bytes::Bytes::from_static(bytes),
        };
        form.files = files.iter().map(upload).collect();
        form
    }

    #[track_caller]
    fn check(one: Form, other: Form, field: Option<&str>) {
        assert_eq!(Fingerprint::of(&one).differs(&Fingerprint::of(&other)).as_deref(), field);
    }

    #[test]
    fn what_is_asked_counts_and_how_it_is_sent_does_not() {
        let text = ("text", "hi");
        check(form(&[text], &[]), form(&[text, ("streaming", "false"), ("request_id", "a")], &[]), None);
        check(form(&[text], &[]), form(&[("text", "ho")], &[]), Some("text"));
        check(form(&[text], &[]), form(&[text, ("model", "x")], &[]), Some("model"));
        check(form(&[text], &[b"a"]), form(&[text], &[b"a"]), None);
        check(form(&[text], &[b"a"]), form(&[text], &[b"b"]), Some("files[0]"));
        check(form(&[("a", "xy"), ("a", "z")], &[]), form(&[("a", "x"), ("a", "yz")], &[]), Some("a"));
    }
}
