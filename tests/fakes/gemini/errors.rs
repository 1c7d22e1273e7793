//! Google's refusals: `google.rpc.Status`, pretty-printed, in the manner of the endpoint asked.

use serde_json::{Value, json};

use super::super::fault::Fault;
use super::super::http::Request;
use super::super::reply::Reply;

/// A refusal, before it is put into the endpoint's manner.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) code: u16,
    pub(super) status: &'static str,
    pub(super) message: String,
    details: Vec<Value>,
}

/// How an endpoint writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// One object.
    Unary,
    /// Server-sent events.
    Events,
    /// One JSON array.
    Array,
}

impl Style {
    /// By method and `alt`.
    pub(crate) fn of(request: &Request) -> Self {
        match (
            request.path.ends_with(":streamGenerateContent"),
            request.query("alt"),
        ) {
            (false, _) => Self::Unary,
            (true, Some("sse")) => Self::Events,
            (true, _) => Self::Array,
        }
    }
}

impl Refusal {
    fn new(code: u16, status: &'static str, message: &str) -> Self {
        Self {
            code,
            status,
            message: message.to_owned(),
            details: Vec::new(),
        }
    }

    fn with(mut self, detail: Value) -> Self {
        self.details.push(detail);
        self
    }

    /// The body's object.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "status": self.status});
        if !self.details.is_empty() {
            error["details"] = Value::from(self.details.clone());
        }
        json!({ "error": error })
    }

    /// The whole reply: an array asks for a list of one; events change the content type only.
    pub(crate) fn reply(&self, style: Style) -> Reply {
        let body = match style {
            Style::Array => json!([self.to_json()]),
            _ => self.to_json(),
        };
        let mut reply = pretty_reply(self.code, &body);
        if style == Style::Events {
            set_content_type(&mut reply, "text/event-stream");
        }
        reply
    }
}

/// Pretty JSON with the headers of the real front end.
pub(crate) fn pretty_reply(status: u16, body: &Value) -> Reply {
    let mut text = serde_json::to_string_pretty(body).unwrap_or_default();
    text.push('\n');
    google_headers(Reply::new(status, "application/json; charset=UTF-8", text))
}

/// Adds what the real front end sends along.
pub(crate) fn google_headers(reply: Reply) -> Reply {
    reply
        .with_header("vary", "Origin")
        .with_header("vary", "X-Origin")
        .with_header("vary", "Referer")
        .with_header("server", "scaffolding on HTTPServer2")
        .with_header("x-xss-protection", "0")
        .with_header("x-frame-options", "SAMEORIGIN")
        .with_header("x-content-type-options", "nosniff")
        .with_header("server-timing", "gfet4t7; dur=412")
        .with_header(
            "alt-svc",
            "h3=\":443\"; ma=2592000,h3-29=\":443\"; ma=2592000",
        )
}

/// Changes the content type.
pub(crate) fn set_content_type(reply: &mut Reply, content_type: &str) {
    for (name, value) in &mut reply.headers {
        if name == "content-type" {
            content_type.clone_into(value);
        }
    }
}

/// The front end's own page for a path it doesn't know.
pub(crate) fn html_not_found(path: &str) -> Reply {
    let body = format!(
        "<!DOCTYPE html>\n<html lang=en>\n<title>Error 404 (Not Found)!!1</title>\n<p>The \
         requested URL <code>{path}</code> was not found on this server.\n"
    );
    Reply::new(404, "text/html; charset=UTF-8", body)
}

/// The key of a request: from either header or from the query.
pub(crate) fn key_of(request: &Request) -> Option<&str> {
    let bearer = request
        .header("authorization")
        .and_then(|value| value.strip_prefix("Bearer "));
    request
        .header("x-goog-api-key")
        .or_else(|| request.query("key"))
        .or(bearer)
        .filter(|key| !key.is_empty())
}

/// Any key will do but `bad-key`.
pub(crate) fn check_key(request: &Request) -> Result<(), Refusal> {
    match key_of(request) {
        None => Err(Refusal::new(
            403,
            "PERMISSION_DENIED",
            "Method doesn't allow unregistered callers (callers without established identity). \
             Please use API Key or other form of API consumer identity to call this API.",
        )),
        Some("bad-key") => Err(bad_key()),
        Some(_) => Ok(()),
    }
}

/// The model is not there, or not any more.
pub(crate) fn unknown_model(model: &str) -> Refusal {
    let message = format!(
        "models/{model} is not found for API version v1beta, or is not supported for \
         generateContent. Call ListModels to see the list of available models and their \
         supported methods."
    );
    Refusal::new(404, "NOT_FOUND", &message)
}

/// A bad request without details.
pub(crate) fn invalid(message: &str) -> Refusal {
    Refusal::new(400, "INVALID_ARGUMENT", message)
}

/// A member that Google's messages don't have.
pub(crate) fn unknown_name(name: &str, at: &str) -> Refusal {
    let place = if at.is_empty() {
        String::new()
    } else {
        format!(" at '{at}'")
    };
    let message = format!(
        "Invalid JSON payload received. Unknown name \"{name}\"{place}: Cannot find field."
    );
    invalid(&message).with(json!({
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": at, "description": message}],
    }))
}

/// The refusal a fault asks for, none of which is billed.
pub(crate) fn scripted(fault: &Fault, model: &str) -> Option<Refusal> {
    if fault.has("region") {
        let message = "User location is not supported for the API use.";
        return Some(Refusal::new(400, "FAILED_PRECONDITION", message));
    }
    if fault.has("bad-key") {
        return Some(bad_key());
    }
    if fault.has("per-day") {
        return Some(quota(fault, model, "PerDay"));
    }
    if fault.has("raw-error-mid") || fault.has("data-error-mid") {
        return None;
    }
    fault.status().map(|code| by_status(code, fault, model))
}

/// The usual refusal with this status.
pub(crate) fn by_status(code: u16, fault: &Fault, model: &str) -> Refusal {
    let (status, message) = match code {
        400 => ("INVALID_ARGUMENT", "Request contains an invalid argument."),
        401 => (
            "UNAUTHENTICATED",
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login \
             cookie or other valid authentication credential.",
        ),
        403 => ("PERMISSION_DENIED", "The caller does not have permission"),
        404 => return unknown_model(model),
        409 => ("ABORTED", "The operation was aborted."),
        429 => return quota(fault, model, "PerMinute"),
        499 => ("CANCELLED", "The operation was cancelled."),
        503 => (
            "UNAVAILABLE",
            "The model is overloaded. Please try again later.",
        ),
        504 => (
            "DEADLINE_EXCEEDED",
            "The request timed out. Please try again.",
        ),
        _ => (
            "INTERNAL",
            "An internal error has occurred. Please retry or report in \
             https://developers.generativeai.google/guide/troubleshooting",
        ),
    };
    Refusal::new(code, status, message)
}

fn bad_key() -> Refusal {
    let message = "API key not valid. Please pass a valid API key.";
    invalid(message)
        .with(json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
            "metadata": {"service": "generativelanguage.googleapis.com"},
        }))
        .with(json!({
            "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
            "locale": "en-US",
            "message": message,
        }))
}

/// Asks for seconds even where the day's quota is used up, as the real one does.
fn quota(fault: &Fault, model: &str, period: &str) -> Refusal {
    let delay = fault.text("retry-delay").unwrap_or("58.823s");
    let metric = "generativelanguage.googleapis.com/generate_content_free_tier_requests";
    let message = format!(
        "You exceeded your current quota, please check your plan and billing details. For more \
         information on this error, head to: https://ai.google.dev/gemini-api/docs/rate-limits.\n\
         * Quota exceeded for metric: {metric}, limit: 20\nPlease retry in {delay}."
    );
    Refusal::new(429, "RESOURCE_EXHAUSTED", &message)
        .with(json!({
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{
                "quotaMetric": metric,
                "quotaId": format!("GenerateRequests{period}PerProjectPerModel-FreeTier"),
                "quotaDimensions": {"location": "global", "model": model},
                "quotaValue": "20",
            }],
        }))
        .with(json!({
            "@type": "type.googleapis.com/google.rpc.Help",
            "links": [{
                "description": "Learn more about Gemini API quotas",
                "url": "https://ai.google.dev/gemini-api/docs/rate-limits",
            }],
        }))
        .with(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": delay,
        }))
}
