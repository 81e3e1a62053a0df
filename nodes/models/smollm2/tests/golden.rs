//! The network against recorded tensors, on the real weights in float32.

use std::path::Path;

use mstar_kernels::Cx;
use mstar_weights::{Cache, Silent, pull};

#[test]
fn logits_hidden_states_and_greedy_tokens_equal_the_recorded_ones() {
    let weights = pull("smollm2", &Cache::in_target_dir(), &mut Silent).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let cx = Cx::with_threads(2).unwrap();
    let report = mstar_smollm2::verify::check(weights.path(), &golden, &cx).unwrap();
    // Five prompts: ids, logits, hidden states, greedy tokens and their log-probabilities.
    assert_eq!(report.checks.len(), 25);
    assert!(report.passed(), "{:#}", report.to_json("real"));
}
