//! Whose batch a rank computes next: first whoever's listener runs dry or who has waited too long, then the node that
//! has had the least of the rank's time. A node that has had less, and usually comes back at once, is waited for a moment
//! before a long batch begins: else a loop of short steps would get one turn for every long batch. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::order::PATIENCE;

/// The accounts of a rank's nodes.
#[derive(Debug)]
pub(crate) struct Turns(Vec<Account>);

/// What a node has had.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Time that it computed, or is counted as if it had.
    used: Duration,
    /// What its batches take, lately.
    batch: Duration,
    /// When its last batch ended.
    ended: Option<Instant>,
    /// Times in a row that it was waited for and did not come.
    vain: u32,
    /// It is waited for.
    awaited: bool,
}

/// A batch that waits for the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: usize,
    /// When it was sent.
    pub(crate) sent: Instant,
    /// When the first of its listeners runs dry.
    pub(crate) due: Option<Instant>,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Compute this node's batch.
    Run(usize),
    /// Look again when something came, or then.
    Until(Instant),
}

/// Longest that a batch waits because others have had less time, or are in a hurry.
const LONGEST: Duration = Duration::from_secs(1);
/// By how much a node may lag behind, unless a single batch took longer: one that was idle does not get its past back.
const CREDIT: Duration = Duration::from_millis(50);
/// How long a node is waited for: a step's way to its walker and back is shorter.
const MOMENT: Duration = Duration::from_micros(300);
/// A batch that takes so many moments can wait for one.
const WORTH: u32 = 100;
/// After so many waits in vain a node is not waited for until it comes back in time by itself.
const VAIN: u32 = 4;

// --- impl Turns ---

impl Turns {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(vec![Account::default(); nodes])
    }

    /// Chooses among the batches that wait: at least one.
    pub(crate) fn choose(&mut self, waiting: &[Candidate], now: Instant) -> Turn {
        self.note_comers(waiting, now);
        let pressing = |batch: &&Candidate| batch.promised() <= now;
        if let Some(batch) = waiting.iter().filter(pressing).min_by_key(|batch| batch.promised()) {
            return Turn::Run(batch.node);
        }
        let least = waiting.iter().min_by_key(|batch| (self.0[batch.node].used, batch.sent));
        let Some(chosen) = least.map(|batch| batch.node) else { return Turn::Until(now) };
        match self.worth_waiting_for(chosen, now) {
            Some(until) => Turn::Until(until),
            None => Turn::Run(chosen),
        }
    }

    /// Notes that a node computed for so long: a batch, or a piece of one.
    pub(crate) fn computed(&mut self, node: usize, took: Duration) {
        let account = &mut self.0[node];
        account.used += took;
        let least = account.used.saturating_sub(CREDIT.max(took));
        self.0.iter_mut().for_each(|account| account.used = account.used.max(least));
    }

    /// Notes that a node's batch ended now, and how long it took in all.
    pub(crate) fn ended(&mut self, node: usize, took: Duration, now: Instant) {
        let account = &mut self.0[node];
        account.batch = (account.batch * 3 + took) / 4;
        account.ended = Some(now);
    }

    /// Notes who came back in time and who did not.
    fn note_comers(&mut self, waiting: &[Candidate], now: Instant) {
        for batch in waiting {
            let account = &mut self.0[batch.node];
            if account.ended.take().is_some_and(|ended| batch.sent.saturating_duration_since(ended) <= MOMENT) {
                (account.vain, account.awaited) = (0, false);
            }
        }
        for account in self.0.iter_mut().filter(|account| account.awaited) {
            if account.ended.is_none_or(|ended| now.saturating_duration_since(ended) >= MOMENT) {
                (account.vain, account.awaited) = (account.vain + 1, false);
            }
        }
    }

    /// Returns until when to wait for another node before the chosen one has its turn.
    fn worth_waiting_for(&mut self, chosen: usize, now: Instant) -> Option<Instant> {
        let Account { used, batch, .. } = self.0[chosen];
        if batch < MOMENT * WORTH {
            return None;
        }
        let others = self.0.iter_mut().filter(|other| other.used < used && other.vain < VAIN);
        let expected = others.filter_map(|other| Some((other.ended? + MOMENT, other)));
        let (until, other) = expected.filter(|(until, _)| *until > now).min_by_key(|(until, _)| *until)?;
        other.awaited = true;
        Some(until)
    }
}

// --- impl Candidate ---

impl Candidate {
    /// Returns from when on nothing goes before it but what was promised earlier.
    fn promised(&self) -> Instant {
        let latest = self.sent + LONGEST;
        // A listener who has less to hear than patience lasts is in a hurry; instants have no past to subtract from.
        self.due.map_or(latest, |due| due.checked_sub(PATIENCE).unwrap_or(self.sent).min(latest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const US: Duration = Duration::from_micros(1);

    fn batch(node: usize, sent: Instant) -> Candidate {
        Candidate { node, sent, due: None }
    }

    fn ran(turns: &mut Turns, node: usize, took: Duration, now: Instant) {
        turns.computed(node, took);
        turns.ended(node, took, now);
    }

    fn start() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    /// Lets loops run side by side for so long, each coming back so soon after its batch, and returns what share of the
    /// time each had.
    fn shares<const N: usize>(loops: [(Duration, Duration); N], time: Duration) -> [f64; N] {
        let (begin, mut turns) = (start(), Turns::new(N));
        let mut now = begin;
        let mut comes = [begin; N];
        let mut used = [Duration::ZERO; N];
        while now < begin + time {
            let here = (0..N).filter(|&node| comes[node] <= now).map(|node| batch(node, comes[node]));
            let here: Vec<Candidate> = here.collect();
            let next = comes.iter().copied().filter(|&comes| comes > now).min();
            let node = match (here.is_empty(), next) {
                (true, next) => {
                    now = next.expect("somebody comes");
                    continue;
                }
                (false, next) => match turns.choose(&here, now) {
                    Turn::Run(node) => node,
                    Turn::Until(until) => {
                        now = next.map_or(until, |next| next.min(until));
                        continue;
                    }
                },
            };
            let (takes, away) = loops[node];
            now += takes;
            used[node] += takes;
            ran(&mut turns, node, takes, now);
            comes[node] = now + away;
        }
        used.map(|used| used.as_secs_f64() / (now - begin).as_secs_f64())
    }

    #[test]
    fn loops_of_short_and_of_long_batches_share_the_time() {
        let [short, long] = shares([(5 * MS, 100 * US), (400 * MS, 100 * US)], 60_000 * MS);
        assert!(short > 0.4 && long > 0.4, "{short} {long}");
        let thirds = shares([(2 * MS, 50 * US), (40 * MS, 100 * US), (300 * MS, 150 * US)], 60_000 * MS);
        assert!(thirds.iter().all(|share| *share > 0.28), "{thirds:?}");
    }

    #[test]
    fn a_loop_that_is_away_for_long_is_not_waited_for() {
        let [short, long] = shares([(5 * MS, 2 * MS), (50 * MS, 100 * US)], 10_000 * MS);
        // It has a turn after each long batch.
        assert!((0.08..0.1).contains(&short) && long > 0.89, "{short} {long}");
    }

    #[test]
    fn a_node_that_was_idle_gets_its_turn_but_not_its_past() {
        let (now, mut turns) = (start(), Turns::new(2));
        (0..100).for_each(|_| ran(&mut turns, 0, 100 * MS, now));
        let both = [batch(0, now), batch(1, now)];
        let mut had = Duration::ZERO;
        while turns.choose(&both, now) == Turn::Run(1) {
            ran(&mut turns, 1, 100 * MS, now);
            had += 100 * MS;
        }
        assert_eq!(had, 100 * MS, "as much as the longest batch of the other");
    }

    #[test]
    fn a_listener_who_runs_dry_and_a_batch_that_waited_too_long_go_first() {
        let now = start();
        let due = |node, left: Duration| Candidate { node, sent: now, due: Some(now + left) };
        let long_ago = |node, ago: Duration| batch(node, now - ago);
        // Node 2 has had the least.
        let cases = [
            (vec![batch(0, now), batch(1, now), batch(2, now)], 2),
            (vec![due(0, 100 * MS), batch(2, now)], 0),
            (vec![due(0, 100 * MS), due(1, 50 * MS), batch(2, now)], 1),
            (vec![due(0, 3000 * MS), batch(2, now)], 2),
            (vec![long_ago(1, LONGEST), batch(2, now)], 1),
            (vec![long_ago(1, LONGEST + 900 * MS), due(0, 10 * MS)], 1),
            (vec![long_ago(1, LONGEST), due(0, 10 * MS)], 0),
        ];
        for (waiting, expected) in cases {
            let mut turns = Turns::new(3);
            ran(&mut turns, 0, 20 * MS, now - LONGEST);
            ran(&mut turns, 1, 20 * MS, now - LONGEST);
            assert_eq!(turns.choose(&waiting, now), Turn::Run(expected), "{waiting:?}");
        }
    }
}
