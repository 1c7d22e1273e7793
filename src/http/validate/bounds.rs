//! The bounds of request members, each with its reason.

use std::ops::RangeInclusive;

/// A topic is a line in an alert: Slack cuts a field at 2,000 characters, a phone far earlier.
pub const TOPIC_MAX_CHARS: usize = 256;
/// As long as an operation key.
pub const VARIANT_MAX_CHARS: usize = 128;
/// A version, a date or a digest in hexadecimal.
pub const VERSION_MAX_CHARS: usize = 64;
/// Google's limit for names and values of labels.
pub const LABEL_MAX_CHARS: usize = 63;
/// Google's limit for labels on one resource.
pub const LABELS_MAX: usize = 64;
/// A resource's name: a collection and an id.
pub const CACHED_CONTENT_MAX_CHARS: usize = 256;
/// Gemini 4's context window, which its longest output can't pass.
pub const OUTPUT_TOKENS_MAX: i64 = 1_048_576;
/// Daily limits in micro-US-dollars: up to a million dollars, which keeps sums far below 2^53.
pub const DAILY_CREDITS: RangeInclusive<i64> = 0..=1_000_000_000_000;
/// The label of an API key is a line in a list.
pub const KEY_LABEL_MAX_CHARS: usize = 128;
/// The reason in an audit is a few sentences.
pub const REASON_MAX_CHARS: usize = 1_000;
/// Most faults in one answer: more than a person corrects at once.
pub const FAULTS_MAX: usize = 50;
/// The longest name of an unknown member that a fault repeats.
pub const NAME_MAX_BYTES: usize = 128;
