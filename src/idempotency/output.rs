//! One call of Gemini, and what it comes to: the purchase to commit and the answer to replay.

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::config::{GateRefusal, NearDuplicates};
use crate::gemini::answer::Assembled;
use crate::gemini::error::{Failure, transport};
use crate::gemini::exchange::reread;
use crate::gemini::fitness::{Expectation, Fitness, Form, HeldReason, Hop, Purpose};
use crate::gemini::request::{candidates, upstream_request};
use crate::gemini::usage::Usage;
use crate::idempotency::reading::{Reading, Tap};
use crate::idempotency::record::{EVENT_STREAM, Generation, Job, Stored, Surface, Tokens};
use crate::idempotency::room::Place;
use crate::json_form;
use crate::store::settle::Purchase;
use crate::time::{Span, Timestamp};

/// What was bought: the row to commit, and the answer it replays.
#[derive(Clone, Debug)]
pub struct Bought {
    /// For the database.
    pub purchase: Purchase,
    /// For the callers.
    pub stored: Box<Stored>,
}

/// Calls Gemini and puts its answer together.
pub async fn buy(
    app: &App,
    job: &Job,
    body: String,
    deadline: Span,
    tap: &dyn Tap,
    place: &Place,
) -> Result<Bought, Failure> {
    let config = app.config();
    let key = config.gemini_api_key.expose();
    let candidates = candidates(&body);
    let request = upstream_request(&config.gemini_base_url, &job.upstream, key, body, deadline);
    let answer = app
        .outbound
        .send(request)
        .await
        .map_err(|error| transport(&error))?;
    let headers = tracing_headers(&answer.headers);
    let mut reading = Reading::begin(job.surface, candidates, &answer, tap);
    let cut = reading.read(app, place, answer, tap).await;
    let (assembled, text) = reading.end(cut.as_ref(), app.now(), tap)?;
    Ok(bought(app, job, assembled, text, headers))
}

fn bought(
    app: &App,
    job: &Job,
    mut answer: Assembled,
    text: String,
    headers: Vec<(String, String)>,
) -> Bought {
    let now = app.now();
    let usage = answer.usage.unwrap_or_default();
    // The price of the day that the estimate was made for; without counts, the estimate stands.
    let cost_nano = match answer.usage {
        Some(_) => app
            .config()
            .prices
            .cost(&job.model, &usage, job.created_at)
            .map(i64::from),
        None => None,
    }
    .unwrap_or(job.credits.saturating_mul(1_000));
    let tokens = tokens(&usage);
    let purpose = if job.surface != Surface::Api && job.destinations.is_empty() {
        Purpose::Relay
    } else {
        Purpose::Publish
    };
    let held = held(app, job, purpose, &answer);
    let body = match job.surface {
        Surface::Api => document(job, &mut answer, &tokens, cost_nano, now),
        Surface::Generate | Surface::Stream => text,
    };
    let purchase = Purchase {
        output_id: app.id("out_"),
        held: held.as_ref().map(|(code, _)| (*code).to_owned()),
        holds_near_duplicates: holds_near_duplicates(app, job),
        detail: held.map(|(_, sentence)| sentence.to_owned()),
        parts: Vec::new(),
        in_r2: false,
        content_type: content_type(job.surface).to_owned(),
        headers: json_form::write(&headers),
        model_version: answer.model_version,
        finish_reason: answer.finish_reason,
        tokens,
        cost_nano,
        credits: credits(cost_nano),
        completed_at: now,
    };
    let stored = Stored {
        generation_id: job.generation_id.clone(),
        request_id: job.request_id.clone(),
        account: job.account.clone(),
        site: job.site.clone(),
        pipeline: job.pipeline.clone(),
        topic: job.topic.clone(),
        model: job.model.clone(),
        claim_key: job.claim_key.clone(),
        fingerprint: job.fingerprint.clone(),
        created_at: job.created_at,
        anchor_at: job.anchor_at,
        expires_at: job.expires_at,
        destinations: job.destinations.clone(),
        cost_nano,
        content_type: content_type(job.surface).to_owned(),
        headers,
        object: None,
        body,
    };
    Bought {
        purchase,
        stored: Box::new(stored),
    }
}

/// Credits are micro-dollars; a sum in nano-dollars is rounded up once.
pub fn credits(cost_nano: i64) -> i64 {
    cost_nano.max(0).saturating_add(999) / 1_000
}

fn tokens(usage: &Usage) -> Tokens {
    Tokens {
        prompt: usage.prompt_tokens,
        cached: usage.cached_tokens,
        output: usage.output_tokens,
        thought: usage.thought_tokens,
        total: usage.total_tokens,
    }
}

/// Why the answer is not published by itself, if so: a code and a sentence.
fn held(
    app: &App,
    job: &Job,
    purpose: Purpose,
    answer: &Assembled,
) -> Option<(&'static str, &'static str)> {
    let expectation = Expectation {
        form: if job.json_mode {
            Form::Json
        } else {
            Form::Text
        },
        hop: if job.continues {
            Hop::Later
        } else {
            Hop::First
        },
        purpose,
    };
    match expectation.assess(answer) {
        Fitness::Fit if purpose == Purpose::Publish => gate(app, job, &answer.text),
        Fitness::Fit => None,
        Fitness::Held(reason) => Some((reason.code(), reason.sentence())),
    }
}

/// Why an answer that was bought to be passed on only is not fit to publish; `None` where it is.
pub fn unfit(app: &App, generation: &Generation, body: &str) -> Option<&'static str> {
    let Some(answer) = reread(body, app.now()) else {
        return Some(HeldReason::Incomplete.code());
    };
    held(app, &Job::of(generation), Purpose::Publish, &answer).map(|(code, _)| code)
}

/// What the pipeline's own rules say against publishing it.
fn gate(app: &App, job: &Job, text: &str) -> Option<(&'static str, &'static str)> {
    let pipeline = app
        .config()
        .pipeline(&job.account, &job.site, &job.pipeline)?;
    let refusal = pipeline.gate.as_ref()?.check(text).err()?;
    Some((GateRefusal::CODE, refusal.sentence()))
}

/// Whether a second generation for one target within a day is held.
fn holds_near_duplicates(app: &App, job: &Job) -> bool {
    let pipeline = app
        .config()
        .pipeline(&job.account, &job.site, &job.pipeline);
    pipeline.is_some_and(|pipeline| pipeline.near_duplicates == NearDuplicates::Hold)
}

const fn content_type(surface: Surface) -> &'static str {
    match surface {
        Surface::Api => "application/json; charset=utf-8",
        Surface::Generate => "application/json; charset=UTF-8",
        Surface::Stream => EVENT_STREAM,
    }
}

/// Our generation object, as the first caller gets it and every replay repeats it.
fn document(
    job: &Job,
    answer: &mut Assembled,
    tokens: &Tokens,
    cost_nano: i64,
    now: Timestamp,
) -> String {
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    put("id", job.generation_id.as_str().into());
    put("key", job.key.as_str().into());
    put("fingerprint", job.fingerprint.as_str().into());
    put("state", "generated".into());
    put("account", job.account.as_str().into());
    put("site", job.site.as_str().into());
    put("pipeline", job.pipeline.as_str().into());
    put("topic", job.topic.as_deref().into());
    put("model", job.model.as_str().into());
    put("modelVersion", answer.model_version.as_deref().into());
    put("requestId", job.request_id.as_str().into());
    put("createdAt", job.created_at.to_rfc3339().into());
    put("completedAt", now.to_rfc3339().into());
    put(
        "output",
        // Moved and not copied: it may be large.
        json!({"text": std::mem::take(&mut answer.text), "finishReason": answer.finish_reason}),
    );
    put("usage", usage_json(tokens));
    put("cost", json!({"microUsd": credits(cost_nano)}));
    Value::Object(document).to_string()
}

/// Token counts in the API's names.
pub fn usage_json(tokens: &Tokens) -> Value {
    json!({
        "promptTokens": tokens.prompt,
        "cachedTokens": tokens.cached,
        "outputTokens": tokens.output,
        "thoughtTokens": tokens.thought,
        "totalTokens": tokens.total,
    })
}

/// Gemini's own tracing headers, which a replay repeats as first received.
fn tracing_headers(headers: &[(String, String)]) -> Vec<(String, String)> {
    headers
        .iter()
        .filter(|(name, value)| TRACING.contains(&name.as_str()) && value.len() <= 256)
        .cloned()
        .collect()
}

const TRACING: [&str; 4] = [
    "server-timing",
    "x-gemini-service-tier",
    "x-goog-request-id",
    "x-cloud-trace-context",
];

#[cfg(test)]
mod tests {
    use super::credits;

    #[test]
    fn a_sum_is_rounded_up_once() {
        assert_eq!([0, 1, 1_000, 1_001, -5].map(credits), [0, 1, 1, 2, 0]);
    }
}
