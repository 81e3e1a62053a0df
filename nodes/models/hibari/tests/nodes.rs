//! The three nodes by hand, one after the other, on the real weights.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::sync::{Arc, Mutex, OnceLock};

use mstar_contract::{
    Component, Compute, ComputeCx, Gauge, In, ItemChunk, LoadCx, Loaded, Precision, Request, RequestKey, Row, RowError,
    Task, Value,
};
use mstar_graph::Modality;
use mstar_hibari::{AcousticNode, CutterNode, VocoderNode};
use mstar_kernels::Cx;
use mstar_weights::{Cache, Silent, pull};

const TEXT: &str = "The capital of France is Paris. It has 2,100,000 people! Nice 😀, isn't it?";

struct Nodes {
    cx: Cx,
    gauge: Arc<Gauge>,
    cutter: Box<dyn Compute>,
    acoustic: Box<dyn Compute>,
    vocoder: Box<dyn Compute>,
}

fn nodes() -> &'static Mutex<Nodes> {
    static NODES: OnceLock<Mutex<Nodes>> = OnceLock::new();
    NODES.get_or_init(|| {
        let dir = pull("hibari", &Cache::in_target_dir(), &mut Silent).expect("the package can be had");
        let cx = Cx::with_threads(2).unwrap();
        let gauge = Gauge::new("cpu0");
        let load = |component: &dyn Component| {
            let (dir, precision, cx, gauge) = (dir.path(), Precision::F32, &cx, &gauge);
            let load = LoadCx { dir, precision, cx, gauge, audio_seconds: 60, max_output_tokens: 1024 };
            match component.load(&load).unwrap() {
                Loaded::Stateless(compute) => compute,
                Loaded::Paged(_) | Loaded::Engine(_) => panic!("hibari has no pages and no engine of its own"),
            }
        };
        let (cutter, acoustic, vocoder) = (load(&CutterNode), load(&AcousticNode), load(&VocoderNode));
        Mutex::new(Nodes { cx, gauge, cutter, acoustic, vocoder })
    })
}

fn row(id: u64, port: &str, input: In, seed: u64) -> Row {
    let outputs = [Modality::Audio, Modality::Detail].into();
    let request = Request { outputs, seed, ..Request::new("r", "hibari", Task::Speak) };
    Row { key: RequestKey { id, attempt: 0 }, ..Row::new(Arc::new(request), [(port.into(), input)]) }
}

/// The items as `Fixed(1)` hands them over; `last` comes with an empty chunk.
fn chunks(items: &[Value]) -> Vec<In> {
    let mut chunks: Vec<In> = items
        .iter()
        .zip(0..)
        .map(|(item, start)| In::Chunk(ItemChunk { items: vec![item.clone()], start, context: 0, last: false }))
        .collect();
    chunks.push(In::Chunk(ItemChunk { items: Vec::new(), start: items.len() as u64, context: 0, last: true }));
    chunks
}

impl Nodes {
    fn feed(&mut self, which: &str, inputs: Vec<In>, id: u64) -> Result<Vec<(String, Value)>, RowError> {
        let (node, op, port) = match which {
            "cutter" => (&mut self.cutter, "cut", "text"),
            "acoustic" => (&mut self.acoustic, "say", "sentence"),
            _ => (&mut self.vocoder, "render", "block"),
        };
        let cx = ComputeCx { cx: &self.cx, gauge: &self.gauge, yields: &|| {} };
        let mut outputs = Vec::new();
        for input in inputs {
            let mut results = node.run(&op.into(), &[row(id, port, input, 5)], &cx);
            let output = results.remove(0)?;
            outputs.extend(output.outputs.into_iter().map(|(port, value)| (port.to_string(), value)));
        }
        Ok(outputs)
    }

    fn speak(&mut self, text: Vec<In>, id: u64) -> (Vec<f32>, Vec<Value>) {
        let of = |outputs: Vec<(String, Value)>, wanted: &str| -> Vec<Value> {
            outputs.into_iter().filter(|(port, _)| port == wanted).map(|(_, value)| value).collect()
        };
        let sentences = of(self.feed("cutter", text, id).unwrap(), "sentence");
        let said = self.feed("acoustic", chunks(&sentences), id).unwrap();
        let unread = of(said.clone(), "unread");
        let audio = of(self.feed("vocoder", chunks(&of(said, "block")), id).unwrap(), "audio");
        let samples = audio.iter().flat_map(|value| value.as_tensor().unwrap().f32s().unwrap().to_vec()).collect();
        (samples, unread)
    }
}

#[test]
fn a_text_without_a_sound_is_refused() {
    let mut nodes = nodes().lock().unwrap();
    let silent = nodes.feed("vocoder", chunks(&[]), 40);
    assert!(matches!(silent, Err(RowError::Invalid { ref field, .. }) if field == "input"), "{silent:?}");
}

#[test]
fn text_in_pieces_sounds_as_the_whole_text_and_nothing_stays_behind() {
    let mut nodes = nodes().lock().unwrap();
    let before = nodes.gauge.live();
    let (whole, unread) = nodes.speak(vec![In::One(Value::text(TEXT))], 1);
    assert!(whole.len() > 24_000 * 3, "{} samples", whole.len());
    assert!(whole.iter().all(|sample| sample.is_finite() && sample.abs() < 2.0));
    assert_eq!(unread[0].as_json().unwrap()["unread"], "😀");
    let pieces: Vec<Value> = TEXT.split_inclusive(' ').map(Value::text).collect();
    let (streamed, _) = nodes.speak(chunks(&pieces), 2);
    assert_eq!(streamed, whole);
    for id in [1, 2] {
        let key = RequestKey { id, attempt: 0 };
        nodes.cutter.retire(key);
        nodes.vocoder.retire(key);
    }
    drop(unread);
    assert_eq!((nodes.cutter.held(), nodes.vocoder.held(), nodes.gauge.live()), (0, 0, before));
}

#[test]
fn a_sentence_that_becomes_very_long_is_spoken_in_parts() {
    let mut nodes = nodes().lock().unwrap();
    // Each sign is five words: thousands of phonemes in a sentence of 120 characters.
    let signs = "^ ".repeat(60);
    let (samples, unread) = nodes.speak(vec![In::One(Value::text(&*signs))], 30);
    assert!(samples.len() > 24_000 * 30 && unread.is_empty(), "{} samples, {unread:?}", samples.len());
    nodes.cutter.retire(RequestKey { id: 30, attempt: 0 });
    nodes.vocoder.retire(RequestKey { id: 30, attempt: 0 });
}

#[test]
fn a_row_with_a_wrong_item_fails_alone() {
    let mut nodes = nodes().lock().unwrap();
    let good = row(8, "sentence", In::One(Value::text("Fine.")), 1);
    let bad = row(9, "sentence", In::One(Value::token(3)), 1);
    let Nodes { acoustic, cx, gauge, .. } = &mut *nodes;
    let results = acoustic.run(&"say".into(), &[bad, good], &ComputeCx { cx, gauge, yields: &|| {} });
    assert!(results[0].is_err() && results[1].as_ref().is_ok_and(|output| !output.outputs.is_empty()));
    assert!(nodes.feed("vocoder", vec![In::One(Value::text("no block"))], 9).is_err());
}
