//! Oncepress: pay Gemini once, publish once.

#![cfg_attr(
    test,
    allow(clippy::arithmetic_side_effects, clippy::panic, reason = "tests may")
)]

pub mod http;
pub mod limits;
pub mod ports;
pub mod publish;
pub mod time;
