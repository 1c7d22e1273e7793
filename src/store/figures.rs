//! Figures for people: what is owed and stuck, what a day came to. Every count stops at a bound and
//! goes through an index that holds nothing published, so that its cost does not grow with it.

use serde_json::{Value, json};

use crate::ports::{DbError, Statement};
use crate::store::row::Row;
use crate::store::{count, integer, statement, text};
use crate::time::Timestamp;

/// What is owed and stuck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries that are due or wait for their next attempt.
    pub pending: u64,
    /// Those of them that have been owed for too long.
    pub stale: u64,
    /// Since when the oldest is owed.
    pub oldest_at: Option<Timestamp>,
    /// Deliveries that wait for a person.
    pub dead: u64,
    /// Deliveries whose outcome nobody knows.
    pub outcome_unknown: u64,
    /// Held outputs.
    pub held: u64,
    /// Generations of unknown outcome.
    pub unknown: u64,
    /// Generations that run; `None` for one account, where no index tells.
    pub running: Option<u64>,
    /// Generations in the queue; `None` for one account.
    pub queued: Option<u64>,
}

/// What is owed and stuck of one account, or of all. No count goes beyond `limit`.
pub fn backlog(account: Option<&str>, stale_before: Timestamp, limit: usize) -> Statement {
    let mut params = vec![integer(stale_before.millis()), count(limit)];
    match account {
        None => statement(BACKLOG, params),
        Some(account) => {
            params.push(text(account));
            statement(BACKLOG_OF_ACCOUNT, params)
        }
    }
}

/// Reads [`backlog`].
pub fn read_backlog(row: Row<'_>) -> Result<Backlog, DbError> {
    let optional = |column: &str| -> Result<Option<u64>, DbError> {
        let value = row.optional_integer(column)?;
        Ok(value.map(|value| u64::try_from(value).unwrap_or(0)))
    };
    Ok(Backlog {
        pending: row.count("pending")?,
        stale: row.count("stale")?,
        oldest_at: row.optional_time("oldest")?,
        dead: row.count("dead")?,
        outcome_unknown: row.count("outcome_unknown")?,
        held: row.count("held")?,
        unknown: row.count("unknown")?,
        running: optional("running")?,
        queued: optional("queued")?,
    })
}

/// A count and what it has cost, or may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Risk {
    /// Deliveries or generations.
    pub count: u64,
    /// The price of what they deliver, each generation once, in micro-dollars.
    pub micro_usd: i64,
}

/// Money that was spent on what is not published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtRisk {
    /// Pending deliveries.
    pub pending: Risk,
    /// Dead deliveries.
    pub dead: Risk,
    /// Deliveries of unknown outcome.
    pub outcome_unknown: Risk,
    /// Held outputs.
    pub held: Risk,
    /// Generations of unknown outcome, at their estimate.
    pub unknown: Risk,
    /// All of it, each generation once, in micro-dollars.
    pub micro_usd: i64,
}

impl AtRisk {
    /// As the API shows it.
    pub fn to_json(&self) -> Value {
        let shown = |risk: Risk| json!({"count": risk.count, "microUsd": risk.micro_usd});
        json!({
            "pending": shown(self.pending),
            "dead": shown(self.dead),
            "outcomeUnknown": shown(self.outcome_unknown),
            "held": shown(self.held),
            "unknown": shown(self.unknown),
            "microUsd": self.micro_usd,
        })
    }
}

/// The money at risk of one account, or of all: two statements.
pub fn at_risk(account: Option<&str>, limit: usize) -> Vec<Statement> {
    let all = vec![count(limit)];
    match account {
        None => vec![
            statement(RISK_OF_DELIVERIES, all.clone()),
            statement(RISK_OF_GENERATIONS, all),
        ],
        Some(account) => {
            let own = vec![count(limit), text(account)];
            vec![
                statement(RISK_OF_ACCOUNTS_DELIVERIES, own.clone()),
                statement(RISK_OF_ACCOUNTS_GENERATIONS, own),
            ]
        }
    }
}

/// Reads [`at_risk`].
pub fn read_at_risk(deliveries: Row<'_>, generations: Row<'_>) -> Result<AtRisk, DbError> {
    let micro = |nano: i64| nano.max(0).saturating_add(999) / 1_000;
    let priced = |row: Row<'_>, column: &str| -> Result<Risk, DbError> {
        Ok(Risk {
            count: row.count(column)?,
            micro_usd: micro(row.integer(&format!("{column}_nano"))?),
        })
    };
    let held = priced(generations, "held")?;
    let unknown = Risk {
        count: generations.count("unknown")?,
        micro_usd: generations.integer("unknown_micro")?,
    };
    Ok(AtRisk {
        pending: priced(deliveries, "pending")?,
        dead: priced(deliveries, "dead")?,
        outcome_unknown: priced(deliveries, "outcome_unknown")?,
        held,
        unknown,
        micro_usd: micro(deliveries.integer("any_nano")?)
            .saturating_add(held.micro_usd)
            .saturating_add(unknown.micro_usd),
    })
}

/// Operations on KV and those that failed, in the days (UTC) from `day` on.
pub fn key_value(day: &str) -> Statement {
    statement(KEY_VALUE, vec![text(day)])
}

/// Reads [`key_value`]: operations, failures.
pub fn read_key_value(row: Row<'_>) -> Result<(u64, u64), DbError> {
    Ok((row.count("asked")?, row.count("failed")?))
}

/// The share of failures; `None` where nothing was asked.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a week are far below 2^53"
)]
pub fn share(failed: u64, asked: u64) -> Option<f64> {
    (asked > 0).then(|| failed as f64 / asked as f64)
}

/// The time zones of the accounts.
pub fn zones() -> Statement {
    statement("SELECT DISTINCT timezone FROM accounts", Vec::new())
}

/// What the given days came to, by account and site, the dearest first. `days` is a JSON object of
/// time zone to date: each account's own day counts.
pub fn days(days: &str, limit: usize) -> Vec<Statement> {
    vec![
        statement(DAYS_TOTAL, vec![text(days)]),
        statement(DAYS_BY_SITE, vec![text(days), count(limit)]),
    ]
}

/// The same for one account and its `day`.
pub fn day_of(account: &str, day: &str, limit: usize) -> Vec<Statement> {
    vec![
        statement(DAY_TOTAL, vec![text(account), text(day)]),
        statement(DAY_BY_SITE, vec![text(account), text(day), count(limit)]),
    ]
}

/// Figures are exact up to so many rows a kind, and stop there.
pub const ROWS_MAX: usize = 10_000;

// SQLite uses a partial index only where the query repeats the index's own condition.
macro_rules! counted {
    ($from:literal) => {
        concat!(
            "(SELECT COUNT(*) FROM (SELECT 1 FROM ",
            $from,
            " LIMIT ?2))"
        )
    };
}

const BACKLOG: &str = concat!(
    "SELECT ",
    counted!("deliveries INDEXED BY deliveries_stale WHERE status = 'pending'"),
    " AS pending, ",
    counted!(
        "deliveries INDEXED BY deliveries_stale WHERE status = 'pending' \
         AND stale_alerted IN (0, 1) AND due_since <= ?1"
    ),
    " AS stale, (SELECT MIN(at) FROM ( \
       SELECT MIN(due_since) AS at FROM deliveries INDEXED BY deliveries_stale \
       WHERE status = 'pending' AND stale_alerted = 0 \
       UNION ALL \
       SELECT MIN(due_since) AS at FROM deliveries INDEXED BY deliveries_stale \
       WHERE status = 'pending' AND stale_alerted = 1)) AS oldest, ",
    counted!(
        "deliveries INDEXED BY deliveries_unwell WHERE status = 'dead' \
         AND status IN ('dead', 'outcome_unknown')"
    ),
    " AS dead, ",
    counted!(
        "deliveries INDEXED BY deliveries_unwell WHERE status = 'outcome_unknown' \
         AND status IN ('dead', 'outcome_unknown')"
    ),
    " AS outcome_unknown, ",
    counted!(
        "generations INDEXED BY generations_unsettled WHERE state = 'held' \
         AND state IN ('queued', 'running', 'unknown', 'held')"
    ),
    " AS held, ",
    counted!(
        "generations INDEXED BY generations_unsettled WHERE state = 'unknown' \
         AND state IN ('queued', 'running', 'unknown', 'held')"
    ),
    " AS unknown, ",
    counted!(
        "generations INDEXED BY generations_unsettled WHERE state = 'running' \
         AND state IN ('queued', 'running', 'unknown', 'held')"
    ),
    " AS running, ",
    counted!(
        "generations INDEXED BY generations_unsettled WHERE state = 'queued' \
         AND state IN ('queued', 'running', 'unknown', 'held')"
    ),
    " AS queued"
);

const BACKLOG_OF_ACCOUNT: &str = concat!(
    "WITH owed AS MATERIALIZED (SELECT due_since FROM deliveries \
       INDEXED BY deliveries_by_status WHERE account = ?3 AND status = 'pending' LIMIT ?2) \
     SELECT (SELECT COUNT(*) FROM owed) AS pending, \
       (SELECT COUNT(*) FROM owed WHERE due_since <= ?1) AS stale, \
       (SELECT MIN(due_since) FROM owed) AS oldest, ",
    counted!("deliveries INDEXED BY deliveries_by_status WHERE account = ?3 AND status = 'dead'"),
    " AS dead, ",
    counted!(
        "deliveries INDEXED BY deliveries_by_status \
         WHERE account = ?3 AND status = 'outcome_unknown'"
    ),
    " AS outcome_unknown, ",
    counted!(
        "generations INDEXED BY generations_stuck WHERE account = ?3 AND state = 'held' \
         AND state IN ('held', 'unknown')"
    ),
    " AS held, ",
    counted!(
        "generations INDEXED BY generations_stuck WHERE account = ?3 AND state = 'unknown' \
         AND state IN ('held', 'unknown')"
    ),
    " AS unknown, NULL AS running, NULL AS queued"
);

macro_rules! risk_of_deliveries {
    ($pending:literal, $unwell:literal, $account:literal) => {
        concat!(
            "WITH p AS MATERIALIZED (SELECT generation_id FROM deliveries INDEXED BY ",
            $pending,
            " WHERE ",
            $account,
            "status = 'pending' LIMIT ?1), \
             d AS MATERIALIZED (SELECT generation_id FROM deliveries INDEXED BY ",
            $unwell,
            " WHERE ",
            $account,
            "status = 'dead' AND status IN ('dead', 'outcome_unknown') LIMIT ?1), \
             o AS MATERIALIZED (SELECT generation_id FROM deliveries INDEXED BY ",
            $unwell,
            " WHERE ",
            $account,
            "status = 'outcome_unknown' AND status IN ('dead', 'outcome_unknown') LIMIT ?1) \
             SELECT (SELECT COUNT(*) FROM p) AS pending, \
               (SELECT COALESCE(SUM(cost_nano), 0) FROM generations \
                 WHERE id IN (SELECT generation_id FROM p)) AS pending_nano, \
               (SELECT COUNT(*) FROM d) AS dead, \
               (SELECT COALESCE(SUM(cost_nano), 0) FROM generations \
                 WHERE id IN (SELECT generation_id FROM d)) AS dead_nano, \
               (SELECT COUNT(*) FROM o) AS outcome_unknown, \
               (SELECT COALESCE(SUM(cost_nano), 0) FROM generations \
                 WHERE id IN (SELECT generation_id FROM o)) AS outcome_unknown_nano, \
               (SELECT COALESCE(SUM(cost_nano), 0) FROM generations \
                 WHERE id IN (SELECT generation_id FROM p UNION SELECT generation_id FROM d \
                   UNION SELECT generation_id FROM o)) AS any_nano"
        )
    };
}

const RISK_OF_DELIVERIES: &str = risk_of_deliveries!("deliveries_stale", "deliveries_unwell", "");
const RISK_OF_ACCOUNTS_DELIVERIES: &str = risk_of_deliveries!(
    "deliveries_by_status",
    "deliveries_by_status",
    "account = ?2 AND "
);

macro_rules! risk_of_generations {
    ($index:literal, $account:literal) => {
        concat!(
            "WITH h AS MATERIALIZED (SELECT cost_nano FROM generations INDEXED BY ",
            $index,
            " WHERE ",
            $account,
            "state = 'held' AND state IN ('queued', 'running', 'unknown', 'held') \
               AND state IN ('held', 'unknown') LIMIT ?1), \
             u AS MATERIALIZED (SELECT credits_reserved FROM generations INDEXED BY ",
            $index,
            " WHERE ",
            $account,
            "state = 'unknown' AND state IN ('queued', 'running', 'unknown', 'held') \
               AND state IN ('held', 'unknown') LIMIT ?1) \
             SELECT (SELECT COUNT(*) FROM h) AS held, \
               (SELECT COALESCE(SUM(cost_nano), 0) FROM h) AS held_nano, \
               (SELECT COUNT(*) FROM u) AS unknown, \
               (SELECT COALESCE(SUM(credits_reserved), 0) FROM u) AS unknown_micro"
        )
    };
}

const RISK_OF_GENERATIONS: &str = risk_of_generations!("generations_unsettled", "");
const RISK_OF_ACCOUNTS_GENERATIONS: &str =
    risk_of_generations!("generations_stuck", "account = ?2 AND ");

const KEY_VALUE: &str = "SELECT \
  COALESCE(SUM(CASE WHEN name IN ('kv_read', 'kv_write') THEN count END), 0) AS asked, \
  COALESCE(SUM(CASE WHEN name IN ('kv_read_error', 'kv_write_error') THEN count END), 0) AS failed \
FROM counters WHERE day >= ?1";

macro_rules! sums {
    () => {
        "COALESCE(SUM(u.generations), 0) AS generations, \
         COALESCE(SUM(u.published), 0) AS published, COALESCE(SUM(u.replays), 0) AS replays, \
         COALESCE(SUM(u.saved_nano), 0) AS saved_nano, \
         COALESCE(SUM(u.cost_nano), 0) AS cost_nano "
    };
}

macro_rules! of_days {
    () => {
        "FROM json_each(?1) z CROSS JOIN usage_days u INDEXED BY usage_days_by_day \
           ON u.day = z.value \
         CROSS JOIN accounts a ON a.account = u.account AND a.timezone = z.key "
    };
}

const DAYS_TOTAL: &str = concat!("SELECT ", sums!(), of_days!());
const DAYS_BY_SITE: &str = concat!(
    "SELECT u.account, u.site, ",
    sums!(),
    of_days!(),
    "GROUP BY u.account, u.site ORDER BY cost_nano DESC, u.account, u.site LIMIT ?2"
);
const DAY_TOTAL: &str = concat!(
    "SELECT ",
    sums!(),
    "FROM usage_days u WHERE u.account = ?1 AND u.day = ?2"
);
const DAY_BY_SITE: &str = concat!(
    "SELECT u.account, u.site, ",
    sums!(),
    "FROM usage_days u WHERE u.account = ?1 AND u.day = ?2 \
     GROUP BY u.account, u.site ORDER BY cost_nano DESC, u.site LIMIT ?3"
);
