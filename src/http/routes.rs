//! From a request to the call that answers it.

use crate::app::App;
use crate::error::{Code, Problem};
use crate::guard::{self, Memory, Verdict};
use crate::http::auth::{Anywhere, Principal, authenticate};
use crate::http::message::{Request, Response};
use crate::http::outbox::Action;
use crate::http::{account, admin, digest, dropin, generations, health, lookup, outbox, usage};
use crate::limits::{BODY_MAX_BYTES, DROP_IN_BODY_MAX_BYTES};
use crate::ports::Task;

/// The largest body that a path takes.
pub fn body_limit(path: &str) -> usize {
    let ours = ["/api/", "/admin/"]
        .iter()
        .any(|prefix| path.starts_with(prefix));
    if ours {
        BODY_MAX_BYTES
    } else {
        DROP_IN_BODY_MAX_BYTES
    }
}

/// Looks at a request's head before its body is read: a body that says that it is too large, and a
/// large one of a caller that nobody knows, are not read at all.
pub async fn refuse_early(app: &App, head: &Request) -> Option<Response> {
    let length = head
        .header("content-length")
        .and_then(|text| text.parse::<usize>().ok());
    let limit = body_limit(&head.path);
    let problem = if length.is_some_and(|length| length > limit) {
        generations::too_large(limit)
    } else if length.is_none_or(|length| length > UNKNOWN_BODY_MAX_BYTES) {
        let anywhere = if limit == BODY_MAX_BYTES {
            Anywhere::No
        } else {
            Anywhere::Yes
        };
        authenticate(app, head, anywhere).await.err()?
    } else {
        return None;
    };
    Some(refused(app, head, &problem))
}

/// The refusal of a body that turned out to be too large while it was read.
pub fn refuse_size(app: &App, head: &Request) -> Response {
    refused(app, head, &generations::too_large(body_limit(&head.path)))
}

/// The refusal of a request whose body broke off while it was read: nothing was spent.
pub fn refuse_broken(app: &App, head: &Request) -> Response {
    let problem = Problem::new(
        Code::Internal,
        "The request's body could not be read to its end.",
    );
    refused(app, head, &problem)
}

fn refused(app: &App, request: &Request, problem: &Problem) -> Response {
    let request_id = app.id("req_");
    log_problem(app, request, &request_id, problem);
    let ours = body_limit(&request.path) == BODY_MAX_BYTES;
    let answer = if ours {
        problem.to_response()
    } else {
        dropin::refused(request, problem)
    };
    let mut answer = answer.with("x-request-id", request_id);
    crate::http::cors::expose(app, request, &mut answer);
    answer
}

/// Answers a request; never fails and never panics.
pub async fn handle(app: &App, guard: &Memory, request: &Request) -> Response {
    let request_id = app.id("req_");
    let mut response = match route(app, guard, request, &request_id).await {
        Ok(response) => response,
        Err(problem) => {
            log_problem(app, request, &request_id, &problem);
            problem.to_response()
        }
    };
    if response
        .headers
        .iter()
        .all(|(name, _)| name != "x-request-id")
    {
        response
            .headers
            .push(("x-request-id".to_owned(), request_id));
    }
    crate::http::cors::expose(app, request, &mut response);
    app.flush_later();
    response
}

fn log_problem(app: &App, request: &Request, request_id: &str, problem: &Problem) {
    app.log(
        "request_refused",
        serde_json::json!({"requestId": request_id, "method": request.method,
            "code": problem.code.as_str(), "status": problem.code.status(),
            "generationId": problem.generation_id}),
    );
}

async fn route(
    app: &App,
    guard: &Memory,
    request: &Request,
    request_id: &str,
) -> Result<Response, Problem> {
    let segments = segments(&request.path);
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["healthz"] => {
            only("GET", request)?;
            let verdict = guard::check(app, guard).await;
            Ok(health::liveness(app, &verdict))
        }
        ["admin", rest @ ..] => Box::pin(admin_call(app, guard, request, rest)).await,
        ["api", "v1", rest @ ..] => {
            if let Some(preflight) = crate::http::cors::preflight(app, request) {
                return Ok(preflight);
            }
            fit(app, guard).await?;
            Box::pin(api_call(app, request, request_id, rest)).await
        }
        ["v1" | "v1beta" | "v1alpha" | "upload" | "download", ..] => {
            if let Some(preflight) = crate::http::cors::preflight(app, request) {
                return Ok(preflight);
            }
            let answer = match fit(app, guard).await {
                Ok(()) => Box::pin(dropin::handle(app, request, request_id)).await,
                Err(problem) => Err(problem),
            };
            Ok(answer.unwrap_or_else(|problem| {
                log_problem(app, request, request_id, &problem);
                dropin::refused(request, &problem)
            }))
        }
        _ => Err(not_found()),
    }
}

/// The path's segments, percent escapes undone; a broken escape leaves the segment as it is.
fn segments(path: &str) -> Vec<String> {
    path.trim_start_matches('/')
        .split('/')
        .map(|part| {
            crate::http::query::decode(&part.replace('+', "%2B")).unwrap_or(part.to_owned())
        })
        .collect()
}

/// Refuses to work with a faulty configuration, or on another environment's stores.
async fn fit(app: &App, memory: &Memory) -> Result<(), Problem> {
    if let Some(fault) = app.settings.faults.first() {
        app.log(
            "misconfigured",
            serde_json::json!({"name": fault.name,
            "faults": app.settings.faults.len()}),
        );
        return Err(Problem::new(
            Code::Misconfigured,
            "The configuration is faulty; `/admin/health` names every fault.",
        ));
    }
    match guard::check(app, memory).await {
        Verdict::Own => Ok(()),
        Verdict::Foreign(why) => {
            app.log("foreign_environment", serde_json::json!({"why": why}));
            Err(Problem::new(
                Code::Misconfigured,
                "A store belongs to another environment; `/admin/health` says which.",
            ))
        }
        Verdict::Unreachable(why) => {
            app.log("store_failed", serde_json::json!({"error": why}));
            Err(Problem::new(
                Code::StoreUnavailable,
                "A store can't be reached.",
            ))
        }
    }
}

async fn admin_call(
    app: &App,
    guard: &Memory,
    request: &Request,
    rest: &[&str],
) -> Result<Response, Problem> {
    let principal = authenticate(app, request, Anywhere::No).await?;
    if principal != Principal::Admin {
        return Err(Problem::new(
            Code::Forbidden,
            "This call takes the admin token only.",
        ));
    }
    if rest == ["health"] {
        only("GET", request)?;
        let verdict = guard::check(app, guard).await;
        return Ok(health::details(app, &verdict).await);
    }
    let guarded = if *guard.borrow() { 0 } else { guard::COST_MAX };
    fit(app, guard).await?;
    // Boxed, so that the calls do not become parts of one another.
    let call: Task<'_, Result<Response, Problem>> = match (request.method.as_str(), rest) {
        ("POST", ["accounts"]) => Box::pin(admin::create_account(app, request)),
        ("GET", ["accounts"]) => Box::pin(admin::list_accounts(app, request)),
        ("PATCH", ["accounts", name]) => Box::pin(admin::change_account(app, request, name)),
        ("POST", ["accounts", name, "keys"]) => Box::pin(admin::create_key(app, request, name)),
        ("DELETE", ["keys", id]) => Box::pin(admin::revoke_key(app, id)),
        ("POST", ["drain"]) => Box::pin(admin::drain_now(app, guarded)),
        (_, ["accounts"]) => return Err(not_allowed("GET, POST")),
        (_, ["accounts", _]) => return Err(not_allowed("PATCH")),
        (_, ["accounts", _, "keys"] | ["drain"]) => return Err(not_allowed("POST")),
        (_, ["keys", _]) => return Err(not_allowed("DELETE")),
        _ => return Err(not_found()),
    };
    call.await
}

async fn api_call(
    app: &App,
    request: &Request,
    request_id: &str,
    rest: &[&str],
) -> Result<Response, Problem> {
    let principal = authenticate(app, request, Anywhere::No).await?;
    if let Some(account) = principal.account()
        && !app.limiter.allow(account).await
    {
        return Err(Problem::new(
            Code::RateLimited,
            "This account sends too many requests.",
        ));
    }
    // Boxed, so that the calls do not become parts of one another.
    let call: Task<'_, Result<Response, Problem>> = match (request.method.as_str(), rest) {
        ("POST", ["generations"]) => {
            Box::pin(generations::create(app, &principal, request, request_id))
        }
        ("GET", ["generations"]) => Box::pin(lookup::index(app, &principal, request)),
        ("GET", ["generations", id]) => Box::pin(lookup::get(app, &principal, id)),
        ("POST", ["generations", id, "resolve"]) => {
            Box::pin(lookup::resolve(app, &principal, request, id))
        }
        ("GET", ["outbox"]) => Box::pin(outbox::index(app, &principal, request)),
        ("POST", ["outbox", id, "requeue"]) => {
            Box::pin(outbox::act(app, &principal, id, Action::Requeue))
        }
        ("POST", ["outbox", id, "cancel"]) => {
            Box::pin(outbox::act(app, &principal, id, Action::Cancel))
        }
        ("GET", ["usage"]) => Box::pin(usage::get(app, &principal, request)),
        ("GET", ["account"]) => Box::pin(account::get(app, &principal, request)),
        ("GET", ["digest"]) => Box::pin(digest::get(app, &principal, request)),
        (_, ["generations"]) => return Err(not_allowed("GET, POST")),
        (_, ["generations", _] | ["outbox" | "usage" | "account" | "digest"]) => {
            return Err(not_allowed("GET"));
        }
        (_, ["generations", _, "resolve"] | ["outbox", _, "requeue" | "cancel"]) => {
            return Err(not_allowed("POST"));
        }
        _ => return Err(not_found()),
    };
    call.await
}

fn only(method: &'static str, request: &Request) -> Result<(), Problem> {
    if request.method == method {
        Ok(())
    } else {
        Err(not_allowed(method))
    }
}

fn not_allowed(allowed: &'static str) -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        format!("This path takes {allowed}."),
    )
    .header("allow", allowed)
}

fn not_found() -> Problem {
    Problem::new(Code::NotFound, "There is nothing under this path.")
}

/// The largest body that is read before anybody knows whose it is.
const UNKNOWN_BODY_MAX_BYTES: usize = 65_536;
