//! What rebuilds a sequence that a node lost: its prompt inputs and the tokens sampled since. Pure.

use std::sync::Arc;

use mstar_contract::{In, Journal, JournalStep, KvUse};
use mstar_graph::{OpName, Port};
use smallvec::SmallVec;

/// The journal of one sequence, as its request's walker keeps it.
#[derive(Debug, Default)]
pub(crate) struct SequenceLog {
    journal: Journal,
}

// --- impl SequenceLog ---

impl SequenceLog {
    /// Records a step that is done.
    pub(crate) fn record(&mut self, kv: KvUse, op: &OpName, inputs: &Inputs, sampled: Option<u32>) {
        let steps = &mut self.journal.steps;
        if kv == KvUse::Begin {
            steps.clear();
        } else if let (Some(last), Some(sampled)) = (steps.last_mut(), sampled)
            && feeds_back(inputs, last)
        {
            last.sampled.push(sampled);
            return;
        }
        let sampled = sampled.into_iter().collect();
        steps.push(JournalStep { op: op.clone(), inputs: inputs.clone(), sampled });
    }

    /// Returns the journal for a node that must rebuild the sequence before it goes on, if there is anything.
    pub(crate) fn rebuild(&self) -> Option<Arc<Journal>> {
        (!self.journal.steps.is_empty()).then(|| Arc::new(self.journal.clone()))
    }
}

type Inputs = SmallVec<[(Port, In); 2]>;

/// Whether a step's only input is the token sampled last.
fn feeds_back(inputs: &Inputs, last: &JournalStep) -> bool {
    let [(_, In::One(value))] = &inputs[..] else { return false };
    let token = last.sampled.last();
    token.is_some() && value.as_tokens().is_some_and(|tokens| tokens.len() == 1 && tokens.first() == token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mstar_contract::Value;

    fn input(value: Value) -> Inputs {
        SmallVec::from_iter([("in".into(), In::One(value))])
    }

    fn seen(log: &SequenceLog) -> Vec<(String, Vec<u32>)> {
        let journal = log.rebuild().unwrap();
        journal.steps.iter().map(|step| (step.op.to_string(), step.sampled.clone())).collect()
    }

    #[test]
    fn decode_steps_fold_into_the_prompt_that_they_follow() {
        let mut log = SequenceLog::default();
        let (prefill, decode) = ("prefill".into(), "decode".into());
        log.record(KvUse::Begin, &prefill, &input(Value::text("hi")), Some(5));
        log.record(KvUse::Extend, &decode, &input(Value::token(5)), Some(6));
        log.record(KvUse::Extend, &decode, &input(Value::token(6)), Some(7));
        assert_eq!(seen(&log), [("prefill".to_owned(), vec![5, 6, 7])]);
        log.record(KvUse::Extend, &"more".into(), &input(Value::text("and")), Some(9));
        log.record(KvUse::Extend, &decode, &input(Value::token(9)), Some(10));
        assert_eq!(seen(&log), [("prefill".to_owned(), vec![5, 6, 7]), ("more".to_owned(), vec![9, 10])]);
        log.record(KvUse::Begin, &prefill, &input(Value::text("anew")), Some(1));
        assert_eq!(seen(&log), [("prefill".to_owned(), vec![1])]);
    }

    #[test]
    fn a_token_that_was_not_sampled_last_is_an_input_of_its_own() {
        let mut log = SequenceLog::default();
        log.record(KvUse::Begin, &"prefill".into(), &input(Value::text("hi")), Some(5));
        log.record(KvUse::Extend, &"decode".into(), &input(Value::token(4)), Some(6));
        assert_eq!(seen(&log).len(), 2);
    }
}
