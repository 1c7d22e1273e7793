//! Reading rows: columns by name, with an error instead of a guess.

use crate::ports::{DbError, Rows, SqlValue};
use crate::time::Timestamp;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a>(&'a [(String, SqlValue)]);

impl<'a> Row<'a> {
    /// A column's value.
    pub fn value(self, column: &str) -> Result<&'a SqlValue, DbError> {
        self.0
            .iter()
            .find(|(name, _)| name == column)
            .map(|(_, value)| value)
            .ok_or_else(|| DbError::Fatal(format!("column {column} is missing")))
    }

    /// Text that is there.
    pub fn text(self, column: &str) -> Result<String, DbError> {
        self.optional_text(column)?
            .ok_or_else(|| DbError::Fatal(format!("column {column} is NULL")))
    }

    /// Text or `NULL`.
    pub fn optional_text(self, column: &str) -> Result<Option<String>, DbError> {
        match self.value(column)? {
            SqlValue::Null => Ok(None),
            SqlValue::Text(text) => Ok(Some(text.clone())),
            SqlValue::Integer(value) => Ok(Some(value.to_string())),
        }
    }

    /// A whole number that is there.
    pub fn integer(self, column: &str) -> Result<i64, DbError> {
        self.optional_integer(column)?
            .ok_or_else(|| DbError::Fatal(format!("column {column} is NULL")))
    }

    /// A whole number or `NULL`.
    pub fn optional_integer(self, column: &str) -> Result<Option<i64>, DbError> {
        match self.value(column)? {
            SqlValue::Null => Ok(None),
            SqlValue::Integer(value) => Ok(Some(*value)),
            SqlValue::Text(_) => Err(DbError::Fatal(format!("column {column} is text"))),
        }
    }

    /// A count.
    pub fn count(self, column: &str) -> Result<u64, DbError> {
        Ok(u64::try_from(self.integer(column)?).unwrap_or(0))
    }

    /// 0 or 1.
    pub fn flag(self, column: &str) -> Result<bool, DbError> {
        Ok(self.integer(column)? != 0)
    }

    /// A point in time.
    pub fn time(self, column: &str) -> Result<Timestamp, DbError> {
        self.integer(column).map(Timestamp::from_millis)
    }

    /// A point in time or `NULL`.
    pub fn optional_time(self, column: &str) -> Result<Option<Timestamp>, DbError> {
        Ok(self.optional_integer(column)?.map(Timestamp::from_millis))
    }
}

/// The rows of the `index`th statement of a batch.
pub fn rows(results: &[Rows], index: usize) -> Result<impl Iterator<Item = Row<'_>>, DbError> {
    let result = results
        .get(index)
        .ok_or_else(|| DbError::Fatal(format!("the batch has no result {index}")))?;
    Ok(result.rows.iter().map(|columns| Row(columns)))
}

/// The first row of the `index`th statement of a batch.
pub fn first(results: &[Rows], index: usize) -> Result<Option<Row<'_>>, DbError> {
    Ok(rows(results, index)?.next())
}
