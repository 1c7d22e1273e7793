//! The ports: what the core asks of the world, as small traits.
//!
//! The Worker implements them on Cloudflare's bindings (`adapters`, wasm32 only); the tests on
//! SQLite, memory and a fault injector. Every port is object-safe and single-threaded, since one
//! isolate is one thread.

use std::future::Future;
use std::pin::Pin;

use crate::time::{Span, Timestamp};

/// A boxed, single-threaded future.
pub type Task<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The clock.
pub trait Clock {
    /// The present moment.
    fn now(&self) -> Timestamp;
    /// Waits for `span`.
    fn sleep(&self, span: Span) -> Task<'_, ()>;
}

/// Randomness fit for keys and tokens.
pub trait Random {
    /// 16 unpredictable bytes.
    fn bytes16(&self) -> [u8; 16];
}

/// Time zones by their IANA name.
pub trait Zones {
    /// Minutes east of UTC in `zone` at `at`; `None` for a zone nobody knows.
    fn offset_minutes(&self, zone: &str, at: Timestamp) -> Option<i32>;
}

/// A value in SQL. Money and times are integers below 2^53, since D1 passes numbers as doubles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// SQL `NULL`.
    Null,
    /// An integer; |value| < 2^53.
    Integer(i64),
    /// Text without NUL characters.
    Text(String),
}

/// One SQL statement (never two in one string) with the values of `?1`, `?2`, …
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The text.
    pub sql: &'static str,
    /// The bound values.
    pub params: Vec<SqlValue>,
}

/// The rows that one statement returned, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows as (column, value) pairs.
    pub rows: Vec<Vec<(String, SqlValue)>>,
    /// Rows that the database says it read (0 where it does not say).
    pub rows_read: u64,
    /// Rows that the database says it wrote, index entries included (0 where it does not say).
    pub rows_written: u64,
    /// Rows that the statement inserted, changed or deleted.
    pub changes: u64,
}

/// Why the database did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DbError {
    /// A passing fault; the batch **may have been applied**. Running the same batch again is right.
    #[error("the database connection failed: {0}")]
    Transient(String),
    /// The database sheds load; back off before the same batch again.
    #[error("the database is overloaded: {0}")]
    Overloaded(String),
    /// A constraint refused the batch; nothing was applied.
    #[error("a constraint refused the statement: {0}")]
    Constraint(String),
    /// A limit of the platform (row size, parameters, database size); nothing was applied.
    #[error("a limit of the database was passed: {0}")]
    Limit(String),
    /// Anything else; the same batch would fail again.
    #[error("the database refused the statement: {0}")]
    Fatal(String),
}

/// The SQL database: D1 in the Worker, SQLite in the tests.
pub trait Database {
    /// Runs the statements in order, in **one transaction and one round trip**.
    fn batch(&self, statements: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>>;
}

/// A key-value call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key-value store failed: {0}")]
pub struct KvError(pub String);

/// The key-value namespace: eventually consistent, no compare-and-set; a hint, never an authority.
pub trait KeyValue {
    /// The value, or `None` where none is visible *here and now*.
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<String>, KvError>>;
    /// Stores a value for `ttl` (at least 60 s); `None` keeps it for good.
    fn put<'a>(
        &'a self,
        key: &'a str,
        value: String,
        ttl: Option<Span>,
    ) -> Task<'a, Result<(), KvError>>;
    /// Deletes a value.
    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), KvError>>;
    /// Up to 100 keys that start with `prefix`.
    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, KvError>>;
}

/// The isolate's own memory: bounded, and outliving a restart of the WebAssembly instance.
pub trait IsolateCache {
    /// The value, if it is there and `now` is before its expiry.
    fn get(&self, key: &str, now: Timestamp) -> Option<String>;
    /// Keeps a value until `expires_at`, or until room is needed.
    fn put(&self, key: &str, value: &str, expires_at: Timestamp);
    /// Forgets a value.
    fn remove(&self, key: &str);
}

/// An object and its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// The content.
    pub bytes: Vec<u8>,
    /// `Content-Type`.
    pub content_type: String,
    /// Custom metadata: names in lower case, ASCII values.
    pub metadata: Vec<(String, String)>,
}

/// What a conditional put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutNew {
    /// The object is new.
    Created,
    /// An object of that name was there; nothing was changed.
    Exists,
}

/// An object-store call failed; a write **may have taken effect**.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object store failed: {0}")]
pub struct ObjectError(pub String);

/// The object store: R2.
pub trait Objects {
    /// The object, if it exists.
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<Object>, ObjectError>>;
    /// Stores an object only where none has that name (`If-None-Match: *`).
    fn put_new<'a>(&'a self, key: &'a str, object: Object)
    -> Task<'a, Result<PutNew, ObjectError>>;
    /// Stores an object whatever was there.
    fn put<'a>(&'a self, key: &'a str, object: Object) -> Task<'a, Result<(), ObjectError>>;
    /// Deletes an object.
    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), ObjectError>>;
    /// Up to 100 keys that start with `prefix`, in order.
    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, ObjectError>>;
}

/// An outgoing HTTP request. Redirects are never followed.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// The whole URL.
    pub url: String,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// How long until the whole exchange, the body included, is given up.
    pub timeout: Span,
}

impl std::fmt::Debug for HttpRequest {
    /// Shows the method and sizes only: URLs, header fields and bodies can hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpRequest")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why an outgoing request has no (whole) answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Nothing was sent: the request could not be made.
    #[error("the request was not sent: {0}")]
    NotSent(String),
    /// The connection failed; the other side may have acted.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The time was up; the other side may have acted.
    #[error("the request timed out")]
    TimedOut,
}

/// The head of an answer and its body, to be read piece by piece.
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// Header fields, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Box<dyn ByteSource>,
}

impl std::fmt::Debug for HttpAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpAnswer")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// A body that arrives piece by piece.
pub trait ByteSource {
    /// The next piece; `None` at the end; after an error nothing more comes.
    fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>>;
}

/// Outgoing HTTP.
pub trait Outbound {
    /// Sends the request and returns once the head of the answer is there.
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>>;
}

/// A queue refused or lost a message; it **may have been accepted**.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue failed: {0}")]
pub struct QueueError(pub String);

/// Cloudflare Queues that the Worker sends to, by binding name.
pub trait Queues {
    /// Sends a JSON body to the queue bound as `binding`, not visible before `delay`.
    fn send<'a>(
        &'a self,
        binding: &'a str,
        body: String,
        delay: Span,
    ) -> Task<'a, Result<(), QueueError>>;
}

/// The rate limiter.
pub trait RateLimiter {
    /// Counts one request under `key`; `false` where it is over the limit.
    /// A limiter that is not configured or fails lets it pass.
    fn allow<'a>(&'a self, key: &'a str) -> Task<'a, bool>;
}

/// Where events go: one JSON line each, and a data point for Analytics Engine.
pub trait Telemetry {
    /// Writes one log line (JSON).
    fn log(&self, line: &str);
    /// Writes one data point.
    fn point(&self, index: &str, blobs: &[&str], doubles: &[f64]);
}
