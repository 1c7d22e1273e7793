//! D1 as the database port.

use serde_json::Value;
use worker::wasm_bindgen::JsValue;
use worker::{D1Database, D1Result};

use crate::ports::{Database, DbError, Rows, SqlValue, Statement, Task};

/// The database bound as `DB`.
pub(super) struct D1(pub(super) D1Database);

impl Database for D1 {
    fn batch(&self, statements: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>> {
        Box::pin(async move {
            let mut prepared = Vec::with_capacity(statements.len());
            for statement in statements {
                let params: Vec<JsValue> = statement.params.into_iter().map(bind).collect();
                let bound = self.0.prepare(statement.sql).bind(&params);
                prepared.push(bound.map_err(|error| classify(&message(&error)))?);
            }
            let results = self.0.batch(prepared).await;
            let results = results.map_err(|error| classify(&message(&error)))?;
            results.iter().map(read).collect()
        })
    }
}

/// D1 takes numbers as doubles; ours are below 2^53.
#[expect(clippy::cast_precision_loss, reason = "integers here are below 2^53")]
fn bind(value: SqlValue) -> JsValue {
    match value {
        SqlValue::Null => JsValue::NULL,
        SqlValue::Integer(value) => JsValue::from_f64(value as f64),
        SqlValue::Text(text) => JsValue::from_str(&text),
    }
}

fn read(result: &D1Result) -> Result<Rows, DbError> {
    let fatal = |error: worker::Error| DbError::Fatal(message(&error));
    let rows: Vec<serde_json::Map<String, Value>> = result.results().map_err(fatal)?;
    let meta = result.meta().ok().flatten();
    let count = |value: Option<usize>| value.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    Ok(Rows {
        rows: rows
            .into_iter()
            .map(|row| {
                row.into_iter()
                    .map(|(name, value)| (name, sql_value(value)))
                    .collect()
            })
            .collect(),
        rows_read: meta.as_ref().map_or(0, |meta| count(meta.rows_read)),
        rows_written: meta.as_ref().map_or(0, |meta| count(meta.rows_written)),
        changes: meta.as_ref().map_or(0, |meta| count(meta.changes)),
    })
}

fn sql_value(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(value) => SqlValue::Integer(i64::from(value)),
        Value::Number(number) => number
            .as_i64()
            .or_else(|| whole(number.as_f64()?))
            .map_or_else(|| SqlValue::Text(number.to_string()), SqlValue::Integer),
        Value::String(text) => SqlValue::Text(text),
        other => SqlValue::Text(other.to_string()),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the value was found to be whole and small"
)]
fn whole(value: f64) -> Option<i64> {
    let fits = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
    fits.then_some(value as i64)
}

/// The message of an error. `Display` of D1's own error type calls into JavaScript in a way that
/// throws, so its cause is taken instead.
fn message(error: &worker::Error) -> String {
    match error {
        worker::Error::D1(error) => error.cause(),
        other => other.to_string(),
    }
}

/// What a failure of D1 comes to, by its text; Cloudflare documents no codes.
fn classify(message: &str) -> DbError {
    let short: String = message.chars().take(300).collect();
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&["SQLITE_CONSTRAINT", "constraint failed"]) {
        DbError::Constraint(short)
    } else if has(&[
        "SQLITE_TOOBIG",
        "too large",
        "SQLITE_FULL",
        "Exceeded maximum",
        "too many SQL",
    ]) {
        DbError::Limit(short)
    } else if has(&[
        "overloaded",
        "Too many requests queued",
        "queued for too long",
        "CPU time",
    ]) {
        DbError::Overloaded(short)
    } else if has(&[
        "SQLITE_ERROR",
        "SQLITE_AUTH",
        "D1_TYPE_ERROR",
        "no such",
        "syntax error",
    ]) {
        DbError::Fatal(short)
    } else {
        // Lost connections, resets, time-outs, and whatever has no name yet: the same batch again.
        DbError::Transient(short)
    }
}
