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

mod crash_walk;
mod credits;
mod delivery;
mod dropin;
mod fallback;
mod lifecycle;
mod operators;
mod queue;
mod stores;
mod wall;

/// Nothing is left to do.
const CALM: util::Rest = util::Rest {
    owed: false,
    unknown: false,
};

/// Ends a test: every promise holds at rest.
#[track_caller]
fn calm(world: &util::World) {
    util::at_rest(world, CALM);
    util::assert_sound(world);
}
