//! Every problem is reported, all at once, each with its path.

use expect_test::{Expect, expect};

use crate::{
    AtEnd, Bound, ChunkPolicy, ComponentId, Fragment, GraphBuilder, GraphProblems, KeptName, Modality, NodeName,
    OpPorts, Section, Source, Stream, Target, dynamic_loop, loop_over_stream, parallel, repeat, sequential, step,
};

/// Builds walk `w` of partition `p` over nodes `a` to `d`, and compares its problems.
fn check(section: impl Into<Section>, expected: Expect) {
    let mut builder = nodes();
    builder.partition("p").walk("p", "w", section);
    check_built(&builder, expected);
}

fn nodes() -> GraphBuilder {
    let mut builder = GraphBuilder::new();
    for node in ["a", "b", "c", "d"] {
        builder.node(node, format!("component.{node}"));
    }
    builder
}

fn check_built(builder: &GraphBuilder, expected: Expect) {
    let shown = builder.build().map_or_else(|problems| show(&problems), |_| "sound\n".to_owned());
    expected.assert_eq(&shown);
}

fn show(problems: &GraphProblems) -> String {
    problems.iter().map(|problem| format!("{:?}: {problem}\n", problem.kind)).collect()
}

#[test]
fn unknown_and_duplicate_names_are_reported_together() {
    let mut builder = nodes();
    builder
        .node("a", "other")
        .partition("p")
        .partition("p")
        .partition("idle")
        .stream(Stream::new("s", "p", "nowhere", ChunkPolicy::Fixed(1)))
        .stream(Stream::new("s", "p", "q", ChunkPolicy::Fixed(1)))
        .walk(
            "p",
            "w",
            sequential([
                step("a", "x").to("o", "nobody", "i").stream_out("o", "unheard"),
                step("ghost", "x").kept("k", "lost"),
                step("b", "x").named("a.x").optional("never"),
            ]),
        )
        .walk("p", "w", step("a", "x"))
        .walk("mars", "far", repeat("l", 2, repeat("l", 2, step("a", "x"))))
        .release("w", "lost")
        .release("gone", "lost");
    check_built(
        &builder,
        expect![[r#"
        Duplicate: node `a`: declared for component `component.a` and again for `other`
        Duplicate: partition `p`: declared twice
        Duplicate: stream `s`: declared twice
        Duplicate: walk `w` / step `a.x`: another step of the walk has this name
        Unknown: walk `w` / step `ghost.x`: node `ghost` is not declared
        Unknown: walk `w` / step `a.x` / output `o`: step `nobody` is not in the walk
        Unknown: walk `w` / step `a.x`: optional input `never` is fed by nothing at all
        Unknown: walk `w` / step `a.x`: port `o`: stream `unheard` is not declared
        Duplicate: walk `w`: another walk has this name
        Unknown: walk `far`: partition `mars` is not declared
        Duplicate: walk `far` / loop `l` / loop `l`: another loop of the walk has this name
        Empty: partition `idle`: no walk belongs to it
        Kept: walk `w`: takes kept value `lost`, which no step keeps
        Kept: walk `w`: releases kept value `lost`, which no step keeps
        Unknown: walk `gone`: is to release `lost`, but isn't declared
        Unknown: stream `s`: partition `q` is not declared
        Stream: stream `s`: has no producer
        Stream: stream `s`: has no consumer
    "#]],
    );
}

#[test]
fn edges_run_forwards_and_feed_an_input_once() {
    check(
        sequential([
            step("a", "x").optional("i").to("o", "a.x", "i").to("o", "c.x", "i"),
            step("b", "x").optional("i").to("o", "a.x", "i").to("o", "c.x", "i"),
            step("c", "x").input("j").input_from("j", "i").result("o", "r").result("o2", "r"),
        ]),
        expect![[r#"
            FedTwice: walk `w` / step `c.x`: input `j` has two sources
            Order: walk `w` / step `a.x` / output `o`: feeds step `a.x`, which comes before it or is itself: a cycle, unless it's a loop-back
            Order: walk `w` / step `b.x` / output `o`: feeds step `a.x`, which comes before it or is itself: a cycle, unless it's a loop-back
            FedTwice: walk `w` / step `a.x` / input `i`: two outputs feed it in one iteration
            FedTwice: walk `w` / step `c.x` / input `i`: two outputs feed it in one iteration
            Unknown: walk `w` / step `b.x`: optional input `i` is fed by nothing at all
            FedTwice: walk `w`: result `r` is given twice
        "#]],
    );
    check(
        parallel([step("a", "x").to("o", "b.x", "i"), step("b", "x").back("o", "a.x", "i").stream_in("s", "s")]),
        expect![[r#"
            Order: walk `w` / step `a.x` / output `o`: feeds step `b.x`, which runs in parallel to it
            LoopBack: walk `w` / step `b.x` / output `o`: a loop-back to step `a.x`, but no loop is around both
            Unknown: walk `w` / step `b.x`: port `s`: stream `s` is not declared
        "#]],
    );
    let twice = step("a", "x").input("i").back("o", "b.x", "i").then(step("b", "x").back("o", "b.x", "i"));
    check(
        repeat("l", 2, twice.wire("a.x", "o", Target::step("b.x", "i"))),
        expect![[r#"
        FedTwice: walk `w` / loop `l` / step `b.x` / input `i`: a loop-back feeds it, and so does an edge of the same iteration
        FedTwice: walk `w` / loop `l` / step `b.x` / input `i`: two loop-backs of one loop feed it
        NeverFed: walk `w` / loop `l` / step `b.x`: input `i` is fed by a loop-back only, never in the first iteration
    "#]],
    );
}

#[test]
fn steps_that_can_never_fire_are_reported_with_those_that_wait_for_them() {
    let body = sequential([
        step("a", "x").input("i").to("o", "b.x", "i"),
        step("b", "x").to("o", "c.x", "i"),
        step("c", "x").back("o", "b.x", "state").to("o", "d.x", "i"),
    ]);
    check(
        repeat("l", 2, body).then(step("d", "x")),
        expect![[r#"
        NeverFed: walk `w` / loop `l` / step `b.x`: input `state` is fed by a loop-back only, never in the first iteration
        Unreachable: walk `w` / loop `l` / step `c.x`: can't fire, because step `b.x` can't
        Unreachable: walk `w` / step `d.x`: can't fire, because step `c.x` can't
    "#]],
    );
}

#[test]
fn loops_have_bounds_and_stops_and_gathers_that_make_sense() {
    let inner = repeat("inner", 0, step("a", "x").stop("eos", "inner").stop("eos", "other").to("o", "b.x", "i"))
        .gather("a.x", "o")
        .gather("a.x", "p")
        .gather("c.x", "o");
    let outer = dynamic_loop("outer", Bound::from_request("n", 0), inner.then(step("b", "x")));
    let outer = outer.gather("a.x", "o");
    check(
        sequential([
            outer.into(),
            loop_over_stream("l", Section::Parallel(Vec::new())).into(),
            Section::from(step("c", "x")),
        ]),
        expect![[r#"
            Bound: walk `w` / loop `outer`: `n` is limited to zero iterations
            Bound: walk `w` / loop `outer` / loop `inner`: a loop of zero iterations
            Empty: walk `w` / loop `l`: a section without members
            Stop: walk `w` / loop `outer` / loop `inner` / step `a.x`: stops loop `inner`, which takes no stop signal
            Stop: walk `w` / loop `outer` / loop `inner` / step `a.x`: stops loop `other`, which isn't around it
            Gather: walk `w` / loop `outer`: gathers output `o` of step `a.x`, of which no edge leaves the loop
            Gather: walk `w` / loop `outer` / loop `inner`: gathers output `p` of step `a.x`, of which no edge leaves the loop
            Gather: walk `w` / loop `outer` / loop `inner`: gathers from step `c.x`, which isn't in the loop
            Bound: walk `w` / loop `l`: runs until a stream ends, but no step in it takes a stream that ends
        "#]],
    );
}

#[test]
fn streams_join_two_partitions_with_one_node_at_either_end() {
    let mut builder = nodes();
    builder
        .partition("p")
        .partition("q")
        .stream(Stream::new("good", "p", "q", ChunkPolicy::LeftContext { chunk: 4, left: 4 }))
        .stream(Stream::new("own", "p", "p", ChunkPolicy::Fixed(0)))
        .stream(Stream::new("two", "p", "q", ChunkPolicy::LeftContext { chunk: 4, left: 5 }))
        .stream(Stream::new("wrong", "q", "p", ChunkPolicy::SlidingWindow { window: 3, stride: 4 }))
        .stream(Stream::new("poor", "p", "q", ChunkPolicy::SlidingWindow { window: 28, stride: 7 }).credit(27))
        .stream(Stream::new("endless", "p", "q", ChunkPolicy::Fixed(1)).at_end(AtEnd::KeepRunning))
        .walk(
            "p",
            "first",
            sequential([
                step("a", "x").stream_out("o", "good").stream_out("o", "own").stream_out("o", "two"),
                step("b", "x").stream_out("o", "two").stream_in("i", "own").stream_out("o", "wrong"),
                step("b", "y").stream_out("o", "poor").stream_out("o", "endless"),
            ]),
        )
        .walk("p", "second", step("a", "y").stream_out("o", "good"))
        .walk(
            "q",
            "third",
            sequential([
                Section::from(loop_over_stream("l", step("c", "x").stream_in("i", "endless"))),
                step("c", "y").stream_in("i", "good").stream_in("j", "two").stream_in("k", "wrong").into(),
            ]),
        );
    check_built(
        &builder,
        expect![[r#"
        Chunk: stream `own`: chunks of zero items
        Stream: stream `own`: stays within partition `p`
        Chunk: stream `two`: a left context of 5 exceeds the chunk of 4
        Stream: stream `two`: has more than one producer: nodes `a`, `b`
        Chunk: stream `wrong`: a stride of 4 skips items of a window of 3
        Stream: stream `wrong`: its producer is of partition `q`, but step `b.x` of walk `first` is of partition `p`
        Stream: stream `wrong`: its consumer is of partition `p`, but step `c.y` of walk `third` is of partition `q`
        Chunk: stream `poor`: a credit of 27 items never lets a chunk of 28 arrive
        Stream: stream `poor`: has no consumer
        Bound: walk `third` / loop `l`: runs until a stream ends, but no step in it takes a stream that ends
    "#]],
    );
}

#[test]
fn ports_are_compared_with_what_components_declare() {
    let graph = nodes()
        .partition("p")
        .walk(
            "p",
            "w",
            dynamic_loop(
                "l",
                2,
                sequential([
                    step("a", "x").input("i").input("j").optional("j").to("o", "b.x", "i").stop("eos", "l"),
                    step("b", "x").signal("eos", "c.x", "go").client("text", Modality::Text),
                    step("c", "x"),
                ]),
            ),
        )
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"));
    let sound = |_: &ComponentId, _: &_| {
        Some(OpPorts::new([], ["o", "text"], ["eos"]).with_optional("i").with_optional("j").with_optional("go"))
    };
    assert_eq!(graph.check_ports(sound), Ok(()));
    let problems = graph.check_ports(|component, _| match component.as_str() {
        "component.a" => Some(OpPorts::new(["j", "k"], ["p"], ["end"])),
        "component.b" => Some(OpPorts::new(["i"], ["text", "eos"], [])),
        _ => None,
    });
    expect![[r#"
        Ports: walk `w` / step `a.x`: op `x` of component `component.a` has no input `i`
        Ports: walk `w` / step `a.x`: op `x` of component `component.a` doesn't run without its input `j`
        Ports: walk `w` / step `a.x`: input `k` of op `x` of component `component.a` is never fed
        Ports: walk `w` / step `a.x`: op `x` of component `component.a` has no output `o`
        Ports: walk `w` / step `a.x`: op `x` of component `component.a` has no signal `eos`
        Unknown: walk `w` / step `c.x`: component `component.c` has no op `x`
    "#]]
    .assert_eq(&show(&problems.expect_err("components and graph differ")));
}

/// A transcriber as its model exports it.
fn fragment() -> Fragment {
    let section = step("ears", "encode").input("audio").to("states", "ears.decode", "states").then(dynamic_loop(
        "words",
        9,
        step("ears", "decode").client("text", Modality::Text).stop("eos", "words"),
    ));
    Fragment { section, nodes: vec![("ears".into(), "whisper.ears".into())], streams: Vec::new() }
}

#[test]
fn fragments_are_included_twice_and_wired_from_outside() {
    let mut builder = nodes();
    let once = builder.include(fragment()).prefixed("first ");
    let once = once.feed("first ears.encode", "audio", Source::Kept(KeptName::from("recording")));
    let again = builder.include(fragment()).prefixed("second ").open("second ears.encode", "audio");
    let again = again.wire("second ears.decode", "text", Target::Keep("recording".into()));
    let section = sequential([once, step("a", "x").to("o", "second ears.encode", "audio").into(), again]);
    let graph = builder.partition("p").walk("p", "w", section).build().unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(graph.component(&NodeName::from("ears")), Some(&ComponentId::from("whisper.ears")));
    let names: Vec<&str> = graph.steps().map(|(_, step)| step.name.as_str()).collect();
    assert_eq!(names, ["first ears.encode", "first ears.decode", "a.x", "second ears.encode", "second ears.decode"]);
    assert_eq!(graph.walk(crate::WalkIx(0)).takes, ["recording"]);
    assert!(graph.walk(crate::WalkIx(0)).inputs.is_empty());

    let section = fragment().section.wire("mouth.say", "o", Target::Client(Modality::Audio)).open("ears.decode", "i");
    builder.walk("p", "v", section);
    check_built(
        &builder,
        expect![[r#"
        Unknown: walk `v`: step `mouth.say` is wired, but isn't in the section
        Unknown: walk `v` / loop `words` / step `ears.decode`: input `i` is to be opened, but has no source
    "#]],
    );
}
