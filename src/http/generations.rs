//! `POST /api/v1/generations`: generate, persist, owe the deliveries.

use crate::app::App;
use crate::config::{Destination, Upstream};
use crate::error::{Code, Fault, Problem};
use crate::gemini::bounds::Bounds;
use crate::gemini::request::{ApiVersion, Method, ModelName, from_api, upstream_path};
use crate::http::auth::Principal;
use crate::http::message::{Body, Request, Response};
use crate::http::validate::{GenerationRequest, KeyDefaults};
use crate::idempotency::gateway::{Asked, Reply, ask};
use crate::idempotency::record::{Stored, Surface};
use crate::key::idempotency_key::OperationKey;
use crate::key::identity::{Beside, IdentityInput, identify};
use crate::key::json::Json;
use crate::key::scope::{Name, Scope};
use crate::limits::{BODY_MAX_BYTES, WAIT_MAX};
use crate::store::accounts::Access;
use crate::time::Span;

/// Answers `POST /api/v1/generations`.
pub async fn create(
    app: &App,
    principal: &Principal,
    request: &Request,
    request_id: &str,
) -> Result<Response, Problem> {
    let Principal::Key(access) = principal else {
        return Err(Problem::new(
            Code::Forbidden,
            "Generations belong to an account; use one of its API keys.",
        ));
    };
    let asked = read(app, access, request, request_id)?;
    let credits = ask(app, asked).await?;
    respond(credits)
}

/// Parses and checks everything; nothing of it touches a store or consumes a key.
fn read(app: &App, access: &Access, request: &Request, request_id: &str) -> Result<Asked, Problem> {
    json_content(request)?;
    if request.body.len() > BODY_MAX_BYTES {
        return Err(too_large(BODY_MAX_BYTES));
    }
    let operation = operation_key(request)?;
    let preference = Preference::read(request)?;
    let body = parse_json(&request.body)?;
    let now = app.now();
    let valid =
        GenerationRequest::parse(&body, &key_defaults(access), now).map_err(Problem::invalid)?;
    let upstream_body = from_api(&body).map_err(|faults| {
        let faults = faults.into_iter().map(|f| Fault::new(f.pointer, f.problem));
        Problem::invalid(faults.collect())
    })?;
    let pipeline = app
        .config()
        .pipeline(&access.account, &valid.site, &valid.pipeline);
    let model = valid
        .model
        .clone()
        .or_else(|| pipeline.and_then(|pipeline| pipeline.model.clone()))
        .unwrap_or_else(|| app.config().default_model.clone());
    let credits = estimate(app, &model, &body, request.body.len())?;
    let destinations_named = valid.publish.is_some();
    let destinations = valid
        .publish
        .clone()
        .or_else(|| pipeline.map(|pipeline| pipeline.publish.clone()))
        .unwrap_or_default();
    check_destinations(app, &access.account, &destinations)?;
    let scope = scope(&access.account, &valid.site, &valid.pipeline)?;
    let identity = identify(&IdentityInput {
        scope: &scope,
        surface: crate::key::identity::Surface::Api,
        model: &model,
        request: &body,
        beside: Beside::default(),
        ignores: &app.config().identity_ignores,
    })
    .map_err(|repeated| Problem::invalid(vec![Fault::new("", repeated.to_string())]))?;
    Ok(Asked {
        access: access.clone(),
        surface: Surface::Api,
        site: valid.site,
        pipeline: valid.pipeline,
        topic: valid.topic,
        upstream: upstream(app, &model)?,
        model,
        json_mode: valid.json_mode,
        continues: false,
        operation,
        identity,
        anchor: valid.requested_at.unwrap_or(now),
        anchor_given: valid.requested_at.is_some(),
        window: valid.window,
        destinations,
        destinations_named,
        body: upstream_body,
        credits,
        request_id: request_id.to_owned(),
        wait: preference.wait,
        background: preference.respond_async,
    })
}

/// The answer to the caller.
fn respond(reply: Reply) -> Result<Response, Problem> {
    match reply {
        Reply::Made(stored) => {
            let spent = crate::idempotency::output::credits(stored.cost_nano);
            Ok(stored_response(201, *stored).with("x-oncepress-credits", spent.to_string()))
        }
        Reply::Replayed(stored) => Ok(stored_response(200, *stored)
            .with("x-idempotency-replayed", "true")
            .with("x-oncepress-credits", "0")),
        Reply::Held { reason, stored, .. } => Err(Problem::new(
            Code::OutputHeld,
            format!(
                "The output was paid for and is stored, but is not fit to publish ({reason}); a \
                 person decides.",
            ),
        )
        .member("reason", reason)
        .generation(&stored.generation_id)),
        Reply::Accepted { generation_id } | Reply::Running { generation_id, .. } => {
            Ok(accepted(&generation_id))
        }
    }
}

/// A stored answer, byte for byte, with the first request's id. It may be large, so it is moved.
pub fn stored_response(status: u16, stored: Stored) -> Response {
    let mut response = Response {
        status,
        headers: vec![("content-type".to_owned(), stored.content_type)],
        body: Body::Bytes(stored.body.into_bytes()),
    };
    response.headers.extend(stored.headers);
    response
        .with("cache-control", "no-store")
        .with("x-request-id", stored.request_id)
        .with("x-oncepress-generation-id", stored.generation_id)
}

fn accepted(generation_id: &str) -> Response {
    let location = format!("/api/v1/generations/{generation_id}");
    let body = serde_json::json!({"id": generation_id, "state": "running"}).to_string();
    Response::json(202, body)
        .with("location", location)
        .with("cache-control", "no-store")
        .with("retry-after", "5")
}

/// What `Prefer` (RFC 7240) asks for.
struct Preference {
    wait: Span,
    respond_async: bool,
}

impl Preference {
    fn read(request: &Request) -> Result<Self, Problem> {
        let mut preference = Self {
            wait: WAIT_MAX,
            respond_async: false,
        };
        let items = request
            .header_values("prefer")
            .flat_map(|value| value.split(','));
        for item in items.map(str::trim) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "respond-async" => preference.respond_async = true,
                "wait" => preference.wait = wait(value.trim())?,
                // A server ignores preferences that it does not know (RFC 7240, section 2).
                _ => {}
            }
        }
        Ok(preference)
    }
}

fn wait(value: &str) -> Result<Span, Problem> {
    let seconds = value.trim_matches('"').parse::<u8>().ok().map(i64::from);
    seconds
        .map(Span::from_seconds)
        .filter(|span| *span <= WAIT_MAX)
        .ok_or_else(|| {
            Problem::new(
                Code::InvalidRequest,
                "`Prefer: wait` takes 0 to 25 seconds.",
            )
        })
}

/// A body must come as it is: the platform unpacks no request.
pub fn plain_content(request: &Request) -> Result<(), Problem> {
    let encodings = request.header_values("content-encoding");
    let plain = encodings
        .flat_map(|value| value.split(','))
        .all(|encoding| encoding.trim().eq_ignore_ascii_case("identity"));
    if plain {
        return Ok(());
    }
    Err(Problem::new(
        Code::UnsupportedMediaType,
        "Send the body without `Content-Encoding`.",
    ))
}

/// A JSON body must say that it is one.
pub fn json_content(request: &Request) -> Result<(), Problem> {
    plain_content(request)?;
    let content_type = request.header("content-type").unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        Code::UnsupportedMediaType,
        "Send `Content-Type: application/json`.",
    ))
}

/// Parses a body exactly; the fault is named by its JSON pointer.
pub fn parse_json(body: &[u8]) -> Result<Json, Problem> {
    Json::parse(body).map_err(|error| {
        Problem::invalid(vec![Fault::new(error.pointer.clone(), error.to_string())])
    })
}

/// The refusal of a body that is too large.
pub fn too_large(max: usize) -> Problem {
    Problem::new(
        Code::RequestTooLarge,
        format!("The body may have {max} bytes."),
    )
}

/// The caller's own key, where it sent one.
pub fn operation_key(request: &Request) -> Result<Option<String>, Problem> {
    let values: Vec<&str> = request.header_values("idempotency-key").collect();
    OperationKey::parse(&values)
        .map(|key| key.map(|key| key.as_str().to_owned()))
        .map_err(|fault| Problem::new(Code::InvalidIdempotencyKey, fault.to_string()))
}

/// What an API key fills in.
pub fn key_defaults(access: &Access) -> KeyDefaults {
    Json::parse(access.defaults.as_bytes())
        .ok()
        .and_then(|json| KeyDefaults::parse(&json).ok())
        .unwrap_or_default()
}

/// Account, site and pipeline as names.
pub fn scope(account: &str, site: &str, pipeline: &str) -> Result<Scope, Problem> {
    let name = |pointer: &str, text: &str| {
        Name::parse(text)
            .ok_or_else(|| Problem::invalid(vec![Fault::new(pointer, "is not a name")]))
    };
    Ok(Scope {
        account: name("", account)?,
        site: name("/site", site)?,
        pipeline: name("/pipeline", pipeline)?,
    })
}

/// Upper estimate of the cost in credits; a model without a price is refused.
pub fn estimate(app: &App, model: &str, body: &Json, bytes: usize) -> Result<i64, Problem> {
    let bounds = Bounds::of(body, bytes);
    app.config()
        .prices
        .estimate(model, &bounds, app.now())
        .map(super::super::gemini::price::NanoUsd::micro_usd_rounded_up)
        .ok_or_else(|| {
            Problem::new(
                Code::UnknownModelPrice,
                "This model has no price in the table; add it to PRICES.",
            )
        })
}

/// Every destination must name a publisher that is open to the account.
pub fn check_destinations(
    app: &App,
    account: &str,
    destinations: &[Destination],
) -> Result<(), Problem> {
    let mut faults = Vec::new();
    for (index, destination) in destinations.iter().enumerate() {
        match app.config().publishers.get(&destination.publisher) {
            None => faults.push(Fault::new(
                format!("/publish/{index}/publisher"),
                "names no publisher of the configuration",
            )),
            Some(settings) if !settings.is_open_to(account) => {
                return Err(Problem::new(
                    Code::Forbidden,
                    "This publisher is not open to this account.",
                ));
            }
            Some(_) => {}
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Problem::invalid(faults))
    }
}

fn upstream(app: &App, model: &str) -> Result<String, Problem> {
    let method = match app.config().gemini_upstream {
        Upstream::Stream => Method::Stream,
        Upstream::Unary => Method::Unary,
    };
    let name = ModelName::parse(model)
        .ok_or_else(|| Problem::invalid(vec![Fault::new("/model", "is not a model's name")]))?;
    Ok(upstream_path(ApiVersion::V1Beta, &name, method))
}
