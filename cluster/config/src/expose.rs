//! Who may reach the server, decided at boot from file, environment and command line together.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::{ApiKey, Deployment, Environment};

/// The server would stand open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} can be reached by others and nobody needs a key; set api_keys, MSTAR_API_KEYS or allow_unauthenticated = true"
)]
pub struct ExposureError(pub SocketAddr);

/// The keys can't be had.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file of keys can't be read.
    #[error("can't read api_keys_file {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file of keys has none.
    #[error("api_keys_file {0} has no keys")]
    NoKeys(PathBuf),
    /// The environment has none, and `api_keys_env` says that it must.
    #[error("api_keys_env is set, but neither MSTAR_API_KEY nor MSTAR_API_KEYS is")]
    NoEnvironment,
}

// --- impl Deployment ---

impl Deployment {
    /// Returns all keys: of the file, of its `api_keys_file` (seen from `folder`, the deployment file's), and of the environment.
    pub fn all_keys(&self, folder: &Path, environment: &Environment) -> Result<Vec<ApiKey>, AccessError> {
        let mut keys = self.api_keys.clone();
        if let Some(path) = self.api_keys_file.as_ref().map(|path| folder.join(path)) {
            let text = fs::read_to_string(&path).map_err(|source| AccessError::File { path: path.clone(), source })?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
            let read: Vec<ApiKey> = lines.map(|line| ApiKey(line.to_owned())).collect();
            if read.is_empty() {
                return Err(AccessError::NoKeys(path));
            }
            keys.extend(read);
        }
        if self.api_keys_env && environment.api_keys.is_empty() {
            return Err(AccessError::NoEnvironment);
        }
        keys.extend(environment.api_keys.iter().cloned());
        keys.sort();
        keys.dedup();
        Ok(keys)
    }

    /// Checks that an address, from the file or the command line, may be opened with these keys.
    pub fn check_exposure(&self, address: SocketAddr, keys: &[ApiKey]) -> Result<(), ExposureError> {
        let guarded = address.ip().is_loopback() || self.allow_unauthenticated || !keys.is_empty();
        if guarded { Ok(()) } else { Err(ExposureError(address)) }
    }
}
