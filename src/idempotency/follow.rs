//! Follows a generation to its end, wherever it runs and whatever happens to the connection.

use crate::app::{App, RunnerError};
use crate::idempotency::gateway::run;
use crate::idempotency::live::{Ended, Feed, Step};
use crate::idempotency::record::Job;
use crate::idempotency::recovery::{look_up, settlement_of};
use crate::idempotency::state::State;
use crate::limits::LEASE;
use crate::ports::{DbError, Task};
use crate::time::{Span, Timestamp};

/// Follows one generation: its runner, and where that can't be reached or does not know it, the
/// database. A connection that breaks is taken up again where it broke.
pub struct Lasting {
    app: App,
    generation_id: String,
    feed: Option<Box<dyn Feed>>,
    given: usize,
    breaks: u32,
    until: Timestamp,
}

impl std::fmt::Debug for Lasting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lasting")
            .field("generation_id", &self.generation_id)
            .finish_non_exhaustive()
    }
}

impl Lasting {
    /// Follows a generation from the first byte of its answer.
    pub fn new(app: &App, generation_id: &str) -> Self {
        Self {
            app: app.clone(),
            generation_id: generation_id.to_owned(),
            feed: None,
            given: 0,
            breaks: 0,
            until: app.now().plus(LEASE),
        }
    }

    /// One try to find out where the generation stands; `None` where it is to be tried again.
    async fn open(&self) -> Result<Option<Box<dyn Feed>>, RunnerError> {
        if let Some(runner) = &self.app.runner {
            match runner.follow(&self.generation_id, self.given).await {
                Ok(feed) => return Ok(Some(feed)),
                Err(RunnerError::NotHere) => {}
                Err(error) => return Err(error),
            }
        }
        self.look_up()
            .await
            .map_err(|error| RunnerError::Unreachable(error.to_string()))
    }

    /// No runner knows it: it was settled meanwhile, it waits in the queue, or its claimant died
    /// before it could start it. The same job under the same token is only ever started once.
    async fn look_up(&self) -> Result<Option<Box<dyn Feed>>, DbError> {
        let Some((generation, body)) = look_up(&self.app, &self.generation_id).await? else {
            return Err(DbError::Fatal(
                "the generation is not in the database".to_owned(),
            ));
        };
        match generation.state {
            State::Running if self.app.runner.is_some() => {
                // Where it can't be reached, the next look finds out.
                let _ = run(&self.app, Job::of(&generation), body, Span::default()).await;
                Ok(None)
            }
            State::Running | State::Queued => Ok(None),
            State::Generated | State::Held | State::Failed | State::Unknown | State::Superseded => {
                let settlement = settlement_of(&self.app, &generation).await?;
                Ok(Some(Box::new(Ended::new(settlement, self.given))))
            }
        }
    }

    async fn step(&mut self) -> Result<Step, RunnerError> {
        loop {
            if self.feed.is_none() {
                self.feed = match self.open().await {
                    Ok(feed) => feed,
                    Err(error) => self.broken(error)?,
                };
            }
            let Some(feed) = &mut self.feed else {
                if self.app.now() >= self.until {
                    return Err(RunnerError::Unreachable("its lease is over".to_owned()));
                }
                self.app.clock.sleep(PAUSE).await;
                continue;
            };
            match feed.next().await {
                Ok(step) => {
                    if let Step::Piece(text) = &step {
                        self.given = self.given.saturating_add(text.len());
                    }
                    return Ok(step);
                }
                Err(error) => self.feed = self.broken(error)?,
            }
        }
    }

    /// Counts a break; too many are the end.
    fn broken(&mut self, error: RunnerError) -> Result<Option<Box<dyn Feed>>, RunnerError> {
        self.breaks = self.breaks.saturating_add(1);
        if self.breaks > BREAKS_MAX {
            Err(error)
        } else {
            Ok(None)
        }
    }
}

impl Feed for Lasting {
    fn next(&mut self) -> Task<'_, Result<Step, RunnerError>> {
        Box::pin(self.step())
    }
}

/// Between two looks.
const PAUSE: Span = Span::from_seconds(1);
/// Connections that may break: a deployment cuts each at most once.
const BREAKS_MAX: u32 = 5;
