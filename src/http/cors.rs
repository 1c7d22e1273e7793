//! CORS: off unless origins are configured. What a page may read of an answer is then exposed.

use crate::app::App;
use crate::http::message::{Body, Request, Response};

/// The answer to a preflight, where its origin is configured.
pub fn preflight(app: &App, request: &Request) -> Option<Response> {
    let asked = request.header("access-control-request-method").is_some();
    if request.method != "OPTIONS" || !asked {
        return None;
    }
    let origin = allowed(app, request)?;
    Some(
        Response {
            status: 204,
            headers: Vec::new(),
            body: Body::Bytes(Vec::new()),
        }
        .with("access-control-allow-origin", origin)
        .with("access-control-allow-methods", "GET, POST, PATCH, DELETE")
        .with("access-control-allow-headers", ALLOWED)
        .with("access-control-max-age", "600")
        .with("cache-control", "no-store")
        .with("vary", "origin"),
    )
}

/// Exposes the contract's header fields to pages of configured origins.
pub fn expose(app: &App, request: &Request, response: &mut Response) {
    let Some(origin) = allowed(app, request) else {
        return;
    };
    if response
        .headers
        .iter()
        .any(|(name, _)| name == "access-control-allow-origin")
    {
        return;
    }
    let fields = [
        ("access-control-allow-origin", origin.as_str()),
        ("access-control-expose-headers", EXPOSED),
        ("vary", "origin"),
    ];
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    response.headers.extend(fields);
}

fn allowed(app: &App, request: &Request) -> Option<String> {
    let origin = request.header("origin")?;
    let known = app
        .config()
        .cors_origins
        .iter()
        .any(|allowed| allowed == origin);
    known.then(|| origin.to_owned())
}

const ALLOWED: &str = "authorization, content-type, idempotency-key, prefer, x-goog-api-client, \
     x-goog-api-key, x-oncepress-pipeline, x-oncepress-publish, x-oncepress-requested-at, \
     x-oncepress-site, x-oncepress-variant, x-oncepress-window-minutes, x-server-timeout";
const EXPOSED: &str = "x-request-id, x-idempotency-replayed, x-oncepress-credits, \
     x-oncepress-generation-id, x-oncepress-error-code, x-oncepress-error-source, retry-after, \
     location, x-should-retry, x-oncepress-held, x-oncepress-warning";
