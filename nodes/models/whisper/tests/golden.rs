//! The network against recorded tensors and transcripts, in float32.

use std::path::Path;

use mstar_kernels::Cx;
use mstar_weights::{Cache, Silent, pull};
use mstar_whisper::verify;

fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

#[test]
fn a_tiny_checkpoint_gives_the_recorded_tensors() {
    let cx = Cx::with_threads(2).unwrap();
    let report = verify::check_tiny(&golden("tiny"), &cx).unwrap();
    assert!(report.checks.len() >= 11);
    assert!(report.passed(), "{:#}", report.to_json("whisper_gemma"));
}

#[test]
fn real_recordings_give_the_recorded_tokens() {
    let weights = pull("whisper_tiny_en", &Cache::in_target_dir(), &mut Silent).unwrap();
    let cx = Cx::with_threads(2).unwrap();
    // Two of the ten recordings lie beside the golden file; `mstar verify real --media` hears them all.
    let report = verify::check_real(weights.path(), &golden("real"), Some(&golden("real")), &cx).unwrap();
    assert_eq!((report.checks.len(), report.skipped.len()), (2, 8));
    assert!(report.passed(), "{:#}", report.to_json("real"));
}
