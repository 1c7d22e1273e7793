//! Recovery: what becomes of a generation whose runner did not come back.
//!
//! First comes evidence (a committed row, an object in the fallback store), then, for derived keys
//! only, the policy `ON_UNKNOWN`. Operation keys wait for a person, however long.

use serde_json::json;

use crate::app::App;
use crate::config::OnUnknown;
use crate::error::Code;
use crate::idempotency::record::{Generation, Job, Settlement, Stored};
use crate::idempotency::runner::{failed_batch, output_object};
use crate::idempotency::state::State;
use crate::json_form;
use crate::ports::DbError;
use crate::store::evidence::{Evidence, PREFIX};
use crate::store::settle::{self, Settled};
use crate::store::{generations, row};
use crate::time::Span;

/// A runner that knows its own earlier try died settles at once: by evidence, else by policy.
pub async fn recover(app: &App, job: &Job) -> Settlement {
    match end_of(app, job).await {
        Ok(Some(settlement)) => settlement,
        Ok(None) => give_up(app, job, "the runner died while Gemini was at work").await,
        Err(error) => Settlement::Unknown {
            detail: error.to_string(),
        },
    }
}

/// How a run ended, by its evidence and the database; `None` where neither says that it has.
pub async fn end_of(app: &App, job: &Job) -> Result<Option<Settlement>, DbError> {
    let evidence = format!("{PREFIX}{}.{}", job.generation_id, job.token);
    bring_in_by_name(app, &evidence).await?;
    match look_up(app, &job.generation_id).await? {
        Some((generation, _)) if generation.state != State::Running => {
            settlement_of(app, &generation).await.map(Some)
        }
        Some((generation, _)) if generation.token == job.token => Ok(None),
        _ => Ok(Some(Settlement::Unknown {
            detail: "another runner took over".to_owned(),
        })),
    }
}

/// A generation and its request's body.
pub(super) async fn look_up(app: &App, id: &str) -> Result<Option<(Generation, String)>, DbError> {
    let results = app.run(settle::load(id)).await?;
    settle::read_load(&results, 0)
}

/// Records the outcome as unknown and, where the policy allows a second purchase, frees the key.
pub async fn give_up(app: &App, job: &Job, why: &str) -> Settlement {
    let now = app.now();
    let unknown = Settlement::Unknown {
        detail: why.to_owned(),
    };
    let frees = !job.operation && app.config().on_unknown == OnUnknown::Regenerate;
    let mut batch = Vec::new();
    if job.from_queue && frees {
        batch.extend(settle::free_to_queue(job, why, now));
    }
    // What went back into the queue is not running any more, and stays as it is.
    batch.extend(settle::unknown(job, "cut", why, now));
    if frees {
        batch.extend(settle::free_unknown(&job.generation_id, &job.token, now));
    }
    let result = app.run(batch).await;
    app.log(
        "generation_unknown",
        json!({"generationId": job.generation_id,
        "requestId": job.request_id, "freed": frees, "recorded": result.is_ok()}),
    );
    unknown
}

/// Brings one piece of evidence into the database, if it is there; `true` where it was. A store
/// that can't be read is an error: it may hold what was paid for.
pub async fn bring_in_by_name(app: &App, name: &str) -> Result<bool, DbError> {
    let unread = |error: String| DbError::Transient(error);
    if let Some(objects) = &app.objects {
        let found = objects.get(name).await;
        if let Some(object) = found.map_err(|error| unread(error.to_string()))? {
            bring_in(app, &object.bytes).await?;
            // Left over where this fails; bringing it in again changes nothing.
            let _ = objects.delete(name).await;
            return Ok(true);
        }
    }
    let found = app.kv_get(name).await;
    let Some(text) = found.map_err(|error| unread(error.to_string()))? else {
        return Ok(false);
    };
    bring_in(app, text.as_bytes()).await?;
    let _ = app.kv_delete(name).await;
    Ok(true)
}

async fn bring_in(app: &App, bytes: &[u8]) -> Result<(), DbError> {
    let evidence: Evidence = str::from_utf8(bytes)
        .ok()
        .and_then(json_form::read)
        .ok_or_else(|| DbError::Fatal("evidence that cannot be read".to_owned()))?;
    let settled = match &evidence {
        Evidence::Bought { job, purchase } => {
            let results = app.run(settle::commit(job, purchase)).await?;
            let settled = settle::read_commit(&results, &purchase.output_id)?;
            if matches!(settled, Settled::Lost(_)) {
                let id = format!("gen_{}", purchase.output_id.trim_start_matches("out_"));
                app.run(settle::supersede(job, &id, purchase)).await?;
            }
            settled
        }
        Evidence::Failed {
            job,
            reason,
            detail,
            again_ms,
        } => {
            let again = again_ms.map(Span::from_millis);
            let (batch, wanted) = failed_batch(job, reason, detail, again, app.now());
            settle::read_state(&app.run(batch).await?, wanted, &job.token)?
        }
    };
    let job = evidence.job();
    app.log(
        "evidence_brought_in",
        json!({"generationId": job.generation_id,
        "requestId": job.request_id, "own": settled == Settled::Yes}),
    );
    Ok(())
}

/// How a settled generation answers; `Unknown` for one that is not settled.
pub async fn settlement_of(app: &App, generation: &Generation) -> Result<Settlement, DbError> {
    Ok(match generation.state {
        State::Generated => Settlement::Generated {
            stored: Box::new(stored(app, generation, None).await?),
        },
        State::Held => Settlement::Held {
            reason: generation.reason.clone().unwrap_or_default(),
            stored: Box::new(stored(app, generation, None).await?),
        },
        State::Failed if is_definite(generation) => Settlement::Failed {
            code: generation.reason.clone().unwrap_or_default(),
            detail: generation.detail.clone().unwrap_or_default(),
            retry_after_ms: None,
            google: None,
        },
        State::Queued | State::Running | State::Failed | State::Unknown | State::Superseded => {
            Settlement::Unknown {
                detail: generation.detail.clone().unwrap_or_default(),
            }
        }
    })
}

/// Whether a failure was Gemini's or a store's own, and not the end of something unknown or held.
fn is_definite(generation: &Generation) -> bool {
    let reason = generation.reason.as_deref();
    reason.is_some_and(|reason| Code::parse(reason).is_some())
}

/// The stored result of a row; its body from `body`, the database or R2.
pub async fn stored(
    app: &App,
    generation: &Generation,
    body: Option<String>,
) -> Result<Stored, DbError> {
    let body = match body {
        Some(body) => body,
        None => output_body(app, generation).await?,
    };
    Ok(Stored {
        generation_id: generation.id.clone(),
        request_id: generation.request_id.clone(),
        account: generation.account.clone(),
        site: generation.site.clone(),
        pipeline: generation.pipeline.clone(),
        topic: generation.topic.clone(),
        model: generation.model.clone(),
        claim_key: generation.claim_key.clone(),
        fingerprint: generation.fingerprint.clone(),
        created_at: generation.created_at,
        anchor_at: generation.anchor_at,
        expires_at: generation.expires_at,
        destinations: generation.destinations.clone(),
        cost_nano: generation.cost_nano,
        content_type: generation.output_type.clone().unwrap_or_default(),
        headers: generation
            .output_headers
            .as_deref()
            .and_then(json_form::read)
            .unwrap_or_default(),
        object: in_r2(generation).map(output_object),
        body,
    })
}

/// The id of an output that lies in R2.
fn in_r2(generation: &Generation) -> Option<&str> {
    let in_r2 = generation.output_where.as_deref() == Some("r2");
    generation.output_id.as_deref().filter(|_| in_r2)
}

/// The stored answer of a generation, whole.
pub async fn output_body(app: &App, generation: &Generation) -> Result<String, DbError> {
    let Some(output_id) = &generation.output_id else {
        return Err(DbError::Fatal("the generation has no output".to_owned()));
    };
    if in_r2(generation).is_some() {
        let Some(objects) = &app.objects else {
            return Err(DbError::Fatal(
                "the output lies in R2, which is not bound".to_owned(),
            ));
        };
        let object = objects
            .get(&output_object(output_id))
            .await
            .map_err(|error| DbError::Transient(error.to_string()))?
            .ok_or_else(|| DbError::Fatal("the output is missing in R2".to_owned()))?;
        return String::from_utf8(object.bytes)
            .map_err(|_| DbError::Fatal("the output in R2 is not UTF-8".to_owned()));
    }
    let results = app.run(vec![generations::output(output_id)]).await?;
    let parts: Vec<String> = row::rows(&results, 0)?
        .map(|row| row.text("body"))
        .collect::<Result<_, _>>()?;
    if i64::try_from(parts.len()).unwrap_or(i64::MAX) != generation.output_parts {
        return Err(DbError::Fatal("the stored output is not whole".to_owned()));
    }
    Ok(parts.concat())
}
