//! Sequences that begin alike share pages, and nobody can tell.

use super::*;
use mstar_contract::Tenant;

const PROMPT: &str = "what is said to everybody first, then";

/// Runs a request and returns it with the tokens that its first pass computed.
fn first_pass(rank: &Rank, engine: &mut PagedEngine, probe: &Probe, generation: Generation) -> (Generation, usize) {
    let mut generation = generation;
    let first = generation.next().1;
    let [RowProgress::Done(_, Ok(output))] = &mut rank.run_mixed(engine, vec![first])[..] else {
        panic!("a prompt is read in one pass")
    };
    generation.take(std::mem::take(output));
    let tokens = probe.latest.load(Ordering::Relaxed);
    (generation.run(rank, engine), tokens)
}

fn asked(id: u64, prompt: &str, tenant: u64) -> Generation {
    let mut request = request(prompt, greedy(12));
    Arc::make_mut(&mut request).tenant = Tenant(tenant);
    Generation::with_input(id, In::One(Value::text(prompt)), request)
}

#[test]
fn who_begins_alike_computes_the_rest_and_gets_the_same() {
    let (rank, (mut engine, probe)) = (Rank::new(), engine(limits(64, 1000, 1000), false));
    let (first, computed) = first_pass(&rank, &mut engine, &probe, asked(1, PROMPT, 0));
    assert_eq!(computed, PROMPT.len());
    let (second, computed) = first_pass(&rank, &mut engine, &probe, asked(2, PROMPT, 0));
    assert_eq!((second.seen(), computed), (first.seen(), PROMPT.len() - 32));
    let other = format!("{}ELSE?!", &PROMPT[..20]);
    let (third, computed) = first_pass(&rank, &mut engine, &probe, asked(3, &other, 0));
    assert_eq!((third.seen(), computed), (asked(3, &other, 0).run(&rank, &mut roomy()).seen(), other.len() - 16));
    let usage = engine.usage();
    assert_eq!((usage.kv_pages_used, usage.reused_tokens), (0, 48));
    assert_eq!(usage.prompt_tokens as usize, 2 * PROMPT.len() + other.len());
    assert!(usage.kv_pages_cached >= 3);
}

#[test]
fn a_conversation_goes_on_where_it_was() {
    let (rank, (mut engine, probe)) = (Rank::new(), engine(limits(64, 1000, 1000), false));
    let never_ends = || Sampling { logit_bias: [(END, -1e9)].into(), ..greedy(12) };
    let turn = |id: u64, tokens: &[u32]| {
        let prompt = In::One(Value::Tokens(tokens.into()));
        Generation::with_input(id, prompt, request("", never_ends()))
    };
    let (first, _) = first_pass(&rank, &mut engine, &probe, turn(1, &[7; 30]));
    let said: Vec<u32> = [7; 30].into_iter().chain(first.tokens.iter().copied()).chain([3, 4, 5]).collect();
    let (second, computed) = first_pass(&rank, &mut engine, &probe, turn(2, &said));
    // 41 tokens have keys and values: the last one sampled has none. Two of its pages are full.
    assert_eq!(computed, 45 - 32);
    assert_eq!(second.seen(), turn(2, &said).run(&rank, &mut roomy()).seen());
}

#[test]
fn tenants_contexts_and_lives_share_nothing() {
    let (rank, (mut crossing, probe)) = (Rank::new(), engine(limits(64, 1000, 1000), true));
    for id in 0..2 {
        assert_eq!(first_pass(&rank, &mut crossing, &probe, asked(id, PROMPT, 0)).1, PROMPT.len());
    }
    assert_eq!((crossing.usage().kv_pages_cached, crossing.usage().reused_tokens), (0, 0));
    let (mut engine, probe) = engine(limits(64, 1000, 1000), false);
    for tenant in 0..2 {
        assert_eq!(first_pass(&rank, &mut engine, &probe, asked(tenant, PROMPT, tenant)).1, PROMPT.len());
    }
    engine.reset();
    assert_eq!(engine.usage().kv_pages_cached, 0);
    assert_eq!(first_pass(&rank, &mut engine, &probe, asked(3, PROMPT, 0)).1, PROMPT.len());
}

#[test]
fn cached_pages_are_given_away_when_others_are_short() {
    let (rank, mut engine) = (Rank::new(), engine(limits(4, 1000, 1000), false).0);
    let expected = asked(1, PROMPT, 0).run(&rank, &mut engine);
    let cached = engine.usage().kv_pages_cached;
    assert!(cached > 0);
    let other = "n".repeat(50);
    asked(2, &other, 0).run(&rank, &mut engine);
    let again = asked(3, PROMPT, 0).run(&rank, &mut engine);
    assert_eq!(again.seen(), expected.seen());
    assert_eq!(held(&engine), (0, 4, 0));
}

#[test]
fn sequences_side_by_side_share_what_they_both_computed() {
    let (rank, mut engine) = (Rank::new(), engine(limits(64, 1000, 1000), false).0);
    let alone = asked(0, PROMPT, 0).run(&rank, &mut roomy());
    let together = (0..4).map(|id| asked(id, PROMPT, 0)).collect();
    let rows: Vec<Row> = (0..4).map(|id| asked(10 + id, PROMPT, 0).next().1).collect();
    rank.run_mixed(&mut engine, rows);
    // Two pages that all hold, and for each two of its own.
    assert_eq!(engine.usage().kv_pages_used, 2 + 4 * 2);
    (0..4).for_each(|id| engine.retire(RequestKey { id: 10 + id, attempt: 0 }));
    let together = run_together(&rank, &mut engine, together, |_, _| true, |_| false);
    assert!(together.iter().all(|generation| generation.seen() == alone.seen()));
}
