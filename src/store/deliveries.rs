//! The outbox: leasing due deliveries, finishing attempts, and what people do to them.

use crate::ports::{DbError, Statement};
use crate::store::row::Row;
use crate::store::{count, integer, optional, statement, text};
use crate::time::Timestamp;

/// A delivery that this drain holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct Leased {
    pub id: String,
    pub generation_id: String,
    pub account: String,
    pub site: String,
    pub pipeline: String,
    pub publisher: String,
    pub target: String,
    pub maybe_sent: bool,
    /// An attempt was begun and never ended, so nobody has decided what follows from it.
    pub abandoned: bool,
    pub attempts: u32,
    pub progress: Option<String>,
    pub created_at: Timestamp,
    pub due_since: Timestamp,
}

impl Leased {
    /// Reads a row that a lease returned.
    pub fn read(row: Row<'_>) -> Result<Self, DbError> {
        Ok(Self {
            id: row.text("id")?,
            generation_id: row.text("generation_id")?,
            account: row.text("account")?,
            site: row.text("site")?,
            pipeline: row.text("pipeline")?,
            publisher: row.text("publisher")?,
            target: row.text("target")?,
            maybe_sent: row.flag("maybe_sent")?,
            abandoned: row.integer("maybe_sent")? == ABANDONED,
            attempts: u32::try_from(row.integer("attempts")?).unwrap_or(u32::MAX),
            progress: row.optional_text("progress")?,
            created_at: row.time("created_at")?,
            due_since: row.time("due_since")?,
        })
    }
}

/// Which lanes (publisher, account) have something pending, and since when it is due: at most
/// `limit` of them behind the kept cursor, then at most `limit` from the start, one index seek a
/// lane, so that the cost does not depend on how much is owed.
pub fn lanes(limit: usize) -> Vec<Statement> {
    vec![
        statement(LANES_BEHIND_CURSOR, vec![count(limit)]),
        statement(LANES_FROM_START, vec![count(limit)]),
    ]
}

/// Leases at most `limit` due deliveries of a lane, oldest first. While leased, a row's
/// `next_attempt_at` is the end of its lease, so that the due index itself hides it.
pub fn lease(
    lane: (&str, &str),
    limit: usize,
    token: &str,
    lease_until: Timestamp,
    now: Timestamp,
) -> Statement {
    statement(
        LEASE,
        vec![
            text(lane.0),
            text(lane.1),
            integer(now.millis()),
            count(limit),
            text(token),
            integer(lease_until.millis()),
        ],
    )
}

/// Leases the due deliveries of one generation: the drain right after its commit.
pub fn lease_generation(
    generation_id: &str,
    token: &str,
    lease_until: Timestamp,
    now: Timestamp,
) -> Statement {
    statement(
        LEASE_GENERATION,
        vec![
            text(generation_id),
            integer(now.millis()),
            text(token),
            integer(lease_until.millis()),
        ],
    )
}

/// The generations of leased deliveries, each with its stored answer where that is one row.
pub fn load(ids: &str) -> Statement {
    statement(LOAD, vec![text(ids)])
}

/// Publishers that are left alone, or were until a while ago.
pub fn circuits() -> Statement {
    statement(
        "SELECT publisher, failures, open_until FROM circuits LIMIT 100",
        Vec::new(),
    )
}

/// Leaves a publisher alone until `open_until`, after so many failures in a row.
pub fn open_circuit(publisher: &str, failures: i64, open_until: Timestamp) -> Statement {
    statement(
        "INSERT INTO circuits (publisher, failures, open_until) VALUES (?1, ?2, ?3) \
         ON CONFLICT (publisher) DO UPDATE SET failures = excluded.failures, \
           open_until = excluded.open_until",
        vec![
            text(publisher),
            integer(failures),
            integer(open_until.millis()),
        ],
    )
}

/// A publisher works again.
pub fn close_circuit(publisher: &str) -> Statement {
    statement(
        "DELETE FROM circuits WHERE publisher = ?1",
        vec![text(publisher)],
    )
}

/// Where the next drain starts among the lanes.
pub fn keep_cursor(cursor: &str) -> Statement {
    statement(
        "INSERT INTO meta (name, value) VALUES ('drain_cursor', ?1) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        vec![text(cursor)],
    )
}

/// How an attempt changes its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The new status: `pending` to try again.
    pub status: &'static str,
    /// When to try again.
    pub next_attempt_at: Timestamp,
    /// Whether the attempt counts.
    pub counts: bool,
    /// Whether it may have taken effect.
    pub maybe_sent: bool,
    /// What a later attempt should know.
    pub progress: Option<String>,
    /// The destination's id or URL.
    pub reference: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The attempt as JSON, for the log.
    pub attempt: String,
}

/// Ends an attempt under its lease's token; a drain that lost its lease changes nothing.
pub fn finish(id: &str, token: &str, finish: &Finish, now: Timestamp) -> Statement {
    statement(
        FINISH,
        vec![
            text(id),
            text(token),
            text(finish.status),
            integer(finish.next_attempt_at.millis()),
            integer(finish.counts),
            integer(finish.maybe_sent),
            optional(finish.progress.as_deref()),
            optional(finish.reference.as_deref()),
            optional(finish.error.as_deref()),
            text(&finish.attempt),
            integer(now.millis()),
        ],
    )
}

/// Remembers progress in the middle of an attempt.
pub fn remember(id: &str, token: &str, progress: &str) -> Statement {
    statement(
        "UPDATE deliveries SET progress = ?3 WHERE id = ?1 AND lease_token = ?2 \
         AND status = 'pending'",
        vec![text(id), text(token), text(progress)],
    )
}

/// Gives a lease back unspent: the row is due at `at`, no attempt is counted.
pub fn give_back(ids: &str, token: &str, at: Timestamp) -> Statement {
    statement(
        "UPDATE deliveries SET lease_token = NULL, next_attempt_at = ?3 \
         WHERE id IN (SELECT value FROM json_each(?1)) AND lease_token = ?2 \
           AND status = 'pending'",
        vec![text(ids), text(token), integer(at.millis())],
    )
}

/// Makes a delivery due again, with its id (its idempotency key) kept.
pub fn requeue(id: &str, account: Option<&str>, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            REQUEUE,
            vec![text(id), optional(account), integer(now.millis())],
        ),
        find(id, account),
    ]
}

/// Cancels a delivery that nobody is sending at this moment.
pub fn cancel(id: &str, account: Option<&str>, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            CANCEL,
            vec![text(id), optional(account), integer(now.millis())],
        ),
        find(id, account),
    ]
}

/// One delivery of an account; of any, for an administrator.
pub fn find(id: &str, account: Option<&str>) -> Statement {
    statement(
        "SELECT * FROM deliveries WHERE id = ?1 AND (?2 IS NULL OR account = ?2) \
         AND status <> 'waiting'",
        vec![text(id), optional(account)],
    )
}

/// The deliveries of a generation, without those that its commit has not made yet.
pub fn of_generation(generation_id: &str) -> Statement {
    statement(
        "SELECT * FROM deliveries WHERE generation_id = ?1 AND status <> 'waiting' \
         ORDER BY created_at, id",
        vec![text(generation_id)],
    )
}

/// A page of deliveries, newest first.
pub fn list(query: &DeliveryQuery<'_>) -> Statement {
    let params = vec![
        optional(query.account),
        optional(query.status),
        optional(query.publisher),
        integer(query.before.0.millis()),
        text(query.before.1),
        count(query.limit),
    ];
    let sql = match (query.account, query.status) {
        (Some(_), Some(_)) => LIST_BY_STATUS,
        (Some(_), None) => LIST_BY_ACCOUNT,
        (None, _) => LIST_ALL,
    };
    statement(sql, params)
}

/// Which deliveries to list.
#[derive(Clone, Debug)]
pub struct DeliveryQuery<'a> {
    /// Whose; `None` for all (administrators).
    pub account: Option<&'a str>,
    /// In this status only.
    pub status: Option<&'a str>,
    /// Of this publisher only.
    pub publisher: Option<&'a str>,
    /// Older than this (time, id).
    pub before: (Timestamp, &'a str),
    /// At most so many.
    pub limit: usize,
}

/// A loose index scan: from one (publisher, account) to the next by seeking.
macro_rules! lanes_sql {
    ($first:literal) => {
        concat!(
            "WITH RECURSIVE lane (publisher, account, n) AS ( \
               SELECT * FROM (SELECT publisher, account, 1 FROM deliveries INDEXED BY deliveries_due \
                 WHERE status = 'pending' AND ",
            $first,
            " ORDER BY publisher, account LIMIT 1) \
               UNION ALL \
               SELECT d.publisher, d.account, lane.n + 1 FROM lane JOIN deliveries d ON d.rowid = ( \
                 SELECT e.rowid FROM deliveries e INDEXED BY deliveries_due \
                 WHERE e.status = 'pending' \
                   AND (e.publisher, e.account) > (lane.publisher, lane.account) \
                 ORDER BY e.publisher, e.account LIMIT 1) \
               WHERE lane.n < ?1) \
             SELECT publisher, account, (SELECT d.next_attempt_at FROM deliveries d \
                 INDEXED BY deliveries_due WHERE d.status = 'pending' \
                   AND d.publisher = lane.publisher AND d.account = lane.account \
                 ORDER BY d.next_attempt_at LIMIT 1) AS due_at FROM lane"
        )
    };
}

const LANES_FROM_START: &str = lanes_sql!("publisher >= ''");

const LANES_BEHIND_CURSOR: &str = lanes_sql!(
    "(publisher, account) > (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') \
       FROM meta WHERE name = 'drain_cursor')"
);

const LOAD: &str = "SELECT g.*, 0 AS owed, '[]' AS destinations, \
  CASE WHEN g.output_where = 'd1' AND g.output_parts = 1 THEN \
    (SELECT o.body FROM outputs o WHERE o.output_id = g.output_id AND o.part = 0) \
  END AS stored_body \
FROM generations g WHERE g.id IN (SELECT value FROM json_each(?1))";

/// `maybe_sent` of a row whose attempt was begun and never ended.
const ABANDONED: i64 = 2;

// A row that still carries a token was leased by somebody who never came back: what it was sending
// may have arrived.
const LEASE: &str = "UPDATE deliveries SET lease_token = ?5, next_attempt_at = ?6, \
  maybe_sent = CASE WHEN lease_token IS NOT NULL AND lease_token <> ?5 THEN 2 ELSE maybe_sent END \
WHERE id IN (SELECT id FROM deliveries WHERE status = 'pending' AND publisher = ?1 \
  AND account = ?2 AND next_attempt_at <= ?3 ORDER BY next_attempt_at LIMIT ?4) RETURNING *";

const LEASE_GENERATION: &str = "UPDATE deliveries SET lease_token = ?3, next_attempt_at = ?4, \
  maybe_sent = CASE WHEN lease_token IS NOT NULL AND lease_token <> ?3 THEN 2 ELSE maybe_sent END \
WHERE generation_id = ?1 AND status = 'pending' AND next_attempt_at <= ?2 RETURNING *";

const FINISH: &str = "UPDATE deliveries SET status = ?3, next_attempt_at = ?4, \
  attempts = attempts + ?5, maybe_sent = ?6, progress = ?7, \
  reference = COALESCE(?8, reference), error = ?9, lease_token = NULL, \
  attempt_log = CASE WHEN json_array_length(attempt_log) >= 50 \
    THEN json_insert(json_remove(attempt_log, '$[0]'), '$[#]', json(?10)) \
    ELSE json_insert(attempt_log, '$[#]', json(?10)) END, \
  published_at = CASE WHEN ?3 = 'published' THEN ?11 ELSE published_at END, \
  final_at = CASE WHEN ?3 = 'pending' THEN NULL ELSE ?11 END \
WHERE id = ?1 AND lease_token = ?2 AND status = 'pending' RETURNING status";

const REQUEUE: &str = "UPDATE deliveries SET status = 'pending', next_attempt_at = ?3, \
  due_since = ?3, attempts = 0, lease_token = NULL, error = NULL, final_at = NULL, \
  stale_alerted = 0, maybe_sent = MIN(maybe_sent, 1) \
WHERE id = ?1 AND (?2 IS NULL OR account = ?2) \
  AND status IN ('dead', 'cancelled', 'outcome_unknown')";

const CANCEL: &str = "UPDATE deliveries SET status = 'cancelled', lease_token = NULL, \
  final_at = ?3 \
WHERE id = ?1 AND (?2 IS NULL OR account = ?2) \
  AND (status IN ('dead', 'outcome_unknown') OR (status = 'pending' \
    AND (lease_token IS NULL OR next_attempt_at <= ?3)))";

const LIST_BY_STATUS: &str = "SELECT * FROM deliveries WHERE account = ?1 AND status = ?2 \
  AND (?3 IS NULL OR publisher = ?3) AND (created_at, id) < (?4, ?5) \
ORDER BY created_at DESC, id DESC LIMIT ?6";

const LIST_BY_ACCOUNT: &str = "SELECT * FROM deliveries WHERE account = ?1 AND ?2 IS NULL \
  AND status <> 'waiting' AND (?3 IS NULL OR publisher = ?3) AND (created_at, id) < (?4, ?5) \
ORDER BY created_at DESC, id DESC LIMIT ?6";

const LIST_ALL: &str = "SELECT * FROM deliveries WHERE ?1 IS NULL AND (?2 IS NULL OR status = ?2) \
  AND status <> 'waiting' AND (?3 IS NULL OR publisher = ?3) AND (created_at, id) < (?4, ?5) \
ORDER BY created_at DESC, id DESC LIMIT ?6";
