//! Pages are lent and come back, each once, whatever sequences share.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// The tokens of a sequence that takes the left or the right way at each page.
fn way(turns: &[bool]) -> Vec<u32> {
    turns.iter().enumerate().flat_map(|(at, &turn)| [at as u32 * 2 + u32::from(turn); PAGE_TOKENS]).collect()
}

fn of_tenant(tenant: u64, tokens: &[u32]) -> Beginning<'_> {
    Beginning { tenant, tokens }
}

/// Lets a table learn all full pages of its tokens from where it stands.
fn learn(table: &mut BlockTable, tokens: &[u32]) {
    let known = table.known_tokens().unwrap() / PAGE_TOKENS;
    tokens.as_chunks().0.iter().skip(known).for_each(|page| table.learn(page));
}

#[test]
fn a_reservation_takes_all_its_pages_or_none() {
    let pool = PagePool::new(4);
    let first = pool.reserve(33).unwrap();
    assert_eq!(first.pages(), [0, 1, 2]);
    assert!(pool.reserve(17).is_none());
    assert_eq!((pool.free(), pool.used()), (1, 3));
    drop(first);
    assert_eq!(pool.reserve(64).unwrap().pages().len(), 4);
}

#[test]
fn who_begins_alike_shares_full_pages_but_the_last_token() {
    let pool = PagePool::new(10);
    let tokens = way(&[false, true, false]);
    let mut first = pool.begin(of_tenant(1, &tokens), 60).unwrap();
    assert_eq!(first.known_tokens(), Some(0));
    learn(&mut first, &tokens);
    let same = pool.begin(of_tenant(1, &tokens), 60).unwrap();
    assert_eq!((same.known_tokens(), &same.pages()[..2]), (Some(32), &first.pages()[..2]));
    assert_ne!(same.pages()[2..], first.pages()[2..]);
    let longer: Vec<u32> = tokens.iter().copied().chain([7]).collect();
    assert_eq!(pool.begin(of_tenant(1, &longer), 60).unwrap().known_tokens(), Some(48));
    assert_eq!(pool.begin(of_tenant(2, &longer), 60).unwrap().known_tokens(), Some(0), "another tenant");
    assert_eq!(pool.used(), 6);
    drop((first, same));
    assert_eq!((pool.used(), pool.free(), pool.cached()), (0, 10, 3));
    pool.forget();
    assert_eq!((pool.free(), pool.cached()), (10, 0));
    assert_eq!(pool.begin(of_tenant(1, &longer), 60).unwrap().known_tokens(), Some(0));
}

#[test]
fn sequences_that_compute_the_same_at_once_end_up_with_one_page() {
    let pool = PagePool::new(8);
    let tokens = way(&[true, true]);
    let mut tables = [(); 2].map(|()| pool.begin(of_tenant(1, &tokens), 33).unwrap());
    tables.iter_mut().for_each(|table| learn(table, &tokens));
    assert_eq!(tables[0].pages()[..2], tables[1].pages()[..2]);
    assert_eq!(pool.used(), 4);
}

#[test]
fn pages_let_go_of_longest_are_used_again_first_and_held_ones_never() {
    let pool = PagePool::new(6);
    let keep = |turns: &[bool]| {
        let tokens = way(turns);
        let mut table = pool.begin(of_tenant(1, &tokens), tokens.len()).unwrap();
        learn(&mut table, &tokens);
        table
    };
    let known = |turns: &[bool]| {
        let tokens: Vec<u32> = way(turns).into_iter().chain([9]).collect();
        find(&pool.shelf.open(), of_tenant(1, &tokens)).0.len()
    };
    drop(keep(&[true, true]));
    drop(keep(&[false, false]));
    let held = keep(&[true, false]);
    assert_eq!(pool.cached(), 3, "the second page of the first, and both of the second");
    // One page is free; the child of the first goes, then that of the second, then its parent.
    let steps = [(1, 2, 2), (2, 1, 2), (3, 1, 1), (4, 1, 0)];
    for (pages, left, right) in steps {
        let taken = pool.reserve(pages * PAGE_TOKENS).unwrap();
        assert_eq!((known(&[true, true]), known(&[false, false])), (left, right), "{pages} taken");
        drop(taken);
    }
    assert!(pool.reserve(5 * PAGE_TOKENS).is_none(), "two pages are held");
    assert_eq!(known(&[true, false]), 2);
    drop(held);
    assert!(pool.reserve(6 * PAGE_TOKENS).is_some());
}

/// One thing that happens to a pool.
#[derive(Clone, Debug)]
enum Event {
    Begin { tenant: u64, turns: Vec<bool>, more: usize },
    Learn { at: usize },
    Grow { at: usize, more: usize },
    Drop { at: usize },
}

fn event() -> impl Strategy<Value = Event> {
    let at = 0usize..8;
    prop_oneof![
        3 => (0u64..2, prop::collection::vec(any::<bool>(), 1..5), 0usize..40)
            .prop_map(|(tenant, turns, more)| Event::Begin { tenant, turns, more }),
        3 => at.clone().prop_map(|at| Event::Learn { at }),
        1 => (at.clone(), 1usize..40).prop_map(|(at, more)| Event::Grow { at, more }),
        2 => at.prop_map(|at| Event::Drop { at }),
    ]
}

/// A table with what its sequence has in its pages.
struct Held {
    tenant: u64,
    tokens: Vec<u32>,
    table: BlockTable,
}

/// Checks that every page is where it should be.
fn audit(pool: &PagePool, held: &[Held]) -> Result<(), TestCaseError> {
    let mut holders: BTreeMap<u32, usize> = BTreeMap::new();
    for Held { table, .. } in held {
        prop_assert_eq!(table.pages().iter().collect::<BTreeSet<_>>().len(), table.pages().len());
        table.pages().iter().for_each(|&page| *holders.entry(page).or_default() += 1);
    }
    prop_assert_eq!(pool.used(), holders.len());
    let free = pool.shelf.open().audit(&holders);
    prop_assert_eq!(pool.used() + free.len(), pool.total());
    prop_assert!(free.iter().all(|page| !holders.contains_key(page)), "a held page is free");
    Ok(())
}

proptest! {
    #[test]
    fn no_page_is_lost_freed_twice_or_taken_for_what_it_does_not_hold(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let pool = PagePool::new(14);
        let mut held: Vec<Held> = Vec::new();
        // What was computed into each page, as whose, after what.
        let mut written: BTreeMap<u32, (u64, Vec<u32>)> = BTreeMap::new();
        for event in events {
            match event {
                Event::Begin { tenant, turns, more } => {
                    let tokens = way(&turns);
                    let beginning = of_tenant(tenant, &tokens);
                    let fits = pool.fits(beginning, tokens.len() + more);
                    let table = pool.begin(beginning, tokens.len() + more);
                    prop_assert_eq!(fits, table.is_some());
                    let Some(table) = table else { continue };
                    let known = table.known_tokens().unwrap();
                    prop_assert!(known < tokens.len());
                    for (at, page) in table.pages().iter().enumerate().take(turns.len()) {
                        let now = (tenant, tokens[..(at + 1) * PAGE_TOKENS].to_vec());
                        if at * PAGE_TOKENS < known {
                            prop_assert_eq!(&written[page], &now, "a page was taken for another");
                        } else {
                            written.insert(*page, now);
                        }
                    }
                    held.push(Held { tenant, tokens, table });
                }
                Event::Learn { at } if at < held.len() => {
                    let Held { tenant, tokens, table } = &mut held[at];
                    learn(table, tokens);
                    for (at, page) in table.pages().iter().enumerate().take(tokens.len() / PAGE_TOKENS) {
                        let now = (*tenant, tokens[..(at + 1) * PAGE_TOKENS].to_vec());
                        prop_assert_eq!(&written[page], &now, "a table got a page of another's");
                    }
                }
                Event::Grow { at, more } if at < held.len() => {
                    let table = &mut held[at].table;
                    let (before, free) = (table.pages().len(), pool.free());
                    let grown = table.grow(table.tokens() + more);
                    prop_assert_eq!(grown, PagePool::pages_for(more) <= free);
                    prop_assert!(grown || table.pages().len() == before);
                    table.pages()[before..].iter().for_each(|page| _ = written.remove(page));
                }
                Event::Drop { at } if at < held.len() => drop(held.swap_remove(at)),
                _ => {}
            }
            audit(&pool, &held)?;
        }
        held.clear();
        audit(&pool, &held)?;
        prop_assert_eq!(pool.free(), 14);
        prop_assert!(pool.reserve(14 * PAGE_TOKENS).is_some(), "every page can be had again");
    }
}
