//! D1 as the database port.

use worker::js_sys::{Array, Object};
use worker::wasm_bindgen::{JsCast, JsValue};

use super::js::{ask, call, get, message, written};
use crate::ports::{Database, DbError, Rows, SqlValue, Statement, Task};

/// The database bound as `DB`.
pub(super) struct D1(pub(super) JsValue);

impl D1 {
    fn prepare(&self, statement: Statement) -> Result<JsValue, JsValue> {
        let prepared = call(&self.0, "prepare", &[statement.sql.into()])?;
        let params: Vec<JsValue> = statement.params.into_iter().map(bind).collect();
        call(&prepared, "bind", &params)
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
            let results = ask(&self.0, "batch", &[prepared.into()]).await;
            let results = results.map_err(|error| classify(&message(&error)))?;
            let results = Array::from(&results);
            Ok(results.iter().map(|result| read(&result)).collect())
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

fn read(result: &JsValue) -> Rows {
    let meta = get(result, "meta");
    let count = |name: &str| get(&meta, name).as_f64().and_then(whole).unwrap_or(0);
    let count = |name: &str| u64::try_from(count(name)).unwrap_or(0);
    let mut rows = Vec::new();
    for row in Array::from(&get(result, "results")).iter() {
        let columns = Object::entries(row.unchecked_ref());
        let mut read = Vec::new();
        for column in columns.iter() {
            let column = Array::from(&column);
            let name = column.get(0).as_string().unwrap_or_default();
            read.push((name, sql_value(&column.get(1))));
        }
        rows.push(read);
    }
    Rows {
        rows,
        rows_read: count("rows_read"),
        rows_written: count("rows_written"),
        changes: count("changes"),
    }
}

fn sql_value(value: &JsValue) -> SqlValue {
    if value.is_null() || value.is_undefined() {
        return SqlValue::Null;
    }
    if let Some(flag) = value.as_bool() {
        return SqlValue::Integer(i64::from(flag));
    }
    let number = value.as_f64().and_then(whole).map(SqlValue::Integer);
    let text = || value.as_string().map(SqlValue::Text);
    number
        .or_else(text)
        .unwrap_or_else(|| SqlValue::Text(written(value)))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the value was found to be whole and small"
)]
fn whole(value: f64) -> Option<i64> {
    let fits = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
    fits.then_some(value as i64)
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
