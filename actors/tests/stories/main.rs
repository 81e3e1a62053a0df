//! Stories of requests through the actors, on scripted engines in virtual time.

mod ask;
mod batches;
mod crashes;
mod flow;
mod life;
mod pressure;
mod spans;
mod world;
