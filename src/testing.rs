//! The service on SQLite and memory, for tests of what people see. Time stands still unless told.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use rusqlite::types::{Value as Sql, ValueRef};
use rusqlite::{Connection, params_from_iter};

use crate::app::{App, Background, Settings};
use crate::config::{Config, Sources};
use crate::ports::{
    ByteSource, Clock, Database, DbError, HttpAnswer, HttpError, HttpRequest, IsolateCache,
    KeyValue, KvError, Outbound, Random, RateLimiter, Rows, SqlValue, Statement, Task, Telemetry,
    Zones,
};
use crate::time::{Span, Timestamp};

/// A service and the world around it.
pub(crate) struct World {
    pub(crate) app: App,
    pub(crate) host: Rc<Host>,
    pub(crate) db: Rc<Sqlite>,
    pub(crate) kv: Rc<Memory>,
    pub(crate) web: Rc<Web>,
}

impl World {
    /// A fresh database, an account `default`, and a configuration with these texts over a sound
    /// one.
    pub(crate) fn new(at: &str, texts: &[(&str, &str)]) -> Self {
        let host = Rc::new(Host::new(at));
        let (db, kv, web) = (Rc::new(Sqlite::new()), Rc::default(), Rc::default());
        let app = app(&host, &db, &kv, &web, texts);
        let world = Self {
            app,
            host,
            db,
            kv,
            web,
        };
        world.sql(
            "INSERT INTO accounts (account, timezone, created_at) VALUES ('default', 'UTC', 0)",
        );
        world
    }

    pub(crate) fn sql(&self, text: &str) {
        self.db.0.borrow().execute_batch(text).unwrap();
    }

    /// The first column of a query's only row.
    pub(crate) fn one(&self, text: &str) -> String {
        let db = self.db.0.borrow();
        let value: Sql = db.query_row(text, [], |row| row.get(0)).unwrap();
        match value {
            Sql::Integer(value) => value.to_string(),
            Sql::Text(text) => text,
            other => format!("{other:?}"),
        }
    }

    pub(crate) fn pass(&self, span: Span) {
        self.host.now.set(self.host.now.get().plus(span));
    }

    pub(crate) fn set(&self, at: &str) {
        self.host.now.set(Timestamp::parse_rfc3339(at).unwrap());
    }

    /// Does what was left for after the answers.
    pub(crate) fn afterwards(&self) {
        let tasks = std::mem::take(&mut *self.host.later.borrow_mut());
        futures::executor::block_on(futures_util::future::join_all(tasks));
    }

    /// What a statement's plan says.
    pub(crate) fn plan(&self, statement: &Statement) -> String {
        let db = self.db.0.borrow();
        let mut prepared = db
            .prepare(&format!("EXPLAIN QUERY PLAN {}", statement.sql))
            .unwrap();
        let values = params_from_iter(statement.params.iter().map(to_sql));
        let lines = prepared
            .query_map(values, |row| row.get::<_, String>("detail"))
            .unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("\n")
    }
}

fn app(
    host: &Rc<Host>,
    db: &Rc<Sqlite>,
    kv: &Rc<Memory>,
    web: &Rc<Web>,
    texts: &[(&str, &str)],
) -> App {
    let sound = [
        ("ENVIRONMENT", "development"),
        ("GEMINI_API_KEY", "gemini-secret"),
        ("ADMIN_TOKEN", "admin-secret-0123"),
    ];
    let text = |name: &str| {
        let all = texts.iter().chain(&sound);
        let found = all.copied().find(|(other, _)| *other == name);
        found.map(|(_, text)| text.to_owned())
    };
    let bound = |name: &str| ["KV_DEDUP", "DB", "BUCKET"].contains(&name);
    let (config, faults) = Config::parse(Sources {
        text: &text,
        bound: &bound,
        zones: &**host,
    });
    assert_eq!(faults, [], "the configuration of a test");
    App {
        settings: Rc::new(Settings { config, faults }),
        clock: host.clone(),
        random: host.clone(),
        zones: host.clone(),
        db: db.clone(),
        kv: kv.clone(),
        isolate: kv.clone(),
        objects: None,
        outbound: web.clone(),
        queues: None,
        limiter: host.clone(),
        telemetry: host.clone(),
        runner: None,
        background: host.clone(),
        stats: Rc::default(),
        room: crate::idempotency::room::Room::default(),
    }
}

/// Clock, dice, zones, log.
pub(crate) struct Host {
    pub(crate) now: Cell<Timestamp>,
    dice: Cell<u64>,
    later: RefCell<Vec<Task<'static, ()>>>,
    pub(crate) lines: RefCell<Vec<String>>,
    pub(crate) points: RefCell<Vec<(Vec<String>, Vec<f64>)>>,
}

impl Host {
    fn new(at: &str) -> Self {
        Self {
            now: Cell::new(Timestamp::parse_rfc3339(at).unwrap()),
            dice: Cell::new(0),
            later: RefCell::default(),
            lines: RefCell::default(),
            points: RefCell::default(),
        }
    }
}

impl Clock for Host {
    fn now(&self) -> Timestamp {
        self.now.get()
    }

    fn sleep(&self, _: Span) -> Task<'_, ()> {
        Box::pin(async {})
    }
}

impl Random for Host {
    fn bytes16(&self) -> [u8; 16] {
        let next = self.dice.get() + 1;
        self.dice.set(next);
        u128::from(next).to_be_bytes()
    }
}

impl Zones for Host {
    fn offset_minutes(&self, zone: &str, at: Timestamp) -> Option<i32> {
        let between = |from: &str, to: &str| {
            let moment = |text| Timestamp::parse_rfc3339(text).unwrap();
            (moment(from)..moment(to)).contains(&at)
        };
        match zone {
            "UTC" => Some(0),
            "Asia/Tokyo" => Some(540),
            "America/Los_Angeles" => Some(-480),
            // The summer time of 2026.
            "Europe/Berlin" if between("2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z") => Some(120),
            "Europe/Berlin" => Some(60),
            _ => None,
        }
    }
}

impl RateLimiter for Host {
    fn allow<'a>(&'a self, _: &'a str) -> Task<'a, bool> {
        Box::pin(async { true })
    }
}

impl Telemetry for Host {
    fn log(&self, line: &str) {
        self.lines.borrow_mut().push(line.to_owned());
    }

    fn point(&self, _: &str, blobs: &[&str], doubles: &[f64]) {
        let blobs = blobs.iter().map(|blob| (*blob).to_owned()).collect();
        self.points.borrow_mut().push((blobs, doubles.to_vec()));
    }
}

impl Background for Host {
    fn spawn(&self, task: Task<'static, ()>) {
        self.later.borrow_mut().push(task);
    }
}

/// SQLite with the migrations; a batch can be applied and its reply lost.
pub(crate) struct Sqlite(RefCell<Connection>, pub(crate) Cell<u32>);

impl Sqlite {
    fn new() -> Self {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("../migrations/0001_create_schema.sql"))
            .unwrap();
        Self(RefCell::new(db), Cell::new(0))
    }
}

impl Database for Sqlite {
    fn batch(&self, statements: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>> {
        let mut db = self.0.borrow_mut();
        let run = || -> rusqlite::Result<Vec<Rows>> {
            let transaction = db.transaction()?;
            let rows = statements.iter().map(|one| run_one(&transaction, one));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            transaction.commit()?;
            Ok(rows)
        };
        let result = { run }().map_err(|error| DbError::Fatal(error.to_string()));
        if let Some(left) = self.1.get().checked_sub(1) {
            self.1.set(left);
            return Box::pin(async { Err(DbError::Transient("the reply was lost".to_owned())) });
        }
        Box::pin(async { result })
    }
}

fn run_one(db: &Connection, statement: &Statement) -> rusqlite::Result<Rows> {
    let mut prepared = db.prepare(statement.sql)?;
    let names: Vec<String> = prepared.column_names().map(str::to_owned).collect();
    let before = db.total_changes();
    let mut found = prepared.query(params_from_iter(statement.params.iter().map(to_sql)))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let mut columns = Vec::new();
        for (at, name) in names.iter().enumerate() {
            columns.push((name.clone(), from_sql(row.get_ref(at)?)));
        }
        rows.push(columns);
    }
    drop(found);
    Ok(Rows {
        rows,
        changes: db.total_changes() - before,
        ..Rows::default()
    })
}

fn to_sql(value: &SqlValue) -> Sql {
    match value {
        SqlValue::Null => Sql::Null,
        SqlValue::Integer(value) => Sql::Integer(*value),
        SqlValue::Text(text) => Sql::Text(text.clone()),
    }
}

fn from_sql(value: ValueRef<'_>) -> SqlValue {
    match value {
        ValueRef::Integer(value) => SqlValue::Integer(value),
        ValueRef::Text(text) => SqlValue::Text(String::from_utf8(text.to_vec()).unwrap()),
        ValueRef::Null => SqlValue::Null,
        ValueRef::Real(_) | ValueRef::Blob(_) => panic!("neither is stored"),
    }
}

/// KV and the isolate's memory.
#[derive(Default)]
pub(crate) struct Memory {
    values: RefCell<BTreeMap<String, String>>,
    pub(crate) broken: Cell<bool>,
}

impl Memory {
    fn checked<T>(&self, value: T) -> Result<T, KvError> {
        if self.broken.get() {
            return Err(KvError("broken".to_owned()));
        }
        Ok(value)
    }
}

impl KeyValue for Memory {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<String>, KvError>> {
        let found = self.values.borrow().get(key).cloned();
        Box::pin(async move { self.checked(found) })
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        value: String,
        _: Option<Span>,
    ) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move {
            self.checked(())?;
            self.values.borrow_mut().insert(key.to_owned(), value);
            Ok(())
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move {
            self.checked(())?;
            self.values.borrow_mut().remove(key);
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, KvError>> {
        let values = self.values.borrow();
        let names = values.keys().filter(|name| name.starts_with(prefix));
        let names: Vec<String> = names.cloned().collect();
        Box::pin(async move { self.checked(names) })
    }
}

impl IsolateCache for Memory {
    fn get(&self, _: &str, _: Timestamp) -> Option<String> {
        None
    }

    fn put(&self, _: &str, _: &str, _: Timestamp) {}

    fn remove(&self, _: &str) {}
}

/// Status, body, `Retry-After`; or why there is no answer.
type Scripted = Result<(u16, &'static str, Option<&'static str>), HttpError>;

/// The world outside: what was sent, and what is answered next (else 200 `ok`).
#[derive(Default)]
pub(crate) struct Web {
    pub(crate) sent: RefCell<Vec<serde_json::Value>>,
    pub(crate) next: RefCell<VecDeque<Scripted>>,
}

impl Outbound for Web {
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>> {
        self.sent
            .borrow_mut()
            .push(serde_json::from_slice(&request.body).unwrap());
        let answer = self.next.borrow_mut().pop_front();
        let answer = answer.unwrap_or(Ok((200, "ok", None)));
        Box::pin(async move {
            answer.map(|(status, body, retry_after)| HttpAnswer {
                status,
                headers: retry_after
                    .map(|value| ("retry-after".to_owned(), value.to_owned()))
                    .into_iter()
                    .collect(),
                body: Box::new(Whole(Some(body))),
            })
        })
    }
}

struct Whole(Option<&'static str>);

impl ByteSource for Whole {
    fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>> {
        let piece = self.0.take().map(|text| text.as_bytes().to_vec());
        Box::pin(async { Ok(piece) })
    }
}
