//! The server as its clients meet it: what it answers, what it refuses, and what it does when they misbehave.

mod admin;
mod bad_input;
mod bad_media;
mod cancel;
mod flood;
mod idempotency;
mod keys;
mod native;
mod openai;
mod slow_client;
mod speech;
mod transcriptions;
mod wire;
