//! The HTTP surface: plain request in, plain response out.

pub mod account;
pub mod admin;
pub mod auth;
pub mod cors;
pub mod digest;
pub mod dropin;
pub mod generations;
pub mod health;
pub mod lookup;
pub mod message;
pub mod outbox;
pub mod page;
mod problem;
pub mod query;
#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod reports_tests;
pub mod routes;
pub mod self_check;
pub mod usage;
pub mod validate;
