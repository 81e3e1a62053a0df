//! The walk `transcribe` from a file to its text, on the real weights: the graph's cursor fires, this file computes.

#![expect(clippy::unwrap_used, reason = "a test that finds nothing there has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use mstar_contract::{
    Compute, ComputeCx, CrossKv, DecodeBatch, DecodeRow, Decoder, Gauge, In, LoadCx, Loaded, Media, Model, Precision,
    Request, Row, RowOutput, SequenceView, Task, Value,
};
use mstar_graph::{Command, ComponentId, Cursor, Done, Fire, Input, Modality, OpName};
use mstar_kernels::ops::{self, KvSize};
use mstar_kernels::{Cx, DType, KvPages, Tensor};
use mstar_weights::{Cache, Silent, pull};
use mstar_whisper::{Whisper, components};

/// All nodes, loaded, with one sequence for the decoder.
struct Stage {
    cx: Cx,
    gauge: Arc<Gauge>,
    stateless: BTreeMap<ComponentId, Box<dyn Compute>>,
    decoder: Box<dyn Decoder>,
    pages: KvPages,
    table: Vec<u32>,
    prompt: Vec<u32>,
    sampled: Vec<u32>,
    cross: CrossKv,
    held: usize,
}

/// What the client got.
#[derive(Debug, Default)]
struct Heard {
    text: String,
    segments: Vec<serde_json::Value>,
    windows: usize,
    encoded: usize,
}

impl Stage {
    fn load(precision: Precision) -> Self {
        let weights = pull("whisper_tiny_en", &Cache::in_target_dir(), &mut Silent).unwrap();
        let (cx, gauge) = (Cx::with_threads(2).unwrap(), Gauge::new("test"));
        let (mut stateless, mut decoder) = (BTreeMap::new(), None);
        for component in components() {
            let (dir, cx, gauge) = (weights.path(), &cx, &gauge);
            let load = LoadCx { dir, precision, cx, gauge, audio_seconds: 600, max_output_tokens: 1024 };
            match component.load(&load).unwrap() {
                Loaded::Stateless(compute) => {
                    stateless.insert(component.id(), compute);
                }
                Loaded::Paged(paged) => decoder = Some(paged),
                Loaded::Engine(_) => panic!("whisper brings no engine of its own"),
            }
        }
        let decoder = decoder.unwrap();
        let geometry = decoder.geometry();
        let known = components().iter().find_map(|component| component.kv(precision));
        assert_eq!(known, Some(geometry), "the shape is known before the weights are");
        let pages = geometry.context.div_ceil(16);
        let size = KvSize { layers: geometry.layers, pages, heads: geometry.kv_heads, head_dim: geometry.head_dim };
        Self {
            pages: KvPages::new(size, if precision == Precision::F32 { DType::F32 } else { DType::BF16 }).unwrap(),
            table: (0..pages as u32).collect(),
            cx,
            gauge,
            stateless,
            decoder,
            prompt: vec![],
            sampled: vec![],
            cross: CrossKv::default(),
            held: 0,
        }
    }

    fn transcribe(&mut self, upload: Vec<u8>, options: &[(&str, bool)]) -> Heard {
        let media = Media { modality: Modality::Audio, bytes: upload.into(), field: "file".into() };
        let request = Arc::new(Request {
            media: vec![media],
            outputs: BTreeSet::from([Modality::Text]),
            options: options.iter().map(|&(name, on)| (name.to_owned(), on.into())).collect(),
            ..Request::new("test", "whisper", Task::Transcribe)
        });
        let model = Whisper::new();
        let walk = model.plan(&request).unwrap().begin().remove(0);
        let ix = model.graph().find_walk(walk.walk.as_str()).unwrap();
        let (mut cursor, commands) = Cursor::start(model.graph(), ix, walk.inputs, &|_| None, &|_| None).unwrap();
        let mut heard = Heard::default();
        let mut commands = std::collections::VecDeque::from(commands);
        while let Some(command) = commands.pop_front() {
            match command {
                Command::Fire(fire) => {
                    let step = model.graph().step(fire.step).clone();
                    heard.windows += usize::from(step.op == "window");
                    heard.encoded += usize::from(step.op == "encode");
                    let done = self.fire(&step.component, &step.op, fire, &request);
                    commands.extend(cursor.done(done).unwrap());
                }
                Command::Emit { value: Value::Text(text), .. } => heard.text.push_str(&text),
                Command::Emit { value, .. } => {
                    let detail = value.as_json().unwrap()["segments"].clone();
                    heard.segments.extend(detail.as_array().unwrap().iter().cloned());
                }
                _ => {}
            }
        }
        assert!(cursor.finished());
        heard
    }

    fn fire(&mut self, id: &ComponentId, op: &OpName, fire: Fire<Value>, request: &Arc<Request>) -> Done<Value> {
        let inputs = fire.inputs.into_iter().map(|(port, input)| match input {
            Input::One(value) => (port, In::One(value)),
            Input::All(values) => (port, In::All(values)),
            Input::Signal => (port, In::Signal),
        });
        let row = Row { op: op.clone(), ..Row::new(Arc::clone(request), inputs) };
        let output = match self.stateless.get_mut(id) {
            Some(compute) => {
                let cx = ComputeCx { cx: &self.cx, gauge: &self.gauge, yields: &|| {} };
                compute.run(op, std::slice::from_ref(&row), &cx).remove(0).unwrap()
            }
            None => self.decode(op, &row),
        };
        let done =
            output.outputs.into_iter().fold(Done::new(fire.firing), |done, (port, value)| done.output(port, value));
        output.stops.into_iter().fold(done, Done::stop)
    }

    /// What an engine does for one row: append, bend the logits, take the likeliest.
    fn decode(&mut self, op: &OpName, row: &Row) -> RowOutput {
        let (prompt, params) = (self.decoder.prompt(op, row).unwrap(), &row.params);
        if op == "prefill" {
            (self.prompt, self.sampled, self.held) = (prompt.tokens.clone(), vec![], 0);
            self.cross = self.decoder.cross(&self.cx, &prompt.context.unwrap()).unwrap();
        }
        let tokens = 0..prompt.tokens.len();
        let row = DecodeRow { tokens, position: self.held, pages: &self.table, cross: Some(&self.cross), logits: true };
        let batch = DecodeBatch { tokens: &prompt.tokens, rows: &[row] };
        let mut logits: Tensor = self.decoder.forward(&self.cx, &batch, &mut self.pages).unwrap();
        self.held += prompt.tokens.len();
        let view = SequenceView { prompt: &self.prompt, sampled: &self.sampled, params };
        self.decoder.constrain(logits.f32s_mut().unwrap(), &view);
        let token = ops::argmax(&self.cx, &logits).unwrap()[0];
        self.sampled.push(token);
        let mut output = RowOutput::default();
        output.push("token", Value::token(token));
        if self.decoder.ends(token) {
            output.stops.push("decode".into());
        }
        output
    }
}

fn recording(number: u32) -> Vec<u8> {
    let name = format!("golden/real/sense_and_sensibility_01_austen_64kb-0{number}.wav");
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn wav(samples: &[f32]) -> Vec<u8> {
    mstar_media::encode(mstar_media::AudioFormat::Wav, samples, 16_000).unwrap()
}

const AMIABLE: &str = "He might even have been made amiable himself.";

#[test]
fn audio_of_any_length_becomes_text_and_silence_none() {
    let mut stage = Stage::load(Precision::F32);
    let short = stage.transcribe(recording(930), &[]);
    assert_eq!((short.text.as_str(), short.windows, short.segments.len()), (AMIABLE, 1, 0));

    // With times, the same words.
    let timed = stage.transcribe(recording(930), &[("timestamps", true)]);
    assert_eq!(timed.text, AMIABLE);
    assert_eq!(timed.segments.len(), 1);
    assert!(timed.segments[0]["end"].as_f64().unwrap() > 2.0);

    // Eleven times the sentence, a second apart: 47 s, more than a window.
    let one = mstar_media::decode_audio(&recording(930), &mstar_media::Limits::default()).unwrap().samples;
    let pause = vec![0.0; 16_000];
    let long: Vec<f32> = (0..11).flat_map(|_| one.iter().chain(&pause)).copied().collect();
    let heard = stage.transcribe(wav(&long), &[("timestamps", true)]);
    assert!(heard.windows >= 2);
    assert_eq!(heard.text.matches("amiable himself").count(), 11, "{}", heard.text);
    let times: Vec<f64> =
        heard.segments.iter().flat_map(|s| [s["start"].as_f64().unwrap(), s["end"].as_f64().unwrap()]).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.last().is_some_and(|&last| last > 40.0 && last <= 47.2), "{times:?}");

    // Digital silence says nothing, and nobody listens to it.
    let silence = stage.transcribe(wav(&[0.0; 40_000]), &[]);
    assert_eq!((silence.text.as_str(), silence.windows, silence.encoded), ("", 1, 0));
}

#[test]
fn what_is_said_late_in_a_silence_is_heard() {
    let mut stage = Stage::load(Precision::F32);
    let one = mstar_media::decode_audio(&recording(930), &mstar_media::Limits::default()).unwrap().samples;
    // A room's hiss, 50 dB below full scale; the same every time.
    let hiss = |n: usize| 0.003 * (((n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / 8_388_608.0 - 1.0);
    let quiet = |seconds: usize| (0..seconds * 16_000).map(hiss);
    for seconds in [12, 20, 25] {
        let late: Vec<f32> = quiet(seconds).chain(one.iter().copied()).collect();
        let heard = stage.transcribe(wav(&late), &[]);
        assert_eq!(heard.text, AMIABLE, "after {seconds} s");
    }
}

#[test]
fn eight_bits_hear_the_same_words() {
    let (mut exact, mut rounded) = (Stage::load(Precision::F32), Stage::load(Precision::Q8));
    for number in [880, 930] {
        let heard = exact.transcribe(recording(number), &[]);
        assert!(heard.text.len() > 20, "{}", heard.text);
        assert_eq!(rounded.transcribe(recording(number), &[]).text, heard.text);
    }
}
