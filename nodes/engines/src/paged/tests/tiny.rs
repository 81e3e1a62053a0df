//! A random Llama small enough to test engines with, on the real kernels.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use mstar_blocks::layers::{BatchRows, CrossAttention, GatedMlp, Heads, SelfAttention, Turn};
use mstar_contract::{
    CrossKv, DecodeBatch, Decoder, Detokenizer, KvGeometry, KvUse, OpDecl, Precision, Prompt, Request, Row, RowError,
    Sampling, Value,
};
use mstar_graph::OpName;
use mstar_kernels::ops::{self, Epilogue, Gain, Input, PackedLinear, RopeAngles, RopePairs};
use mstar_kernels::{Cx, KernelError, KvPages, Tensor};

use crate::random;

const WIDTH: usize = 32;
const INNER: usize = 48;
const LAYERS: usize = 2;
const HEADS: Heads = Heads { queries: 4, keys: 2, width: 8 };
pub(super) const VOCABULARY: usize = 40;
pub(super) const CONTEXT: usize = 72;
pub(super) const END: u32 = 0;
/// A pass over this token panics; it is never sampled.
pub(super) const POISON: u32 = 40;
/// Its character in a prompt.
pub(super) const POISON_TEXT: &str = "\u{1}";

/// What tests watch and stir.
#[derive(Debug, Default)]
pub(super) struct Probe {
    /// How many contexts were prepared.
    pub(super) crossed: AtomicUsize,
    /// So many passes panic after they have written.
    pub(super) hiccups: AtomicUsize,
    /// The most tokens of a pass.
    pub(super) largest: AtomicUsize,
    /// The tokens of the last pass.
    pub(super) latest: AtomicUsize,
}

/// The decoder. With `crosses`, each sequence attends across to its own prompt's embedding.
pub(super) struct Tiny {
    precision: Precision,
    crosses: bool,
    probe: Arc<Probe>,
    embedding: Tensor,
    gain: Tensor,
    layers: Vec<(SelfAttention, CrossAttention, GatedMlp)>,
    head: PackedLinear,
}

struct Letters;

pub(super) fn ops_of_tiny() -> Vec<OpDecl> {
    let outputs = ["token", "text", "detail"];
    vec![
        OpDecl::new("prefill", &["prompt"], &outputs).stops("generate").kv(KvUse::Begin),
        OpDecl::new("decode", &["token"], &outputs).stops("generate").kv(KvUse::Extend),
    ]
}

// --- impl Tiny ---

impl Tiny {
    pub(super) fn new(precision: Precision, crosses: bool, probe: Arc<Probe>) -> Self {
        let mut seed = 0;
        let mut matrix = |rows: usize, width: usize, spread: f32| {
            seed += 1;
            let draw = |i: usize| (random::unit(seed, i as u64) as f32 - 0.5) * spread;
            Tensor::from_f32((0..rows * width).map(draw).collect(), [rows, width]).unwrap()
        };
        let mut packed = |rows, width| ops::pack_linear(&matrix(rows, width, 0.7), None, precision).unwrap();
        let (queries, keys) = (HEADS.queries * HEADS.width, HEADS.keys * HEADS.width);
        let layer = |_| {
            let attention =
                SelfAttention { heads: HEADS, qkv: packed(queries + 2 * keys, WIDTH), out: packed(WIDTH, queries) };
            let cross = CrossAttention {
                heads: HEADS,
                q: packed(queries, WIDTH),
                kv: packed(2 * keys, WIDTH),
                out: packed(WIDTH, queries),
            };
            let mlp = GatedMlp { gate_up: packed(2 * INNER, WIDTH), down: packed(WIDTH, INNER) };
            (attention, cross, mlp)
        };
        let layers = (0..LAYERS).map(layer).collect();
        let embedding = matrix(VOCABULARY, WIDTH, 3.0);
        let head = ops::pack_linear(&matrix(VOCABULARY, WIDTH, 2.0), None, precision).unwrap();
        let gain = Tensor::from_f32(vec![1.0; WIDTH], [WIDTH]).unwrap();
        Self { precision, crosses, probe, embedding, gain, layers, head }
    }

    /// Moves the weights to where the context computes.
    pub(super) fn on(self, cx: &Cx) -> Result<Self, KernelError> {
        let mut layers = Vec::new();
        for (attention, cross, mlp) in self.layers {
            layers.push((
                SelfAttention { heads: HEADS, qkv: attention.qkv.on(cx)?, out: attention.out.on(cx)? },
                CrossAttention { heads: HEADS, q: cross.q.on(cx)?, kv: cross.kv.on(cx)?, out: cross.out.on(cx)? },
                GatedMlp { gate_up: mlp.gate_up.on(cx)?, down: mlp.down.on(cx)? },
            ));
        }
        let (embedding, gain, head) = (self.embedding.on(cx)?, self.gain.on(cx)?, self.head.on(cx)?);
        Ok(Self { embedding, gain, layers, head, ..self })
    }

    fn norm<'a>(&'a self, x: &'a Tensor) -> Input<'a> {
        Input::RmsNorm { x, weight: &self.gain, eps: 1e-5, gain: Gain::Weight }
    }
}

impl Decoder for Tiny {
    fn geometry(&self) -> KvGeometry {
        KvGeometry {
            layers: LAYERS,
            kv_heads: HEADS.keys,
            head_dim: HEADS.width,
            context: CONTEXT,
            precision: self.precision,
        }
    }

    fn prompt(&self, op: &OpName, row: &Row) -> Result<Prompt, RowError> {
        if op.as_str() == "decode" {
            let tokens = row.value("token")?.as_tokens().expect("tests feed tokens").to_vec();
            return Ok(Prompt { tokens, ..Prompt::default() });
        }
        let tokens: Vec<u32> = match row.value("prompt")? {
            Value::Tokens(tokens) => tokens.to_vec(),
            value => {
                let text = value.as_text().expect("tests feed text or tokens");
                let token = |byte: u8| if byte == 1 { POISON } else { 1 + u32::from(byte) % (POISON - 1) };
                text.bytes().map(token).collect()
            }
        };
        let embed = || ops::embedding(&Cx::with_threads(1)?, &self.embedding.to_host()?, &tokens);
        let context = self.crosses.then(embed).transpose()?;
        Ok(Prompt { tokens, context, max_new: None })
    }

    fn cross(&mut self, cx: &Cx, context: &Tensor) -> Result<CrossKv, KernelError> {
        self.probe.crossed.fetch_add(1, Ordering::Relaxed);
        let layers = self.layers.iter().map(|(_, cross, _)| cross.keys_values(cx, context));
        Ok(CrossKv { layers: layers.collect::<Result<_, _>>()?, rows: context.dims()[0] })
    }

    fn forward(&mut self, cx: &Cx, batch: &DecodeBatch<'_>, kv: &mut KvPages) -> Result<Tensor, KernelError> {
        assert!(!batch.tokens.contains(&POISON), "poison");
        self.probe.largest.fetch_max(batch.tokens.len(), Ordering::Relaxed);
        self.probe.latest.store(batch.tokens.len(), Ordering::Relaxed);
        let rows = BatchRows::of(batch);
        let frequencies: Vec<f32> = (0..HEADS.width / 2).map(|i| 0.2f32.powi(i as i32)).collect();
        let angles = RopeAngles::new(&rows.positions, &frequencies);
        let turn = Turn { angles: &angles, pairs: RopePairs::Halves };
        let crossing: Vec<_> =
            batch.rows.iter().filter_map(|row| row.cross.map(|cross| (row.tokens.clone(), cross))).collect();
        let mut x = ops::embedding(cx, &self.embedding, batch.tokens)?;
        for (i, (attention, cross, mlp)) in self.layers.iter().enumerate() {
            x = attention.paged(cx, (self.norm(&x), &x), &rows, Some(turn), (i, kv))?;
            if self.crosses {
                x = cross.forward(cx, (self.norm(&x), &x), &crossing, i)?;
            }
            x = mlp.forward(cx, self.norm(&x), &x)?;
        }
        let hiccup = |left: usize| left.checked_sub(1);
        if self.probe.hiccups.fetch_update(Ordering::Relaxed, Ordering::Relaxed, hiccup).is_ok() {
            panic!("hiccup");
        }
        if rows.wanted.is_empty() {
            return Tensor::from_f32(Vec::new(), [0, VOCABULARY]);
        }
        let last = ops::take_rows(cx, &x, &rows.wanted)?;
        ops::linear_of(cx, self.norm(&last), &self.head, Epilogue::default())
    }

    fn default_sampling(&self) -> Sampling {
        Sampling::default()
    }

    /// A request with the option `deaf` speaks of somebody else's sampling.
    fn sampling(&self, request: &Request) -> Sampling {
        if request.options.contains_key("deaf") { Sampling::default() } else { request.sampling.clone() }
    }

    fn ends(&self, token: u32) -> bool {
        token == END
    }

    fn text(&self) -> Option<Arc<dyn Detokenizer>> {
        Some(Arc::new(Letters))
    }
}

// --- impl Letters ---

impl Detokenizer for Letters {
    fn bytes(&self, token: u32) -> &[u8] {
        const LETTERS: &[u8] = b"_abcdefghijklmnopqrstuvwxyz .,!?";
        match token {
            0 => b"",
            // Bytes of characters, which chance may put together.
            32 => b"\xc3",
            33 => b"\xa4",
            34 => "ß".as_bytes(),
            35 => b"\xf0\x9f",
            token => LETTERS.get(token as usize..=token as usize).unwrap_or("東".as_bytes()),
        }
    }
}
