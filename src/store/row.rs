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

/// Reads many columns of one row and says at the end what was amiss, since a way out at each column
/// drops all columns before it, which is most of the code of a wide row.
#[derive(Debug)]
pub struct Columns<'a> {
    row: Row<'a>,
    fault: Option<DbError>,
}

impl<'a> Columns<'a> {
    /// The columns of a row.
    pub const fn of(row: Row<'a>) -> Self {
        Self { row, fault: None }
    }

    /// Text that is there.
    pub fn text(&mut self, column: &str) -> String {
        self.keep(self.row.text(column))
    }

    /// Text or `NULL`.
    pub fn optional_text(&mut self, column: &str) -> Option<String> {
        self.keep(self.row.optional_text(column))
    }

    /// A whole number that is there.
    pub fn integer(&mut self, column: &str) -> i64 {
        self.keep(self.row.integer(column))
    }

    /// A count.
    pub fn count(&mut self, column: &str) -> u64 {
        self.keep(self.row.count(column))
    }

    /// 0 or 1.
    pub fn flag(&mut self, column: &str) -> bool {
        self.keep(self.row.flag(column))
    }

    /// A point in time.
    pub fn time(&mut self, column: &str) -> Timestamp {
        self.keep(self.row.time(column))
    }

    /// A point in time or `NULL`.
    pub fn optional_time(&mut self, column: &str) -> Option<Timestamp> {
        self.keep(self.row.optional_time(column))
    }

    /// What was read, if every column was as it should be.
    pub fn end<T>(self, read: T) -> Result<T, DbError> {
        match self.fault {
            None => Ok(read),
            Some(fault) => Err(fault),
        }
    }

    fn keep<T: Default>(&mut self, read: Result<T, DbError>) -> T {
        read.unwrap_or_else(|fault| {
            self.fault.get_or_insert(fault);
            T::default()
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_to_the_end_and_the_first_fault_is_told() {
        let row = [
            ("a".to_owned(), SqlValue::Text("x".to_owned())),
            ("b".to_owned(), SqlValue::Integer(1)),
            ("c".to_owned(), SqlValue::Null),
        ];
        let mut columns = Columns::of(Row(&row));
        let read = (
            columns.text("a"),
            columns.flag("b"),
            columns.optional_time("c"),
        );
        let expected = Ok(("x".to_owned(), true, None));
        assert_eq!(columns.end(read), expected);

        let mut columns = Columns::of(Row(&row));
        let read = (
            columns.integer("c"),
            columns.text("gone"),
            columns.text("a"),
        );
        assert_eq!(read.2, "x");
        let fault = DbError::Fatal("column c is NULL".to_owned());
        assert_eq!(columns.end(read), Err(fault));
    }
}
