//! The drain on SQLite with the real schema: who gets which row, at what cost, and what survives.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "tests may"
)]

mod budget;
mod fairness;
mod faults;
mod leases;
mod people;
mod plans;
mod scale;
mod sqlite;
mod world;
