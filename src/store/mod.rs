//! The database behind the service: SQL text, row mapping, and when to try again.
//!
//! D1 in the Worker and SQLite in the tests run the same text. Every batch is one transaction and
//! **may be run twice**: each write carries its owner's token or a fixed id, so that a retry after
//! a lost reply finds its own rows and changes nothing.

pub mod accounts;
pub mod alerts;
pub mod audit;
pub mod claims;
pub mod counts;
pub mod deliveries;
pub mod digests;
pub mod evidence;
pub mod figures;
pub mod generations;
pub mod leases;
pub mod maintenance;
pub mod row;
pub mod settle;
pub mod usage;

use crate::ports::{Clock, Database, DbError, Random, Rows, SqlValue, Statement};
use crate::time::Span;

/// A statement and its values.
pub fn statement(sql: &'static str, params: Vec<SqlValue>) -> Statement {
    Statement { sql, params }
}

/// Text as an SQL value.
pub fn text(value: impl Into<String>) -> SqlValue {
    SqlValue::Text(value.into())
}

/// Text or `NULL`.
pub fn optional(value: Option<&str>) -> SqlValue {
    value.map_or(SqlValue::Null, |value| SqlValue::Text(value.to_owned()))
}

/// A whole number as an SQL value.
pub fn integer(value: impl Into<i64>) -> SqlValue {
    SqlValue::Integer(value.into())
}

/// A count as an SQL value; counts here are far below 2^53.
pub fn count(value: usize) -> SqlValue {
    SqlValue::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Runs a batch, and again where the fault is one that passes.
///
/// D1 never repeats a write by itself; its documentation asks for a few tries with growing,
/// jittered pauses. A batch here may run twice (see the module), so a lost reply is no reason to
/// stop.
pub async fn run(
    db: &dyn Database,
    clock: &dyn Clock,
    random: &dyn Random,
    batch: Vec<Statement>,
) -> Result<Vec<Rows>, DbError> {
    run_counted(db, clock, random, batch, &|_| ()).await
}

/// The same, telling `spent` of the statements of every try.
pub async fn run_counted(
    db: &dyn Database,
    clock: &dyn Clock,
    random: &dyn Random,
    batch: Vec<Statement>,
    spent: &dyn Fn(u32),
) -> Result<Vec<Rows>, DbError> {
    let statements = u32::try_from(batch.len()).unwrap_or(u32::MAX);
    let mut attempt = 0_u32;
    loop {
        spent(statements);
        let error = match db.batch(batch.clone()).await {
            Ok(rows) => return Ok(rows),
            Err(error) => error,
        };
        attempt = attempt.saturating_add(1);
        let passing = matches!(error, DbError::Transient(_) | DbError::Overloaded(_));
        if !passing || attempt >= ATTEMPTS {
            return Err(error);
        }
        clock.sleep(pause(attempt, random)).await;
    }
}

/// Full jitter below 50 ms · 2ⁿ, at most 2 s.
fn pause(attempt: u32, random: &dyn Random) -> Span {
    let ceiling = PAUSE_MS
        .saturating_mul(1_i64 << attempt.min(10))
        .min(PAUSE_MAX_MS);
    let [a, b, ..] = random.bytes16();
    let share = i64::from(u16::from_be_bytes([a, b]));
    Span::from_millis(ceiling.saturating_mul(share) / 65_536)
}

/// Cuts text into parts below `max` bytes each, at character boundaries.
pub fn parts(text: &str, max: usize) -> Vec<String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while rest.len() > max {
        let mut at = max;
        while at > 0 && !rest.is_char_boundary(at) {
            at = at.saturating_sub(1);
        }
        let Some((head, tail)) = rest.split_at_checked(at.max(1)) else {
            break;
        };
        parts.push(head.to_owned());
        rest = tail;
    }
    parts.push(rest.to_owned());
    parts
}

/// Tries of one batch, the first included.
const ATTEMPTS: u32 = 4;
const PAUSE_MS: i64 = 50;
const PAUSE_MAX_MS: i64 = 2_000;

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_are_cut_between_characters_and_make_up_the_whole() {
        let text = "日本語と絵文字🎉".repeat(7);
        for max in 4..40 {
            let pieces = parts(&text, max);
            assert!(pieces.iter().all(|piece| piece.len() <= max));
            assert_eq!(pieces.concat(), text);
        }
    }

    #[test]
    fn an_empty_text_is_one_empty_part() {
        assert_eq!(parts("", 10), vec![String::new()]);
    }
}
