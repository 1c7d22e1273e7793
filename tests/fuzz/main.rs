//! Hostile input, bounded: every corpus of fuzz/corpus again, then changes of its entries by a
//! seeded source of chance. `cargo fuzz run TARGET` does the same guided by coverage.
//!
//! `FUZZ_ROUNDS=1000000 cargo test --test fuzz -- --nocapture` goes on for longer.

#![allow(
    clippy::pedantic,
    clippy::collapsible_match,
    clippy::style,
    clippy::complexity,
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

mod reference;
mod targets;

use targets::TARGETS;

/// Changed inputs of an ordinary run, for each target.
const ROUNDS: u64 = 6_000;
const LENGTH_MAX: usize = 4_096;

/// `SplitMix64`.
struct Chance(u64);

impl Chance {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % below.max(1) as u64).unwrap()
    }

    /// An entry changed in one to four places, or two entries spliced.
    fn change(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => bytes.insert(at, u8::try_from(self.below(256)).unwrap()),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.truncate(at),
                4 => {
                    let word = WORDS[self.below(WORDS.len())];
                    bytes.splice(at..at, word.bytes());
                }
                5 => {
                    let end = at + self.below(bytes.len() - at + 1);
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len() + 1);
                    bytes.truncate(at);
                    bytes.extend(&other[from..]);
                }
            }
            bytes.truncate(LENGTH_MAX);
        }
        bytes
    }
}

/// What parsers stumble over.
const WORDS: [&str; 24] = [
    "1e999999999",
    "-0",
    "1.0E+00",
    "9007199254740993",
    "\\ud800",
    "\\u0000",
    "{\"a\":",
    "[[[[",
    "null",
    "data: ",
    "\r\n\r\n",
    "\u{feff}",
    "event: error\n",
    "}{",
    "\"finishReason\":\"STOP\"",
    "0.10",
    "e-99999999999999999999",
    "GMT",
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "86400",
    "=",
    "PIPELINES={\"a/b\":{}}",
    "\n",
    "日本🎉",
];

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// Runs one target on one input, which is told where it is found wanting.
fn run(name: &str, target: fn(&[u8]), bytes: &[u8]) {
    let caught = std::panic::catch_unwind(|| target(bytes));
    if caught.is_err() {
        let shown = String::from_utf8_lossy(bytes);
        panic!("{name} breaks on {bytes:?}\n{shown}");
    }
}

#[test]
fn no_input_of_a_corpus_nor_any_change_of_it_breaks_a_target() {
    let rounds = std::env::var("FUZZ_ROUNDS").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        assert!(corpus.len() >= 5, "{name} has a corpus of {}", corpus.len());
        for bytes in &corpus {
            run(name, target, bytes);
        }
        let mut chance = Chance(7);
        for _ in 0..rounds {
            run(name, target, &chance.change(&corpus));
        }
        println!("{name}: {} entries, {rounds} changes of them", corpus.len());
    }
}

#[test]
fn the_slow_reference_tells_numbers_apart_that_a_double_does_not() {
    let canonical = |text: &str| {
        let mut bytes = Vec::new();
        reference::write(&reference::read(text.as_bytes()).unwrap(), &mut bytes);
        String::from_utf8(bytes).unwrap()
    };
    assert_ne!(canonical("9007199254740993"), canonical("9007199254740992"));
    assert_ne!(canonical("1e-400"), canonical("0"));
    for same in ["1.0", "10e-1", "1E0", "0.1e1", "100e-2"] {
        assert_eq!(canonical(same), canonical("1"), "{same}");
    }
    assert_eq!(canonical("-0"), canonical("0e99"));
    let far = "125e999999999999999999998";
    assert_eq!(
        canonical("12.50e999999999999999999999"),
        format!("d{}:{far}", far.len())
    );
    assert_eq!(
        canonical("{\"b\":[1.0,null],\"a\":\"x\"}"),
        "o2:s1:as1:xs1:ba2:d1:1n"
    );
}
