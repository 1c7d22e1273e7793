//! A deterministic, single-threaded executor with virtual time.
//!
//! Tasks live in *homes* (isolates). One step polls one ready task, chosen by a pluggable chooser;
//! where nothing is ready, the clock moves to the next timer. A task can be dropped at any await:
//! its client went away, or its whole home died.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// The home of the platform itself, which never dies.
pub const PLATFORM: u64 = 0;

type Work = Pin<Box<dyn Future<Output = ()>>>;
/// Picks the index of the task to poll among those that are ready, as (id, name).
pub type Chooser = Box<dyn FnMut(&[(u64, Rc<str>)]) -> usize>;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Slot {
    name: Rc<str>,
    home: u64,
    work: Option<Work>,
    ready: Arc<Flag>,
    children: u32,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Polled,
    Advanced,
    Idle,
}

#[derive(Clone)]
pub struct Exec(Rc<Inner>);

struct Inner {
    now_ms: Cell<i64>,
    tasks: RefCell<BTreeMap<u64, Slot>>,
    next_id: Cell<u64>,
    timers: RefCell<BTreeMap<(i64, u64), Waker>>,
    current: RefCell<Option<(u64, Rc<str>)>>,
    dead: RefCell<BTreeSet<u64>>,
    last: Cell<u64>,
    chooser: RefCell<Option<Chooser>>,
    steps: Cell<u64>,
}

/// Where a spawned task's result appears.
pub struct Handle<T> {
    pub id: u64,
    result: Rc<RefCell<Option<T>>>,
}

impl<T> Handle<T> {
    pub fn take(&self) -> Option<T> {
        self.result.borrow_mut().take()
    }

    pub fn is_done(&self) -> bool {
        self.result.borrow().is_some()
    }
}

impl Exec {
    pub fn new(now_ms: i64) -> Self {
        Self(Rc::new(Inner {
            now_ms: Cell::new(now_ms),
            tasks: RefCell::default(),
            next_id: Cell::new(1),
            timers: RefCell::default(),
            current: RefCell::default(),
            dead: RefCell::default(),
            last: Cell::new(0),
            chooser: RefCell::default(),
            steps: Cell::new(0),
        }))
    }

    pub fn choose_by(&self, chooser: Chooser) {
        *self.0.chooser.borrow_mut() = Some(chooser);
    }

    pub fn now_ms(&self) -> i64 {
        self.0.now_ms.get()
    }

    /// Moves the clock without firing anything in between: a clock that jumps.
    pub fn jump_ms(&self, by: i64) {
        self.0.now_ms.set(self.now_ms() + by);
    }

    pub fn steps(&self) -> u64 {
        self.0.steps.get()
    }

    /// The name of the task being polled.
    pub fn current(&self) -> Rc<str> {
        let current = self.0.current.borrow();
        current
            .as_ref()
            .map_or_else(|| Rc::from("-"), |(_, name)| Rc::clone(name))
    }

    /// Spawns a task named after its parent, or `name` where there is none.
    pub fn spawn<T: 'static>(
        &self,
        home: u64,
        name: &str,
        work: impl Future<Output = T> + 'static,
    ) -> Handle<T> {
        let result = Rc::new(RefCell::new(None));
        let slot_result = Rc::clone(&result);
        let id = self.insert(
            home,
            name,
            Box::pin(async move {
                let value = work.await;
                *slot_result.borrow_mut() = Some(value);
            }),
        );
        Handle { id, result }
    }

    fn insert(&self, home: u64, name: &str, work: Work) -> u64 {
        let id = self.0.next_id.get();
        self.0.next_id.set(id + 1);
        let mut tasks = self.0.tasks.borrow_mut();
        let current = self.0.current.borrow().clone();
        let name: Rc<str> = match current.and_then(|(id, _)| tasks.get_mut(&id)) {
            Some(parent) => {
                parent.children += 1;
                Rc::from(format!("{}/{name}{}", parent.name, parent.children))
            }
            None => Rc::from(name),
        };
        let ready = Arc::new(Flag(AtomicBool::new(true)));
        if self.0.dead.borrow().contains(&home) {
            return id;
        }
        tasks.insert(
            id,
            Slot {
                name,
                home,
                work: Some(work),
                ready,
                children: 0,
            },
        );
        id
    }

    /// Drops one task: its client went away.
    pub fn cancel(&self, id: u64) {
        let slot = self.0.tasks.borrow_mut().remove(&id);
        drop(slot);
    }

    pub fn is_alive(&self, id: u64) -> bool {
        self.0.tasks.borrow().contains_key(&id)
    }

    /// Drops every task of a home; nothing of it runs again.
    pub fn kill_home(&self, home: u64) {
        assert_ne!(home, PLATFORM, "the platform does not die");
        self.0.dead.borrow_mut().insert(home);
        let doomed: Vec<u64> = {
            let tasks = self.0.tasks.borrow();
            let of_home = tasks.iter().filter(|(_, slot)| slot.home == home);
            of_home
                .filter(|(_, slot)| slot.work.is_some())
                .map(|(id, _)| *id)
                .collect()
        };
        for id in doomed {
            self.cancel(id);
        }
    }

    pub fn is_dead(&self, home: u64) -> bool {
        self.0.dead.borrow().contains(&home)
    }

    /// Drops every task.
    pub fn clear(&self) {
        self.0.chooser.take();
        let tasks = self.0.tasks.take();
        drop(tasks);
    }

    fn ready(&self) -> Vec<(u64, Rc<str>)> {
        let tasks = self.0.tasks.borrow();
        let ready = tasks
            .iter()
            .filter(|(_, slot)| slot.ready.0.load(Ordering::Relaxed));
        ready
            .map(|(id, slot)| (*id, Rc::clone(&slot.name)))
            .collect()
    }

    /// Polls one ready task, or moves the clock to the next timer (never past `until_ms`).
    pub fn step(&self, until_ms: i64) -> Step {
        let ready = self.ready();
        if ready.is_empty() {
            return self.advance(until_ms);
        }
        let index = if let Some(chooser) = self.0.chooser.borrow_mut().as_mut() {
            chooser(&ready)
        } else {
            let last = self.0.last.get();
            ready.iter().position(|(id, _)| *id > last).unwrap_or(0)
        };
        self.0.last.set(ready[index].0);
        self.poll(ready[index].0);
        Step::Polled
    }

    fn poll(&self, id: u64) {
        self.0.steps.set(self.0.steps.get() + 1);
        let (mut work, ready, name, home) = {
            let mut tasks = self.0.tasks.borrow_mut();
            let Some(slot) = tasks.get_mut(&id) else {
                return;
            };
            slot.ready.0.store(false, Ordering::Relaxed);
            let work = slot.work.take().expect("a task is polled once at a time");
            (
                work,
                Arc::clone(&slot.ready),
                Rc::clone(&slot.name),
                slot.home,
            )
        };
        let before = self.0.current.replace(Some((id, name)));
        let waker = Waker::from(ready);
        let done = work
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        self.0.current.replace(before);
        if done || self.is_dead(home) {
            let slot = self.0.tasks.borrow_mut().remove(&id);
            drop((slot, work));
            return;
        }
        // Cancelled while it was polled: the slot is gone, and the work goes with it.
        let mut tasks = self.0.tasks.borrow_mut();
        if let Some(slot) = tasks.get_mut(&id) {
            slot.work = Some(work);
        } else {
            drop(tasks);
            drop(work);
        }
    }

    fn advance(&self, until_ms: i64) -> Step {
        let next = self.0.timers.borrow().keys().next().copied();
        match next {
            Some((at, _)) if at <= until_ms => {
                self.0.now_ms.set(self.now_ms().max(at));
                self.fire();
                Step::Advanced
            }
            _ => Step::Idle,
        }
    }

    fn fire(&self) {
        loop {
            let waker = {
                let mut timers = self.0.timers.borrow_mut();
                match timers.first_key_value() {
                    Some((key, _)) if key.0 <= self.now_ms() => timers.pop_first(),
                    _ => None,
                }
            };
            match waker {
                Some((_, waker)) => waker.wake(),
                None => return,
            }
        }
    }

    /// Runs until nothing is ready and no timer is due by `until_ms`; the clock is then there.
    pub fn run_to(&self, until_ms: i64) {
        let mut steps = 0_u64;
        while self.step(until_ms) != Step::Idle {
            steps += 1;
            assert!(steps < 5_000_000, "the run does not come to rest");
        }
        if until_ms < i64::MAX && self.now_ms() < until_ms {
            self.0.now_ms.set(until_ms);
        }
    }

    /// Runs until the task has ended, or was dropped (`None`).
    pub fn finish<T>(&self, handle: &Handle<T>) -> Option<T> {
        let mut steps = 0_u64;
        while !handle.is_done() && self.is_alive(handle.id) {
            assert_ne!(
                self.step(i64::MAX),
                Step::Idle,
                "the task waits for nothing"
            );
            steps += 1;
            assert!(steps < 5_000_000, "the task does not end");
        }
        handle.take()
    }

    pub fn sleep(&self, ms: i64) -> Sleep {
        Sleep {
            exec: self.clone(),
            at: self.now_ms().saturating_add(ms.max(0)),
            key: None,
        }
    }
}

/// A timer in virtual time.
pub struct Sleep {
    exec: Exec,
    at: i64,
    key: Option<(i64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.exec.now_ms() >= self.at {
            return Poll::Ready(());
        }
        let key = if let Some(key) = self.key {
            key
        } else {
            let id = self.exec.0.next_id.get();
            self.exec.0.next_id.set(id + 1);
            (self.at, id)
        };
        self.key = Some(key);
        let mut timers = self.exec.0.timers.borrow_mut();
        timers.insert(key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.exec.0.timers.borrow_mut().remove(&key);
        }
    }
}

/// Lets every other ready task go first, if the chooser wants it.
pub fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
