//! The server as its clients meet it: what it answers, what it refuses, and what it does when they misbehave.

mod admin;
mod bad_input;
mod bad_media;
mod cancel;
mod connections;
mod drain;
mod flood;
mod idempotency;
mod keys;
mod native;
mod openai;
mod oversized;
mod raw;
mod slow_client;
mod speech;
mod transcriptions;
mod uploads;
mod wire;
