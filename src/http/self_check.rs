//! The administrator's self-check: every row that is not final is reached by exactly one handler.
//!
//! The drain reaches what is pending, the reconciler what is queued, running or unknown, a person
//! what is held or dead, the purge what nobody is owed. A row that falls between them is told here
//! by its id; there should never be one.

use serde_json::{Value, json};

use crate::app::App;
use crate::limits::LEASE;
use crate::ports::DbError;
use crate::store::row::rows;
use crate::store::{integer, statement};
use crate::time::Span;

/// Looks for rows that no handler reaches, at most 20 of each kind, among at most
/// 10,000 rows.
pub async fn self_check(app: &App) -> Result<Value, DbError> {
    let far = app.now().plus(LEASE).plus(LEASE_FAR);
    let batch = vec![
        statement(OWED_BY_NOTHING, vec![integer(ROWS_MAX), integer(FOUND_MAX)]),
        statement(OWED_TO_NOBODY, vec![integer(ROWS_MAX), integer(FOUND_MAX)]),
        statement(
            LEASED_FOR_EVER,
            vec![integer(far.millis()), integer(FOUND_MAX)],
        ),
    ];
    let results = app.run(batch).await?;
    let mut unreachable: Vec<Value> = Vec::new();
    for (index, why) in REASONS.into_iter().enumerate() {
        for row in rows(&results, index)? {
            unreachable.push(json!({"id": row.text("id")?, "reason": why}));
        }
    }
    Ok(json!({"unreachable": unreachable}))
}

const REASONS: [&str; 3] = [
    "a pending delivery without a generated output: the drain can't publish it",
    "an output that counts as owed although no delivery of it is open: the purge never reaches it",
    "a lease that ends far in the future: the reconciler would wait for it",
];

const OWED_BY_NOTHING: &str = "SELECT d.id FROM (SELECT id, generation_id FROM deliveries \
    WHERE status = 'pending' ORDER BY due_since LIMIT ?1) d \
  LEFT JOIN generations g ON g.id = d.generation_id \
  WHERE g.id IS NULL OR g.state <> 'generated' LIMIT ?2";

const OWED_TO_NOBODY: &str = "SELECT g.id FROM (SELECT id FROM generations \
    WHERE state = 'generated' AND purge_at IS NULL LIMIT ?1) g \
  WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.generation_id = g.id \
    AND d.status IN ('pending', 'outcome_unknown')) LIMIT ?2";

const LEASED_FOR_EVER: &str = "SELECT id FROM generations \
  WHERE state IN ('queued', 'running', 'unknown', 'held') AND state IN ('queued', 'running') \
    AND lease_until > ?1 LIMIT ?2";

/// Rows of one kind that are looked at.
const ROWS_MAX: i64 = 10_000;
/// Rows of one kind that are told.
const FOUND_MAX: i64 = 20;
/// A queued job waits for its message up to 12 hours; a lease beyond that was set by a wrong clock.
const LEASE_FAR: Span = Span::from_hours(13);
