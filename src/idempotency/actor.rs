//! A generation's own actor: a Durable Object works through it, and the simulator does natively.
//!
//! Starting stores the job and sets an alarm for now; the alarm runs the generation, so neither a
//! client that leaves nor the end of a request cuts it. Whoever asks joins and waits. The platform
//! runs an alarm again whose isolate died: a job that was marked as sent then is not sent again,
//! but settled by evidence or by policy.

use std::cell::RefCell;
use std::rc::Rc;

use crate::app::{App, RunnerError};
use crate::idempotency::gateway::mark_result;
use crate::idempotency::live::{Follower, Live, is_large, pointed};
use crate::idempotency::record::{Job, Settlement};
use crate::idempotency::recovery::{end_of, look_up, recover, settlement_of};
use crate::idempotency::runner::execute;
use crate::idempotency::state::State;
use crate::json_form::{self, json_form};
use crate::ports::{DbError, Task};
use crate::time::Span;

/// The actor's own durable storage: one record, and one alarm.
pub trait ActorStorage {
    /// The record.
    fn read(&self) -> Task<'_, Result<Option<String>, String>>;
    /// Stores the record; it is durable before anything that follows leaves the actor.
    fn write(&self, record: String) -> Task<'_, Result<(), String>>;
    /// Deletes everything.
    fn clear(&self) -> Task<'_, Result<(), String>>;
    /// Has [`Actor::alarm`] called after this long, and again if that dies; takes the place of an
    /// earlier wish.
    fn wake(&self, after: Span) -> Task<'_, Result<(), String>>;
}

/// What is durable of a run.
#[derive(Clone, Debug)]
struct Record {
    job: Job,
    /// Gemini may have been called.
    sent: bool,
    /// The run has ended. The record stays until the lease is over, since a start that comes late
    /// or twice must not buy again, wherever the end of the run is kept by then.
    over: bool,
    /// The run ended and no store took its end.
    lost: bool,
}

json_form!(Record {
    job,
    sent,
    over,
    lost,
});

/// One generation's actor.
pub struct Actor {
    storage: Rc<dyn ActorStorage>,
    memory: RefCell<Memory>,
    live: Live,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Actor")
    }
}

#[derive(Default)]
struct Memory {
    /// The job that this incarnation was started with, and its body.
    body: Option<(String, String)>,
    running: Option<String>,
}

impl Actor {
    /// An actor on its storage.
    pub fn new(storage: Rc<dyn ActorStorage>) -> Self {
        Self {
            storage,
            memory: RefCell::default(),
            live: Live::default(),
        }
    }

    /// Starts a job, or joins it where it was started before, and waits for its end.
    pub async fn start(
        &self,
        app: &App,
        job: Job,
        body: String,
        wait: Span,
    ) -> Result<Option<Settlement>, RunnerError> {
        self.begin(job, body).await?;
        self.attach(app, wait).await
    }

    /// Stores the job; a second start of the same job changes nothing.
    async fn begin(&self, job: Job, body: String) -> Result<(), RunnerError> {
        if self.live.ended().is_some_and(|token| token == job.token) {
            return Ok(());
        }
        let record = self.record().await?;
        let running = self.memory.borrow().running.clone();
        if running.is_some_and(|token| token != job.token) {
            return Err(RunnerError::Unreachable(
                "another run is under way".to_owned(),
            ));
        }
        self.live.reopen();
        self.memory.borrow_mut().body = Some((job.token.clone(), body));
        if record.is_some_and(|record| record.job.token == job.token) {
            return Ok(());
        }
        // Before anybody follows the new run: its answer is another.
        self.live.restart();
        let record = Record {
            job,
            sent: false,
            over: false,
            lost: false,
        };
        self.save(&record).await
    }

    /// Joins a run that was started before.
    pub async fn attach(&self, app: &App, wait: Span) -> Result<Option<Settlement>, RunnerError> {
        self.know(app).await?;
        Ok(self.live.wait(&*app.clock, wait).await)
    }

    /// Follows the answer live; its first `given` bytes are known already.
    pub async fn follow(&self, app: &App, given: usize) -> Result<Follower, RunnerError> {
        self.know(app).await?;
        Ok(self.live.follow(given))
    }

    /// Has the alarm run a job that waits for it: an earlier wish may have been lost. Of a run that
    /// is over a new incarnation finds out how it ended, and remembers nothing else.
    async fn know(&self, app: &App) -> Result<(), RunnerError> {
        if self.live.ended().is_some() || self.memory.borrow().running.is_some() {
            return Ok(());
        }
        let Some(record) = self.record().await? else {
            return Err(RunnerError::NotHere);
        };
        if record.over {
            let end = end_of(app, &record.job).await.map_err(unreachable)?;
            let end = end.ok_or_else(|| {
                RunnerError::Unreachable("its end is not in the database yet".to_owned())
            })?;
            if self.holds_another(&record.job.token) {
                return Err(RunnerError::Unreachable("it runs again".to_owned()));
            }
            self.live.recall(&record.job.token, end);
            return Ok(());
        }
        if record.sent || self.memory.borrow().running.is_some() {
            return Ok(());
        }
        let wish = self.storage.wake(Span::default()).await;
        wish.map_err(RunnerError::Unreachable)
    }

    /// Whether a job with another token was started here, or has run since.
    fn holds_another(&self, token: &str) -> bool {
        let memory = self.memory.borrow();
        let begun = memory.body.as_ref().map(|(owner, _)| owner.clone());
        let tokens = [begun, memory.running.clone(), self.live.ended()];
        tokens.iter().flatten().any(|held| held != token)
    }

    /// Runs the stored job to its end.
    pub async fn alarm(&self, app: &App) -> Result<(), RunnerError> {
        let Some(record) = self.record().await? else {
            return Ok(());
        };
        if self.memory.borrow().running.is_some() {
            return Ok(());
        }
        if record.over {
            return self.forget(app, &record).await;
        }
        self.memory.borrow_mut().running = Some(record.job.token.clone());
        let ended = self.run(app, &record).await;
        self.memory.borrow_mut().running = None;
        let (settlement, kept) = ended?;
        if let Settlement::Generated { stored } = &settlement {
            mark_result(app, stored).await;
            if !stored.destinations.is_empty() {
                crate::outbox::drain::drain_generation(app, &stored.generation_id).await;
            }
        }
        app.flush_now().await;
        // Where the end was not kept, the alarm comes again and finds it in the database.
        kept
    }

    /// Works, and makes the end durable before anybody is told of it.
    async fn run(
        &self,
        app: &App,
        record: &Record,
    ) -> Result<(Settlement, Result<(), RunnerError>), RunnerError> {
        let mut settlement = self.work(app, record.clone()).await?;
        let lost = matches!(settlement, Settlement::Unknown { .. })
            && still_running(app, &record.job).await;
        let over = Record {
            sent: true,
            over: true,
            lost,
            ..record.clone()
        };
        let kept = match self.save(&over).await {
            Ok(()) => self.forget(app, &over).await,
            Err(error) => Err(error),
        };
        let (copy, large) = (pointed(&mut settlement), is_large(&settlement));
        self.live.end(&record.job.token, settlement);
        // Till the database has it, a large output is nowhere else to be had at once.
        if kept.is_ok() && !(large && still_running(app, &record.job).await) {
            self.live.release();
        }
        Ok((copy, kept))
    }

    /// Forgets a run that is over once its lease is, since nothing is sent after that. One whose
    /// end no store took is remembered: it was sent, whatever else is known.
    async fn forget(&self, app: &App, record: &Record) -> Result<(), RunnerError> {
        let left = record.job.lease_until.since(app.now());
        let done = if record.lost {
            Ok(())
        } else if left > Span::default() {
            self.storage.wake(left).await
        } else {
            self.storage.clear().await
        };
        done.map_err(RunnerError::Unreachable)
    }

    async fn work(&self, app: &App, record: Record) -> Result<Settlement, RunnerError> {
        if record.sent {
            return Ok(recover(app, &record.job).await);
        }
        let job = record.job.clone();
        let body = match self.body(&job.token) {
            Some(body) => body,
            None => match load_body(app, &job).await? {
                Loaded::Body(body) => body,
                Loaded::Settled(settlement) => return Ok(settlement),
            },
        };
        self.save(&Record {
            sent: true,
            ..record
        })
        .await?;
        Ok(execute(app, &job, body, &self.live).await)
    }

    fn body(&self, token: &str) -> Option<String> {
        let mut memory = self.memory.borrow_mut();
        memory
            .body
            .take()
            .filter(|(owner, _)| owner == token)
            .map(|(_, body)| body)
    }

    async fn record(&self) -> Result<Option<Record>, RunnerError> {
        let Some(text) = self
            .storage
            .read()
            .await
            .map_err(RunnerError::Unreachable)?
        else {
            return Ok(None);
        };
        json_form::read(&text)
            .map(Some)
            .ok_or_else(|| RunnerError::Unreachable("the record is damaged".to_owned()))
    }

    async fn save(&self, record: &Record) -> Result<(), RunnerError> {
        let text = json_form::write(record);
        self.storage
            .write(text)
            .await
            .map_err(RunnerError::Unreachable)
    }
}

/// Whether the database still says that this job runs: its end was not recorded anywhere.
async fn still_running(app: &App, job: &Job) -> bool {
    match look_up(app, &job.generation_id).await {
        Ok(Some((generation, _))) => {
            generation.state == State::Running && generation.token == job.token
        }
        Ok(None) => false,
        Err(_) => true,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn unreachable(error: DbError) -> RunnerError {
    RunnerError::Unreachable(error.to_string())
}

enum Loaded {
    Body(String),
    Settled(Settlement),
}

/// The request's body, from the database, where this job still holds the generation.
async fn load_body(app: &App, job: &Job) -> Result<Loaded, RunnerError> {
    let found = look_up(app, &job.generation_id).await;
    match found.map_err(unreachable)? {
        Some((generation, body))
            if generation.state == State::Running && generation.token == job.token =>
        {
            Ok(Loaded::Body(body))
        }
        Some((generation, _)) => settlement_of(app, &generation)
            .await
            .map(Loaded::Settled)
            .map_err(unreachable),
        None => Ok(Loaded::Settled(Settlement::Unknown {
            detail: "the generation is not in the database".to_owned(),
        })),
    }
}
