//! The key is ours: marks it, starts the run, and answers from its end.

use serde_json::json;

use super::cache::{mark_result, mark_running, remember};
use super::refuse::{failure, pending};
use super::{Asked, Keys, Reply};
use crate::app::{App, RunnerError};
use crate::error::{Code, Problem};
use crate::idempotency::body;
use crate::idempotency::live::Live;
use crate::idempotency::mark::Mark;
use crate::idempotency::output::NoTap;
use crate::idempotency::record::{Job, Settlement, Surface};
use crate::idempotency::runner::execute;
use crate::idempotency::state::State;
use crate::limits::WAIT_MAX;
use crate::store::claims::Claim;
use crate::store::settle;
use crate::time::Span;

/// The key is ours: marks it and runs the generation.
pub(super) async fn fresh(
    app: &App,
    asked: &Asked,
    keys: &Keys,
    claim: Claim,
) -> Result<Reply, Problem> {
    let until = claim.job.lease_until;
    app.isolate.put(&keys.mark, Mark::RUNNING, until);
    mark_running(app, keys.mark.clone());
    let Claim {
        job, body, state, ..
    } = claim;
    let generation_id = job.generation_id.clone();
    if state == State::Queued {
        return enqueue(app, &job).await;
    }
    if let Err(problem) = body::keep(app, &body, &asked.body).await {
        let why = "its body could not be stored";
        let _ = app
            .run(settle::fail(&job, "store_unavailable", why, app.now()))
            .await;
        return Err(problem.generation(generation_id));
    }
    if asked.surface != Surface::Api {
        return begin(app, keys, job, body).await;
    }
    let wait = if asked.background {
        Span::default()
    } else {
        asked.wait.min(WAIT_MAX)
    };
    match run(app, job, body, wait).await {
        Ok(Some(settlement)) => made(app, keys, &generation_id, settlement),
        Ok(None) => Ok(Reply::Accepted { generation_id }),
        Err(error) => {
            log_unreachable(app, &generation_id, &error);
            Err(pending(&generation_id))
        }
    }
}

async fn enqueue(app: &App, job: &Job) -> Result<Reply, Problem> {
    let generation_id = job.generation_id.clone();
    let message = json!({"generationId": generation_id}).to_string();
    let Some(queues) = &app.queues else {
        return Err(pending(&generation_id));
    };
    match queues.send("JOBS", message, Span::default()).await {
        Ok(()) => Ok(Reply::Accepted { generation_id }),
        Err(error) => {
            app.log(
                "queue_refused",
                json!({"generationId": generation_id,
                "error": error.to_string()}),
            );
            // A message that was accepted all the same finds the generation failed, and is dropped.
            let batch = settle::fail(job, "store_unavailable", "the queue refused it", app.now());
            let _ = app.run(batch).await;
            Err(
                Problem::new(Code::StoreUnavailable, "The queue can't be reached.")
                    .generation(generation_id),
            )
        }
    }
}

/// Starts a run whose caller follows it.
async fn begin(app: &App, keys: &Keys, job: Job, body: String) -> Result<Reply, Problem> {
    let generation_id = job.generation_id.clone();
    let request_id = job.request_id.clone();
    let live = if app.runner.is_some() {
        match run(app, job, body, Span::default()).await {
            Ok(None) => None,
            Ok(Some(settlement)) => return made(app, keys, &generation_id, settlement),
            Err(error) => {
                // It may have started all the same, which following it finds out.
                log_unreachable(app, &generation_id, &error);
                None
            }
        }
    } else {
        let live = Live::default();
        let (handle, seen) = (app.clone(), live.clone());
        app.background.spawn(Box::pin(async move {
            let settlement = execute(&handle, &job, body, &seen).await;
            after_commit(&handle, &settlement);
            seen.end(&job.token, settlement);
        }));
        Some(live)
    };
    Ok(Reply::Running {
        generation_id,
        request_id,
        mark: keys.mark.clone(),
        made: true,
        live,
    })
}

/// Starts a run where runs are done, and waits for its end.
pub async fn run(
    app: &App,
    job: Job,
    body: String,
    wait: Span,
) -> Result<Option<Settlement>, RunnerError> {
    let Some(runner) = &app.runner else {
        return Ok(Some(run_inline(app, job, body).await));
    };
    // Starting the same job twice is starting it once, so an unclear first try is repeated.
    match runner.start(job.clone(), body.clone(), wait).await {
        Err(RunnerError::Unreachable(_)) => runner.start(job, body, wait).await,
        answer => answer,
    }
}

/// Runs a generation in the handler, for calls shorter than a connection lives.
async fn run_inline(app: &App, job: Job, body: String) -> Settlement {
    let settlement = execute(app, &job, body, &NoTap).await;
    after_commit(app, &settlement);
    settlement
}

/// What follows a commit, after the answer: the result mark, and the drain of what is owed now.
pub fn after_commit(app: &App, settlement: &Settlement) {
    let Settlement::Generated { stored } = settlement else {
        return;
    };
    let (app, stored) = (app.clone(), stored.clone());
    let background = app.background.clone();
    background.spawn(Box::pin(async move {
        mark_result(&app, &stored).await;
        if !stored.destinations.is_empty() {
            crate::outbox::drain::drain_generation(&app, &stored.generation_id).await;
        }
        app.flush_now().await;
    }));
}

/// The answer to the caller whose claim it was.
fn made(
    app: &App,
    keys: &Keys,
    generation_id: &str,
    settlement: Settlement,
) -> Result<Reply, Problem> {
    match settlement {
        Settlement::Generated { stored } => {
            remember(app, &keys.mark, &stored);
            Ok(Reply::Made(stored))
        }
        Settlement::Held { reason, stored } => {
            app.isolate.remove(&keys.mark);
            Ok(Reply::Held {
                reason,
                stored,
                made: true,
            })
        }
        other => {
            app.isolate.remove(&keys.mark);
            Err(failure(generation_id, other))
        }
    }
}

pub(super) fn log_unreachable(app: &App, generation_id: &str, error: &RunnerError) {
    app.log(
        "runner_unreachable",
        json!({"generationId": generation_id, "error": error.to_string()}),
    );
}
