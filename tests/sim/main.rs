//! The simulator: the whole service under seeded chaos, on virtual time.
//!
//! `cargo test --test sim` runs a fixed number of seeds; `SIM_SEEDS=1000` runs so many,
//! `SIM_SEED=17` one, with its trace.

#![allow(
    clippy::pedantic,
    clippy::collapsible_match,
    clippy::style,
    clippy::complexity,
    clippy::arithmetic_side_effects,
    clippy::single_range_in_vec_init,
    clippy::needless_pass_by_value,
    clippy::type_complexity,
    clippy::unused_self,
    clippy::struct_field_names,
    clippy::case_sensitive_file_extension_comparisons,
    clippy::if_same_then_else,
    clippy::branches_sharing_code,
    clippy::same_functions_in_if_condition,
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

#[path = "../conformance/destination.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod destination;
#[path = "../conformance/ghost.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod ghost;
#[path = "../conformance/github.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod github;
#[path = "../conformance/wordpress.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod wordpress;

mod chaos;
mod drill;
mod growth;
mod interleaving;
mod judge;
mod persons;
mod rest;

use util::mutant::{MUTANTS, Mutant};

/// Seeds of an ordinary test run.
const SEEDS: u64 = 12;
#[test]
fn every_promise_holds_under_every_seed() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("SIM_SEED") {
        // With a rule broken, where one is named.
        let broken = std::env::var("MUTANT").ok();
        let broken = MUTANTS
            .iter()
            .find(|(_, name, _)| broken.as_deref() == Some(name));
        let end = chaos::run_with(seed, broken.map(|(_, _, mutant)| *mutant));
        println!("{}", end.story);
        assert!(end.violations.is_empty(), "{:#?}", end.violations);
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(SEEDS);
    let first = number("SIM_FIRST").unwrap_or(0);
    let mut totals = chaos::Totals::default();
    for seed in first..first + seeds {
        let end = chaos::run(seed);
        assert!(
            end.violations.is_empty(),
            "seed {seed}: {:#?}\n{}\n\nSIM_SEED={seed} cargo test --test sim shows it all",
            end.violations,
            end.tail(),
        );
        totals.add(&end.totals);
    }
    println!("{seeds} seeds: {totals:?}");
    // A simulation in which nothing happens proves nothing.
    assert!(
        totals.made > seeds && totals.replays > seeds && totals.deaths > seeds,
        "{totals:?}"
    );
}

/// The proof of the proof: each rule that is broken on purpose is noticed by the seed that
/// docs/PROOF.md names. `MUTANT_SEEDS=60` looks for the first such seed and prints the table.
#[test]
fn every_broken_rule_is_noticed() {
    let silent = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let only = std::env::var("MUTANT").ok();
    let chosen = MUTANTS
        .iter()
        .filter(|(_, name, _)| only.as_deref().is_none_or(|o| o == *name));
    let page = include_str!("../../docs/PROOF.md");
    let mut survivors = Vec::new();
    for (promise, name, mutant) in chosen {
        let seeds = match number("MUTANT_SEEDS") {
            Some(seeds) => (0..seeds).collect(),
            None => seed_of(page, promise, name)
                .into_iter()
                .collect::<Vec<u64>>(),
        };
        let found = seeds
            .into_iter()
            .find_map(|seed| Some((seed, noticed(seed, *mutant)?)));
        match found {
            Some((seed, what)) => println!("| {promise} | {name} | {seed} | {what} |"),
            None => survivors.push(*name),
        }
    }
    std::panic::set_hook(silent);
    assert!(survivors.is_empty(), "nobody noticed: {survivors:#?}");
}

/// The seed that the page names for a broken rule.
fn seed_of(page: &str, promise: &str, name: &str) -> Option<u64> {
    let start = format!("| {promise} | {name} | ");
    let row = page.lines().find_map(|line| line.strip_prefix(&start))?;
    row.split(' ').next()?.parse().ok()
}

/// What a seed says of a broken rule, if anything.
fn noticed(seed: u64, mutant: Mutant) -> Option<String> {
    match std::panic::catch_unwind(|| chaos::run_with(seed, Some(mutant))) {
        Ok(end) => {
            let first = end.violations.into_iter().next()?;
            Some(first.replace('|', "/").chars().take(90).collect())
        }
        Err(_) => Some("the simulator itself broke off".to_owned()),
    }
}

#[test]
fn one_seed_makes_one_story() {
    assert_eq!(chaos::run(7).story, chaos::run(7).story);
}
