//! Leases of deliveries: whose turn it is, and what its holder makes of a row.
//!
//! A lease is live from the moment it was taken until it ends, give or take one lease's length. One
//! that ends later than that was given under a clock that has been set back since; it holds nothing,
//! or a row would wait for as long as the clock was wrong.

use crate::limits::DELIVERY_LEASE;
use crate::ports::{SqlValue, Statement};
use crate::store::{integer, optional, statement, text};
use crate::time::Timestamp;

/// Lanes that another drain is writing to. Leased rows are few, and those that have a lane are in
/// an index of their own: most of the time it is empty.
macro_rules! busy_lanes_sql {
    () => {
        "SELECT o.serial_lane FROM deliveries o INDEXED BY deliveries_in_serial_lane \
         WHERE o.serial_lane IS NOT NULL AND o.lease_token IS NOT NULL \
           AND o.lease_token <> ?51 AND o.lease_until > ?55 AND o.lease_until <= ?54"
    };
}

/// What a drain holds its rows by.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The fencing token.
    pub token: String,
    /// When it was taken.
    pub from: Timestamp,
    /// When it ends.
    pub until: Timestamp,
}

impl Lease {
    /// A lease that begins now.
    pub fn new(token: String, now: Timestamp) -> Self {
        Self {
            token,
            from: now,
            until: now.plus(DELIVERY_LEASE),
        }
    }

    /// Whether its holder may still act. Where the clock was set back, others hold it for over.
    pub fn is_live(&self, now: Timestamp) -> bool {
        now < self.until && now > self.from.minus(DELIVERY_LEASE)
    }
}

/// No live lease ends after this.
pub(super) fn latest_end(now: Timestamp) -> Timestamp {
    now.plus(DELIVERY_LEASE).plus(DELIVERY_LEASE)
}

/// Leases at most [`LEASED_AT_ONCE`] deliveries, due at `now`, by id; those that another drain took
/// in the meantime stay its own. Running it again under the same token leases the same rows.
pub fn lease(ids: &[&str], lease: &Lease, now: Timestamp) -> Statement {
    statement(LEASE, lease_params(ids, lease, now))
}

/// The same for deliveries that each have a serial lane, as pairs of id and lane: none is leased
/// whose lane another drain is writing to, though it counts as changed. Whether there is such a lane
/// is what [`busy_lanes`] tells in the same batch.
pub fn lease_serial(rows: &[(&str, &str)], lease: &Lease, now: Timestamp) -> Statement {
    let ids: Vec<&str> = rows.iter().map(|(id, _)| *id).collect();
    let lanes: serde_json::Map<String, serde_json::Value> = rows
        .iter()
        .map(|(id, lane)| ((*id).to_owned(), (*lane).into()))
        .collect();
    let mut params = lease_params(&ids, lease, now);
    params.push(text(serde_json::Value::Object(lanes).to_string()));
    statement(LEASE_SERIAL, params)
}

fn lease_params(ids: &[&str], lease: &Lease, now: Timestamp) -> Vec<SqlValue> {
    let mut params = id_params(ids);
    params.extend([
        text(&lease.token),
        integer(lease.until.millis()),
        integer(now.millis()),
        // A drain may be minutes old, or its clock have jumped since: what others hold is judged by
        // the clock as it is, and nothing that was live when the row was read counts as over.
        integer(latest_end(lease.from.max(now)).millis()),
        integer(now.min(lease.from).millis()),
    ]);
    params
}

/// The lanes that others than `lease` are writing to.
pub fn busy_lanes(lease: &Lease, now: Timestamp) -> Statement {
    statement(busy_lanes_sql!(), lease_params(&[], lease, now))
}

/// Which of at most [`LEASED_AT_ONCE`] deliveries are leased under `token`.
pub fn held(ids: &[&str], token: &str) -> Statement {
    let mut params = id_params(ids);
    params.push(text(token));
    statement(HELD, params)
}

fn id_params(ids: &[&str]) -> Vec<SqlValue> {
    let mut params: Vec<SqlValue> = ids.iter().map(|id| text(*id)).collect();
    // The same value again is not read again.
    let first = params.first().cloned().unwrap_or(SqlValue::Null);
    params.resize(LEASED_AT_ONCE, first);
    params
}

/// How an attempt changes its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// The new status: `pending` to try again.
    pub status: &'static str,
    /// When to try again.
    pub next_attempt_at: Timestamp,
    /// Attempts so far, this one included where it counts.
    pub attempts: u32,
    /// Whether it may have taken effect.
    pub maybe_sent: bool,
    /// What a later attempt should know.
    pub progress: Option<String>,
    /// The destination's id or URL.
    pub reference: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// The attempt as JSON, for the log; `None` where there was none.
    pub attempt: Option<String>,
}

/// Ends an attempt under its lease's token, and changes exactly that row; a drain that lost its
/// lease changes nothing. Running it again, after a lost reply, changes the same row to the same.
pub fn finish(id: &str, token: &str, finish: &Finish, now: Timestamp) -> Statement {
    statement(
        FINISH,
        vec![
            text(id),
            text(token),
            text(finish.status),
            integer(finish.next_attempt_at.millis()),
            integer(finish.attempts),
            integer(finish.maybe_sent),
            optional(finish.progress.as_deref()),
            optional(finish.reference.as_deref()),
            optional(finish.error.as_deref()),
            optional(finish.attempt.as_deref()),
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

/// Gives leases back unspent: the rows are as due as they were, no attempt is counted.
pub fn give_back(ids: &str, token: &str) -> Statement {
    statement(
        "UPDATE deliveries SET lease_token = NULL, lease_until = 0 \
         WHERE id IN (SELECT value FROM json_each(?1)) AND lease_token = ?2 \
           AND status = 'pending'",
        vec![text(ids), text(token)],
    )
}

/// Rows that one statement leases. Ids in a list of parameters cost half of what a subquery costs:
/// the update then runs in one pass.
pub const LEASED_AT_ONCE: usize = 50;

macro_rules! id_slots {
    () => {
        "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, \
          ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, \
          ?39, ?40, ?41, ?42, ?43, ?44, ?45, ?46, ?47, ?48, ?49, ?50)"
    };
}

/// What both forms of the lease share. A row that still carries a token was leased by somebody who
/// never came back: what it was sending may have arrived.
macro_rules! lease_terms_sql {
    () => {
        concat!(
            ", maybe_sent = CASE WHEN lease_token IS NOT NULL AND lease_token <> ?51 THEN 1 \
               ELSE maybe_sent END \
             WHERE id IN ",
            id_slots!(),
            " AND status = 'pending' AND next_attempt_at <= ?53 \
              AND (lease_until <= ?55 OR lease_until > ?54 OR lease_token = ?51)"
        )
    };
}

const LEASE: &str = concat!(
    "UPDATE deliveries SET lease_token = ?51, lease_until = ?52, serial_lane = NULL",
    lease_terms_sql!()
);

/// One column of a lease: as it was where the row's lane is busy. The lanes are looked up once, at
/// the first row; a condition on them would cost a second pass over the rows.
macro_rules! unless_busy {
    ($column:literal, $value:literal) => {
        concat!(
            $column,
            " = CASE WHEN ?56 ->> id IN (",
            busy_lanes_sql!(),
            ") THEN ",
            $column,
            " ELSE ",
            $value,
            " END, "
        )
    };
}

const LEASE_SERIAL: &str = concat!(
    "UPDATE deliveries SET ",
    unless_busy!("lease_token", "?51"),
    unless_busy!("lease_until", "?52"),
    "serial_lane = ?56 ->> id",
    lease_terms_sql!()
);

const HELD: &str = concat!(
    "SELECT id FROM deliveries WHERE lease_token = ?51 AND id IN ",
    id_slots!()
);

const FINISH: &str = "UPDATE deliveries SET status = ?3, next_attempt_at = ?4, attempts = ?5, \
  maybe_sent = ?6, progress = ?7, reference = COALESCE(?8, reference), error = ?9, \
  lease_token = NULL, lease_until = 0, done_token = ?2, attempted_at = ?11, \
  attempt_log = CASE WHEN ?10 IS NULL OR done_token IS ?2 THEN attempt_log \
    WHEN json_array_length(attempt_log) >= 50 \
    THEN json_insert(json_remove(attempt_log, '$[0]'), '$[#]', json(?10)) \
    ELSE json_insert(attempt_log, '$[#]', json(?10)) END, \
  published_at = CASE WHEN ?3 = 'published' THEN ?11 ELSE published_at END, \
  final_at = CASE WHEN ?3 = 'pending' THEN NULL ELSE ?11 END \
WHERE id = ?1 AND ((lease_token = ?2 AND status = 'pending') \
  OR (done_token = ?2 AND lease_token IS NULL AND status = ?3))";
