//! What the cron trigger looks after: ticks, overdue generations, stale deliveries, purge.

use crate::limits::RETENTION;
use crate::ports::Statement;
use crate::store::{count, integer, statement, text};
use crate::time::{Span, Timestamp};

/// Records a firing of the cron trigger. The row's token is the first firing's, so a second firing
/// for the same minute finds another token than its own and does nothing.
pub fn tick(scheduled_at: Timestamp, token: &str, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            "INSERT INTO ticks (scheduled_at, token, started_at) VALUES (?1, ?2, ?3) \
             ON CONFLICT (scheduled_at) DO UPDATE SET fired = fired + 1 WHERE token <> ?2",
            vec![
                integer(scheduled_at.millis()),
                text(token),
                integer(now.millis()),
            ],
        ),
        statement(
            "SELECT token FROM ticks WHERE scheduled_at = ?1",
            vec![integer(scheduled_at.millis())],
        ),
    ]
}

/// Records what a tick did.
pub fn finish_tick(scheduled_at: Timestamp, summary: &str, now: Timestamp) -> Statement {
    statement(
        "UPDATE ticks SET finished_at = ?2, summary = ?3 WHERE scheduled_at = ?1",
        vec![
            integer(scheduled_at.millis()),
            integer(now.millis()),
            text(summary),
        ],
    )
}

/// Which unsettled generations a tick looks at.
#[derive(Clone, Copy, Debug)]
pub struct Overdue {
    /// Running ones whose lease ended before now.
    pub now: Timestamp,
    /// Running ones whose lease ends in this range: young enough that their start may be missing.
    pub young: (Timestamp, Timestamp),
    /// Unknown ones under derived keys whose lease ended before this; none where a person decides.
    pub decided: Option<Timestamp>,
    /// At most so many.
    pub limit: usize,
}

/// Generations that a tick looks at, most overdue first. Unknown ones under operation keys wait
/// for a person and are not among them.
pub fn unsettled(overdue: &Overdue) -> Statement {
    let decided = overdue
        .decided
        .map_or(crate::ports::SqlValue::Null, |at| integer(at.millis()));
    statement(
        UNSETTLED,
        vec![
            integer(overdue.now.millis()),
            integer(overdue.young.0.millis()),
            integer(overdue.young.1.millis()),
            decided,
            count(overdue.limit),
        ],
    )
}

/// Puts off the next look at a queued generation whose message is sent again.
pub fn await_message(id: &str, until: Timestamp) -> Statement {
    statement(
        "UPDATE generations SET lease_until = ?2 WHERE id = ?1 AND state = 'queued'",
        vec![text(id), integer(until.millis())],
    )
}

/// Measures waits anew that began in the future, under a clock that has been set back since: each is
/// as long as it was meant to be, from now on.
pub fn mend_waits(now: Timestamp, limit: usize) -> Statement {
    statement(
        MEND_WAITS,
        vec![
            integer(now.millis()),
            integer(now.plus(CLOCKS_APART).millis()),
            count(limit),
        ],
    )
}

/// Pending deliveries that have been owed since before `threshold`, once each: marks them and adds
/// one alert a pipeline.
pub fn alert_stale(threshold: Timestamp, now: Timestamp, limit: usize) -> Vec<Statement> {
    vec![
        statement(
            "INSERT INTO alerts (kind, account, site, pipeline, count, topic, opened_at, \
               newest_at, closes_at, state, next_attempt_at) \
             SELECT 'stale', account, site, pipeline, n, \
               (SELECT topic FROM generations g WHERE g.id = newest), ?2, ?2, ?3, 'open', ?3 \
             FROM (SELECT account, site, pipeline, COUNT(*) AS n, MAX(generation_id) AS newest \
               FROM (SELECT * FROM deliveries WHERE status = 'pending' AND stale_alerted = 0 \
                 AND due_since <= ?1 ORDER BY due_since LIMIT ?4) \
               GROUP BY account, site, pipeline) WHERE true \
             ON CONFLICT (kind, account, site, pipeline) WHERE state = 'open' DO UPDATE SET \
               count = count + excluded.count, topic = excluded.topic, \
               newest_at = excluded.newest_at",
            vec![
                integer(threshold.millis()),
                integer(now.millis()),
                integer(now.plus(super::alerts::BUNDLE).millis()),
                count(limit),
            ],
        ),
        statement(
            "UPDATE deliveries SET stale_alerted = 1 WHERE id IN (SELECT id FROM deliveries \
               WHERE status = 'pending' AND stale_alerted = 0 AND due_since <= ?1 \
               ORDER BY due_since LIMIT ?2)",
            vec![integer(threshold.millis()), count(limit)],
        ),
    ]
}

/// Generations past their retention, the oldest first, each with where its output lies: an object
/// in R2 goes before its row.
pub fn purgeable(now: Timestamp, limit: usize) -> Statement {
    statement(
        "SELECT id, output_id, output_where FROM generations \
         WHERE purge_at IS NOT NULL AND purge_at <= ?1 ORDER BY purge_at LIMIT ?2",
        vec![integer(now.millis()), count(limit)],
    )
}

/// Deletes those generations; their ids stay as tombstones.
pub fn purge(ids: &str, now: Timestamp) -> Vec<Statement> {
    let day = now.minus(Span::from_days(1));
    vec![
        statement(
            "DELETE FROM generations WHERE id IN (SELECT value FROM json_each(?1)) \
               AND purge_at <= ?2 AND owed = 0",
            vec![text(ids), integer(now.millis())],
        ),
        statement(
            "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE state = 'sent' \
               AND sent_at <= ?1 ORDER BY sent_at LIMIT 100)",
            vec![integer(now.minus(RETENTION).millis())],
        ),
        statement(
            "DELETE FROM ticks WHERE scheduled_at IN (SELECT scheduled_at FROM ticks \
               WHERE scheduled_at <= ?1 ORDER BY scheduled_at LIMIT 100)",
            vec![integer(now.minus(Span::from_days(7)).millis())],
        ),
        statement(
            "DELETE FROM flushes WHERE token IN (SELECT token FROM flushes WHERE at <= ?1 \
               ORDER BY at LIMIT 1000)",
            vec![integer(day.millis())],
        ),
    ]
}

// A wait begins with the newest attempt, or as a delivery becomes due.
const MEND_WAITS: &str = "UPDATE deliveries SET \
  next_attempt_at = MIN(next_attempt_at, \
    ?1 + MAX(0, next_attempt_at - COALESCE(attempted_at, due_since))), \
  attempted_at = MIN(attempted_at, ?1), due_since = MIN(due_since, ?1) \
WHERE id IN ( \
  SELECT * FROM (SELECT id FROM deliveries INDEXED BY deliveries_attempted \
    WHERE status = 'pending' AND attempted_at > ?2 LIMIT ?3) \
  UNION ALL \
  SELECT * FROM (SELECT id FROM deliveries INDEXED BY deliveries_stale \
    WHERE status = 'pending' AND stale_alerted IN (0, 1) AND due_since > ?2 LIMIT ?3))";

const UNSETTLED: &str = "SELECT id FROM ( \
  SELECT * FROM (SELECT id, lease_until FROM generations INDEXED BY generations_unsettled \
    WHERE state IN ('queued', 'running', 'unknown', 'held') AND state = 'running' \
      AND lease_until <= ?1 ORDER BY lease_until LIMIT ?5) \
  UNION ALL \
  SELECT * FROM (SELECT id, lease_until FROM generations INDEXED BY generations_unsettled \
    WHERE state IN ('queued', 'running', 'unknown', 'held') AND state = 'queued' \
      AND lease_until <= ?1 ORDER BY lease_until LIMIT ?5) \
  UNION ALL \
  SELECT * FROM (SELECT id, lease_until FROM generations INDEXED BY generations_to_decide \
    WHERE state = 'unknown' AND operation = 0 \
      AND lease_until <= ?4 ORDER BY lease_until LIMIT ?5) \
  UNION ALL \
  SELECT * FROM (SELECT id, lease_until FROM generations INDEXED BY generations_unsettled \
    WHERE state IN ('queued', 'running', 'unknown', 'held') AND state = 'running' \
      AND lease_until > ?2 AND lease_until <= ?3 ORDER BY lease_until LIMIT ?5)) \
LIMIT ?5";

/// Clocks differ by no more than this in ordinary times.
pub(super) const CLOCKS_APART: Span = Span::from_minutes(1);
