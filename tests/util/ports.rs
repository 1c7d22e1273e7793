//! Every port of the service, as one isolate sees it.

use std::rc::Rc;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use futures_util::future::{Either, select};
use oncepress::app::{App, Background, Runner, RunnerError};
use oncepress::idempotency::live::{Feed, Step};
use oncepress::idempotency::mark::Mark;
use oncepress::idempotency::record::{Job, Settlement};
use oncepress::ports::{
    Clock, Database, DbError, IsolateCache, KeyValue, KvError, Object, ObjectError, Objects,
    PutNew, QueueError, Queues, Random, RateLimiter, Rows, SqlValue, Statement, Task, Telemetry,
};
use oncepress::time::{Span, Timestamp};

use super::fate::{Fate, Kind};
use super::mutant::{Mutant, broken_batch, broken_rows, is_claim};
use super::world::{FixedZones, Isolate, World, label};

/// The service in one isolate.
pub fn app(world: &World, isolate: &Rc<Isolate>) -> App {
    let port = Rc::new(Port {
        world: world.clone(),
        isolate: Rc::clone(isolate),
    });
    let stores: Rc<dyn Objects> = port.clone();
    let queues: Rc<dyn Queues> = port.clone();
    let runner: Rc<dyn Runner> = port.clone();
    App {
        settings: Rc::clone(&world.settings),
        clock: port.clone(),
        random: port.clone(),
        zones: Rc::new(FixedZones),
        db: port.clone(),
        kv: port.clone(),
        isolate: port.clone(),
        objects: Some(stores),
        outbound: port.clone(),
        queues: Some(queues),
        limiter: port.clone(),
        telemetry: port.clone(),
        runner: world.durable.then_some(runner),
        background: port,
        stats: Rc::default(),
        room: oncepress::idempotency::room::Room::default(),
    }
}

/// One isolate's hold on the world.
pub(super) struct Port {
    pub(super) world: World,
    pub(super) isolate: Rc<Isolate>,
}

impl Port {
    pub(super) fn home(&self) -> u64 {
        self.isolate.home
    }

    pub(super) async fn gate(&self, kind: Kind, label: &str) -> Fate {
        self.world.gate(self.home(), kind, label).await
    }

    pub(super) async fn after(&self, fate: Fate, seen: &str) {
        self.world.after(self.home(), fate, seen).await;
    }

    /// Whether this rule is broken on purpose.
    pub(super) fn breaks(&self, rule: Mutant) -> bool {
        let broken = self
            .world
            .mutant
            .map(|mutant| std::mem::discriminant(&mutant));
        broken == Some(std::mem::discriminant(&rule))
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.world.exec.now_ms()
    }
}

impl Clock for Port {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms() + self.isolate.skew_ms.get())
    }

    fn sleep(&self, span: Span) -> Task<'_, ()> {
        Box::pin(self.world.exec.sleep(span.millis()))
    }
}

impl Random for Port {
    fn bytes16(&self) -> [u8; 16] {
        self.world.random16()
    }
}

impl Database for Port {
    fn batch(&self, mut statements: Vec<Statement>) -> Task<'_, Result<Vec<Rows>, DbError>> {
        Box::pin(async move {
            broken_batch(self.world.mutant, &mut statements);
            if self.breaks(Mutant::Chatty) {
                for statement in statements.iter().skip(1) {
                    self.gate(Kind::Db, &label(std::slice::from_ref(statement)))
                        .await;
                }
            }
            let fate = self.gate(Kind::Db, &label(&statements)).await;
            if let Some(error) = self.world.refused(&statements) {
                if self.breaks(Mutant::GuessFresh) && is_claim(&statements) {
                    return self.world.db.pretend(&statements);
                }
                self.world.note(format!("   refused: {error}"));
                self.after(fate, "refused").await;
                return Err(error);
            }
            let result = fate.acts().then(|| self.run(&statements));
            let changed = |rows: &Vec<Rows>| rows.iter().any(|rows| rows.changes > 0);
            if result
                .as_ref()
                .is_some_and(|result| result.as_ref().is_ok_and(changed))
            {
                let watch = self.world.watch.borrow().clone();
                if let Some(watch) = watch {
                    watch(&self.world);
                }
            }
            let seen = if fate == Fate::Fine {
                format!("{result:?}")
            } else {
                String::new()
            };
            self.after(fate, &seen).await;
            match result {
                Some(result) if fate == Fate::Fine => result,
                _ => Err(DbError::Transient("Network connection lost.".to_owned())),
            }
        })
    }
}

impl Port {
    /// A batch in the database, with a rule broken or none.
    fn run(&self, batch: &[Statement]) -> Result<Vec<Rows>, DbError> {
        let world = &self.world;
        if let Some(Mutant::Pretend(start)) = world.mutant
            && batch.first().is_some_and(|first| first.sql.contains(start))
        {
            return world.db.pretend(batch);
        }
        let claims = is_claim(batch);
        if claims && world.marked.borrow_mut().remove(&world.exec.current()) {
            return Err(DbError::Fatal("the mark says that it runs".to_owned()));
        }
        let mut results = world.db.run(batch)?;
        broken_rows(world.mutant, batch, &mut results);
        if claims && self.breaks(Mutant::SlidingWindow) {
            let SqlValue::Text(key) = &batch[0].params[7] else {
                return Ok(results);
            };
            let until = self.now_ms() + 30 * 60_000;
            world.db.show(&format!(
                "UPDATE generations SET expires_at = {until} WHERE claim_key = '{key}' \
                 AND state = 'generated' AND expires_at > {} RETURNING id",
                self.now_ms()
            ));
        }
        Ok(results)
    }
}

impl KeyValue for Port {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<String>, KvError>> {
        Box::pin(async move {
            let fate = self.gate(Kind::KvGet, &format!("get {}", short(key))).await;
            let value = self.world.kv.get(self.isolate.location, key, self.now_ms());
            let down = self.world.kv.down.get();
            self.after(fate, &format!("{down}{value:?}")).await;
            if down || fate.is_error() {
                if self.breaks(Mutant::KvGuesses) {
                    return Ok(None);
                }
                return Err(KvError("KV GET failed: 500".to_owned()));
            }
            if self.breaks(Mutant::RunningMarkCounts) && value.as_deref() == Some(Mark::RUNNING) {
                let task = self.world.exec.current();
                self.world.marked.borrow_mut().insert(task);
            }
            if self.breaks(Mutant::EvidenceIgnored) && is_evidence(key) {
                return Ok(None);
            }
            Ok(value)
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a str,
        value: String,
        ttl: Option<Span>,
    ) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move {
            let what = value
                .split([' ', '\n'])
                .next()
                .unwrap_or_default()
                .to_owned();
            let fate = self
                .gate(Kind::KvPut, &format!("put {} {what}", short(key)))
                .await;
            let down = self.world.kv.down.get() || self.world.kv.writes_down.get();
            let mut result = Ok(());
            if fate.acts() && !down {
                self.note_kept(key, value.as_bytes());
            }
            let loses = is_evidence(key) && self.breaks(Mutant::LoseEvidence);
            if fate.acts() && !down && !loses {
                let ttl = ttl.map(Span::millis);
                let (place, now) = (self.isolate.location, self.now_ms());
                result = self.world.kv.put(place, key, Some(value), ttl, now);
            }
            self.after(fate, &format!("{down}{result:?}")).await;
            if down || fate.is_error() {
                return Err(KvError("KV PUT failed: 500".to_owned()));
            }
            result.map_err(KvError)
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), KvError>> {
        Box::pin(async move {
            let fate = self
                .gate(Kind::KvOther, &format!("delete {}", short(key)))
                .await;
            let down = self.world.kv.down.get() || self.world.kv.writes_down.get();
            if fate.acts() && !down {
                let (place, now) = (self.isolate.location, self.now_ms());
                let _ = self.world.kv.put(place, key, None, None, now);
            }
            self.after(fate, "").await;
            if down || fate.is_error() {
                return Err(KvError("KV DELETE failed: 500".to_owned()));
            }
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, KvError>> {
        Box::pin(async move {
            let fate = self.gate(Kind::KvOther, &format!("list {prefix}")).await;
            let names = self.world.kv.list(prefix, self.now_ms());
            self.after(fate, &format!("{names:?}")).await;
            if self.breaks(Mutant::EvidenceIgnored) && is_evidence(prefix) {
                return Ok(Vec::new());
            }
            if self.world.kv.down.get() || fate.is_error() {
                return Err(KvError("KV LIST failed: 500".to_owned()));
            }
            Ok(names)
        })
    }
}

impl IsolateCache for Port {
    fn get(&self, key: &str, now: Timestamp) -> Option<String> {
        self.isolate.memory.get(key, now.millis())
    }

    fn put(&self, key: &str, value: &str, expires_at: Timestamp) {
        self.isolate.memory.put(key, value, expires_at.millis());
    }

    fn remove(&self, key: &str) {
        self.isolate.memory.remove(key);
    }
}

impl Port {
    /// Notes in the ledger that the fallback store took what was bought.
    fn note_kept(&self, key: &str, bytes: &[u8]) {
        if !is_evidence(key) {
            return;
        }
        let text = String::from_utf8_lossy(bytes).into_owned();
        for entry in self.world.gemini.ledger.borrow_mut().iter_mut() {
            entry.kept |= text.contains(super::gemini::tail_of(&entry.text));
        }
    }

    async fn object<T: std::fmt::Debug>(
        &self,
        label: String,
        effect: impl FnOnce(&World) -> T,
    ) -> Result<T, ObjectError> {
        let fate = self.gate(Kind::R2, &label).await;
        let down = self.world.r2.down.get();
        let result = (fate.acts() && !down).then(|| effect(&self.world));
        self.after(fate, &format!("{result:?}")).await;
        match result {
            Some(value) if fate == Fate::Fine => Ok(value),
            _ => Err(ObjectError("We encountered an internal error.".to_owned())),
        }
    }
}

impl Objects for Port {
    fn get<'a>(&'a self, key: &'a str) -> Task<'a, Result<Option<Object>, ObjectError>> {
        Box::pin(async move {
            let get = |world: &World| world.r2.objects.borrow().get(key).cloned();
            let found = self.object(format!("get {}", short(key)), get).await;
            if is_evidence(key) && self.breaks(Mutant::EvidenceIgnored) {
                return Ok(None);
            }
            found
        })
    }

    fn put_new<'a>(
        &'a self,
        key: &'a str,
        object: Object,
    ) -> Task<'a, Result<PutNew, ObjectError>> {
        Box::pin(
            self.object(format!("put_new {}", short(key)), move |world| {
                let mut objects = world.r2.objects.borrow_mut();
                if objects.contains_key(key) {
                    return PutNew::Exists;
                }
                objects.insert(key.to_owned(), object);
                PutNew::Created
            }),
        )
    }

    fn put<'a>(&'a self, key: &'a str, object: Object) -> Task<'a, Result<(), ObjectError>> {
        let loses = is_evidence(key) && self.breaks(Mutant::LoseEvidence);
        Box::pin(self.object(format!("put {}", short(key)), move |world| {
            self.note_kept(key, &object.bytes);
            if loses {
                return;
            }
            world.r2.objects.borrow_mut().insert(key.to_owned(), object);
        }))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Task<'a, Result<(), ObjectError>> {
        Box::pin(self.object(format!("delete {}", short(key)), move |world| {
            world.r2.objects.borrow_mut().remove(key);
        }))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Task<'a, Result<Vec<String>, ObjectError>> {
        let blind = is_evidence(prefix) && self.breaks(Mutant::EvidenceIgnored);
        Box::pin(self.object(format!("list {prefix}"), move |world| {
            if blind {
                return Vec::new();
            }
            world.r2.list(prefix)
        }))
    }
}

impl Queues for Port {
    fn send<'a>(
        &'a self,
        binding: &'a str,
        body: String,
        delay: Span,
    ) -> Task<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let fate = self.gate(Kind::Queue, &format!("send {binding}")).await;
            if fate.acts() && binding == "JOBS" {
                self.world.enqueue(binding, &body, delay.millis());
            } else if fate.acts() {
                self.world.hooks.take_message(self.now_ms(), binding, body);
            }
            self.after(fate, "").await;
            if fate.is_error() {
                return Err(QueueError("Queue send failed".to_owned()));
            }
            Ok(())
        })
    }
}

impl RateLimiter for Port {
    fn allow<'a>(&'a self, _key: &'a str) -> Task<'a, bool> {
        Box::pin(async { true })
    }
}

impl Telemetry for Port {
    fn log(&self, line: &str) {
        self.world.note(format!("   log {line}"));
        self.world.logs.borrow_mut().push(line.to_owned());
    }

    fn point(&self, _index: &str, _blobs: &[&str], _doubles: &[f64]) {}
}

impl Background for Port {
    /// `waitUntil`: cancelled 30 s later.
    fn spawn(&self, task: Task<'static, ()>) {
        let limit = self.world.exec.sleep(30_000);
        let (world, home) = (self.world.clone(), self.home());
        self.world.exec.spawn(self.home(), "bg", async move {
            if let Either::Right(_) = select(task, Box::pin(limit)).await {
                world.note("waitUntil is over: a task is cancelled".to_owned());
                world.excuse_purchases_of(home, world.exec.now_ms() - 30_000);
            }
        });
    }
}

impl Runner for Port {
    fn start(
        &self,
        job: Job,
        body: String,
        wait: Span,
    ) -> Task<'_, Result<Option<Settlement>, RunnerError>> {
        Box::pin(async move {
            let name = job.generation_id.clone();
            let fate = self
                .gate(Kind::Runner, &format!("start {}", short(&name)))
                .await;
            let reply = fate.acts().then(|| {
                self.world.call_actor(&name, move |actor, app| {
                    Box::pin(async move { actor.start(&app, job, body, wait).await })
                })
            });
            self.hear(fate, reply).await
        })
    }

    fn attach<'a>(
        &'a self,
        generation_id: &'a str,
        wait: Span,
    ) -> Task<'a, Result<Option<Settlement>, RunnerError>> {
        Box::pin(async move {
            let label = format!("attach {}", short(generation_id));
            let fate = self.gate(Kind::Runner, &label).await;
            let reply = fate.acts().then(|| {
                self.world.call_actor(generation_id, move |actor, app| {
                    Box::pin(async move { actor.attach(&app, wait).await })
                })
            });
            self.hear(fate, reply).await
        })
    }

    fn follow<'a>(
        &'a self,
        generation_id: &'a str,
        given: usize,
    ) -> Task<'a, Result<Box<dyn Feed>, RunnerError>> {
        Box::pin(async move {
            let label = format!("follow {} from {given}", short(generation_id));
            let fate = self.gate(Kind::Runner, &label).await;
            let lost = || RunnerError::Unreachable("Network connection lost.".to_owned());
            let steps = fate
                .acts()
                .then(|| self.world.follow_actor(generation_id, given));
            self.after(fate, "followed").await;
            let mut steps = Steps(steps.filter(|_| fate == Fate::Fine).ok_or_else(lost)?);
            // The first message is the head: whether the object knows the run.
            steps.head().await?;
            Ok(Box::new(steps) as Box<dyn Feed>)
        })
    }
}

/// An object's steps on their way; the connection breaks where the object dies.
struct Steps(UnboundedReceiver<Result<Option<Step>, RunnerError>>);

impl Steps {
    async fn message(&mut self) -> Result<Option<Step>, RunnerError> {
        let lost = || RunnerError::Unreachable("Network connection lost.".to_owned());
        self.0.next().await.unwrap_or_else(|| Err(lost()))
    }

    async fn head(&mut self) -> Result<(), RunnerError> {
        self.message().await.map(|_| ())
    }
}

impl Feed for Steps {
    fn next(&mut self) -> Task<'_, Result<Step, RunnerError>> {
        Box::pin(async move {
            let lost = || RunnerError::Unreachable("Network connection lost.".to_owned());
            self.message().await?.ok_or_else(lost)
        })
    }
}

type Reply = futures::channel::oneshot::Receiver<Result<Option<Settlement>, RunnerError>>;

impl Port {
    async fn hear(
        &self,
        fate: Fate,
        reply: Option<Reply>,
    ) -> Result<Option<Settlement>, RunnerError> {
        let lost = || RunnerError::Unreachable("Network connection lost.".to_owned());
        self.after(fate, "sent").await;
        match reply {
            Some(reply) if fate == Fate::Fine => {
                let answer = reply.await.unwrap_or_else(|_| Err(lost()));
                self.after(fate, &format!("{answer:?}")).await;
                answer
            }
            _ => Err(lost()),
        }
    }
}

fn is_evidence(key: &str) -> bool {
    key.starts_with("_oncepress/evidence/")
}

/// A key without the long hex part that makes traces hard to read.
pub(super) fn short(key: &str) -> String {
    let cut = |part: &str| {
        let long = part.len() > 16 && part.bytes().filter(u8::is_ascii_hexdigit).count() > 14;
        if long {
            part.chars().take(10).collect()
        } else {
            part.to_owned()
        }
    };
    key.split(':').map(cut).collect::<Vec<String>>().join(":")
}
