//! The runner: one claimed generation, from the call of Gemini to the commit.
//!
//! Between Gemini's last byte and the commit there is no IO but the stores' own writes. If the
//! database refuses the commit, the output goes to the fallback store (R2, else KV) and the cron
//! trigger brings it in; a run whose end nobody could record is *unknown*, never guessed.

use serde_json::json;

use crate::app::App;
use crate::gemini::error::{Class, Failure, FailureCode, transport};
use crate::idempotency::body;
use crate::idempotency::output::{Bought, buy, credits};
use crate::idempotency::reading::Tap;
use crate::idempotency::record::{Job, Settlement, Stored};
use crate::idempotency::state::State;
use crate::json_form;
use crate::limits::{D1_TEXT_MAX_BYTES, GEMINI_DEADLINE, OUTPUT_INLINE_MAX_BYTES};
use crate::metrics::{Point, Scope};
use crate::ports::{HttpError, Object, Statement};
use crate::store::evidence::Evidence;
use crate::store::settle::{self, Purchase, Settled};
use crate::time::{Span, Timestamp};

/// Runs a job to its end: calls Gemini, settles, and says how it ended.
pub async fn execute(app: &App, job: &Job, body: String, tap: &dyn Tap) -> Settlement {
    let started = app.now();
    let Some(deadline) = deadline(job, started) else {
        let failure = transport(&HttpError::NotSent(
            "the lease had too little time left".to_owned(),
        ));
        return settle_failure(app, job, &failure).await;
    };
    let claimed = body;
    // Left only after the commit: till then the answer is held.
    let place = app.room.enter();
    let bought = match body::load(app, claimed.clone()).await {
        Ok(body) => buy(app, job, body, deadline, tap, &place).await,
        Err(failure) => Err(failure),
    };
    let settlement = match bought {
        Ok(bought) => settle_purchase(app, job, bought).await,
        Err(failure) => settle_failure(app, job, &failure).await,
    };
    body::forget(app, job, &claimed, &settlement).await;
    log_end(app, job, &settlement, app.now().since(started));
    settlement
}

/// How long Gemini may take: its deadline, or what the lease leaves of it. A runner that could no
/// longer commit inside its lease does not send.
fn deadline(job: &Job, now: Timestamp) -> Option<Span> {
    let left = job
        .lease_until
        .since(now)
        .saturating_add(Span::from_minutes(-1));
    let deadline = left.min(GEMINI_DEADLINE);
    (deadline >= DEADLINE_MIN).then_some(deadline)
}

/// Commits a purchase: to the database, else to the fallback store, until the lease ends.
pub async fn settle_purchase(app: &App, job: &Job, bought: Bought) -> Settlement {
    let Bought {
        mut purchase,
        mut stored,
    } = bought;
    place_output(app, &mut purchase, &mut stored).await;
    loop {
        match commit(app, job, &purchase).await {
            Ok((Settled::Yes, held)) => {
                purchase.held = purchase.held.or(held);
                return settled(purchase, stored);
            }
            Ok((Settled::Lost(state), _)) => return superseded(app, job, &purchase, state).await,
            Err(error) => {
                app.log(
                    "commit_refused",
                    json!({"generationId": job.generation_id,
                    "requestId": job.request_id, "error": error.to_string()}),
                );
            }
        }
        let evidence = Evidence::Bought {
            job: Box::new(job.clone()),
            purchase: Box::new(purchase.clone()),
        };
        if keep_evidence(app, &evidence).await {
            return settled(purchase, stored);
        }
        if app.now().plus(COMMIT_PAUSE) >= job.lease_until {
            return Settlement::Unknown {
                detail: "no store would take the output".to_owned(),
            };
        }
        app.clock.sleep(COMMIT_PAUSE).await;
    }
}

async fn commit(
    app: &App,
    job: &Job,
    purchase: &Purchase,
) -> Result<(Settled, Option<String>), crate::ports::DbError> {
    let results = app.run(settle::commit(job, purchase)).await?;
    let settled = settle::read_commit(&results, &purchase.output_id)?;
    Ok((settled, settle::read_held(&results)?))
}

/// A large output goes to R2 before the commit; where that fails it goes into the database, in
/// parts below its row limit.
async fn place_output(app: &App, purchase: &mut Purchase, stored: &mut Stored) {
    let body = &stored.body;
    if body.len() > OUTPUT_INLINE_MAX_BYTES
        && let Some(objects) = &app.objects
    {
        let object = Object {
            bytes: body.as_bytes().to_vec(),
            content_type: purchase.content_type.clone(),
            metadata: Vec::new(),
        };
        let name = output_object(&purchase.output_id);
        if objects.put(&name, object).await.is_ok() {
            purchase.in_r2 = true;
            stored.object = Some(name);
            return;
        }
    }
    purchase.parts = crate::store::parts(body, D1_TEXT_MAX_BYTES);
}

/// The name in R2 of an output.
pub fn output_object(output_id: &str) -> String {
    format!("_oncepress/outputs/{output_id}")
}

fn settled(purchase: Purchase, stored: Box<Stored>) -> Settlement {
    match purchase.held {
        Some(reason) => Settlement::Held { reason, stored },
        None => Settlement::Generated { stored },
    }
}

/// Somebody took the generation over: what was paid for is kept as evidence.
async fn superseded(app: &App, job: &Job, purchase: &Purchase, state: Option<State>) -> Settlement {
    let evidence_id = format!("gen_{}", purchase.output_id.trim_start_matches("out_"));
    let kept = app
        .run(settle::supersede(job, &evidence_id, purchase))
        .await
        .is_ok()
        || keep_evidence(
            app,
            &Evidence::Bought {
                job: Box::new(job.clone()),
                purchase: Box::new(purchase.clone()),
            },
        )
        .await;
    app.log(
        "superseded",
        json!({"generationId": job.generation_id, "evidenceId": evidence_id,
        "state": state.map(State::as_str), "kept": kept}),
    );
    Settlement::Unknown {
        detail: "another runner had taken this generation over".to_owned(),
    }
}

/// Settles a failure: a definite one frees the key, an unknown one binds it until it is decided.
pub async fn settle_failure(app: &App, job: &Job, failure: &Failure) -> Settlement {
    match failure.class() {
        Class::Unknown => settle_unknown(app, job, failure).await,
        Class::Definite => settle_definite(app, job, failure).await,
    }
}

/// Whether a later try of the same request can succeed.
const fn passes(code: FailureCode) -> bool {
    match code {
        FailureCode::RateLimited | FailureCode::QuotaExhausted | FailureCode::Unavailable => true,
        FailureCode::Rejected | FailureCode::Auth | FailureCode::Unknown => false,
    }
}

/// Gemini's own error, as drop-in callers get it.
fn google(failure: &Failure) -> Option<(u16, String)> {
    let error = failure.google.as_ref()?;
    let status = error.http_status().or(failure.status)?;
    Some((status, error.body.to_string()))
}

async fn settle_unknown(app: &App, job: &Job, failure: &Failure) -> Settlement {
    let batch = settle::unknown(job, failure.code.code(), &failure.message, app.now());
    if let Err(error) = app.run(batch).await {
        // The row stays `running`; it is found when its lease ends.
        app.log(
            "unknown_not_recorded",
            json!({"generationId": job.generation_id,
            "error": error.to_string()}),
        );
    }
    Settlement::Unknown {
        detail: failure.message.clone(),
    }
}

async fn settle_definite(app: &App, job: &Job, failure: &Failure) -> Settlement {
    let now = app.now();
    let again = job.from_queue && passes(failure.code);
    let (batch, wanted) = failed_batch(
        job,
        failure.code.code(),
        &failure.message,
        again.then(|| failure.retry_after.unwrap_or_default()),
        now,
    );
    let failed = Settlement::Failed {
        code: failure.code.code().to_owned(),
        detail: failure.message.clone(),
        retry_after_ms: failure.retry_after.map(Span::millis),
        google: google(failure),
    };
    match app
        .run(batch)
        .await
        .and_then(|r| settle::read_state(&r, wanted, &job.token))
    {
        Ok(Settled::Yes) => failed,
        Ok(Settled::Lost(_)) => Settlement::Unknown {
            detail: "another runner had taken this generation over".into(),
        },
        Err(error) => {
            app.log(
                "failure_not_recorded",
                json!({"generationId": job.generation_id,
                "error": error.to_string()}),
            );
            let evidence = Evidence::Failed {
                job: Box::new(job.clone()),
                reason: failure.code.code().to_owned(),
                detail: failure.message.clone(),
                again_ms: again.then(|| failure.retry_after.unwrap_or_default().millis()),
            };
            keep_evidence(app, &evidence).await;
            Settlement::Unknown {
                detail: "the failure could not be recorded".to_owned(),
            }
        }
    }
}

/// Ends a run that failed for sure: a queued job whose failure passes goes back into the queue and
/// comes again after `again`; any other is failed. With the state that this leaves behind.
pub fn failed_batch(
    job: &Job,
    reason: &str,
    detail: &str,
    again: Option<Span>,
    now: Timestamp,
) -> (Vec<Statement>, State) {
    match again {
        Some(wait) => {
            let lost_at = now.plus(wait).plus(MESSAGE_LATE);
            (
                settle::requeue(job, reason, detail, lost_at, now),
                State::Queued,
            )
        }
        None => (settle::fail(job, reason, detail, now), State::Failed),
    }
}

/// Keeps evidence in R2, else in KV; `false` where neither takes it.
pub async fn keep_evidence(app: &App, evidence: &Evidence) -> bool {
    let text = json_form::write(evidence);
    let name = evidence.name();
    if let Some(objects) = &app.objects {
        let object = Object {
            bytes: text.clone().into_bytes(),
            content_type: "application/json".to_owned(),
            metadata: Vec::new(),
        };
        if objects.put(&name, object).await.is_ok() {
            return true;
        }
    }
    app.kv_put(&name, text, None).await.is_ok()
}

fn log_end(app: &App, job: &Job, settlement: &Settlement, took: Span) {
    let (state, reason) = match settlement {
        Settlement::Generated { .. } => ("generated", None),
        Settlement::Held { reason, .. } => ("held", Some(reason.as_str())),
        Settlement::Failed { code, .. } => ("failed", Some(code.as_str())),
        Settlement::Unknown { .. } => ("unknown", None),
    };
    app.log(
        "generation_settled",
        json!({"generationId": job.generation_id,
        "requestId": job.request_id, "account": job.account, "site": job.site,
        "pipeline": job.pipeline, "model": job.model, "state": state, "reason": reason,
        "durationMs": took.millis()}),
    );
    let cost_nano = match settlement {
        Settlement::Generated { stored } | Settlement::Held { stored, .. } => stored.cost_nano,
        Settlement::Failed { .. } | Settlement::Unknown { .. } => 0,
    };
    Point::Generation {
        scope: Scope {
            account: &job.account,
            site: &job.site,
            pipeline: &job.pipeline,
            model: &job.model,
        },
        state,
        reason: reason.unwrap_or_default(),
        surface: job.surface,
        took_ms: took.millis(),
        cost_micro: credits(cost_nano),
    }
    .write(&*app.telemetry);
}

/// Below this Gemini is not called at all.
const DEADLINE_MIN: Span = Span::from_seconds(30);
/// Between two rounds of asking every store to take an output.
const COMMIT_PAUSE: Span = Span::from_seconds(2);
/// A message that is this much later than it was to come is taken for lost.
const MESSAGE_LATE: Span = Span::from_minutes(10);
