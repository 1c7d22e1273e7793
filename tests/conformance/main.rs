//! One suite a port: the stores', and all publishers' against small models of the destinations.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    clippy::unwrap_used,
    missing_debug_implementations,
    missing_docs,
    unreachable_pub,
    reason = "tests may"
)]

#[path = "../util/mod.rs"]
mod util;

mod crash_walk;
mod destination;
mod driver;
mod ghost;
mod github;
mod interleaving;
mod particulars;
mod receivers;
mod store;
mod suite;
mod totality;
mod wordpress;
