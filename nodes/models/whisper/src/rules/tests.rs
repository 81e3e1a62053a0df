//! The rules on a vocabulary of thirty tokens.

use super::*;

/// Ten tokens of text, then: end 10, start 11, en 12, de 13, translate 14, transcribe 15, previous 16, silence 17,
/// no times 18, times 19 to 29.
fn specials() -> Specials {
    Specials {
        end: 10,
        start: 11,
        languages: vec![("en".into(), 12), ("de".into(), 13)],
        transcribe: Some(15),
        translate: Some(14),
        previous: Some(16),
        no_speech: Some(17),
        no_timestamps: Some(18),
        suppressed: vec![1, 16, 17],
        suppressed_first: vec![2, 10],
        latest_first: 5,
    }
}

const OPTIONS: RuleOptions = RuleOptions { suppress: true, translate: false };

/// Returns the tokens that may follow when text is far likelier than times.
fn allowed(prompt: &[u32], sampled: &[u32], options: RuleOptions) -> Vec<u32> {
    let mut logits: Vec<f32> = (0..30).map(|token| if token < 19 { 9.0 } else { 0.0 }).collect();
    specials().constrain(&mut logits, prompt, sampled, options);
    (0..30).filter(|&token| logits[token as usize] > f32::NEG_INFINITY).collect()
}

#[test]
fn without_times_only_suppressed_tokens_are_missing() {
    let prompt = [11, 12, 15, 18];
    let first = allowed(&prompt, &[], OPTIONS);
    assert!(!first.contains(&1) && !first.contains(&2) && !first.contains(&10) && first.contains(&3));
    let later = allowed(&prompt, &[3], OPTIONS);
    assert!(!later.contains(&1) && later.contains(&2) && later.contains(&10));
    let free = allowed(&prompt, &[], RuleOptions { suppress: false, translate: false });
    assert_eq!(free.len(), 30);
}

#[test]
fn language_and_task_are_found_where_the_prompt_leaves_them_open() {
    assert_eq!(allowed(&[11], &[], OPTIONS), [12, 13]);
    assert_eq!(allowed(&[11], &[13], OPTIONS), [15]);
    assert_eq!(allowed(&[11], &[13], RuleOptions { suppress: true, translate: true }), [14]);
    // Then the transcript begins with a time.
    assert_eq!(allowed(&[11], &[13, 15], OPTIONS), [19, 20, 21, 22, 23, 24]);
}

#[test]
fn a_transcript_begins_with_an_early_time_and_times_come_in_pairs() {
    let prompt = [11, 12, 15];
    assert_eq!(allowed(&prompt, &[], OPTIONS), [19, 20, 21, 22, 23, 24]);
    // After the opening time: text or the end, no time.
    let opened = allowed(&prompt, &[20], OPTIONS);
    assert!(opened.contains(&3) && !opened.iter().any(|&token| token >= 19));
    // After text: anything, but no time that is not later.
    let said = allowed(&prompt, &[20, 3], OPTIONS);
    assert!(said.contains(&4) && said.contains(&21) && !said.contains(&20));
    // After the closing time: the end, or the same or a later time.
    let closed = allowed(&prompt, &[20, 3, 22], OPTIONS);
    assert_eq!(closed.iter().filter(|&&token| token >= 19).copied().collect::<Vec<_>>(), (22..30).collect::<Vec<_>>());
    assert!(!closed.iter().any(|&token| token < 10));
    assert!(closed.contains(&10));
}

#[test]
fn a_time_is_forced_when_times_are_likelier_together() {
    let mut logits = vec![0.0; 30];
    specials().constrain(&mut logits, &[11, 12, 15], &[20, 3], OPTIONS);
    assert!(logits[..19].iter().all(|&logit| logit == f32::NEG_INFINITY));
    assert_eq!(logits[21], 0.0);
}

#[test]
fn silence_ends_the_transcript_only_when_no_word_is_sure() {
    let specials = specials();
    let end_only = |silence: f32, best: f32| {
        let mut logits = vec![0.0; 30];
        logits[3] = best;
        specials.hush(&mut logits, silence.ln());
        logits[3] == f32::NEG_INFINITY && logits[10] == 0.0
    };
    assert!(end_only(0.9, 0.5));
    assert!(!end_only(0.3, 0.5));
    assert!(!end_only(0.9, 9.0));
}

#[test]
fn no_word_is_said_before_the_first_that_is_no_time() {
    let specials = specials();
    assert!(specials.wordless(&[11, 12, 15], &[]) && specials.wordless(&[11, 12, 15], &[19]));
    assert!(!specials.wordless(&[11, 12, 15], &[3]) && !specials.wordless(&[11, 12, 15], &[19, 19]));
    assert!(!specials.wordless(&[11], &[12]) && specials.wordless(&[11], &[12, 15]));
}
