//! Looking generations up, and deciding what is unknown or held.

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::error::{Code, Fault, Problem};
use crate::http::auth::Principal;
use crate::http::generations::{json_content, parse_json};
use crate::http::message::{Request, Response};
use crate::http::page::{Page, account_of, parameters};
use crate::http::validate::ResolveRequest;
use crate::idempotency::gateway::store_problem;
use crate::idempotency::output::{credits, usage_json};
use crate::idempotency::record::{Generation, Surface};
use crate::idempotency::recovery::output_body;
use crate::idempotency::resolve::{self, Resolved};
use crate::idempotency::state::State;
use crate::outbox::attempt::output_text;
use crate::ports::Rows;
use crate::store::generations::{GenerationQuery, find, list, read_found};
use crate::store::row::{first, rows};

/// `GET /api/v1/generations/{id}`.
pub async fn get(app: &App, principal: &Principal, id: &str) -> Result<Response, Problem> {
    let results = found(app, principal, id).await?;
    let generation = read_found(&results).map_err(|e| store_problem(app, &e))?;
    let Some(generation) = generation else {
        return Err(missing(app, &results, id));
    };
    let mut document = summary(&generation);
    if generation.output_id.is_some() {
        let body = output_body(app, &generation)
            .await
            .map_err(|e| store_problem(app, &e))?;
        put_output(app, &mut document, &generation, &body);
    }
    let deliveries: Result<Vec<Value>, _> = rows(&results, 1)
        .map_err(|error| store_problem(app, &error))?
        .map(crate::http::outbox::delivery)
        .collect();
    let deliveries = deliveries.map_err(|error| store_problem(app, &error))?;
    document.insert("deliveries".to_owned(), deliveries.into());
    Ok(answer(&Value::Object(document)))
}

async fn found(app: &App, principal: &Principal, id: &str) -> Result<Vec<Rows>, Problem> {
    let batch = find(id, principal.account());
    app.run(batch)
        .await
        .map_err(|error| store_problem(app, &error))
}

/// 410 for a purged id, 404 for any other: another account's too.
fn missing(app: &App, results: &[Rows], id: &str) -> Problem {
    match first(results, 2) {
        Ok(Some(_)) => Problem::new(
            Code::Gone,
            "This generation was purged after its retention.",
        )
        .generation(id),
        Ok(None) => Problem::new(Code::NotFound, "There is no generation with this id."),
        Err(error) => store_problem(app, &error),
    }
}

fn answer(document: &Value) -> Response {
    Response::json(200, document.to_string()).with("cache-control", "no-store")
}

/// A generation as `GET` shows it, without its output.
pub fn summary(generation: &Generation) -> Map<String, Value> {
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    put("id", generation.id.as_str().into());
    put("key", generation.key.as_str().into());
    put("fingerprint", generation.fingerprint.as_str().into());
    put("state", generation.state.public().into());
    put("account", generation.account.as_str().into());
    put("site", generation.site.as_str().into());
    put("pipeline", generation.pipeline.as_str().into());
    put("topic", generation.topic.as_deref().into());
    put("model", generation.model.as_str().into());
    put("modelVersion", generation.model_version.as_deref().into());
    put("requestId", generation.request_id.as_str().into());
    put("createdAt", generation.created_at.to_rfc3339().into());
    put(
        "completedAt",
        generation
            .completed_at
            .map(super::super::time::Timestamp::to_rfc3339)
            .into(),
    );
    if generation.output_id.is_some() {
        put("usage", usage_json(&generation.tokens));
        put("cost", json!({"microUsd": credits(generation.cost_nano)}));
    }
    if let Some(reason) = &generation.reason
        && !matches!(generation.state, State::Generated | State::Running)
    {
        put("reason", reason.as_str().into());
        put("detail", generation.detail.as_deref().into());
    }
    if let Some(original) = &generation.evidence_of {
        put("evidenceOf", original.as_str().into());
    }
    document
}

/// The output: text and reason for our own surface, the text and Gemini's own body for drop-in.
fn put_output(app: &App, document: &mut Map<String, Value>, generation: &Generation, body: &str) {
    let text = output_text(generation.surface, body, app.now());
    let mut output = Map::new();
    output.insert("text".to_owned(), text.into());
    output.insert(
        "finishReason".to_owned(),
        generation.finish_reason.as_deref().into(),
    );
    if generation.surface == Surface::Generate
        && let Ok(raw) = serde_json::from_str::<Value>(body)
    {
        output.insert("response".to_owned(), raw);
    }
    document.insert("output".to_owned(), Value::Object(output));
}

/// `GET /api/v1/generations`.
pub async fn index(
    app: &App,
    principal: &Principal,
    request: &Request,
) -> Result<Response, Problem> {
    let known = [
        "state",
        "site",
        "pipeline",
        "key",
        "requestId",
        "cursor",
        "limit",
        "account",
    ];
    let parameters = parameters(&request.query, &known)?;
    let account = account_of(principal, &parameters)?;
    let state = parameters.get("state").map(String::as_str);
    if let Some(word) = state
        && State::parse(word).is_none_or(|state| state == State::Queued)
    {
        return Err(Problem::invalid(vec![Fault::new(
            "/state",
            "is not a state",
        )]));
    }
    let page = Page::read(&parameters)?;
    let query = GenerationQuery {
        account: account.as_deref(),
        state,
        site: parameters.get("site").map(String::as_str),
        pipeline: parameters.get("pipeline").map(String::as_str),
        key: parameters.get("key").map(String::as_str),
        request_id: parameters.get("requestId").map(String::as_str),
        before: (page.before, &page.before_id),
        limit: page.limit.saturating_add(1),
    };
    let results = app
        .run(vec![list(&query)])
        .await
        .map_err(|e| store_problem(app, &e))?;
    let items: Result<Vec<Generation>, _> = rows(&results, 0)
        .map_err(|error| store_problem(app, &error))?
        .map(Generation::read)
        .collect();
    let items = items.map_err(|error| store_problem(app, &error))?;
    let last = |generation: &Generation| (generation.created_at, generation.id.clone());
    Ok(page.answer(&items, last, |generation| {
        Value::Object(summary(generation))
    }))
}

/// `POST /api/v1/generations/{id}/resolve`.
pub async fn resolve(
    app: &App,
    principal: &Principal,
    request: &Request,
    id: &str,
) -> Result<Response, Problem> {
    json_content(request)?;
    let body = parse_json(&request.body)?;
    let wanted = ResolveRequest::parse(&body).map_err(Problem::invalid)?;
    let results = found(app, principal, id).await?;
    let generation = read_found(&results).map_err(|e| store_problem(app, &e))?;
    let Some(generation) = generation else {
        return Err(missing(app, &results, id));
    };
    match resolve::resolve(app, principal.actor(), &generation, &wanted).await? {
        Resolved::Done => get(app, principal, id).await,
        Resolved::Runs => {
            let location = format!("/api/v1/generations/{id}");
            let body = json!({"id": id, "state": "running"}).to_string();
            Ok(Response::json(202, body)
                .with("location", location)
                .with("cache-control", "no-store"))
        }
    }
}
