//! Oncepress: pay Gemini once, publish once.

#![cfg_attr(
    test,
    allow(clippy::arithmetic_side_effects, clippy::panic, reason = "tests may")
)]

#[cfg(target_arch = "wasm32")]
mod adapters;
pub mod app;
pub mod base64;
pub mod calendar;
pub mod config;
pub mod cron;
pub mod error;
pub mod gemini;
pub mod guard;
pub mod http;
pub mod idempotency;
pub mod json_form;
pub mod key;
pub mod limits;
pub mod metrics;
pub mod notify;
pub mod outbox;
pub mod ports;
pub mod publish;
pub mod sorted;
pub mod stats;
pub mod store;
#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod testing;
pub mod time;
pub mod together;

/// Text that only generated documents have: the Worker is built without it.
const fn documentation(text: &'static str) -> &'static str {
    if cfg!(target_arch = "wasm32") {
        ""
    } else {
        text
    }
}
