//! The fakes keep their promises: what a fault is said to do is what the wire shows.
#![cfg(not(target_arch = "wasm32"))]
#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a test"
)]

#[path = "../mod.rs"]
mod fakes;

mod client;
mod control;
mod destinations;
mod gemini;
mod github;
mod neighbours;
mod wire;
