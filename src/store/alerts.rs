//! Alerts: what a person must hear of, bundled by kind and pipeline until it is sent.

use crate::ports::{DbError, Statement};
use crate::store::row::Row;
use crate::store::{count, integer, optional, statement, text};
use crate::time::{Span, Timestamp};

/// One event for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// `duplicate`, `stale`, `credits`, `kv_errors`, `dead_queue`, …
    pub kind: &'a str,
    /// Whose.
    pub account: &'a str,
    /// Of which site; empty for the whole service.
    pub site: &'a str,
    /// Of which pipeline.
    pub pipeline: &'a str,
    /// How often.
    pub count: u64,
    /// The newest topic.
    pub topic: Option<&'a str>,
    /// More, in words.
    pub detail: Option<&'a str>,
    /// When the original was made.
    pub original_at: Option<Timestamp>,
}

/// A bundle that is due, or was just leased.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct Bundle {
    pub id: i64,
    pub kind: String,
    pub account: String,
    pub site: String,
    pub pipeline: String,
    pub count: u64,
    pub topic: Option<String>,
    pub detail: Option<String>,
    pub original_at: Option<Timestamp>,
    pub opened_at: Timestamp,
    pub attempts: u32,
}

impl Bundle {
    /// Reads a row of `alerts`.
    pub fn read(row: Row<'_>) -> Result<Self, DbError> {
        Ok(Self {
            id: row.integer("id")?,
            kind: row.text("kind")?,
            account: row.text("account")?,
            site: row.text("site")?,
            pipeline: row.text("pipeline")?,
            count: row.count("count")?,
            topic: row.optional_text("topic")?,
            detail: row.optional_text("detail")?,
            original_at: row.optional_time("original_at")?,
            opened_at: row.time("opened_at")?,
            attempts: u32::try_from(row.integer("attempts")?).unwrap_or(u32::MAX),
        })
    }
}

/// Adds an event to its open bundle, or opens one.
pub fn add(event: &Event<'_>, now: Timestamp) -> Statement {
    statement(
        "INSERT INTO alerts (kind, account, site, pipeline, count, topic, detail, original_at, \
           opened_at, closes_at, state, next_attempt_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'open', ?10) \
         ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET \
           count = count + excluded.count, topic = COALESCE(excluded.topic, topic), \
           detail = COALESCE(excluded.detail, detail), \
           original_at = COALESCE(excluded.original_at, original_at)",
        vec![
            text(event.kind),
            text(event.account),
            text(event.site),
            text(event.pipeline),
            integer(i64::try_from(event.count).unwrap_or(i64::MAX)),
            optional(event.topic),
            optional(event.detail),
            event.original_at.map_or(crate::ports::SqlValue::Null, |at| integer(at.millis())),
            integer(now.millis()),
            integer(now.plus(BUNDLE).millis()),
        ],
    )
}

/// Leases at most `limit` bundles that are due: closed now, and hidden until the lease ends.
pub fn lease(token: &str, limit: usize, now: Timestamp) -> Statement {
    statement(
        "UPDATE alerts SET state = 'sending', lease_token = ?1, attempts = attempts + 1, \
           next_attempt_at = ?2 \
         WHERE id IN (SELECT id FROM alerts WHERE state <> 'sent' AND next_attempt_at <= ?3 \
           ORDER BY next_attempt_at LIMIT ?4) RETURNING *",
        vec![text(token), integer(now.plus(LEASE).millis()), integer(now.millis()), count(limit)],
    )
}

/// Ends the sending of a bundle.
pub fn sent(id: i64, token: &str, now: Timestamp) -> Statement {
    statement(
        "UPDATE alerts SET state = 'sent', sent_at = ?3, lease_token = NULL \
         WHERE id = ?1 AND lease_token = ?2",
        vec![integer(id), text(token), integer(now.millis())],
    )
}

/// Puts a bundle off.
pub fn retry(id: i64, token: &str, at: Timestamp) -> Statement {
    statement(
        "UPDATE alerts SET next_attempt_at = ?3, lease_token = NULL \
         WHERE id = ?1 AND lease_token = ?2",
        vec![integer(id), text(token), integer(at.millis())],
    )
}

/// How long events of one kind and pipeline gather into one message.
pub const BUNDLE: Span = Span::from_minutes(5);
/// How long a sender holds a bundle.
const LEASE: Span = Span::from_minutes(2);
