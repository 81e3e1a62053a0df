//! The OpenAI-compatible endpoints. Their judge is the unmodified `openai` package.

pub mod chat;
mod chat_answer;
mod chat_parse;
pub mod models;
pub mod speech;
pub mod transcriptions;
