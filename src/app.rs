//! The service: its configuration and its ports, put together once a request.

use std::cell::RefCell;
use std::rc::Rc;

use sha2::{Digest, Sha256};

use crate::config::{Config, ConfigFault};
use crate::idempotency::live::{Ended, Feed};
use crate::idempotency::record::{Job, Settlement};
use crate::idempotency::room::Room;
use crate::limits::LEASE;
use crate::outbox::budget::Budget;
use crate::ports::{
    Clock, Database, DbError, IsolateCache, KeyValue, Objects, Outbound, Queues, Random,
    RateLimiter, Rows, Statement, Task, Telemetry, Zones,
};
use crate::stats::Stats;
use crate::store;
use crate::time::{Span, Timestamp};

/// What the configuration came to.
#[derive(Debug)]
pub struct Settings {
    /// The configuration, with defaults in place of what is faulty.
    pub config: Config,
    /// What is wrong; a Worker with any fault refuses to work.
    pub faults: Vec<ConfigFault>,
}

/// Why a runner could not be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunnerError {
    /// No run of that generation is known there.
    #[error("no run of this generation is known")]
    NotHere,
    /// The runner could not be reached; it may have started.
    #[error("the runner could not be reached: {0}")]
    Unreachable(String),
}

/// Carries a generation from claim to commit, independent of the caller's connection.
pub trait Runner {
    /// Starts a run, or joins it where this job was started before, and waits for its end at most
    /// `wait`; `None` where it goes on.
    fn start(
        &self,
        job: Job,
        body: String,
        wait: Span,
    ) -> Task<'_, Result<Option<Settlement>, RunnerError>>;

    /// Joins a run that was started before.
    fn attach<'a>(
        &'a self,
        generation_id: &'a str,
        wait: Span,
    ) -> Task<'a, Result<Option<Settlement>, RunnerError>>;

    /// Follows a run that was started before; the first `given` bytes of its stream are known
    /// already. A runner that passes nothing on while it works gives the end alone.
    fn follow<'a>(
        &'a self,
        generation_id: &'a str,
        given: usize,
    ) -> Task<'a, Result<Box<dyn Feed>, RunnerError>> {
        Box::pin(async move {
            match self.attach(generation_id, LEASE).await? {
                Some(settlement) => Ok(Box::new(Ended::new(settlement, given)) as Box<dyn Feed>),
                None => Err(RunnerError::Unreachable("its lease is over".to_owned())),
            }
        })
    }
}

/// Work that goes on after the answer: `waitUntil`, some 30 seconds at most.
pub trait Background {
    /// Runs `task` after the answer.
    fn spawn(&self, task: Task<'static, ()>);
}

/// The service. Cheap to clone: everything in it is shared.
#[derive(Clone)]
#[expect(missing_docs, reason = "each field is described by its port")]
pub struct App {
    pub settings: Rc<Settings>,
    pub clock: Rc<dyn Clock>,
    pub random: Rc<dyn Random>,
    pub zones: Rc<dyn Zones>,
    pub db: Rc<dyn Database>,
    pub kv: Rc<dyn KeyValue>,
    pub isolate: Rc<dyn IsolateCache>,
    pub objects: Option<Rc<dyn Objects>>,
    pub outbound: Rc<dyn Outbound>,
    pub queues: Option<Rc<dyn Queues>>,
    pub limiter: Rc<dyn RateLimiter>,
    pub telemetry: Rc<dyn Telemetry>,
    /// `None` runs generations in the handler.
    pub runner: Option<Rc<dyn Runner>>,
    pub background: Rc<dyn Background>,
    pub stats: Rc<RefCell<Stats>>,
    pub room: Room,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

impl App {
    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs a batch, and again where the fault is one that passes.
    pub async fn run(&self, batch: Vec<Statement>) -> Result<Vec<Rows>, DbError> {
        store::run(&*self.db, &*self.clock, &*self.random, batch).await
    }

    /// The same, at the cost of a budget: each try's statements are taken from it.
    pub async fn run_within(
        &self,
        budget: &Budget,
        batch: Vec<Statement>,
    ) -> Result<Vec<Rows>, DbError> {
        let spent = |statements| budget.force(statements);
        store::run_counted(&*self.db, &*self.clock, &*self.random, batch, &spent).await
    }

    /// A new id: `prefix` and 32 random hex digits.
    pub fn id(&self, prefix: &str) -> String {
        format!("{prefix}{}", hex::encode(self.random.bytes16()))
    }

    /// Writes one log line. Members must hold no prompt, output, key or secret.
    pub fn log(&self, event: &str, members: serde_json::Value) {
        let mut line = serde_json::Map::new();
        line.insert("event".to_owned(), event.into());
        if let serde_json::Value::Object(members) = members {
            line.extend(members);
        }
        self.telemetry
            .log(&serde_json::Value::Object(line).to_string());
    }

    /// The date in a time zone, `YYYY-MM-DD`; in UTC for a zone nobody knows.
    pub fn local_date(&self, zone: &str, at: Timestamp) -> String {
        crate::calendar::local_date(&*self.zones, zone, at)
    }
}

/// The SHA-256 of a text, in hex.
pub fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// The id of a delivery: fixed by its generation and destination, so that adding it twice is
/// adding it once.
pub fn delivery_id(generation_id: &str, publisher: &str, target: &str) -> String {
    let digest = sha256_hex(&format!("{generation_id}\n{publisher}\n{target}"));
    format!("dlv_{}", digest.get(..32).unwrap_or_default())
}
