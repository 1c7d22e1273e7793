//! The target `config` of tests/fuzz/targets.rs, guided by coverage.
#![no_main]

#[path = "../../tests/fuzz/reference.rs"]
#[allow(dead_code, reason = "one target uses it")]
mod reference;
#[path = "../../tests/fuzz/targets.rs"]
#[allow(dead_code, reason = "each runner takes one target")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::config(bytes));
