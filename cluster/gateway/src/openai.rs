//! The OpenAI-compatible endpoints. Their judge is the unmodified `openai` package.

pub(crate) mod chat;
mod chat_answer;
mod chat_parse;
mod chunk;
pub(crate) mod models;
pub(crate) mod speech;
pub(crate) mod transcriptions;
