//! `smollm2.llm`: the network over paged KV. Its ops are `prefill`, which begins a sequence with `tokens`, and
//! `decode`, which goes on with the `token` sampled last.

use std::sync::Arc;

use mstar_blocks::Tokenizer;
use mstar_contract::{
    Component, DecodeBatch, Decoder, Detokenizer, Invalid, KvGeometry, KvUse, LoadCx, LoadError, Loaded, OpDecl,
    Precision, Prompt, Recovery, Row, RowError, Sampling, WeightSource,
};
use mstar_graph::{ComponentId, OpName};
use mstar_kernels::{Cx, KernelError, KvPages, Tensor};
use mstar_weights::WeightFile;

use super::{PACKAGE, broken, tokenizer};
use crate::Network;

/// The loop that both ops may end.
pub(crate) const DECODE: &str = "decode";

/// Bound on sampled tokens where neither the request nor the deployment has a lower one: an answer of some 400 words.
const DEFAULT_MAX_TOKENS: usize = 512;

/// The component `smollm2.llm`.
pub struct Llm;

struct LlmDecoder {
    network: Network,
    tokenizer: Arc<Tokenizer>,
    precision: Precision,
    /// Bound on sampled tokens where the request names none.
    max_tokens: usize,
}

// --- impl Llm ---

impl Llm {
    /// The component's id.
    pub const ID: &'static str = "smollm2.llm";
}

impl Component for Llm {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        let outputs = ["token", "text", "detail"];
        vec![
            OpDecl::new("prefill", &["tokens"], &outputs).stops(DECODE).kv(KvUse::Begin),
            OpDecl::new("decode", &["token"], &outputs).stops(DECODE).kv(KvUse::Extend),
        ]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Replay
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn kv(&self, precision: Precision) -> Option<KvGeometry> {
        Some(KvGeometry { layers: 30, kv_heads: 3, head_dim: 64, context: 8192, precision })
    }

    fn on_gpu(&self) -> bool {
        true
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let file = WeightFile::open(cx.dir).map_err(broken(Self::ID))?;
        let network = Network::load(&file, cx.precision, cx.cx).map_err(broken(Self::ID))?;
        let tokenizer = tokenizer(&file).map_err(broken(Self::ID))?;
        let max_tokens = DEFAULT_MAX_TOKENS.min(cx.max_output_tokens as usize);
        Ok(Loaded::Paged(Box::new(LlmDecoder { network, tokenizer, precision: cx.precision, max_tokens })))
    }
}

// --- impl LlmDecoder ---

impl LlmDecoder {
    /// Bounds what a new sequence may sample, so that prompt and answer fit into the context.
    fn begin(&self, tokens: &[u32], row: &Row) -> Result<Prompt, RowError> {
        let context = self.network.config().context;
        let Some(room) = context.checked_sub(tokens.len()).filter(|&room| room > 0) else {
            let text = format!("{} tokens leave no room for an answer: the context is {context}", tokens.len());
            return Err(Invalid::new("messages", text).into());
        };
        let max_new = match row.request().sampling.max_tokens {
            Some(asked) if asked as usize > room => {
                let text = format!("{asked} tokens after a prompt of {} exceed the context of {context}", tokens.len());
                return Err(Invalid::new("max_tokens", text).into());
            }
            Some(asked) => asked,
            None => u32::try_from(room.min(self.max_tokens)).unwrap_or(u32::MAX),
        };
        Ok(Prompt { tokens: tokens.to_vec(), context: None, max_new: Some(max_new) })
    }
}

impl Decoder for LlmDecoder {
    fn geometry(&self) -> KvGeometry {
        let config = self.network.config();
        KvGeometry {
            layers: config.layers,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
            context: config.context,
            precision: self.precision,
        }
    }

    fn prompt(&self, op: &OpName, row: &Row) -> Result<Prompt, RowError> {
        let (port, begins) = if op == "prefill" { ("tokens", true) } else { ("token", false) };
        let tokens = row.value(port)?.as_tokens();
        let tokens = tokens.ok_or_else(|| RowError::Internal(format!("input {port} is no tokens")))?;
        if begins { self.begin(tokens, row) } else { Ok(Prompt { tokens: tokens.to_vec(), ..Prompt::default() }) }
    }

    fn forward(&mut self, cx: &Cx, batch: &DecodeBatch<'_>, kv: &mut KvPages) -> Result<Tensor, KernelError> {
        self.network.forward(cx, batch, kv, &mut |_, _| Ok(()))
    }

    /// The model card's settings for chat.
    fn default_sampling(&self) -> Sampling {
        Sampling { temperature: Some(0.2), top_p: Some(0.9), ..Sampling::default() }
    }

    fn ends(&self, token: u32) -> bool {
        token == self.network.config().eos
    }

    fn text(&self) -> Option<Arc<dyn Detokenizer>> {
        Some(Arc::clone(&self.tokenizer) as Arc<dyn Detokenizer>)
    }
}
