//! Alerts: what a person must hear of, bundled by kind and pipeline until it is sent.

use crate::ports::{DbError, Statement};
use crate::store::maintenance::CLOCKS_APART;
use crate::store::row::{Columns, Row};
use crate::store::{count, integer, optional, statement, text};
use crate::time::{Span, Timestamp};

/// One event for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// A word of [`Kind`](crate::notify::Kind).
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
    pub newest_at: Timestamp,
    pub attempts: u32,
}

impl Bundle {
    /// Reads a row of `alerts`.
    pub fn read(row: Row<'_>) -> Result<Self, DbError> {
        let mut columns = Columns::of(row);
        let read = Self {
            id: columns.integer("id"),
            kind: columns.text("kind"),
            account: columns.text("account"),
            site: columns.text("site"),
            pipeline: columns.text("pipeline"),
            count: columns.count("count"),
            topic: columns.optional_text("topic"),
            detail: columns.optional_text("detail"),
            original_at: columns.optional_time("original_at"),
            opened_at: columns.time("opened_at"),
            newest_at: columns.time("newest_at"),
            attempts: u32::try_from(columns.integer("attempts")).unwrap_or(u32::MAX),
        };
        columns.end(read)
    }
}

/// Adds an event to its open bundle, or opens one.
pub fn add(event: &Event<'_>, now: Timestamp) -> Statement {
    statement(
        "INSERT INTO alerts (kind, account, site, pipeline, count, topic, detail, original_at, \
           opened_at, newest_at, closes_at, state, next_attempt_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, 'open', ?10) \
         ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET \
           count = count + excluded.count, topic = COALESCE(excluded.topic, topic), \
           detail = COALESCE(excluded.detail, detail), \
           original_at = COALESCE(excluded.original_at, original_at), \
           newest_at = excluded.newest_at",
        vec![
            text(event.kind),
            text(event.account),
            text(event.site),
            text(event.pipeline),
            integer(i64::try_from(event.count).unwrap_or(i64::MAX)),
            optional(event.topic),
            optional(event.detail),
            event
                .original_at
                .map_or(crate::ports::SqlValue::Null, |at| integer(at.millis())),
            integer(now.millis()),
            integer(now.plus(BUNDLE).millis()),
        ],
    )
}

/// Closes and leases bundles that are due, unless the channel is paused: at most `limit`, and as many
/// that were opened under a clock that has been set back since.
pub fn lease(token: &str, limit: usize, now: Timestamp) -> Statement {
    statement(
        "UPDATE alerts SET state = 'closed', lease_token = ?1, attempts = attempts + 1, \
           next_attempt_at = ?2 \
         WHERE id IN ( \
           SELECT * FROM (SELECT id FROM alerts WHERE state <> 'sent' AND next_attempt_at <= ?3 \
             ORDER BY next_attempt_at LIMIT ?4) \
           UNION ALL \
           SELECT * FROM (SELECT id FROM alerts WHERE state <> 'sent' AND next_attempt_at > ?5 \
             AND attempts = 0 LIMIT ?4)) \
           AND NOT EXISTS (SELECT 1 FROM meta WHERE name = 'notify_paused_until' \
             AND CAST(value AS INTEGER) > ?3) RETURNING *",
        vec![
            text(token),
            integer(now.plus(LEASE).millis()),
            integer(now.millis()),
            count(limit),
            integer(now.plus(BUNDLE).plus(CLOCKS_APART).millis()),
        ],
    )
}

/// Ends the sending of the bundles in `ids`, a JSON list.
pub fn sent(ids: &str, token: &str, now: Timestamp) -> Statement {
    statement(
        "UPDATE alerts SET state = 'sent', sent_at = ?3, lease_token = NULL \
         WHERE id IN (SELECT value FROM json_each(?1)) AND lease_token = ?2",
        vec![text(ids), text(token), integer(now.millis())],
    )
}

/// Puts the bundles in `ids`, a JSON list, off.
pub fn retry(ids: &str, token: &str, at: Timestamp) -> Statement {
    statement(
        "UPDATE alerts SET next_attempt_at = ?3, lease_token = NULL \
         WHERE id IN (SELECT value FROM json_each(?1)) AND lease_token = ?2",
        vec![text(ids), text(token), integer(at.millis())],
    )
}

/// Leaves the channel alone until then: nothing is leased before.
pub fn pause(until: Timestamp) -> Statement {
    statement(
        "INSERT INTO meta (name, value) VALUES ('notify_paused_until', ?1) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        vec![text(until.millis().to_string())],
    )
}

/// Adds an alert where KV failed too often in the days from `week` on, at most once in seven days.
pub fn kv_errors(week: &str, now: Timestamp) -> Vec<Statement> {
    let sample = i64::from(KV_SAMPLE_MIN);
    vec![
        statement(
            KV_ERRORS,
            vec![
                text(week),
                integer(sample),
                integer(now.millis()),
                integer(now.plus(BUNDLE).millis()),
                integer(now.minus(Span::from_days(7)).millis()),
            ],
        ),
        statement(KV_WARNED, vec![integer(now.millis())]),
    ]
}

/// The share of failures over which a person hears of it is one in so many.
pub const KV_ERRORS_ONE_IN: u32 = 1_000;
/// Operations in a week below which a share says nothing.
pub const KV_SAMPLE_MIN: u32 = 1_000;

const KV_ERRORS: &str = "INSERT INTO alerts (kind, account, site, pipeline, count, detail, \
  opened_at, newest_at, closes_at, state, next_attempt_at) \
SELECT 'kv_errors', '', '', '', 1, json_object('operations', asked, 'errors', failed), \
  ?3, ?3, ?4, 'open', ?4 \
FROM (SELECT \
    COALESCE(SUM(CASE WHEN name IN ('kv_read', 'kv_write') THEN count END), 0) AS asked, \
    COALESCE(SUM(CASE WHEN name IN ('kv_read_error', 'kv_write_error') THEN count END), 0) \
      AS failed \
  FROM counters WHERE day >= ?1) \
WHERE asked >= ?2 AND failed * 1000 > asked \
  AND NOT EXISTS (SELECT 1 FROM meta WHERE name = 'kv_warned_at' \
    AND CAST(value AS INTEGER) > ?5) \
ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET \
  detail = excluded.detail, newest_at = excluded.newest_at";

const KV_WARNED: &str = "INSERT INTO meta (name, value) \
SELECT 'kv_warned_at', CAST(?1 AS TEXT) FROM alerts \
WHERE kind = 'kv_errors' AND account = '' AND site = '' AND pipeline = '' AND state = 'open' \
  AND newest_at = ?1 \
ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// How long events of one kind and pipeline gather into one message.
pub const BUNDLE: Span = Span::from_minutes(5);
/// How long a sender holds a bundle.
const LEASE: Span = Span::from_minutes(2);
