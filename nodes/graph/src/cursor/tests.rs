//! Tables of events and the commands that follow.

use std::sync::Arc;

use expect_test::{Expect, expect};

use super::*;
use crate::section::{Section, dynamic_loop, loop_over_stream, parallel, repeat, sequential, step};
use crate::{ChunkPolicy, GraphBuilder, Stream};

/// A graph of one walk `w` over the nodes that its steps name.
fn graph(section: impl Into<Section>) -> Arc<Graph> {
    let mut builder = GraphBuilder::new();
    for node in ["a", "b", "c", "d"] {
        builder.node(node, node);
    }
    builder.partition("p").walk("p", "w", section).build().unwrap_or_else(|problems| panic!("{problems}"))
}

fn show(graph: &Graph, commands: &Commands<String>) -> String {
    let inputs = |inputs: &[(Port, Input<String>)]| {
        let show = |(port, input): &(Port, Input<String>)| match input {
            Input::One(value) => format!("{port}={value}"),
            Input::All(values) => format!("{port}=[{}]", values.join(" ")),
            Input::Signal => format!("{port}!"),
        };
        inputs.iter().map(show).collect::<Vec<_>>().join(", ")
    };
    let show = |command: &Command<String>| match command {
        Command::Fire(fire) => {
            let Fire { firing, step, iteration, .. } = fire;
            format!("#{firing} {}[{iteration}]({})", graph.step(*step).name, inputs(&fire.inputs))
        }
        Command::Emit { modality, value, .. } => format!("{modality} {value}"),
        Command::Keep { name, value } => format!("keep {name}={value}"),
        Command::Release { name } => format!("release {name}"),
        Command::Finished { results, stream_ended } => {
            let ended = if *stream_ended { ", stream ended" } else { "" };
            format!("finished({}){ended}", inputs(results))
        }
    };
    commands.iter().map(show).collect::<Vec<_>>().join("; ")
}

/// Runs a walk's events, each `firing: port=value, !signal, /stop, .` (`.`: the chunk was the last),
/// and compares the commands that follow each.
fn check(graph: &Arc<Graph>, inputs: &str, events: &[&str], expected: Expect) {
    let pairs = |text: &str| {
        let words = text.split(", ").filter_map(|word| word.split_once('='));
        words.map(|(port, value)| (Port::from(port), value.to_owned())).collect::<Vec<_>>()
    };
    let walk = graph.find_walk("w").unwrap();
    let kept = |name: &KeptName| Some(format!("kept-{name}"));
    let started = Cursor::start(graph, walk, pairs(inputs), &kept, &|name| (name == "n").then_some(2));
    let (mut cursor, commands) = match started {
        Ok(started) => started,
        Err(error) => return expected.assert_eq(&format!("{error}\n")),
    };
    let mut log = format!("{}\n", show(graph, &commands));
    for event in events {
        let (firing, what) = event.split_once(':').unwrap();
        let mut done = Done::new(FiringId(firing.parse().unwrap()));
        for word in what.split(", ").map(str::trim) {
            done = match word.split_at_checked(1) {
                Some(("!", signal)) => done.signal(signal),
                Some(("/", stop)) => done.stop(stop),
                Some((".", _)) => done.stream_ended(),
                _ => match word.split_once('=') {
                    Some((port, value)) => done.output(port, value.to_owned()),
                    None => done,
                },
            };
        }
        match cursor.done(done) {
            Ok(commands) => log += &format!("{event} -> {}\n", show(graph, &commands)),
            Err(error) => log += &format!("{event} -> error: {error}\n"),
        }
    }
    expected.assert_eq(&log);
}

#[test]
fn a_sequence_has_no_barrier_but_its_edges() {
    let graph = graph(sequential([
        step("a", "x").input("i").to("o", "c.x", "i"),
        step("b", "x").input("i").result("o", "b"),
        step("c", "x").client("o", Modality::Text),
    ]));
    let events = ["0: o=1", "2: o=3", "1: o=2"];
    check(
        &graph,
        "i=0",
        &events,
        expect![[r#"
        #0 a.x[](i=0); #1 b.x[](i=0)
        0: o=1 -> #2 c.x[](i=1)
        2: o=3 -> text 3
        1: o=2 -> finished(b=2)
    "#]],
    );
}

#[test]
fn a_loop_offers_outer_values_again_and_feeds_back_its_own() {
    let body = step("b", "x").input_from("outer", "i").back("o", "b.x", "state").result("o", "last");
    let graph = graph(step("a", "x").to("o", "b.x", "state").then(repeat("l", 3, body)));
    let events = ["0: o=s0", "1: o=s1", "2: o=s2", "3: o=s3"];
    check(
        &graph,
        "i=0",
        &events,
        expect![[r#"
        #0 a.x[]()
        0: o=s0 -> #1 b.x[0](outer=0, state=s0)
        1: o=s1 -> #2 b.x[1](outer=0, state=s1)
        2: o=s2 -> #3 b.x[2](outer=0, state=s2)
        3: o=s3 -> finished(last=s3)
    "#]],
    );
}

#[test]
fn a_stop_ends_the_named_loop_only_and_its_outputs_count() {
    let inner = dynamic_loop("inner", 9, step("a", "x").client("o", Modality::Text).stop("eos", "inner"));
    let graph = graph(dynamic_loop("outer", 2, inner));
    let events = ["0: o=a", "1: o=b, !eos", "2: o=c, /outer", "3: o=d, !eos"];
    check(
        &graph,
        "",
        &events,
        expect![[r#"
        #0 a.x[0.0]()
        0: o=a -> text a; #1 a.x[0.1]()
        1: o=b, !eos -> text b; #2 a.x[1.0]()
        2: o=c, /outer -> text c; #3 a.x[1.1]()
        3: o=d, !eos -> text d; finished()
    "#]],
    );
}

#[test]
fn gathered_outputs_of_all_iterations_leave_nested_loops_in_order() {
    let inner = repeat("inner", 2, step("a", "x").to("o", "b.x", "i").result("p", "p")).gather("a.x", "o");
    let outer = repeat("outer", 2, inner).gather("a.x", "o").gather("a.x", "p");
    let graph = graph(outer.then(step("b", "x")));
    let events = ["0: o=1", "1: o=2, p=x", "2: o=3, p=y", "3: o=4", "4:"];
    check(
        &graph,
        "",
        &events,
        expect![[r#"
            #0 a.x[0.0]()
            0: o=1 -> #1 a.x[0.1]()
            1: o=2, p=x -> #2 a.x[1.0]()
            2: o=3, p=y -> #3 a.x[1.1]()
            3: o=4 -> #4 b.x[](i=[1 2 3 4])
            4: -> finished(p=[x y])
        "#]],
    );
}

#[test]
fn a_step_whose_input_will_not_come_is_passed_over() {
    let graph = graph(sequential([
        step("a", "x").to("o", "b.x", "i").to("o", "c.x", "i").signal("ready", "c.x", "go"),
        step("b", "x").to("o", "d.x", "i"),
        step("c", "x").optional("i"),
        step("d", "x"),
    ]));
    check(
        &graph,
        "",
        &["0: !ready", "1:"],
        expect![[r#"
        #0 a.x[]()
        0: !ready -> #1 c.x[](go!)
        1: -> finished()
    "#]],
    );
    check(
        &graph,
        "",
        &["0: o=1", "1: o=2", "2:"],
        expect![[r#"
        #0 a.x[]()
        0: o=1 -> #1 b.x[](i=1)
        1: o=2 -> #2 d.x[](i=2)
        2: -> finished()
    "#]],
    );
}

#[test]
fn a_loop_over_a_stream_ends_with_it() {
    let body = sequential([step("a", "x").stream_in("i", "s").to("o", "b.x", "i"), step("b", "x")]);
    let graph = GraphBuilder::new()
        .node("a", "a")
        .node("b", "b")
        .node("c", "c")
        .partition("p")
        .partition("q")
        .stream(Stream::new("s", "q", "p", ChunkPolicy::Fixed(1)))
        .walk("p", "w", loop_over_stream("outer", repeat("inner", 9, body)))
        .walk("q", "feed", step("c", "x").stream_out("o", "s"))
        .build()
        .unwrap();
    check(
        &graph,
        "",
        &["0: o=1", "1:", "2: o=2, .", "3:"],
        expect![[r#"
        #0 a.x[0.0]()
        0: o=1 -> #1 b.x[0.0](i=1)
        1: -> #2 a.x[0.1]()
        2: o=2, . -> #3 b.x[0.1](i=2)
        3: -> finished(), stream ended
    "#]],
    );
}

#[test]
fn branches_run_side_by_side_and_their_consumer_joins_them() {
    let branches = parallel([
        step("a", "x").named("left").input("i").optional("again").to("o", "join", "left"),
        step("a", "x").named("right").input("i").to("o", "join", "right"),
    ]);
    let join = step("b", "x").named("join").back("o", "left", "again").result("o", "o");
    let branches = branches.wire("left", "p", crate::Target::Keep("k".into()));
    let graph = graph(repeat("l", Bound::from_request("n", 4), branches.then(join)));
    let events = ["1: o=r0", "0: o=l0, p=k0", "2: o=j0", "3: o=l1", "4: o=r1", "5: o=j1"];
    check(
        &graph,
        "i=0",
        &events,
        expect![[r#"
        #0 left[0](i=0); #1 right[0](i=0)
        1: o=r0 -> 
        0: o=l0, p=k0 -> keep k=k0; #2 join[0](left=l0, right=r0)
        2: o=j0 -> #3 left[1](i=0, again=j0); #4 right[1](i=0)
        3: o=l1 -> 
        4: o=r1 -> #5 join[1](left=l1, right=r1)
        5: o=j1 -> finished(o=j1)
    "#]],
    );
}

#[test]
fn broken_promises_are_named() {
    let body = step("a", "x").input("i").kept("k", "k").keep("o", "k").back("o", "a.x", "i");
    let few = graph(dynamic_loop("l", Bound::from_request("n", 1), body.clone()));
    check(
        &few,
        "i=0",
        &[],
        expect![[r#"
        `n` is 2, but must be from 1 to 1
    "#]],
    );
    let graph = graph(dynamic_loop("l", Bound::from_request("m", 3), body));
    check(
        &graph,
        "",
        &[],
        expect![[r#"
        walk `w` needs input `i`
    "#]],
    );
    check(
        &graph,
        "i=0, j=0",
        &[],
        expect![[r#"
        walk `w` takes no input `j`, or takes it once
    "#]],
    );
    check(
        &graph,
        "i=0",
        &["0: o=1, o=2"],
        expect![[r#"
        #0 a.x[0](i=0, k=kept-k)
        0: o=1, o=2 -> error: step `a.x` gave output `o` twice in one firing
    "#]],
    );
    check(
        &graph,
        "i=0",
        &["0: /other"],
        expect![[r#"
        #0 a.x[0](i=0, k=kept-k)
        0: /other -> error: step `a.x` can't stop loop `other`
    "#]],
    );
    check(
        &graph,
        "i=0",
        &["0: o=1", "0: o=1"],
        expect![[r#"
        #0 a.x[0](i=0, k=kept-k)
        0: o=1 -> keep k=1; #1 a.x[1](i=1, k=kept-k)
        0: o=1 -> error: firing 0 is not in flight
    "#]],
    );
}

#[test]
fn a_loop_that_is_stopped_before_it_begins_has_no_iteration() {
    let body = step("b", "x").back("o", "b.x", "i").to("o", "c.x", "all");
    let walk = sequential([
        Section::from(step("a", "x").input("i").to("o", "b.x", "i").client("t", Modality::Text)),
        dynamic_loop("l", 9, body).gather("b.x", "o").into(),
        step("c", "x").client("o", Modality::Text).into(),
    ]);
    check(
        &graph(walk),
        "i=0",
        &["0: o=1, t=end, /l", "1: o=2"],
        expect![[r#"
            #0 a.x[](i=0)
            0: o=1, t=end, /l -> text end; #1 c.x[](all=[])
            1: o=2 -> text 2; finished()
        "#]],
    );
    let inner = dynamic_loop("l", 9, step("b", "x").back("o", "b.x", "i")).into();
    let first = step("a", "x").input("i").to("o", "b.x", "i").stop("eos", "l");
    let outer = repeat("outer", 2, sequential([Section::from(first), inner]));
    check(
        &graph(outer),
        "i=0",
        &["0: o=1, !eos", "1: o=1", "2: o=2, /l"],
        expect![[r#"
            #0 a.x[0](i=0)
            0: o=1, !eos -> #1 a.x[1](i=0)
            1: o=1 -> #2 b.x[1.0](i=1)
            2: o=2, /l -> finished()
        "#]],
    );
}

#[test]
fn what_leads_only_to_the_client_may_come_several_times() {
    let graph = graph(step("a", "x").input("i").client("o", Modality::Audio));
    check(
        &graph,
        "i=0",
        &["0: o=1, o=2, o=3"],
        expect![[r#"
            #0 a.x[](i=0)
            0: o=1, o=2, o=3 -> audio 1; audio 2; audio 3; finished()
        "#]],
    );
}
