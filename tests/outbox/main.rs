//! The drain on SQLite with the real schema: who gets which row, at what cost, and what survives.

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
    clippy::string_slice,
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
mod clock;
mod fairness;
mod faults;
mod leases;
mod people;
mod plans;
mod scale;
mod serial;
mod sqlite;
mod world;
