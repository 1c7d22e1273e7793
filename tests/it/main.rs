//! The promises, natively: the whole service on simulated stores, Gemini and time.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::single_range_in_vec_init,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    clippy::unused_self,
    clippy::struct_field_names,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::if_same_then_else,
    clippy::doc_markdown,
    clippy::single_match_else,
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
