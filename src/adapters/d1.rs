//! D1 as the database port.

use serde_json::Value;
use worker::js_sys::Array;
use worker::wasm_bindgen::JsValue;

use super::js::{self, Binding, apply, ask, call, message, parsed};
use crate::ports::{Database, DbError, Rows, SqlValue, Statement, Task};

/// The database bound as `DB`.
pub(super) struct D1(pub(super) Binding);

impl D1 {
    fn prepare(&self, statement: Statement) -> Result<JsValue, JsValue> {
        let prepared = call(&self.0.value(), "prepare", &[statement.sql.into()])?;
        let params = statement.params.into_iter().map(bind);
        apply(
            &prepared,
            "bind",
            &Array::from(&parsed(&Value::Array(params.collect()))),
        )
    }
}

impl Database for D1 {
    fn batch(&self, statements: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>> {
        Box::pin(async move {
            let prepared = Array::new();
            for statement in statements {
                let bound = self.prepare(statement);
                prepared.push(&bound.map_err(|error| classify(&message(&error)))?);
            }
            let results = ask(&self.0.value(), "batch", &[prepared.into()]).await;
            let results = results.map_err(|error| classify(&message(&error)))?;
            // As JSON, all rows cross from JavaScript at once.
            match js::read(&results) {
                Value::Array(results) => Ok(results.into_iter().map(read).collect()),
                _ => Err(DbError::Transient("the answer can't be read".to_owned())),
            }
        })
    }
}

/// D1 takes numbers as doubles; ours are below 2^53.
fn bind(value: SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::Null,
        SqlValue::Integer(value) => value.into(),
        SqlValue::Text(text) => text.into(),
    }
}

fn read(mut result: Value) -> Rows {
    let rows = match result.get_mut("results").map(Value::take) {
        Some(Value::Array(rows)) => rows,
        _ => Vec::new(),
    };
    let count = |name: &str| result.pointer(name).and_then(Value::as_u64).unwrap_or(0);
    Rows {
        rows: rows.into_iter().map(columns).collect(),
        rows_read: count("/meta/rows_read"),
        rows_written: count("/meta/rows_written"),
        changes: count("/meta/changes"),
    }
}

fn columns(row: Value) -> Vec<(String, SqlValue)> {
    match row {
        Value::Object(columns) => columns
            .into_iter()
            .map(|(name, value)| (name, sql_value(value)))
            .collect(),
        _ => Vec::new(),
    }
}

fn sql_value(value: Value) -> SqlValue {
    match value {
        Value::Null => SqlValue::Null,
        Value::Bool(flag) => SqlValue::Integer(i64::from(flag)),
        Value::String(text) => SqlValue::Text(text),
        // JavaScript writes a whole number without a fraction.
        other => other
            .as_i64()
            .map_or_else(|| SqlValue::Text(other.to_string()), SqlValue::Integer),
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
        "there is no method",
        "no such",
        "syntax error",
    ]) {
        DbError::Fatal(short)
    } else {
        // Lost connections, resets, time-outs, and whatever has no name yet: the same batch again.
        DbError::Transient(short)
    }
}
