//! The fakes keep their promises: what a fault is said to do is what the wire shows.
#![cfg(not(target_arch = "wasm32"))]

#[path = "../mod.rs"]
mod fakes;
