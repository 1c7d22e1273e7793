//! D1 as SQLite has it: one transaction a batch, D1's limits enforced, the project's own
//! migrations.

use std::cell::RefCell;
use std::collections::BTreeMap;

use oncepress::ports::{DbError, Rows, SqlValue, Statement};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, StatementStatus, ToSql};

/// D1's limits (developers.cloudflare.com/d1/platform/limits).
const PARAMS_MAX: usize = 100;
const SQL_MAX_BYTES: usize = 100_000;
const ROW_MAX_BYTES: usize = 2_000_000;

thread_local! {
    /// Connections whose schema is there and whose tables are empty.
    static POOL: RefCell<Vec<Connection>> = const { RefCell::new(Vec::new()) };
}

/// A database of its own, empty but for the schema.
pub struct Sqlite(
    Option<Connection>,
    RefCell<&'static [Rewrite]>,
    RefCell<Option<BTreeMap<String, Work>>>,
);

/// What SQLite did for one text of a statement: instructions of its virtual machine stand for rows
/// that it visits, by an index or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub runs: u32,
    pub steps: i64,
    /// Rows that it read in a scan of a whole table.
    pub scanned: i64,
}

/// A rule that is broken on purpose: text in place of a statement's text.
#[derive(Clone, Copy, Debug)]
pub struct Rewrite {
    pub from: &'static str,
    pub to: &'static str,
}

impl Default for Sqlite {
    fn default() -> Self {
        let connection = POOL
            .with(|pool| pool.borrow_mut().pop())
            .unwrap_or_else(migrated);
        connection.execute_batch("SAVEPOINT world").unwrap();
        Self(Some(connection), RefCell::default(), RefCell::default())
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        let Some(connection) = self.0.take() else {
            return;
        };
        let clean = connection.execute_batch("ROLLBACK TO world; RELEASE world");
        if clean.is_ok() && !std::thread::panicking() {
            let _ = POOL.try_with(|pool| pool.borrow_mut().push(connection));
        }
    }
}

fn migrated() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.set_prepared_statement_cache_capacity(300);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
        .collect();
    files.sort();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        connection.execute_batch(&text).unwrap();
    }
    connection
}

impl Sqlite {
    fn connection(&self) -> &Connection {
        self.0.as_ref().expect("the database is open")
    }

    /// Runs a batch: all of it or, on an error, nothing.
    pub fn run(&self, statements: &[Statement]) -> Result<Vec<Rows>, DbError> {
        self.connection().execute_batch("SAVEPOINT batch").unwrap();
        let results: Result<Vec<Rows>, DbError> = statements
            .iter()
            .map(|statement| self.one(&self.rewritten(statement.sql), &statement.params))
            .collect();
        let end = match results {
            Ok(_) => "RELEASE batch",
            Err(_) => "ROLLBACK TO batch; RELEASE batch",
        };
        self.connection().execute_batch(end).unwrap();
        results
    }

    /// What the service had done since the last look, by a statement's text; the first look begins
    /// the count.
    pub fn work(&self) -> BTreeMap<String, Work> {
        self.2.replace(Some(BTreeMap::new())).unwrap_or_default()
    }

    fn add(&self, sql: &str, steps: i32, scanned: i32) {
        let mut counted = self.2.borrow_mut();
        let Some(all) = counted.as_mut() else { return };
        if !all.contains_key(sql) {
            all.insert(sql.to_owned(), Work::default());
        }
        if let Some(work) = all.get_mut(sql) {
            work.runs += 1;
            work.steps += i64::from(steps);
            work.scanned += i64::from(scanned);
        }
    }

    /// Breaks a rule from now on.
    pub fn rewrite(&self, rewrites: &'static [Rewrite]) {
        self.1.replace(rewrites);
    }

    /// Changes the schema of this world.
    pub fn alter(&self, sql: &str) {
        self.connection().execute_batch(sql).unwrap();
    }

    /// Runs a batch and takes it back: what it says never came to be.
    pub fn pretend(&self, statements: &[Statement]) -> Result<Vec<Rows>, DbError> {
        self.connection().execute_batch("SAVEPOINT dream").unwrap();
        let results = self.run(statements);
        let end = "ROLLBACK TO dream; RELEASE dream";
        self.connection().execute_batch(end).unwrap();
        results
    }

    fn rewritten<'a>(&self, sql: &'a str) -> std::borrow::Cow<'a, str> {
        let rewrites = *self.1.borrow();
        let broken = rewrites.iter().find(|rewrite| sql.contains(rewrite.from));
        match broken {
            Some(Rewrite { from, to }) => sql.replace(from, to).into(),
            None => sql.into(),
        }
    }

    fn one(&self, sql: &str, params: &[SqlValue]) -> Result<Rows, DbError> {
        check(sql, params)?;
        let connection = self.connection();
        let mut prepared = connection
            .prepare_cached(sql)
            .map_err(|error| classify(&error))?;
        let wanted = prepared.parameter_count();
        if wanted != params.len() {
            let why = format!("{wanted} parameters wanted, {} given: {sql}", params.len());
            return Err(DbError::Fatal(why));
        }
        for (index, value) in params.iter().enumerate() {
            prepared
                .raw_bind_parameter(index + 1, Bound(value))
                .map_err(|e| classify(&e))?;
        }
        let writes = !prepared.readonly();
        let names: Vec<String> = prepared.column_names().map(str::to_owned).collect();
        let mut rows = Vec::new();
        let mut cursor = prepared.raw_query();
        while let Some(row) = cursor.next().map_err(|error| classify(&error))? {
            let columns = names.iter().enumerate().map(|(index, name)| {
                let value = row.get_ref(index).unwrap();
                (name.clone(), read(value))
            });
            rows.push(columns.collect());
        }
        drop(cursor);
        let steps = prepared.reset_status(StatementStatus::VmStep);
        let scanned = prepared.reset_status(StatementStatus::FullscanStep);
        self.add(sql, steps, scanned);
        let changes = if writes { connection.changes() } else { 0 };
        Ok(Rows {
            rows,
            rows_read: 0,
            rows_written: 0,
            changes,
        })
    }

    /// A question of a test's own, outside the service.
    pub fn query(&self, sql: &str) -> Vec<Vec<(String, SqlValue)>> {
        let kept = self.2.take();
        let found = self.one(sql, &[]);
        self.2.replace(kept);
        found.unwrap_or_else(|error| panic!("{error}: {sql}")).rows
    }

    /// Integers of the first column.
    pub fn integers(&self, sql: &str) -> Vec<i64> {
        let rows = self.query(sql).into_iter();
        rows.map(|row| match &row[0].1 {
            SqlValue::Integer(value) => *value,
            other => panic!("{other:?} is no integer: {sql}"),
        })
        .collect()
    }

    /// Texts of the first column.
    pub fn texts(&self, sql: &str) -> Vec<String> {
        let rows = self.query(sql).into_iter();
        rows.map(|row| match &row[0].1 {
            SqlValue::Text(text) => text.clone(),
            other => panic!("{other:?} is no text: {sql}"),
        })
        .collect()
    }

    /// Rows as one line of text each, for messages.
    pub fn show(&self, sql: &str) -> String {
        let line = |row: Vec<(String, SqlValue)>| {
            let cells = row.iter().map(|(name, value)| match value {
                SqlValue::Null => format!("{name}=-"),
                SqlValue::Integer(value) => format!("{name}={value}"),
                SqlValue::Text(text) => format!("{name}={text}"),
            });
            cells.collect::<Vec<_>>().join(" ")
        };
        self.query(sql)
            .into_iter()
            .map(line)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Everything that is stored, in a fixed order: the state of the database as text.
    pub fn dump(&self, tables: &[(&str, &str)]) -> String {
        let parts = tables.iter().map(|(table, order)| {
            let rows = self.show(&format!("SELECT * FROM {table} ORDER BY {order}"));
            format!("{table}\n{rows}\n")
        });
        parts.collect()
    }
}

/// What D1 refuses and SQLite would take, and what our own rules forbid.
fn check(sql: &str, params: &[SqlValue]) -> Result<(), DbError> {
    if params.len() > PARAMS_MAX {
        return Err(DbError::Limit("too many SQL variables".to_owned()));
    }
    if sql.len() > SQL_MAX_BYTES {
        return Err(DbError::Limit(
            "statement too long: SQLITE_TOOBIG".to_owned(),
        ));
    }
    let mut bytes = 0;
    for value in params {
        match value {
            SqlValue::Null => {}
            SqlValue::Integer(value) => {
                assert!(
                    value.abs() < 1 << 53,
                    "{value} is not exact as a double: {sql}"
                );
            }
            SqlValue::Text(text) => {
                assert!(!text.contains('\0'), "NUL in a text: {sql}");
                bytes += text.len();
            }
        }
    }
    if bytes > ROW_MAX_BYTES {
        return Err(DbError::Limit(
            "string or blob too big: SQLITE_TOOBIG".to_owned(),
        ));
    }
    Ok(())
}

struct Bound<'a>(&'a SqlValue);

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            SqlValue::Null => ToSqlOutput::Owned(Value::Null),
            SqlValue::Integer(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            SqlValue::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

fn read(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Null => SqlValue::Null,
        ValueRef::Integer(value) => SqlValue::Integer(value),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8(text.to_vec()).unwrap()),
        // D1 gives doubles; whole ones count as integers there.
        ValueRef::Real(value) => SqlValue::Text(value.to_string()),
        ValueRef::Blob(_) => panic!("no column holds a blob"),
    }
}

fn classify(error: &rusqlite::Error) -> DbError {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => DbError::Constraint(text),
        Some(ErrorCode::TooBig) => DbError::Limit(text),
        _ => DbError::Fatal(text),
    }
}
