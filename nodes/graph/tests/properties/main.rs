//! Random well-formed graphs always finish, deliver every input once, lose nothing and stop within
//! their bounds, in whatever order their firings get done.

mod oracle;
mod wild;

use std::collections::BTreeMap;

use mstar_graph::{Command, Commands, Cursor, Done, Fire, FiringId, Input, LoopName, Port};
use oracle::{Place, Seen};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use wild::{Wild, any_tree, output_of};

/// Drives a cursor, getting its firings done in the order that `choices` say.
struct Driver<'a> {
    wild: &'a Wild,
    cursor: Cursor<u64>,
    in_flight: BTreeMap<FiringId, Place>,
    chunks: Vec<u64>,
    seen: Seen,
    finished: usize,
    order: Vec<FiringId>,
}

impl Driver<'_> {
    fn obey(&mut self, commands: Commands<u64>) {
        for command in commands {
            assert_eq!(self.finished, 0, "a command follows the end");
            match command {
                Command::Fire(fire) => self.fire(fire),
                Command::Emit { step, value, .. } => {
                    let doing = self.order.last().expect("only firings that are done emit");
                    let place = self.in_flight.remove(doing).expect("a firing emits one value here");
                    assert_eq!(step.index(), place.0);
                    assert_eq!(self.seen.emitted.insert(place, value), None);
                }
                Command::Finished { results, .. } => {
                    self.finished += 1;
                    self.seen.results = results.into_iter().map(|(port, value)| (port.to_string(), value)).collect();
                }
                Command::Keep { .. } | Command::Release { .. } => panic!("nothing is kept here"),
            }
        }
    }

    fn fire(&mut self, fire: Fire<u64>) {
        let step = fire.step.index();
        for (index, iteration) in self.wild.steps[step].loops.iter().zip(fire.iteration.path()) {
            let bound = self.wild.loops[*index].bound;
            assert!(bound.is_none_or(|bound| *iteration < bound), "a loop exceeds its bound");
        }
        let place = (step, fire.iteration.path().to_vec());
        assert_eq!(self.in_flight.insert(fire.firing, place.clone()), None, "a firing id comes twice");
        let mut inputs = BTreeMap::new();
        for (port, value) in fire.inputs {
            assert_eq!(inputs.insert(port.to_string(), value), None, "an input is fed twice");
        }
        assert_eq!(self.seen.fired.insert(place, inputs), None, "a step fires twice in one iteration");
    }

    fn get_done(&mut self, choice: usize) {
        let running: Vec<FiringId> = self.cursor.in_flight().map(|(firing, _)| firing).collect();
        let firing = running[choice % running.len()];
        let (step, iteration) = self.in_flight[&firing].clone();
        let deed = self.wild.deed(step, &iteration);
        let mut done = Done::new(firing);
        done.outputs = deed.outputs.iter().map(|(output, value)| (output_of(*output), *value)).collect();
        done.signals = deed.signals.iter().map(|output| output_of(*output)).collect();
        for index in deed.stops {
            if index % 2 == 0 {
                done.signals.push(Port::from(format!("stop {index}")));
            } else {
                done.stops.push(LoopName::from(format!("l{index}")));
            }
        }
        if self.wild.steps[step].streamed {
            self.chunks[step] += 1;
            done.stream_ended = self.chunks[step] == self.wild.chunks(step);
        }
        self.order.push(firing);
        let commands = self.cursor.done(done.clone()).unwrap_or_else(|error| panic!("{error}"));
        self.obey(commands);
        self.in_flight.remove(&firing);
        assert!(self.cursor.done(done).is_err(), "a firing is done twice");
    }
}

fn drive(wild: &Wild, choices: &[usize]) -> (Seen, Vec<FiringId>) {
    let graph = wild.build();
    let walk = graph.find_walk("walk").expect("the walk is declared");
    let takes_input = !graph.walk(walk).inputs.is_empty();
    let inputs = takes_input.then(|| (Port::from("input"), 7)).into_iter().collect();
    let (cursor, commands) =
        Cursor::start(&graph, walk, inputs, &|_| None, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let chunks = vec![0; wild.steps.len()];
    let (in_flight, seen, order) = (BTreeMap::new(), Seen::default(), Vec::new());
    let mut driver = Driver { wild, cursor, in_flight, chunks, seen, finished: 0, order };
    driver.obey(commands);
    let mut choices = choices.iter().cycle();
    while driver.cursor.in_flight().len() > 0 {
        let choice = *choices.next().expect("there is at least one choice");
        driver.get_done(choice);
        assert!(driver.order.len() < 100_000, "the walk doesn't end");
    }
    assert!(driver.cursor.finished() && driver.finished == 1, "nothing is in flight, but the walk isn't over");
    (driver.seen, driver.order)
}

fn check(wild: &Wild, choices: &[usize]) {
    let (seen, order) = drive(wild, choices);
    assert_eq!(seen, oracle::run(wild));
    let (again, same_order) = drive(wild, choices);
    assert_eq!((seen, order), (again, same_order), "a replay differs");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn walks_do_what_their_declaration_says_in_any_order(
        tree in any_tree(),
        seed in any::<u64>(),
        choices in prop::collection::vec(0..8usize, 1..20),
    ) {
        check(&Wild::new(tree, seed), &choices);
    }
}

#[test]
fn the_random_walks_are_worth_the_name() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut firings, mut gathered, mut nested, mut passed_over) = (0, 0, 0, 0);
    for seed in 0..300 {
        let tree = any_tree().new_tree(&mut runner).expect("trees are made").current();
        let wild = Wild::new(tree, seed);
        let seen = oracle::run(&wild);
        firings += seen.fired.len();
        nested += seen.fired.keys().filter(|(_, iteration)| iteration.iter().filter(|i| **i > 0).count() > 1).count();
        let inputs = seen.fired.values().flat_map(BTreeMap::values).chain(seen.results.values());
        gathered += inputs.filter(|input| matches!(input, Input::All(values) if values.len() > 1)).count();
        passed_over += (0..wild.steps.len()).filter(|step| seen.fired.keys().all(|(fired, _)| fired != step)).count();
    }
    assert!(
        firings > 3000 && nested > 300 && gathered > 100 && passed_over > 50,
        "{firings} {nested} {gathered} {passed_over}"
    );
}
