//! From the Worker's environment to the service: configuration once an isolate, ports once an
//! event.

use std::cell::RefCell;
use std::rc::Rc;

use worker::Env;
use worker::js_sys::JSON;

use super::d1::D1;
use super::fetch::Fetcher;
use super::host::{Host, Limiter, Log, WaitUntil};
use super::isolate::Isolate;
use super::js::found;
use super::kv::Kv;
use super::queues::Bindings;
use super::r2::R2;
use super::runner::Remote;
use crate::app::{App, Settings};
use crate::config::{Config, RunnerMode, Sources};
use crate::guard::Memory;
use crate::idempotency::room::Room;
use crate::ports::{Database, DbError, KeyValue, KvError, Objects, Queues, Rows, Statement, Task};
use crate::stats::Stats;
use crate::time::Span;

thread_local! {
    static SETTINGS: RefCell<Option<Rc<Settings>>> = const { RefCell::new(None) };
    static STATS: Rc<RefCell<Stats>> = Rc::default();
    static GUARD: Memory = Rc::default();
    static ROOM: Room = Room::default();
}

/// Whether this isolate has found every store to be its environment's.
pub(super) fn guard() -> Memory {
    GUARD.with(Rc::clone)
}

/// The service for one event.
pub(super) fn app(env: &Env, wait_until: Rc<dyn Fn(Task<'static, ()>)>) -> App {
    let settings = settings(env);
    let host = Rc::new(Host);
    let runner = (settings.config.runner == RunnerMode::DurableObject)
        .then(|| found(env, "RUNNER"))
        .flatten()
        .map(|namespace| Rc::new(Remote(namespace)) as Rc<dyn crate::app::Runner>);
    App {
        clock: host.clone(),
        random: host.clone(),
        zones: host,
        db: match found(env, "DB") {
            Some(db) => Rc::new(D1(db)),
            None => Rc::new(Missing),
        },
        kv: match found(env, "KV_DEDUP") {
            Some(kv) => Rc::new(Kv(kv)),
            None => Rc::new(Missing),
        },
        isolate: Rc::new(Isolate),
        objects: found(env, "BUCKET").map(|bucket| Rc::new(R2(bucket)) as Rc<dyn Objects>),
        outbound: Rc::new(Fetcher),
        queues: found(env, "JOBS").map(|_| Rc::new(Bindings(env.clone())) as Rc<dyn Queues>),
        limiter: Rc::new(Limiter(found(env, "RATE_LIMIT"))),
        telemetry: Rc::new(Log(found(env, "ANALYTICS"))),
        runner,
        background: Rc::new(WaitUntil(wait_until)),
        stats: STATS.with(Rc::clone),
        room: ROOM.with(Room::clone),
        settings,
    }
}

/// The configuration, read once an isolate: a deployment's variables never change.
fn settings(env: &Env) -> Rc<Settings> {
    SETTINGS.with(|known| {
        known
            .borrow_mut()
            .get_or_insert_with(|| {
                let text = |name: &str| variable(env, name);
                let bound = |name: &str| found(env, name).is_some_and(|value| value.is_object());
                let sources = Sources {
                    text: &text,
                    bound: &bound,
                    zones: &Host,
                };
                let (config, faults) = Config::parse(sources);
                Rc::new(Settings { config, faults })
            })
            .clone()
    })
}

/// A variable's text; a table or number comes as JSON.
fn variable(env: &Env, name: &str) -> Option<String> {
    let value = found(env, name)?;
    match value.as_string() {
        Some(text) => Some(text),
        None => JSON::stringify(&value).ok().map(String::from),
    }
}

/// Stands in for a binding that is missing, which the configuration's faults name.
struct Missing;

impl Database for Missing {
    fn batch(&self, _: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>> {
        Box::pin(async { Err(DbError::Fatal("DB is not bound".to_owned())) })
    }
}

impl KeyValue for Missing {
    fn get<'a>(&'a self, _: &'a str) -> Task<'a, Result<Option<String>, KvError>> {
        Box::pin(async { Err(unbound()) })
    }

    fn put<'a>(&'a self, _: &'a str, _: String, _: Option<Span>) -> Task<'a, Result<(), KvError>> {
        Box::pin(async { Err(unbound()) })
    }

    fn delete<'a>(&'a self, _: &'a str) -> Task<'a, Result<(), KvError>> {
        Box::pin(async { Err(unbound()) })
    }

    fn list<'a>(&'a self, _: &'a str) -> Task<'a, Result<Vec<String>, KvError>> {
        Box::pin(async { Err(unbound()) })
    }
}

fn unbound() -> KvError {
    KvError("KV_DEDUP is not bound".to_owned())
}
