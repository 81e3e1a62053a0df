//! `smollm2.prompt`: writes a conversation as the tokens that the network was trained on.

use std::borrow::Cow;
use std::sync::Arc;

use mstar_blocks::{ChatTemplate, Tokenizer};
use mstar_contract::{
    Component, Compute, ComputeCx, Invalid, LoadCx, LoadError, Loaded, OpDecl, Recovery, Row, RowError, RowOutput,
    Value, WeightSource,
};
use mstar_graph::{ComponentId, OpName};
use mstar_weights::{MetaValue, WeightFile};

use super::{PACKAGE, broken, tokenizer};
use crate::Config;

/// The component `smollm2.prompt`.
pub struct Prompt;

/// Its op `encode`: `messages`, a list of `{role, content}`, and perhaps `heard`, which becomes the user's last turn,
/// become `tokens` up to where the assistant's answer begins.
struct Encode {
    template: ChatTemplate,
    tokenizer: Arc<Tokenizer>,
    context: usize,
}

// --- impl Prompt ---

impl Prompt {
    /// The component's id.
    pub const ID: &'static str = "smollm2.prompt";
}

impl Component for Prompt {
    fn id(&self) -> ComponentId {
        Self::ID.into()
    }

    fn ops(&self) -> Vec<OpDecl> {
        vec![OpDecl::new("encode", &["messages"], &["tokens"]).optional("heard")]
    }

    fn recovery(&self) -> Recovery {
        Recovery::Redo
    }

    fn weights(&self) -> WeightSource {
        WeightSource::Package(PACKAGE)
    }

    fn load(&self, cx: &LoadCx<'_>) -> Result<Loaded, LoadError> {
        let file = WeightFile::open(cx.dir).map_err(broken(Self::ID))?;
        Ok(Loaded::Stateless(Box::new(Encode::new(&file).map_err(broken(Self::ID))?)))
    }
}

// --- impl Encode ---

impl Encode {
    fn new(file: &WeightFile) -> Result<Self, String> {
        let tokenizer = tokenizer(file)?;
        let special = |key: &str| {
            let id = file.meta(key).and_then(MetaValue::as_usize).and_then(|id| u32::try_from(id).ok());
            id.and_then(|id| tokenizer.name(id)).unwrap_or_default()
        };
        let source = file.meta("tokenizer.chat_template").and_then(MetaValue::as_str);
        let source = source.ok_or("setting tokenizer.chat_template is missing")?;
        let (bos, eos) = (special("tokenizer.ggml.bos_token_id"), special("tokenizer.ggml.eos_token_id"));
        let template = ChatTemplate::new(source, &bos, &eos).map_err(|e| e.to_string())?;
        Ok(Self { template, tokenizer, context: Config::read(file)?.context })
    }

    fn encode(&self, row: &Row) -> Result<RowOutput, RowError> {
        let messages = row.value("messages")?.as_json();
        let mut messages = messages.cloned().ok_or_else(|| RowError::Internal("messages are not JSON".into()))?;
        if row.input("heard").is_some() {
            let turns = messages.as_array_mut().ok_or_else(|| RowError::Internal("messages are no list".into()))?;
            turns.push(serde_json::json!({ "role": "user", "content": row.text("heard")? }));
        }
        self.guard(&mut messages);
        let refuse = |message: String| RowError::from(Invalid::new("messages", message));
        let text = self.template.render(&messages).map_err(|e| refuse(e.to_string()))?;
        // A text that cannot fit is refused by its length: taking megabytes apart would keep the rank from everybody else.
        if text.len() > self.context.saturating_mul(self.tokenizer.longest_token()) {
            let (bytes, context) = (text.len(), self.context);
            return Err(refuse(format!("{bytes} bytes leave no room for an answer: the context is {context} tokens")));
        }
        let tokens = self.tokenizer.encode_guarded(&text).map_err(|e| refuse(e.to_string()))?;
        if tokens.len() >= self.context {
            let (count, context) = (tokens.len(), self.context);
            return Err(refuse(format!("{count} tokens leave no room for an answer: the context is {context}")));
        }
        let mut output = RowOutput::default();
        output.push("tokens", Value::Tokens(tokens.into()));
        Ok(output)
    }

    /// Makes sure that nobody ends a turn, or begins another's, by writing what the template does.
    fn guard(&self, messages: &mut serde_json::Value) {
        for turn in messages.as_array_mut().into_iter().flatten() {
            if let Some(serde_json::Value::String(content)) = turn.get_mut("content")
                && let Cow::Owned(guarded) = self.tokenizer.guard(content)
            {
                *content = guarded;
            }
        }
    }
}

impl Compute for Encode {
    fn run(&mut self, _op: &OpName, rows: &[Row], _cx: &ComputeCx<'_>) -> Vec<Result<RowOutput, RowError>> {
        rows.iter().map(|row| self.encode(row)).collect()
    }
}
