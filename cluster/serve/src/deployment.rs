//! The deployment that a command means: a file, or the built-in one.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use mstar_config::Deployment;
use mstar_runtime::NodeTable;
use mstar_zoo::Zoo;

use crate::cli::DeploymentArgs;

/// The deployment of a server that is told nothing.
const BUILT_IN: &str = include_str!("../../../deployments/voice.toml");
/// What messages call it.
const BUILT_IN_NAME: &str = "deployments/voice.toml (built in)";

/// A deployment and where it came from.
#[derive(Debug)]
pub(crate) struct Read {
    /// What it says.
    pub(crate) deployment: Deployment,
    /// Its file's name, for messages.
    pub(crate) name: String,
    /// Its file's text.
    pub(crate) text: String,
    /// The folder that its relative paths are seen from.
    pub(crate) folder: PathBuf,
}

/// Reads the deployment that is meant, and checks that this build can carry it out.
pub(crate) fn read(args: &DeploymentArgs, zoo: &Zoo) -> Result<Read> {
    let Some(path) = &args.config else {
        return parse(BUILT_IN_NAME, BUILT_IN, Path::new("."), zoo);
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    parse(&path.display().to_string(), &text, folder, zoo)
}

fn parse(name: &str, text: &str, folder: &Path, zoo: &Zoo) -> Result<Read> {
    let deployment = Deployment::parse(name, text, &zoo.catalogue()).map_err(|report| anyhow!("{report}"))?;
    NodeTable::of(&deployment, zoo).with_context(|| name.to_owned())?;
    Ok(Read { deployment, name: name.to_owned(), text: text.to_owned(), folder: folder.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_deployment_fits_this_build() {
        let read = read(&DeploymentArgs { config: None }, &Zoo::standard().unwrap()).unwrap();
        assert_eq!(read.deployment.default_model, "voice");
    }
}
