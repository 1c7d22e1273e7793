//! The promises, natively: the whole service on simulated stores, Gemini and time.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "tests may"
)]

#[path = "../util/mod.rs"]
mod util;

mod lifecycle;
