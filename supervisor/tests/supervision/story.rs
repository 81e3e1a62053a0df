//! Random deaths in random order: whatever happens, the observer's story of each child makes sense.

use std::collections::BTreeMap;
use std::time::Duration;

use mstar_supervisor::{ChildSpec, ChildState, Intensity, Strategy, SupervisorSpec};

use crate::stage::{Order, Stage, child, spec};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A sequence of numbers that the seed decides.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Reads the log as the observer would: returns the live incarnation of each child.
fn replay(log: &[String], seed: u64) -> BTreeMap<String, u64> {
    let (mut live, mut last) = (BTreeMap::new(), BTreeMap::<String, u64>::new());
    for line in log {
        let Some((name, rest)) = line.split_once('#') else { continue };
        let (incarnation, what) = rest.split_once(' ').unwrap();
        let incarnation: u64 = incarnation.parse().unwrap();
        if what == "started" {
            assert!(live.insert(name.to_owned(), incarnation).is_none(), "seed {seed}: two lives of {name} at once");
            assert!(
                last.insert(name.to_owned(), incarnation) < Some(incarnation),
                "seed {seed}: {name} counts backwards"
            );
        } else {
            assert_eq!(live.remove(name), Some(incarnation), "seed {seed}: {name} died without a life");
        }
    }
    live
}

async fn check(strategy: Strategy, seed: u64) {
    let mut dice = Dice(seed);
    let intensity = Intensity { max_restarts: 4, within: Duration::from_secs(20) };
    let children = NAMES.map(|name| ChildSpec { intensity, ..child(name) }).into_iter().collect();
    let stage = Stage::open(SupervisorSpec { strategy, seed, ..spec(children) }).await;
    for _ in 0..40 {
        let name = NAMES[dice.throw(NAMES.len())];
        if let Some(cell) = stage.live(name) {
            match dice.throw(4) {
                0 => cell.kill(),
                1 => cell.stop(None),
                // It may have died a moment ago; then the order is lost with its mailbox.
                _ => drop(cell.send_message(Order::Panic("dice"))),
            }
        }
        tokio::time::sleep(Duration::from_millis(dice.throw(1500) as u64)).await;
    }
    let snapshot = stage.rest().await;
    let live = replay(&stage.log(), seed);
    for child in &snapshot.children {
        let expected = (child.state == ChildState::Running).then_some(child.incarnation.0);
        assert_eq!(live.get(&child.name).copied(), expected, "seed {seed}: {child:?}");
        assert!(matches!(child.state, ChildState::Running | ChildState::Down), "seed {seed}: {child:?}");
    }
    let restarts: u64 = snapshot.children.iter().map(|child| child.restarts).sum();
    assert!(restarts > 5, "seed {seed}: only {restarts} restarts");
    stage.supervisor.shutdown(Duration::from_secs(60)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_life_has_one_beginning_and_one_end_one_for_one() {
    for seed in 0..25 {
        check(Strategy::OneForOne, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_life_has_one_beginning_and_one_end_rest_for_one() {
    for seed in 0..25 {
        check(Strategy::RestForOne, seed).await;
    }
}
