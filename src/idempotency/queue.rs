//! Work that came through the queue. A message holds an id; taking the generation is atomic, so a
//! message that comes late, twice or out of order is the same operation.

use serde_json::{Value, json};

use crate::app::App;
use crate::guard::{self, Memory, Verdict};
use crate::idempotency::gateway::run;
use crate::idempotency::record::{Job, Settlement};
use crate::idempotency::state::State;
use crate::limits::LEASE;
use crate::ports::DbError;
use crate::store::alerts::{self, Event};
use crate::store::settle;
use crate::time::Span;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It is done with.
    Ack,
    /// It comes again after this long.
    Retry(Span),
}

/// Works on one message of the queue `queue`. A Worker that is not fit to run leaves it for one
/// that is.
pub async fn work(app: &App, memory: &Memory, queue: &str, body: &str) -> Disposition {
    if !app.settings.faults.is_empty() || guard::check(app, memory).await != Verdict::Own {
        app.log(
            "message_retried",
            json!({"queue": queue, "error": "not fit to run"}),
        );
        return Disposition::Retry(RETRY);
    }
    let Some(id) = generation_id(body) else {
        app.log("message_unreadable", json!({"queue": queue}));
        return Disposition::Ack;
    };
    let outcome = if queue.ends_with(DEAD_SUFFIX) {
        bury(app, &id).await.map(|()| Disposition::Ack)
    } else {
        generate(app, &id).await
    };
    outcome.unwrap_or_else(|error| {
        app.log(
            "message_retried",
            json!({"generationId": id, "error": error.to_string()}),
        );
        Disposition::Retry(RETRY)
    })
}

fn generation_id(body: &str) -> Option<String> {
    let message: Value = serde_json::from_str(body).ok()?;
    Some(message.get("generationId")?.as_str()?.to_owned())
}

async fn generate(app: &App, id: &str) -> Result<Disposition, DbError> {
    let now = app.now();
    let token = app.id("tok_");
    let results = app
        .run(settle::take(id, &token, now.plus(LEASE), now))
        .await?;
    let Some((generation, body)) = settle::read_load(&results, 1)? else {
        return Ok(Disposition::Ack);
    };
    if generation.token != token || generation.state != State::Running {
        // Somebody is at it, or it is settled; one that is queued still is taken next time.
        let queued = generation.state == State::Queued;
        return Ok(if queued {
            Disposition::Retry(RETRY)
        } else {
            Disposition::Ack
        });
    }
    Ok(match run(app, Job::of(&generation), body, WAIT).await {
        // The row went back into the queue; a definite failure that stays is settled.
        Ok(Some(Settlement::Failed { retry_after_ms, .. })) => {
            let wait = retry_after_ms.map_or(RETRY, Span::from_millis);
            Disposition::Retry(wait.min(DELAY_MAX).max(RETRY_MIN))
        }
        // What is unknown or goes on is looked after by the cron trigger.
        Ok(_) => Disposition::Ack,
        Err(error) => {
            app.log(
                "runner_unreachable",
                json!({"generationId": id,
                "error": error.to_string()}),
            );
            Disposition::Ack
        }
    })
}

/// A dead-lettered message becomes a failure that people see.
async fn bury(app: &App, id: &str) -> Result<(), DbError> {
    let results = app.run(settle::load(id)).await?;
    let Some((generation, _)) = settle::read_load(&results, 0)? else {
        return Ok(());
    };
    if generation.state != State::Queued {
        return Ok(());
    }
    let job = Job::of(&generation);
    let reason = generation
        .reason
        .clone()
        .unwrap_or_else(|| "store_unavailable".to_owned());
    let detail = "every delivery of its queue message failed";
    let now = app.now();
    let mut batch = settle::fail(&job, &reason, detail, now);
    batch.push(alerts::add(
        &Event {
            kind: "dead_message",
            account: &job.account,
            site: &job.site,
            pipeline: &job.pipeline,
            count: 1,
            topic: job.topic.as_deref(),
            detail: Some(detail),
            original_at: Some(job.created_at),
        },
        now,
    ));
    app.run(batch).await?;
    app.log("message_dead", json!({"generationId": id}));
    Ok(())
}

/// What the name of a dead-letter queue ends in.
const DEAD_SUFFIX: &str = "-dead";
/// A consumer may run for 15 minutes; Gemini's deadline is 13.
const WAIT: Span = Span::from_minutes(14);
/// Wait of a message that could not be worked on.
const RETRY: Span = Span::from_seconds(60);
const RETRY_MIN: Span = Span::from_seconds(1);
/// The longest delay that the platform takes: 12 hours.
const DELAY_MAX: Span = Span::from_hours(12);
