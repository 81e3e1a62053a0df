//! The shapes of real models' graphs can be declared, and do what those models need.

use std::sync::Arc;

use mstar_graph::{
    AtEnd, Bound, ChunkPolicy, Command, Commands, Cursor, Done, Fire, Graph, GraphBuilder, GraphProblems, Input,
    Modality, Port, Section, Stream, dynamic_loop, loop_over_stream, parallel, repeat, sequential, step,
};

/// Walks `walk`, one firing after the other; `act` says what each gives.
fn walk_through(
    graph: &Arc<Graph>,
    walk: &str,
    inputs: &[&str],
    mut act: impl FnMut(&str, &Fire<String>, Done<String>) -> Done<String>,
) -> Commands<String> {
    let walk = graph.find_walk(walk).expect("the walk is declared");
    let inputs = inputs.iter().map(|name| (Port::from(*name), (*name).to_owned())).collect();
    let kept = |name: &mstar_graph::KeptName| Some(format!("kept {name}"));
    let (mut cursor, mut commands) = Cursor::start(graph, walk, inputs, &kept, &|_| None).expect("inputs are right");
    let mut log = Vec::new();
    let mut waiting = std::collections::VecDeque::new();
    loop {
        for command in commands {
            match command {
                Command::Fire(fire) => waiting.push_back(fire),
                other => log.push(other),
            }
        }
        let Some(fire) = waiting.pop_front() else { return log };
        let done = act(graph.step(fire.step).name.as_str(), &fire, Done::new(fire.firing));
        commands = cursor.done(done).expect("ops keep their promises");
    }
}

fn emitted(log: &Commands<String>) -> Vec<(Modality, &str)> {
    let emitted = log.iter().filter_map(|command| match command {
        Command::Emit { modality, value, .. } => Some((*modality, value.as_str())),
        _ => None,
    });
    emitted.collect()
}

/// Thinker, talker and decoder in three partitions; the talker outlives the thinker.
fn omni() -> Result<Arc<Graph>, GraphProblems> {
    let think = dynamic_loop(
        "thinking",
        Bound::from_request("max_tokens", 2048),
        step("thinker", "decode")
            .kept("token", "first token")
            .back("token", "thinker.decode", "token")
            .client("text", Modality::Text)
            .stream_out("states", "states")
            .stop("eos", "thinking"),
    );
    let encode = parallel([
        step("vision", "encode").input("image").to("embeddings", "thinker.prefill", "image"),
        step("audio", "encode").input("audio").to("embeddings", "thinker.prefill", "audio"),
    ]);
    let prefill = step("thinker", "prefill").input("text").keep("token", "first token").stream_out("states", "states");
    let talk = step("talker", "prefill")
        .stream_in("state", "states")
        .to("code", "talker.decode", "code")
        .stream_out("code", "codes")
        .then(dynamic_loop(
            "talking",
            Bound::from_request("max_audio_tokens", 4096),
            step("talker", "decode")
                .stream_in("state", "states")
                .back("code", "talker.decode", "code")
                .stream_out("code", "codes")
                .stop("eos", "talking"),
        ));
    let vocode = step("codec", "decode").stream_in("codes", "codes").client("audio", Modality::Audio);
    let mut builder = GraphBuilder::new();
    for node in ["vision", "audio", "thinker", "talker", "codec"] {
        builder.node(node, format!("omni.{node}"));
    }
    builder
        .partition("thinker")
        .partition("talker")
        .partition("codec")
        .stream(Stream::new("states", "thinker", "talker", ChunkPolicy::Fixed(1)).at_end(AtEnd::KeepRunning))
        .stream(Stream::new("codes", "talker", "codec", ChunkPolicy::LeftContext { chunk: 25, left: 25 }))
        .walk("thinker", "prefill", encode.then(prefill))
        .walk("thinker", "think", think)
        .release("think", "first token")
        .walk("talker", "talk", talk)
        .walk("codec", "vocode", loop_over_stream("chunks", vocode))
        .build()
}

#[test]
fn a_thinker_a_talker_and_a_codec_stream_to_each_other() {
    let graph = omni().unwrap_or_else(|problems| panic!("{problems}"));
    let log = walk_through(&graph, "think", &[], |_, fire, done| {
        let done = done.output("text", format!("t{}", fire.iteration));
        if fire.iteration.innermost() == 2 { done.signal("eos") } else { done.output("token", String::new()) }
    });
    assert_eq!(emitted(&log), [(Modality::Text, "t0"), (Modality::Text, "t1"), (Modality::Text, "t2")]);
    assert!(matches!(&log[3..], [Command::Release { name }, Command::Finished { .. }] if *name == "first token"));

    let mut talked = 0;
    walk_through(&graph, "talk", &[], |_, _, done| {
        talked += 1;
        if talked == 40 { done.signal("eos") } else { done.output("code", String::new()) }
    });
    assert_eq!(talked, 40);

    let mut chunks = 0;
    let log = walk_through(&graph, "vocode", &[], |_, _, done| {
        chunks += 1;
        let done = done.output("audio", format!("a{chunks}"));
        if chunks == 3 { done.stream_ended() } else { done }
    });
    assert_eq!(emitted(&log).len(), 3);
    assert!(matches!(log.last(), Some(Command::Finished { stream_ended: true, .. })));
}

#[test]
fn guidance_branches_join_in_every_step_of_a_denoising_loop() {
    let branch = |name: &str| {
        let branch = step("llm", "velocity").named(name).input_from("latents", "noise");
        branch.to("velocity", "combine", name)
    };
    let combine = step("combine", "euler")
        .named("combine")
        .back("latents", "plain", "latents")
        .back("latents", "no text", "latents")
        .back("latents", "no image", "latents")
        .to("latents", "vae.decode", "latents");
    let branches = parallel([branch("plain"), branch("no text"), branch("no image")]);
    let denoise = repeat("denoise", 49, branches.then(combine));
    let graph = GraphBuilder::new()
        .node("llm", "bagel.llm")
        .node("combine", "bagel.combine")
        .node("vae", "bagel.vae")
        .partition("main")
        .walk("main", "image", denoise.then(step("vae", "decode").client("image", Modality::Image)))
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"));
    let mut velocities = 0;
    let log = walk_through(&graph, "image", &["noise"], |name, fire, done| match name {
        "vae.decode" => done.output("image", fire.inputs[0].1.one().cloned().unwrap_or_default()),
        "combine" => {
            assert_eq!(fire.inputs.len(), 3);
            done.output("latents", format!("x{}", fire.iteration.innermost()))
        }
        _ => {
            velocities += 1;
            let before = fire.iteration.innermost().checked_sub(1).map_or("noise".to_owned(), |i| format!("x{i}"));
            assert_eq!(fire.inputs, [(Port::from("latents"), Input::One(before))]);
            done.output("velocity", String::new())
        }
    });
    assert_eq!(velocities, 3 * 49);
    assert_eq!(emitted(&log), [(Modality::Image, "x48")]);
}

#[test]
fn a_rollout_gives_all_its_steps_together_or_one_by_one() {
    let predict = || {
        let predict = step("predictor", "predict").input("hidden");
        predict.back("hidden", "predictor.predict", "hidden").result("hidden", "all")
    };
    let bound = || Bound::from_request("rollout_horizon", 16);
    let graph = GraphBuilder::new()
        .node("predictor", "vjepa.predictor")
        .partition("main")
        .walk("main", "together", repeat("rollout", bound(), predict()).gather("predictor.predict", "hidden"))
        .walk("main", "one by one", repeat("rollout", bound(), predict().client("hidden", Modality::Tensor)))
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"));
    let predict = |_: &str, fire: &Fire<String>, done: Done<String>| done.output("hidden", fire.iteration.to_string());
    let all: Vec<String> = (0..16).map(|i| i.to_string()).collect();
    let Some(Command::Finished { results, .. }) = walk_through(&graph, "together", &["hidden"], predict).pop() else {
        panic!("the walk ends")
    };
    assert_eq!(results, [(Port::from("all"), Input::All(all.clone()))]);
    let mut log = walk_through(&graph, "one by one", &["hidden"], predict);
    assert_eq!(emitted(&log).iter().map(|(_, value)| *value).collect::<Vec<_>>(), all);
    let Some(Command::Finished { results, .. }) = log.pop() else { panic!("the walk ends") };
    assert_eq!(results, [(Port::from("all"), Input::One("15".to_owned()))]);
}

#[test]
fn a_recording_of_any_length_is_transcribed_window_by_window() {
    let window = sequential([
        Section::from(
            step("ears", "encode")
                .input("audio")
                .optional("offset")
                .to("states", "ears.decode", "states")
                .to("states", "ears.advance", "states")
                .stop("over", "windows"),
        ),
        dynamic_loop(
            "words",
            Bound::Fixed(444),
            step("ears", "decode")
                .client("text", Modality::Text)
                .to("time", "ears.advance", "time")
                .stop("eot", "words"),
        )
        .into(),
        step("ears", "advance").back("offset", "ears.encode", "offset").into(),
    ]);
    let graph = GraphBuilder::new()
        .node("ears", "whisper.ears")
        .partition("main")
        .walk("main", "transcribe", dynamic_loop("windows", Bound::Fixed(10_000), window))
        .build()
        .unwrap_or_else(|problems| panic!("{problems}"));
    let mut offsets = Vec::new();
    let log = walk_through(&graph, "transcribe", &["audio"], |name, fire, done| match name {
        "ears.encode" => {
            offsets.push(fire.inputs.iter().find(|(port, _)| *port == "offset").and_then(|(_, o)| o.one().cloned()));
            let done = done.output("states", String::new());
            if offsets.len() == 3 { done.signal("over") } else { done }
        }
        "ears.decode" => {
            let at = fire.iteration.to_string();
            let done = done.output("text", at.clone()).output("time", at);
            if fire.iteration.innermost() == 1 { done.signal("eot") } else { done }
        }
        _ => done.output("offset", fire.inputs[1].1.one().cloned().unwrap_or_default()),
    });
    assert_eq!(offsets, [None, Some("0.1".to_owned()), Some("1.1".to_owned())]);
    let words: Vec<&str> = emitted(&log).iter().map(|(_, text)| *text).collect();
    assert_eq!(words, ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"]);
}
