//! The outbox: finding due deliveries, and what people do to them.

use crate::idempotency::record::Generation;
use crate::ports::{DbError, SqlValue, Statement};
use crate::store::leases::latest_end;
use crate::store::row::{Columns, Row};
use crate::store::{count, integer, optional, statement, text};
use crate::time::Timestamp;

/// A delivery that a drain is about to try.
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
    /// A drain leased it and never came back: what it was sending may have arrived.
    pub interrupted: bool,
    pub attempts: u32,
    pub progress: Option<String>,
    pub created_at: Timestamp,
    pub due_since: Timestamp,
}

/// A due delivery with what it delivers, as [`candidates`] found it, leased by nobody.
#[derive(Debug)]
pub struct Candidate {
    /// The delivery.
    pub delivery: Leased,
    /// The generation; an error where its row is gone or can't be read.
    pub generation: Result<Generation, DbError>,
    /// The stored answer, where that is one small row.
    pub body: Option<String>,
}

impl Candidate {
    /// Reads a row of [`candidates`] or [`candidates_of`].
    pub fn read(row: Row<'_>) -> Result<Self, DbError> {
        let mut columns = Columns::of(row);
        let interrupted = columns.optional_text("d_lease_token").is_some();
        let delivery = Leased {
            id: columns.text("d_id"),
            generation_id: columns.text("d_generation_id"),
            account: columns.text("d_account"),
            site: columns.text("d_site"),
            pipeline: columns.text("d_pipeline"),
            publisher: columns.text("d_publisher"),
            target: columns.text("d_target"),
            maybe_sent: interrupted || columns.flag("d_maybe_sent"),
            interrupted,
            attempts: u32::try_from(columns.integer("d_attempts")).unwrap_or(u32::MAX),
            progress: columns.optional_text("d_progress"),
            created_at: columns.time("d_created_at"),
            due_since: columns.time("d_due_since"),
        };
        let body = columns.optional_text("stored_body");
        columns.end(Self {
            delivery,
            generation: Generation::read(row),
            body,
        })
    }
}

/// One lane: what one account owes at one publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The publisher.
    pub publisher: String,
    /// The account.
    pub account: String,
    /// Since when its oldest pending delivery is due, or when it will be.
    pub due_at: Timestamp,
}

/// The lanes that owe something, at most `limit`, from the one behind the kept cursor on and around.
/// Each costs a few index seeks, however much it owes. Each row tells its publisher's circuit too.
pub fn lanes(limit: usize) -> Statement {
    statement(LANES, vec![count(limit)])
}

/// Reads a row of [`lanes`].
pub fn read_lane(row: Row<'_>) -> Result<Lane, DbError> {
    Ok(Lane {
        publisher: row.text("publisher")?,
        account: row.text("account")?,
        due_at: row.time("due_at")?,
    })
}

/// The failures in a row of a publisher and until when it is left alone, where it failed of late:
/// of a row of [`lanes`] or [`candidates_of`].
pub fn read_circuit(row: Row<'_>) -> Result<Option<(i64, Timestamp)>, DbError> {
    let failures = row.optional_integer("failures")?;
    Ok(failures.zip(row.optional_time("open_until")?))
}

/// What is due at `now` in at most [`SLOTS`] lanes, each with how many rows it may give: the oldest
/// first, with their generations and small outputs. Nothing is leased by it.
pub fn candidates(lanes: &[(&Lane, usize)], now: Timestamp) -> Statement {
    let slots: Vec<serde_json::Value> = lanes
        .iter()
        .map(|(lane, quota)| serde_json::json!([lane.publisher, lane.account, quota]))
        .collect();
    let slots = serde_json::Value::Array(slots).to_string();
    statement(CANDIDATES, candidates_params(&slots, now))
}

/// What one generation owes and is due, except where the publisher is left alone.
pub fn candidates_of(generation_id: &str, now: Timestamp) -> Statement {
    statement(CANDIDATES_OF, candidates_params(generation_id, now))
}

fn candidates_params(of: &str, now: Timestamp) -> Vec<SqlValue> {
    vec![
        text(of),
        integer(now.millis()),
        integer(latest_end(now).millis()),
    ]
}

/// Records how publishers fared: `[publisher, failures in a row, left alone until]` each.
pub fn keep_circuits(changed: &[(String, i64, Timestamp)]) -> Statement {
    let list: Vec<serde_json::Value> = changed
        .iter()
        .map(|(name, failures, until)| serde_json::json!([name, failures, until.millis()]))
        .collect();
    statement(
        "INSERT INTO circuits (publisher, failures, open_until) \
         SELECT value ->> '$[0]', value ->> '$[1]', value ->> '$[2]' FROM json_each(?1) \
         WHERE true ON CONFLICT (publisher) DO UPDATE SET failures = excluded.failures, \
           open_until = excluded.open_until",
        vec![text(serde_json::Value::Array(list).to_string())],
    )
}

/// Behind which lane the next drain starts.
pub fn keep_cursor(lane: &Lane) -> Statement {
    let cursor = serde_json::json!([lane.publisher, lane.account]).to_string();
    statement(
        "INSERT INTO meta (name, value) VALUES ('drain_cursor', ?1) \
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        vec![text(cursor)],
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
            vec![
                text(id),
                optional(account),
                integer(now.millis()),
                integer(latest_end(now).millis()),
            ],
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
        (None, Some("dead" | "outcome_unknown")) => LIST_UNWELL,
        (None, Some("pending")) => LIST_PENDING,
        (None, Some("cancelled")) => LIST_CANCELLED,
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

/// The next lane of the due index, found by `$seek`, as `[publisher, account, since when]`: all of it
/// is in the index.
macro_rules! seek_sql {
    ($seek:literal, $order:literal) => {
        concat!(
            "(SELECT json_array(e.publisher, e.account, e.next_attempt_at) \
             FROM deliveries e INDEXED BY deliveries_due WHERE e.status = 'pending' ",
            $seek,
            " ORDER BY ",
            $order,
            " LIMIT 1)"
        )
    };
}

/// Whether the walk has gone past the last lane, up to where it is.
macro_rules! around_sql {
    () => {
        "(around OR (n > 0 AND (here ->> 0, here ->> 1) <= (before ->> 0, before ->> 1)))"
    };
}

// A loose index scan: from one lane to the next by seeking. It starts behind the cursor, goes on at
// the first lane after the last, and ends where it started. A row value would be no seek: SQLite
// uses its first column only, and so reads all that a lane owes.
const LANES: &str = concat!(
    "WITH RECURSIVE lane (here, before, n, cursor, around) AS ( \
       SELECT c, c, 0, c, c = '[\"\",\"\"]' FROM (SELECT COALESCE( \
         (SELECT value FROM meta WHERE name = 'drain_cursor'), '[\"\",\"\"]') AS c) \
       UNION ALL \
       SELECT COALESCE(",
    seek_sql!(
        "AND e.publisher = here ->> 0 AND e.account > here ->> 1",
        "e.account, e.next_attempt_at"
    ),
    ", ",
    seek_sql!(
        "AND e.publisher > here ->> 0",
        "e.publisher, e.account, e.next_attempt_at"
    ),
    ", CASE WHEN NOT ",
    around_sql!(),
    " THEN ",
    seek_sql!("", "e.publisher, e.account, e.next_attempt_at"),
    " END), here, n + 1, cursor, ",
    around_sql!(),
    " FROM lane WHERE here IS NOT NULL AND n < ?1 AND NOT (cursor ->> 0 <> '' AND ",
    around_sql!(),
    " AND (here ->> 0, here ->> 1) >= (cursor ->> 0, cursor ->> 1))) \
     SELECT here ->> 0 AS publisher, here ->> 1 AS account, here ->> 2 AS due_at, \
       c.failures, c.open_until FROM lane LEFT JOIN circuits c ON c.publisher = here ->> 0 \
     WHERE n > 0 AND here IS NOT NULL AND NOT (cursor ->> 0 <> '' AND ",
    around_sql!(),
    " AND (here ->> 0, here ->> 1) > (cursor ->> 0, cursor ->> 1))"
);

/// What a drain wants to know of a due delivery. A generation that is gone hides none of them.
macro_rules! candidate_sql {
    ($more:literal, $from:literal, $where:literal) => {
        concat!(
            "SELECT d.id AS d_id, d.generation_id AS d_generation_id, d.account AS d_account, \
               d.site AS d_site, d.pipeline AS d_pipeline, d.publisher AS d_publisher, \
               d.target AS d_target, d.lease_token AS d_lease_token, \
               d.maybe_sent AS d_maybe_sent, d.attempts AS d_attempts, d.progress AS d_progress, \
               d.created_at AS d_created_at, d.due_since AS d_due_since, ",
            $more,
            "g.*, '[]' AS destinations, \
             CASE WHEN g.output_where = 'd1' AND g.output_parts = 1 AND length(o.body) <= 65536 \
               THEN o.body END AS stored_body \
             FROM deliveries d ",
            $from,
            " LEFT JOIN generations g ON g.id = d.generation_id \
             LEFT JOIN outputs o ON o.output_id = g.output_id AND o.part = 0 \
             WHERE d.status = 'pending' AND d.next_attempt_at <= ?2 \
               AND (d.lease_until <= ?2 OR d.lease_until > ?3) AND ",
            $where
        )
    };
}

/// One lane of [`candidates`].
macro_rules! slot_sql {
    ($publisher:literal, $account:literal, $quota:literal) => {
        concat!(
            "SELECT * FROM (",
            candidate_sql!("", "INDEXED BY deliveries_due", "d.publisher = "),
            "json_extract(?1, '",
            $publisher,
            "') AND d.account = json_extract(?1, '",
            $account,
            "') ORDER BY d.next_attempt_at LIMIT COALESCE(json_extract(?1, '",
            $quota,
            "'), 0))"
        )
    };
}

/// Lanes that one statement of [`candidates`] looks into: D1 takes no more terms in a `UNION`.
pub const SLOTS: usize = 5;

const CANDIDATES: &str = concat!(
    slot_sql!("$[0][0]", "$[0][1]", "$[0][2]"),
    " UNION ALL ",
    slot_sql!("$[1][0]", "$[1][1]", "$[1][2]"),
    " UNION ALL ",
    slot_sql!("$[2][0]", "$[2][1]", "$[2][2]"),
    " UNION ALL ",
    slot_sql!("$[3][0]", "$[3][1]", "$[3][2]"),
    " UNION ALL ",
    slot_sql!("$[4][0]", "$[4][1]", "$[4][2]"),
);

const CANDIDATES_OF: &str = candidate_sql!(
    "c.failures, c.open_until, ",
    "INDEXED BY deliveries_by_generation LEFT JOIN circuits c ON c.publisher = d.publisher",
    "d.generation_id = ?1"
);

const REQUEUE: &str = "UPDATE deliveries SET status = 'pending', next_attempt_at = ?3, \
  due_since = ?3, attempted_at = NULL, attempts = 0, lease_token = NULL, lease_until = 0, \
  error = NULL, final_at = NULL, stale_alerted = 0 \
WHERE id = ?1 AND (?2 IS NULL OR account = ?2) \
  AND status IN ('dead', 'cancelled', 'outcome_unknown')";

const CANCEL: &str = "UPDATE deliveries SET status = 'cancelled', lease_token = NULL, \
  lease_until = 0, final_at = ?3 \
WHERE id = ?1 AND (?2 IS NULL OR account = ?2) \
  AND (status IN ('dead', 'outcome_unknown') OR (status = 'pending' \
    AND (lease_token IS NULL OR lease_until <= ?3 OR lease_until > ?4)))";

const LIST_BY_STATUS: &str = "SELECT * FROM deliveries WHERE account = ?1 AND status = ?2 \
  AND (?3 IS NULL OR publisher = ?3) AND (created_at, id) < (?4, ?5) \
ORDER BY created_at DESC, id DESC LIMIT ?6";

const LIST_BY_ACCOUNT: &str = "SELECT * FROM deliveries WHERE account = ?1 AND ?2 IS NULL \
  AND status <> 'waiting' AND (?3 IS NULL OR publisher = ?3) AND (created_at, id) < (?4, ?5) \
ORDER BY created_at DESC, id DESC LIMIT ?6";

/// A page over all accounts, for administrators.
macro_rules! list_sql {
    ($index:literal, $status:literal) => {
        concat!(
            "SELECT * FROM deliveries INDEXED BY ",
            $index,
            " WHERE ?1 IS NULL AND ",
            $status,
            " AND (?3 IS NULL OR publisher = ?3) AND (created_at, id) < (?4, ?5) \
             ORDER BY created_at DESC, id DESC LIMIT ?6"
        )
    };
}

const LIST_UNWELL: &str = list_sql!(
    "deliveries_unwell",
    "status = ?2 AND status IN ('dead', 'outcome_unknown')"
);
const LIST_PENDING: &str = list_sql!("deliveries_due", "?2 = 'pending' AND status = 'pending'");
const LIST_CANCELLED: &str = list_sql!(
    "deliveries_cancelled",
    "?2 = 'cancelled' AND status = 'cancelled'"
);
const LIST_ALL: &str = list_sql!(
    "deliveries_by_time",
    "(?2 IS NULL OR status = ?2) AND status <> 'waiting'"
);
