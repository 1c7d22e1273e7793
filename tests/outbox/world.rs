//! The small world a drain lives in: a moved clock, destinations that obey, and seeded rows.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use futures::executor::block_on;
use oncepress::app::{App, Background, Settings};
use oncepress::config::{Config, Sources};
use oncepress::outbox::budget::Budget;
use oncepress::outbox::drain::{Drained, drain, drain_generation};
use oncepress::ports::*;
use oncepress::time::{Span, Timestamp};

use crate::sqlite::Sqlite;

/// Lets others run: a fake that answers at once would hide every race.
pub async fn yield_once() {
    let mut yielded = false;
    poll_fn(move |context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How a destination answers: by the name at the end of its URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Status(u16),
    RetryAfter(u16, &'static str),
    /// Takes effect, and the answer is lost.
    Lost,
    /// Nothing until the time is up.
    Silence,
}

#[derive(Default)]
pub struct Outside {
    pub answers: RefCell<BTreeMap<String, Answer>>,
    /// Each call: destination and `webhook-id`.
    pub calls: RefCell<Vec<(String, String)>>,
    pub took: Cell<Span>,
    /// The repositories that are being written to, and the most calls at once to one of them.
    writing: RefCell<Vec<String>>,
    pub most_at_once: Cell<usize>,
    clock: Rc<TestClock>,
}

#[derive(Default)]
pub struct TestClock(pub Cell<Timestamp>);

#[derive(Default)]
pub struct Bucket {
    pub objects: RefCell<BTreeMap<String, Object>>,
    pub calls: Cell<u32>,
}

pub struct World {
    pub app: App,
    pub db: Rc<Sqlite>,
    pub clock: Rc<TestClock>,
    pub outside: Rc<Outside>,
    pub bucket: Rc<Bucket>,
}

/// The moment the rows were made; the clock starts a day later.
pub const MADE_MS: i64 = 1_796_000_000_000;

impl World {
    pub fn new() -> Self {
        let hook = |name: &str| {
            serde_json::json!({"kind": "webhook", "url": format!("http://127.0.0.1:9/{name}"),
                "accounts": ACCOUNTS, "secrets": ["HOOK_SECRET"]})
        };
        let mut once = hook("once");
        once["ambiguous"] = "at_most_once".into();
        let mut table = serde_json::json!({
            "files": {"kind": "r2", "accounts": ACCOUNTS}, "once": once,
        });
        for name in [
            "dead", "living", "other", "slow", "p1", "p2", "p3", "p4", "p5", "p6",
        ] {
            table[name] = hook(name);
        }
        Self::with(&table, 50)
    }

    pub fn with(publishers: &serde_json::Value, budget: u32) -> Self {
        let clock = Rc::new(TestClock::default());
        clock.0.set(Timestamp::from_millis(MADE_MS + 86_400_000));
        let db = Rc::new(Sqlite::new());
        let outside = Rc::new(Outside {
            clock: clock.clone(),
            ..Outside::default()
        });
        let bucket = Rc::new(Bucket::default());
        let app = App {
            settings: Rc::new(settings(publishers, budget)),
            clock: clock.clone(),
            random: Rc::new(Dice(Cell::new(1))),
            zones: Rc::new(Nothing),
            db: db.clone(),
            kv: Rc::new(Nothing),
            isolate: Rc::new(Nothing),
            objects: Some(bucket.clone()),
            outbound: outside.clone(),
            queues: Some(Rc::new(Nothing)),
            limiter: Rc::new(Nothing),
            telemetry: Rc::new(Nothing),
            runner: None,
            background: Rc::new(Nothing),
            stats: Rc::default(),
        };
        Self {
            app,
            db,
            clock,
            outside,
            bucket,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.0.get()
    }

    pub fn pass(&self, span: Span) {
        self.clock.0.set(self.now().plus(span));
    }

    /// A drain as `POST /admin/drain` runs it.
    pub fn drain(&self) -> Drained {
        block_on(self.drain_with(50)).unwrap()
    }

    pub async fn drain_with(&self, subrequests: u32) -> Result<Drained, DbError> {
        let budget = Budget::new(subrequests, self.now().plus(Span::from_seconds(50)));
        drain(&self.app, &budget).await
    }

    pub fn drain_generation(&self, id: &str) -> Drained {
        block_on(drain_generation(&self.app, id))
    }

    pub fn answers(&self, name: &str, answer: Answer) {
        self.outside
            .answers
            .borrow_mut()
            .insert(name.to_owned(), answer);
    }

    pub fn calls(&self, name: &str) -> usize {
        self.outside
            .calls
            .borrow()
            .iter()
            .filter(|(to, _)| to == name)
            .count()
    }

    /// Everything that the platform would count.
    pub fn subrequests(&self) -> u32 {
        let calls = u32::try_from(self.outside.calls.borrow().len()).unwrap();
        self.db.statements.get() + calls + self.bucket.calls.get()
    }

    pub fn status(&self, status: &str) -> i64 {
        self.db.number(&format!(
            "SELECT COUNT(*) FROM deliveries WHERE status = '{status}'"
        ))
    }

    pub fn delivery(&self, id: &str, column: &str) -> String {
        self.db.text(&format!(
            "SELECT COALESCE(CAST({column} AS TEXT), '') FROM deliveries WHERE id = '{id}'"
        ))
    }

    /// Generations `{prefix}1`… with a small output, each owed to one publisher.
    pub fn seed(&self, prefix: &str, account: &str, publisher: &str, status: &str, count: u32) {
        let last = if status == "pending" {
            "NULL"
        } else {
            "1796000000000"
        };
        self.db.execute(&format!(
            "INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, \
               operation, fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, \
               request_id, model, upstream, created_at, updated_at, credit_day, output_id, \
               output_where, output_parts, purge_at) \
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count}) \
             SELECT 'gen_{prefix}' || i, '{account}', 'blog', 'daily', 'api', 'k{prefix}' || i, \
               'c{prefix}' || i, 0, 'f', '[]', 'generated', 't', 0, 0, 0, 'r{prefix}' || i, \
               'gemini-3.8-flash', 'u', {MADE_MS} + i, {MADE_MS}, '2026-11-30', \
               'out_{prefix}' || i, 'd1', 1, {last} FROM c;\n\
             INSERT INTO outputs (output_id, part, body) \
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count}) \
             SELECT 'out_{prefix}' || i, 0, '{{\"output\":{{\"text\":\"text {prefix}' || i || '\"}}}}' \
             FROM c;\n\
             INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target, \
               status, next_attempt_at, created_at, due_since, published_at, final_at) \
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {count}) \
             SELECT 'dlv_{prefix}' || i, 'gen_{prefix}' || i, '{account}', 'blog', 'daily', \
               '{publisher}', '{prefix}' || i || '.md', '{status}', {MADE_MS} + i, {MADE_MS} + i, \
               {MADE_MS} + i, NULL, {last} FROM c"
        ));
    }
}

fn settings(publishers: &serde_json::Value, budget: u32) -> Settings {
    let texts = BTreeMap::from([
        ("ENVIRONMENT", "development".to_owned()),
        ("GEMINI_API_KEY", "key".to_owned()),
        (
            "ADMIN_TOKEN",
            "an-admin-token-that-is-long-enough".to_owned(),
        ),
        ("SUBREQUEST_BUDGET", budget.to_string()),
        (
            "HOOK_SECRET",
            "whsec_ZTJlIGhvb2sgc2VjcmV0LCAzMiBieXRlcyBsb25nISE=".to_owned(),
        ),
        ("GITHUB_TOKEN", "github_pat_for_tests".to_owned()),
        ("PUBLISHERS", publishers.to_string()),
    ]);
    let (config, faults) = Config::parse(Sources {
        text: &|name| texts.get(name).cloned(),
        bound: &|name| name != "RUNNER",
        zones: &Nothing,
    });
    assert!(faults.is_empty(), "{faults:?}");
    Settings { config, faults }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.0.get()
    }

    fn sleep(&self, span: Span) -> Task<'_, ()> {
        self.0.set(self.0.get().plus(span));
        Box::pin(std::future::ready(()))
    }
}

impl Outbound for Outside {
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>> {
        Box::pin(async move {
            let repository = request.url.split("/contents/").next().unwrap().to_owned();
            self.writing.borrow_mut().push(repository.clone());
            let at_once =
                |open: &Vec<String>| open.iter().filter(|one| **one == repository).count();
            let most = self.most_at_once.get().max(at_once(&self.writing.borrow()));
            self.most_at_once.set(most);
            for _ in 0..3 {
                yield_once().await;
            }
            let mut writing = self.writing.borrow_mut();
            let place = writing.iter().position(|one| *one == repository).unwrap();
            writing.remove(place);
            drop(writing);
            let name = request.url.rsplit('/').next().unwrap().to_owned();
            let id = request
                .headers
                .iter()
                .find(|(name, _)| name == "webhook-id");
            let id = id.map(|(_, id)| id.clone()).unwrap_or_default();
            self.calls.borrow_mut().push((name.clone(), id));
            self.clock.0.set(self.clock.0.get().plus(self.took.get()));
            let answer = self.answers.borrow().get(&name).copied();
            let (status, headers) = match answer.unwrap_or(Answer::Status(200)) {
                Answer::Status(status) => (status, Vec::new()),
                Answer::RetryAfter(status, after) => {
                    (status, vec![("retry-after".to_owned(), after.to_owned())])
                }
                Answer::Lost => return Err(HttpError::Lost("reset".to_owned())),
                Answer::Silence => {
                    self.clock.0.set(self.clock.0.get().plus(request.timeout));
                    return Err(HttpError::TimedOut);
                }
            };
            Ok(HttpAnswer {
                status,
                headers,
                body: Box::new(Empty),
            })
        })
    }
}

struct Empty;

impl ByteSource for Empty {
    fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

impl Objects for Bucket {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<Object>, ObjectError>> {
        self.calls.set(self.calls.get() + 1);
        let found = self.objects.borrow().get(key).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn put_new<'a>(
        &'a self,
        key: &'a str,
        object: Object,
    ) -> Task<'a, Result<PutNew, ObjectError>> {
        Box::pin(async move {
            yield_once().await;
            self.calls.set(self.calls.get() + 1);
            let mut objects = self.objects.borrow_mut();
            if objects.contains_key(key) {
                return Ok(PutNew::Exists);
            }
            objects.insert(key.to_owned(), object);
            Ok(PutNew::Created)
        })
    }

    fn put<'a>(&'a self, key: &'a str, object: Object) -> Task<'a, Result<(), ObjectError>> {
        self.calls.set(self.calls.get() + 1);
        self.objects.borrow_mut().insert(key.to_owned(), object);
        Box::pin(std::future::ready(Ok(())))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), ObjectError>> {
        self.calls.set(self.calls.get() + 1);
        self.objects.borrow_mut().remove(key);
        Box::pin(std::future::ready(Ok(())))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, ObjectError>> {
        self.calls.set(self.calls.get() + 1);
        let objects = self.objects.borrow();
        let keys = objects
            .keys()
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect();
        Box::pin(std::future::ready(Ok(keys)))
    }
}

/// The same row of numbers in each run, spread over all bits (`SplitMix64`).
struct Dice(Cell<u64>);

impl Dice {
    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mixed = self.0.get() ^ (self.0.get() >> 30);
        let mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Random for Dice {
    fn bytes16(&self) -> [u8; 16] {
        ((u128::from(self.next()) << 64) | u128::from(self.next())).to_be_bytes()
    }
}

/// The ports that a drain does not use.
struct Nothing;

impl Zones for Nothing {
    fn offset_minutes(&self, zone: &str, _: Timestamp) -> Option<i32> {
        (zone == "UTC").then_some(0)
    }
}

impl KeyValue for Nothing {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<String>, KvError>> {
        let environment = key
            .contains("environment")
            .then(|| "development".to_owned());
        Box::pin(std::future::ready(Ok(environment)))
    }
    fn put<'a>(&'a self, _: &'a str, _: String, _: Option<Span>) -> Task<'a, Result<(), KvError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn delete<'a>(&'a self, _: &'a str) -> Task<'a, Result<(), KvError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn list<'a>(&'a self, _: &'a str) -> Task<'a, Result<Vec<String>, KvError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
}

impl IsolateCache for Nothing {
    fn get(&self, _: &str, _: Timestamp) -> Option<String> {
        None
    }
    fn put(&self, _: &str, _: &str, _: Timestamp) {}
    fn remove(&self, _: &str) {}
}

impl Queues for Nothing {
    fn send<'a>(&'a self, _: &'a str, _: String, _: Span) -> Task<'a, Result<(), QueueError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl RateLimiter for Nothing {
    fn allow<'a>(&'a self, _: &'a str) -> Task<'a, bool> {
        Box::pin(std::future::ready(true))
    }
}

impl Telemetry for Nothing {
    fn log(&self, _: &str) {}
    fn point(&self, _: &str, _: &[&str], _: &[f64]) {}
}

impl Background for Nothing {
    fn spawn(&self, _: Task<'static, ()>) {}
}

pub const ACCOUNTS: [&str; 3] = ["acme", "globex", "initech"];
