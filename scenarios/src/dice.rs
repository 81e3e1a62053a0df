//! Node actors that die at random points, as a seed says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mstar_actors::{AFTER_EXECUTE, BEFORE_EXECUTE, Faults, ON_ITEMS};

use crate::lots::Lots;

/// How the reason of every death of a story begins.
pub const STRUCK: &str = "struck by the story";

/// Counts who comes by which point, and strikes at the passes that were drawn.
#[derive(Debug, Default)]
pub(crate) struct Dice {
    sites: Mutex<BTreeMap<&'static str, BTreeMap<String, Site>>>,
}

/// A node actor at a point.
#[derive(Clone, Debug, Default)]
struct Site {
    passes: u64,
    strikes: BTreeSet<u64>,
    struck: u32,
}

/// Tries to find a pass that was not drawn before.
const TRIES: u64 = 64;

// --- impl Dice ---

impl Dice {
    /// Draws so many passes from among as many as were counted so far, evenly over node actors and points, and counts
    /// anew. Only the first two thirds of each are drawn from: what is struck is done again in other batches, and
    /// every strike is to be met.
    pub(crate) fn aim(&self, seed: u64, times: u32) {
        let mut points = self.sites();
        let mut sites: Vec<&mut Site> = points.values_mut().flat_map(BTreeMap::values_mut).collect();
        let lots = Lots::new(seed, "strikes");
        let bounds: Vec<u64> = sites.iter().map(|site| (site.passes * 2 / 3).max(1)).collect();
        sites.iter_mut().for_each(|site| **site = Site::default());
        if sites.is_empty() {
            return;
        }
        for strike in 0..u64::from(times) {
            let fresh = (0..TRIES).map(|attempt| lots.at(strike * TRIES + attempt)).any(|lot| {
                let at = (lot % sites.len() as u64) as usize;
                sites[at].strikes.insert(lots.below(lot, bounds[at]))
            });
            debug_assert!(fresh, "there are passes enough");
        }
    }

    /// Returns how often node actors were struck, by name.
    pub(crate) fn struck(&self) -> BTreeMap<String, u32> {
        let mut struck = BTreeMap::new();
        for (actor, site) in self.sites().values().flatten() {
            *struck.entry(actor.clone()).or_default() += site.struck;
        }
        struck
    }

    /// Returns how often a point was struck, by point.
    pub(crate) fn points(&self) -> BTreeMap<&'static str, u32> {
        let struck = |sites: &BTreeMap<String, Site>| sites.values().map(|site| site.struck).sum();
        self.sites().iter().map(|(&point, sites)| (point, struck(sites))).collect()
    }

    fn sites(&self) -> MutexGuard<'_, BTreeMap<&'static str, BTreeMap<String, Site>>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Faults for Dice {
    fn strike(&self, point: &'static str, actor: &str) -> Option<String> {
        if ![BEFORE_EXECUTE, AFTER_EXECUTE, ON_ITEMS].contains(&point) {
            return None;
        }
        let mut points = self.sites();
        let actors = points.entry(point).or_default();
        if !actors.contains_key(actor) {
            actors.insert(actor.to_owned(), Site::default());
        }
        let site = actors.get_mut(actor)?;
        let pass = site.passes;
        site.passes += 1;
        site.strikes.remove(&pass).then(|| {
            site.struck += 1;
            format!("{STRUCK}, pass {pass}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets two actors pass so often and returns at which of all passes they were struck.
    fn pass(dice: &Dice, times: usize) -> Vec<usize> {
        let actors = ["one", "other"];
        (0..times).filter(|n| dice.strike(BEFORE_EXECUTE, actors[n % 2]).is_some()).collect()
    }

    #[test]
    fn nobody_is_struck_before_the_dice_are_aimed_and_then_as_the_seed_says() {
        let (dice, again, other) = (Dice::default(), Dice::default(), Dice::default());
        for (dice, seed) in [(&dice, 1), (&again, 1), (&other, 2)] {
            assert!(pass(dice, 300).is_empty());
            dice.aim(seed, 20);
        }
        let struck = pass(&dice, 300);
        assert_eq!(struck.len(), 20, "all strikes are met");
        assert_eq!(struck, pass(&again, 300));
        assert_ne!(struck, pass(&other, 300));
        assert_eq!(dice.struck().values().sum::<u32>(), 20);
        assert!(dice.struck().values().all(|&count| count > 3), "{:?}", dice.struck());
        assert!(pass(&dice, 300).is_empty());
    }
}
