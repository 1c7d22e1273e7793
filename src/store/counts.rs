//! Counts that isolates gathered, added to the database once.
//!
//! A flush is one batch of four statements, however much was gathered, and carries a token: the
//! batch that comes a second time, because its reply was lost, finds the token and adds nothing.

use serde_json::{Value, json};

use crate::ports::Statement;
use crate::store::{integer, statement, text};
use crate::time::Timestamp;

/// Counts of an isolate, to be added to the database once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events by day (UTC) and name.
    pub named: Vec<(String, &'static str, u64)>,
    /// Replays and publications by scope and day.
    pub scoped: Vec<Scoped>,
}

/// What was counted for one scope on one day of its account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct Scoped {
    pub account: String,
    pub day: String,
    pub site: String,
    pub pipeline: String,
    pub model: String,
    pub published: u64,
    pub replays: u64,
    pub saved_nano: i64,
    /// The topic of the newest replay.
    pub topic: Option<String>,
    /// When the original of the newest replay was made.
    pub original_at: Timestamp,
}

impl Counts {
    /// Whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.scoped.is_empty()
    }
}

/// Adds counts, unless the batch named `token` was added before.
pub fn flush(counts: &Counts, token: &str, now: Timestamp) -> Vec<Statement> {
    let named: Vec<Value> = counts
        .named
        .iter()
        .map(|(day, name, count)| json!([day, name, count]))
        .collect();
    let scoped: Vec<Value> = counts.scoped.iter().map(row).collect();
    let scoped = Value::Array(scoped).to_string();
    let until = now.plus(super::alerts::BUNDLE);
    vec![
        statement(
            NAMED,
            vec![text(token), text(Value::Array(named).to_string())],
        ),
        statement(SCOPED, vec![text(token), text(scoped.clone())]),
        statement(
            DUPLICATES,
            vec![
                text(token),
                text(scoped),
                integer(now.millis()),
                integer(until.millis()),
            ],
        ),
        statement(
            "INSERT INTO flushes (token, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            vec![text(token), integer(now.millis())],
        ),
    ]
}

/// A row as JSON; its members are named by their places, which SQL reads.
fn row(counted: &Scoped) -> Value {
    json!([
        counted.account,
        counted.day,
        counted.site,
        counted.pipeline,
        counted.model,
        counted.published,
        counted.replays,
        counted.saved_nano,
        counted.topic,
        counted.original_at.millis(),
    ])
}

const NAMED: &str = "INSERT INTO counters (day, name, count) \
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?2) \
WHERE NOT EXISTS (SELECT 1 FROM flushes WHERE token = ?1) \
ON CONFLICT (day, name) DO UPDATE SET count = count + excluded.count";

const SCOPED: &str = "INSERT INTO usage_days (account, day, site, pipeline, model, published, \
  replays, saved_nano) \
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, \
  value ->> 6, value ->> 7 FROM json_each(?2) \
WHERE NOT EXISTS (SELECT 1 FROM flushes WHERE token = ?1) \
ON CONFLICT (account, day, site, pipeline, model) DO UPDATE SET \
  published = published + excluded.published, replays = replays + excluded.replays, \
  saved_nano = saved_nano + excluded.saved_nano";

const DUPLICATES: &str = "INSERT INTO alerts (kind, account, site, pipeline, count, topic, \
  original_at, opened_at, newest_at, closes_at, state, next_attempt_at) \
SELECT 'duplicate', value ->> 0, value ->> 2, value ->> 3, value ->> 6, value ->> 8, \
  value ->> 9, ?3, ?3, ?4, 'open', ?4 FROM json_each(?2) \
WHERE value ->> 6 > 0 AND NOT EXISTS (SELECT 1 FROM flushes WHERE token = ?1) \
ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET \
  count = count + excluded.count, topic = COALESCE(excluded.topic, topic), \
  original_at = excluded.original_at, newest_at = excluded.newest_at";
