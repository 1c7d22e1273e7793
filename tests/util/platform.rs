//! The platform: Durable Objects with their alarms, queues with redelivery, the cron trigger.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::channel::oneshot;
use oncepress::app::{App, RunnerError};
use oncepress::cron::tick;
use oncepress::idempotency::actor::{Actor, ActorStorage};
use oncepress::idempotency::live::{Feed, Step};
use oncepress::idempotency::queue::{Disposition, work};
use oncepress::idempotency::record::Job;
use oncepress::json_form;
use oncepress::ports::Task;
use oncepress::time::{Span, Timestamp};
use serde_json::Value;

use super::exec::{Handle, PLATFORM};
use super::fate::{Fate, Kind};
use super::mutant::Mutant;
use super::world::{Isolate, World};

/// Durable Objects by name.
#[derive(Default)]
pub struct Actors(RefCell<BTreeMap<String, Rc<Host>>>);

/// One object: what is durable, and the incarnation that is in memory.
struct Host {
    record: RefCell<Option<String>>,
    live: RefCell<Option<(u64, Rc<Actor>, App)>>,
    /// Which setting of the alarm counts; a later one takes an earlier one's place.
    epoch: Cell<u64>,
    ringing: Cell<bool>,
}

impl Actors {
    fn host(&self, name: &str) -> Rc<Host> {
        let mut all = self.0.borrow_mut();
        let fresh = || {
            Rc::new(Host {
                record: RefCell::default(),
                live: RefCell::default(),
                epoch: Cell::new(0),
                ringing: Cell::new(false),
            })
        };
        Rc::clone(all.entry(name.to_owned()).or_insert_with(fresh))
    }

    /// An incarnation died with its isolate.
    pub fn forget(&self, home: u64) {
        for host in self.0.borrow().values() {
            let dead = host
                .live
                .borrow()
                .as_ref()
                .is_some_and(|live| live.0 == home);
            if dead {
                host.live.borrow_mut().take();
            }
        }
    }

    /// Ends every incarnation.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// The isolates of the objects that are in memory, with the objects' names.
    pub fn homes(&self) -> Vec<(String, u64)> {
        let all = self.0.borrow();
        let live = all.iter().filter_map(|(name, host)| {
            let live = host.live.borrow();
            live.as_ref().map(|(home, _, _)| (name.clone(), *home))
        });
        live.collect()
    }

    /// The generation and the token of the run that an isolate holds, if it holds one.
    pub fn job_of(&self, home: u64) -> Option<(String, String)> {
        let all = self.0.borrow();
        let (name, host) = all.iter().find(|(_, host)| {
            let live = host.live.borrow();
            live.as_ref().is_some_and(|live| live.0 == home)
        })?;
        let record: Value = serde_json::from_str(host.record.borrow().as_ref()?).ok()?;
        let token = record.pointer("/job/token")?.as_str()?;
        Some((name.clone(), token.to_owned()))
    }

    /// What is durable of every object.
    pub fn records(&self) -> Vec<(String, Option<String>)> {
        let all = self.0.borrow();
        all.iter()
            .map(|(name, host)| (name.clone(), host.record.borrow().clone()))
            .collect()
    }
}

/// An object's storage; `home` is the incarnation's.
struct Storage {
    world: World,
    name: String,
    host: Rc<Host>,
    home: u64,
}

impl Storage {
    async fn call<T>(&self, label: &str, effect: impl FnOnce(&Host) -> T) -> Result<T, String> {
        let fate = self.world.gate(self.home, Kind::Storage, label).await;
        let value = fate.acts().then(|| effect(&self.host));
        self.world.after(self.home, fate, label).await;
        match value {
            Some(value) if fate == Fate::Fine => Ok(value),
            _ => Err("storage failed".to_owned()),
        }
    }
}

impl ActorStorage for Storage {
    fn read(&self) -> Task<'_, Result<Option<String>, String>> {
        Box::pin(self.call("read", |host| host.record.borrow().clone()))
    }

    fn write(&self, record: String) -> Task<'_, Result<(), String>> {
        let forgets = matches!(self.world.mutant, Some(Mutant::ForgetRun));
        let kept = Some(record).filter(|record| !forgets || !record.contains("\"over\":true"));
        Box::pin(self.call("write", |host| *host.record.borrow_mut() = kept))
    }

    fn clear(&self) -> Task<'_, Result<(), String>> {
        Box::pin(self.call("clear", |host| {
            host.record.borrow_mut().take();
        }))
    }

    fn wake(&self, after: Span) -> Task<'_, Result<(), String>> {
        let label = format!("set alarm in {} s", after.millis() / 1_000);
        Box::pin(async move {
            let set = |_: &Host| self.world.set_alarm(&self.name, after.millis());
            self.call(&label, set).await
        })
    }
}

type Asked = Result<Option<oncepress::idempotency::record::Settlement>, RunnerError>;

impl World {
    /// The incarnation of an object, made where none is in memory.
    fn live(&self, name: &str) -> (u64, Rc<Actor>, App) {
        let host = self.actors.host(name);
        if let Some(live) = host.live.borrow().as_ref() {
            return live.clone();
        }
        let isolate = self.isolate(9);
        let storage = Rc::new(Storage {
            world: self.clone(),
            name: name.to_owned(),
            host: Rc::clone(&host),
            home: isolate.home,
        });
        let app = isolate.app.borrow().clone().unwrap();
        let live = (isolate.home, Rc::new(Actor::new(storage)), app);
        *host.live.borrow_mut() = Some(live.clone());
        live
    }

    /// Has an object answer a call, in its own isolate.
    pub fn call_actor(
        &self,
        name: &str,
        call: impl FnOnce(Rc<Actor>, App) -> Task<'static, Asked> + 'static,
    ) -> oneshot::Receiver<Asked> {
        let (home, actor, app) = self.live(name);
        let (sender, receiver) = oneshot::channel();
        self.exec.spawn(home, "rpc", async move {
            let _ = sender.send(call(actor, app).await);
        });
        receiver
    }

    /// Has an object pass its run on: first whether it knows it, then step by step.
    pub fn follow_actor(
        &self,
        name: &str,
        given: usize,
    ) -> UnboundedReceiver<Result<Option<Step>, RunnerError>> {
        let (home, actor, app) = self.live(name);
        let (sender, receiver) = unbounded();
        self.exec.spawn(home, "stream", async move {
            let mut follower = match actor.follow(&app, given).await {
                Ok(follower) => follower,
                Err(error) => return drop(sender.unbounded_send(Err(error))),
            };
            let _ = sender.unbounded_send(Ok(None));
            loop {
                let step = follower.next().await;
                let more = matches!(step, Ok(Step::Piece(_)));
                let listened = sender.unbounded_send(step.map(Some)).is_ok();
                if !more || !listened {
                    return;
                }
            }
        });
        receiver
    }

    /// Sets an object's one alarm.
    pub fn set_alarm(&self, name: &str, after_ms: i64) {
        let host = self.actors.host(name);
        let epoch = host.epoch.get() + 1;
        host.epoch.set(epoch);
        let (world, name) = (self.clone(), name.to_owned());
        self.exec.spawn(PLATFORM, "alarm", async move {
            world.exec.sleep(after_ms).await;
            world.ring(&name, &host, epoch).await;
        });
    }

    /// Runs the alarm, and again with growing pauses where it failed or died: six times at most.
    async fn ring(&self, name: &str, host: &Host, epoch: u64) {
        while host.ringing.get() {
            self.exec.sleep(10).await;
        }
        for attempt in 0..7_u32 {
            if host.epoch.get() != epoch {
                return;
            }
            host.ringing.set(true);
            let (home, actor, app) = self.live(name);
            let (sender, receiver) = oneshot::channel();
            self.exec.spawn(home, "run", async move {
                let _ = sender.send(actor.alarm(&app).await);
            });
            let outcome = receiver.await;
            host.ringing.set(false);
            if matches!(outcome, Ok(Ok(()))) {
                return;
            }
            self.exec.sleep(2_000_i64 << attempt).await;
        }
    }

    /// Ends an object's incarnation: deployed, evicted or crashed.
    pub fn evict(&self, name: &str) {
        let live = self
            .actors
            .host(name)
            .live
            .borrow()
            .as_ref()
            .map(|live| live.0);
        if let Some(home) = live {
            self.kill(home);
        }
    }
}

/// Messages on their way.
#[derive(Default)]
pub struct QueueStore {
    /// Delivered by hand, or by the platform.
    pub by_hand: Cell<bool>,
    /// Every third message comes twice, the second time up to 20 minutes later.
    pub twice: Cell<bool>,
    /// Messages that were accepted.
    pub accepted: Cell<i64>,
    pub waiting: RefCell<Vec<(String, String)>>,
    /// Messages that the platform still carries.
    pub carried: Cell<u32>,
    pub dead: Cell<u32>,
}

/// Retries of a message, as `wrangler.toml` says.
const RETRIES_MAX: u32 = 10;

impl World {
    /// A queue accepts a message.
    pub fn enqueue(&self, binding: &str, body: &str, delay_ms: i64) {
        if self.queue.by_hand.get() {
            let message = (binding.to_owned(), body.to_owned());
            self.queue.waiting.borrow_mut().push(message);
            return;
        }
        self.carry("test-jobs", body, delay_ms);
        let number = self.queue.accepted.get();
        self.queue.accepted.set(number + 1);
        if self.queue.twice.get() && number % 3 == 0 {
            let late_ms = (number + 1) * 77_777 % (20 * 60_000);
            self.carry("test-jobs", body, delay_ms + late_ms);
        }
    }

    /// Carries a message until it is acknowledged, or dead.
    pub fn carry(&self, queue: &str, body: &str, delay_ms: i64) {
        let (world, queue, body) = (self.clone(), queue.to_owned(), body.to_owned());
        self.queue.carried.set(self.queue.carried.get() + 1);
        self.exec.spawn(PLATFORM, "message", async move {
            world.exec.sleep(delay_ms).await;
            let mut attempts = 0;
            loop {
                let wait_ms = match world.deliver_in_platform(&queue, &body).await {
                    Some(Disposition::Ack) => break,
                    Some(Disposition::Retry(wait)) => wait.millis(),
                    // The consumer died: the message comes again.
                    None => 30_000,
                };
                attempts += 1;
                if attempts > RETRIES_MAX && !queue.ends_with("-dead") {
                    world.queue.dead.set(world.queue.dead.get() + 1);
                    world.carry("test-jobs-dead", &body, 0);
                    break;
                }
                world.exec.sleep(wait_ms).await;
            }
            world.queue.carried.set(world.queue.carried.get() - 1);
        });
    }

    async fn deliver_in_platform(&self, queue: &str, body: &str) -> Option<Disposition> {
        let isolate = self.isolate(7);
        let app = isolate.app.borrow().clone().unwrap();
        let (sender, receiver) = oneshot::channel();
        let (queue, body) = (queue.to_owned(), body.to_owned());
        self.exec.spawn(isolate.home, "consumer", async move {
            let disposition = work(&app, &isolate.guard, &queue, &body).await;
            app.flush_now().await;
            let _ = sender.send(disposition);
        });
        receiver.await.ok()
    }

    /// Delivers a message by hand to an isolate.
    pub fn deliver(&self, isolate: &Isolate, queue: &str, body: &str) -> Handle<Disposition> {
        let app = isolate.app.borrow().clone().unwrap();
        let (queue, body) = (queue.to_owned(), body.to_owned());
        let guard = Rc::clone(&isolate.guard);
        self.exec.spawn(isolate.home, "consumer", async move {
            work(&app, &guard, &queue, &body).await
        })
    }

    /// One firing of the cron trigger, in an isolate of its own.
    pub fn tick(&self, scheduled_ms: i64) -> Handle<()> {
        let isolate = self.isolate(8);
        let app = isolate.app.borrow().clone().unwrap();
        let guard = Rc::clone(&isolate.guard);
        self.exec.spawn(isolate.home, "tick", async move {
            tick(&app, &guard, Timestamp::from_millis(scheduled_ms)).await;
        })
    }

    /// Lets minutes pass, with the cron trigger firing in each.
    pub fn pass_minutes(&self, minutes: i64) {
        for _ in 0..minutes {
            let next = (self.exec.now_ms() / 60_000 + 1) * 60_000;
            self.exec.run_to(next);
            self.tick(next);
            self.exec.run_to(next + 1);
        }
        self.exec.run_to(self.exec.now_ms() + 30_000);
    }

    /// The same for each of them.
    pub fn evict_all(&self) {
        for (name, _) in self.actors.homes() {
            self.evict(&name);
        }
    }

    /// The one object there is, and its job as a further run of it would be given.
    pub fn further_job(&self) -> (String, Job) {
        let (name, record) = self.actors.records().remove(0);
        let record: Value = serde_json::from_str(&record.unwrap()).unwrap();
        let job = record["job"].to_string().replace("tok_", "tok_again_");
        (name, json_form::read(&job).unwrap())
    }
}
