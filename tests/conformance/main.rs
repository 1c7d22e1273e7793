//! One suite a port: the stores', and all publishers' against small models of the destinations.

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
