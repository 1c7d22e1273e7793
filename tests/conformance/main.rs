//! One suite for all publishers, run against small models of the destinations.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "tests may"
)]

mod crash_walk;
mod destination;
mod driver;
mod ghost;
mod github;
mod interleaving;
mod particulars;
mod receivers;
mod suite;
mod totality;
mod wordpress;
