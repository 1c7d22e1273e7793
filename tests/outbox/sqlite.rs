//! The database port on SQLite, with what D1 counts and what D1 does wrong.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use oncepress::ports::{Database, DbError, Rows, SqlValue, Statement, Task};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, StatementStatus, params_from_iter};

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The batch is not run.
    Before,
    /// The batch is run and its answer is lost.
    After,
}

/// Matches a batch by a piece of its SQL, and makes it fail.
#[derive(Clone, Debug)]
pub struct Fault {
    pub sql: &'static str,
    pub when: When,
    pub times: u32,
}

pub struct Sqlite {
    pub connection: RefCell<Connection>,
    /// Statements that were sent, those of failed batches included.
    pub statements: Cell<u32>,
    /// Instructions of SQLite's virtual machine: a measure of rows visited.
    pub steps: Cell<i64>,
    pub faults: RefCell<VecDeque<Fault>>,
    /// Each different text, with the values it was last run with.
    pub seen: RefCell<Vec<Statement>>,
}

impl Sqlite {
    pub fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(include_str!("../../migrations/0001_create_schema.sql"))
            .unwrap();
        Self {
            connection: RefCell::new(connection),
            statements: Cell::new(0),
            steps: Cell::new(0),
            faults: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    pub fn execute(&self, sql: &str) -> usize {
        let connection = self.connection.borrow();
        let mut changes = 0;
        for statement in sql.split(";\n") {
            changes += connection.execute(statement, []).unwrap();
        }
        changes
    }

    pub fn number(&self, sql: &str) -> i64 {
        let connection = self.connection.borrow();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub fn text(&self, sql: &str) -> String {
        let connection = self.connection.borrow();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// What SQLite plans to do for a statement, a line a step.
    pub fn plan(&self, statement: &Statement) -> Vec<String> {
        let connection = self.connection.borrow();
        let sql = format!("EXPLAIN QUERY PLAN {}", statement.sql);
        let mut prepared = connection.prepare(&sql).unwrap();
        let rows = prepared.query_map(
            params_from_iter(statement.params.iter().map(bound)),
            |row| row.get::<_, String>(3),
        );
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Runs statements as one transaction.
    pub fn run(&self, statements: &[Statement]) -> Result<Vec<Rows>, DbError> {
        let connection = self.connection.borrow();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let results = statements
            .iter()
            .map(|statement| self.one(&connection, statement))
            .collect::<Result<Vec<_>, _>>();
        let end = if results.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        connection.execute_batch(end).unwrap();
        results.map_err(|error| DbError::Fatal(error.to_string()))
    }

    fn one(&self, connection: &Connection, statement: &Statement) -> rusqlite::Result<Rows> {
        let before = connection.total_changes();
        let mut prepared = connection.prepare_cached(statement.sql)?;
        let names: Vec<String> = prepared.column_names().map(ToOwned::to_owned).collect();
        let mut found = Vec::new();
        let mut rows = prepared.query(params_from_iter(statement.params.iter().map(bound)))?;
        while let Some(row) = rows.next()? {
            let values = names.iter().enumerate().map(|(index, name)| {
                let value = match row.get_ref_unwrap(index) {
                    ValueRef::Null => SqlValue::Null,
                    ValueRef::Integer(value) => SqlValue::Integer(value),
                    ValueRef::Text(text) => {
                        SqlValue::Text(String::from_utf8(text.to_vec()).unwrap())
                    }
                    other => panic!("{name}: {other:?}"),
                };
                (name.clone(), value)
            });
            found.push(values.collect());
        }
        drop(rows);
        let steps = prepared.reset_status(StatementStatus::VmStep);
        self.steps.set(self.steps.get() + i64::from(steps));
        Ok(Rows {
            rows: found,
            changes: connection.total_changes() - before,
            ..Rows::default()
        })
    }

    fn fault_for(&self, statements: &[Statement]) -> Option<When> {
        let mut faults = self.faults.borrow_mut();
        let hit = |fault: &&mut Fault| {
            fault.times > 0 && statements.iter().any(|one| one.sql.contains(fault.sql))
        };
        let fault = faults.iter_mut().find(hit)?;
        fault.times -= 1;
        Some(fault.when)
    }
}

impl Database for Sqlite {
    fn batch(&self, statements: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>> {
        Box::pin(async move {
            crate::world::yield_once().await;
            let count = u32::try_from(statements.len()).unwrap();
            self.statements.set(self.statements.get() + count);
            for statement in &statements {
                let mut seen = self.seen.borrow_mut();
                seen.retain(|known| known.sql != statement.sql);
                seen.push(statement.clone());
            }
            let fault = self.fault_for(&statements);
            if fault == Some(When::Before) {
                return Err(DbError::Transient("Network connection lost".to_owned()));
            }
            let results = self.run(&statements)?;
            if fault == Some(When::After) {
                return Err(DbError::Transient("Network connection lost".to_owned()));
            }
            Ok(results)
        })
    }
}

fn bound(value: &SqlValue) -> Value {
    match value {
        SqlValue::Null => Value::Null,
        SqlValue::Integer(value) => Value::Integer(*value),
        SqlValue::Text(text) => Value::Text(text.clone()),
    }
}
