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
use super::js::{Binding, found};
use super::kv::Kv;
use super::queues::Bindings;
use super::r2::R2;
use super::runner::Remote;
use crate::app::{App, Settings};
use crate::config::{Config, RunnerMode, Sources};
use crate::guard::Memory;
use crate::ports::{Objects, Queues, Task};
use crate::stats::Stats;

thread_local! {
    static ISOLATE: RefCell<Option<Known>> = const { RefCell::new(None) };
    static STATS: Rc<RefCell<Stats>> = Rc::default();
    static GUARD: Memory = Rc::default();
}

/// Whether this isolate has found every store to be its environment's.
pub(super) fn guard() -> Memory {
    GUARD.with(Rc::clone)
}

/// What never changes while a deployment lives: its variables, and which bindings it has.
#[derive(Clone)]
struct Known {
    settings: Rc<Settings>,
    bucket: bool,
    jobs: bool,
    runner: bool,
}

/// The service for one event.
pub(super) fn app(env: &Env, wait_until: Rc<dyn Fn(Task<'static, ()>)>) -> App {
    let known = known(env);
    let host = Rc::new(Host);
    let bound = |name| Binding::new(env, name);
    let runner = || Rc::new(Remote(bound("RUNNER"))) as Rc<dyn crate::app::Runner>;
    App {
        clock: host.clone(),
        random: host.clone(),
        zones: host,
        db: Rc::new(D1(bound("DB"))),
        kv: Rc::new(Kv(bound("KV_DEDUP"))),
        isolate: Rc::new(Isolate),
        objects: known
            .bucket
            .then(|| Rc::new(R2(bound("BUCKET"))) as Rc<dyn Objects>),
        outbound: Rc::new(Fetcher),
        queues: known
            .jobs
            .then(|| Rc::new(Bindings(env.clone())) as Rc<dyn Queues>),
        limiter: Rc::new(Limiter(bound("RATE_LIMIT"))),
        telemetry: Rc::new(Log(bound("ANALYTICS"))),
        runner: known.runner.then(runner),
        background: Rc::new(WaitUntil(wait_until)),
        stats: STATS.with(Rc::clone),
        settings: known.settings,
    }
}

/// Read once an isolate.
fn known(env: &Env) -> Known {
    ISOLATE.with_borrow_mut(|known| known.get_or_insert_with(|| read(env)).clone())
}

fn read(env: &Env) -> Known {
    let text = |name: &str| variable(env, name);
    let bound = |name: &str| found(env, name).is_some_and(|value| value.is_object());
    let sources = Sources {
        text: &text,
        bound: &bound,
        zones: &Host,
    };
    let (config, faults) = Config::parse(sources);
    Known {
        bucket: bound("BUCKET"),
        jobs: bound("JOBS"),
        runner: config.runner == RunnerMode::DurableObject && bound("RUNNER"),
        settings: Rc::new(Settings { config, faults }),
    }
}

/// A variable's text; a table or number comes as JSON.
fn variable(env: &Env, name: &str) -> Option<String> {
    let value = found(env, name)?;
    match value.as_string() {
        Some(text) => Some(text),
        None => JSON::stringify(&value).ok().map(String::from),
    }
}
