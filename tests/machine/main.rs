//! The pure machine in every order: three callers, their runners, the reconciler, a person and the
//! clock over the lifecycle's own total functions and a small abstract store, with a crash, a lost
//! reply or a refusal at every step. Each search ends: no branch is left.
//!
//! `cargo test --test machine -- --nocapture` prints the states that were visited.

#![allow(
    clippy::pedantic,
    clippy::collapsible_match,
    clippy::style,
    clippy::complexity,
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::struct_excessive_bools,
    clippy::cast_possible_truncation,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "tests may"
)]

mod actors;
mod drains;
mod model;
mod questions;
mod search;
