//! `whisper.decoder`: writes what is said in a window. Its ops are `prefill`, which begins a window's transcript, and
//! `decode`, which goes on with the `token` sampled last.

use std::collections::BTreeMap;

use mstar_blocks::Tokenizer;
use mstar_contract::{
    Component, CrossKv, DecodeBatch, Decoder, Invalid, KvGeometry, KvUse, LoadCx, LoadError, Loaded, OpDecl, Precision,
    Prompt, Recovery, Row, RowError, Sampling, SequenceView, WeightSource,
};
use mstar_graph::{ComponentId, OpName};
use mstar_kernels::{Cx, KernelError, KvPages, Tensor};
use mstar_weights::WeightFile;

use super::{PACKAGE, Window, broken, tokenizer};
use crate::options::{Options, samples_transcript};
use crate::rules::{RuleOptions, log_sum};
use crate::{Config, DecoderNetwork, Specials};

/// The loop that both ops may end.
pub(crate) const DECODE: &str = "decode";

/// The component `whisper.decoder`.
pub struct Decode;

struct WhisperDecoder {
    network: DecoderNetwork,
    config: Config,
    specials: Specials,
    tokenizer: Tokenizer,
    precision: Precision,
    /// Log-probability of silence of each live sequence, by its first page. It is known where the start token is read,
    /// and wanted where the first word is sampled, which may be another pass.
    silence: BTreeMap<u32, f32>,
}

// --- impl Decode ---

impl Decode {
    /// The component's id.
    pub const ID: &'static str = "whisper.decoder";
}

impl Component for Decode {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![
            OpDecl::new("prefill", &["context", "window"], &["token"]).stops(DECODE).kv(KvUse::Begin),
            OpDecl::new("decode", &["token"], &["token"]).stops(DECODE).kv(KvUse::Extend),
        ]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Replay
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn kv(&self, precision: Precision) -> Option<KvGeometry> {
        Some(KvGeometry { layers: 4, kv_heads: 6, head_dim: 64, context: 448, precision })
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let file = WeightFile::open(cx.dir).map_err(broken(Self::ID))?;
        let config = Config::read(cx.dir, &file).map_err(broken(Self::ID))?;
        let tokenizer = tokenizer(cx.dir).map_err(broken(Self::ID))?;
        let specials = Specials::read(cx.dir, &config, Some(&tokenizer)).map_err(broken(Self::ID))?;
        let network = DecoderNetwork::load(&config, &file, cx.precision).map_err(broken(Self::ID))?;
        let (precision, silence) = (cx.precision, BTreeMap::new());
        Ok(Loaded::Paged(Box::new(WhisperDecoder { network, config, specials, tokenizer, precision, silence })))
    }
}

// --- impl WhisperDecoder ---

impl WhisperDecoder {
    /// Returns the tokens that open a window's transcript: perhaps text before it, the start, and, as far as they are
    /// known, language, task and whether times are wanted.
    fn opening(&self, window: &Window, options: &Options) -> Result<Vec<u32>, RowError> {
        let specials = &self.specials;
        let mut tokens = self.before(options)?;
        tokens.push(specials.start);
        if specials.multilingual() {
            let Some(code) = options.language.as_ref().or(window.heard.language.as_ref()) else {
                return Ok(tokens);
            };
            let stranger =
                || Invalid::new("model_kwargs.language", format!("this checkpoint knows no language {code}"));
            tokens.push(specials.language(code).ok_or_else(stranger)?);
            tokens.extend(if options.translate { specials.translate } else { specials.transcribe });
        } else if options.language.as_ref().is_some_and(|code| code != "en") || options.translate {
            let field = if options.translate { "task" } else { "language" };
            return Err(
                Invalid::new(format!("model_kwargs.{field}"), "this checkpoint writes down English only").into()
            );
        }
        if !window.timestamps {
            tokens.extend(specials.no_timestamps);
        }
        Ok(tokens)
    }

    /// Returns the end of the text that the request says comes before the audio.
    fn before(&self, options: &Options) -> Result<Vec<u32>, RowError> {
        let (Some(text), Some(previous)) = (&options.prompt, self.specials.previous) else {
            return Ok(Vec::new());
        };
        let text = format!(" {}", text.trim());
        let tokens = self.tokenizer.encode(&text);
        let tokens = tokens.map_err(|error| Invalid::new("model_kwargs.prompt", error.to_string()))?;
        let words: Vec<u32> = tokens.into_iter().filter(|&token| token < self.specials.end).collect();
        let first = words.len().saturating_sub((self.config.context / 2).saturating_sub(1));
        Ok(std::iter::once(previous).chain(words[first..].iter().copied()).collect())
    }

    /// Notes how likely silence is where start tokens were read, and writes it into the place of the silence token of
    /// the logits, which is never sampled: [`Decoder::constrain`] sees it there.
    fn note_silence(
        &mut self,
        batch: &DecodeBatch<'_>,
        starts: &[(usize, u32)],
        logits: &Tensor,
        wanted: usize,
    ) -> Result<Tensor, KernelError> {
        let Some(place) = self.specials.no_speech.map(|token| token as usize) else { return logits.rows(0..wanted) };
        let width = logits.shape().width();
        let items = logits.f32s()?;
        for (i, &(_, page)) in starts.iter().enumerate() {
            let row = &items[(wanted + i) * width..][..width];
            self.silence.insert(page, row.get(place).map_or(f32::NEG_INFINITY, |logit| logit - log_sum(row)));
        }
        let mut out = logits.rows(0..wanted)?;
        let rows = batch.rows.iter().filter(|row| row.logits && !row.tokens.is_empty());
        for (row, logits) in rows.zip(out.f32s_mut()?.chunks_exact_mut(width)) {
            let silence = row.pages.first().and_then(|page| self.silence.get(page));
            if let (Some(&silence), Some(logit)) = (silence, logits.get_mut(place)) {
                *logit = silence;
            }
        }
        Ok(out)
    }
}

impl Decoder for WhisperDecoder {
    fn geometry(&self) -> KvGeometry {
        let config = &self.config;
        KvGeometry {
            layers: config.decoder_layers,
            kv_heads: config.decoder_heads,
            head_dim: config.width / config.decoder_heads,
            context: config.context,
            precision: self.precision,
        }
    }

    fn prompt(&self, op: &OpName, row: &Row) -> Result<Prompt, RowError> {
        if op != "prefill" {
            let token = row.value("token")?.as_tokens();
            let token = token.ok_or_else(|| RowError::Internal("input token is no token".into()))?;
            return Ok(Prompt { tokens: token.to_vec(), ..Prompt::default() });
        }
        let (window, options) = (Window::of(row)?, Options::of(row.request())?);
        let tokens = self.opening(&window, &options)?;
        let context = row.value("context")?.as_tensor().cloned();
        let context = context.ok_or_else(|| RowError::Internal("input context is no tensor".into()))?;
        let room = (self.config.context / 2).min(self.config.context.saturating_sub(tokens.len()));
        Ok(Prompt { tokens, context: Some(context), max_new: u32::try_from(room).ok() })
    }

    fn cross(&mut self, cx: &Cx, context: &Tensor) -> Result<CrossKv, KernelError> {
        self.network.cross(cx, context)
    }

    fn forward(&mut self, cx: &Cx, batch: &DecodeBatch<'_>, kv: &mut KvPages) -> Result<Tensor, KernelError> {
        let wanted: Vec<usize> = batch
            .rows
            .iter()
            .filter(|row| row.logits && !row.tokens.is_empty())
            .map(|row| row.tokens.end - 1)
            .collect();
        let mut starts = Vec::new();
        for row in batch.rows {
            let start = row.tokens.clone().find(|&at| batch.tokens.get(at) == Some(&self.specials.start));
            if let (Some(start), Some(&page)) = (start, row.pages.first()) {
                starts.push((start, page));
            }
        }
        let all: Vec<usize> = wanted.iter().copied().chain(starts.iter().map(|&(at, _)| at)).collect();
        let logits = self.network.forward(cx, batch, kv, &all)?;
        self.note_silence(batch, &starts, &logits, wanted.len())
    }

    fn default_sampling(&self) -> Sampling {
        Sampling { temperature: Some(0.0), ..Sampling::default() }
    }

    /// Of a request's sampling only the temperature is a transcript's, and only where nothing else is asked for.
    fn sampling(&self, request: &mstar_contract::Request) -> Sampling {
        let temperature = request.sampling.temperature.filter(|_| samples_transcript(request));
        Sampling { temperature, ..Sampling::default() }
    }

    fn ends(&self, token: u32) -> bool {
        token == self.specials.end
    }

    fn constrain(&self, logits: &mut [f32], sequence: &SequenceView<'_>) {
        let options = Options::of(&sequence.params.request).unwrap_or_default();
        let rules = RuleOptions { suppress: options.suppress, translate: options.translate };
        let place = self.specials.no_speech.map_or(usize::MAX, |token| token as usize);
        let silence = logits.get(place).copied();
        if let Some(logit) = logits.get_mut(place) {
            *logit = f32::NEG_INFINITY;
        }
        self.specials.constrain(logits, sequence.prompt, sequence.sampled, rules);
        if let (Some(silence), true) = (silence, self.specials.wordless(sequence.prompt, sequence.sampled)) {
            self.specials.hush(logits, silence);
        }
    }
}
