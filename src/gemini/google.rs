//! Google's own error, as its body spells it.

use serde_json::Value;

/// A `google.rpc.Status` as Gemini reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct GoogleError {
    /// The HTTP status code that it stands for, where it says so.
    pub code: Option<u16>,
    /// `RESOURCE_EXHAUSTED`, …
    pub status: Option<String>,
    /// Google's words; they may echo the request, so they never reach a log as they are.
    pub message: String,
    /// The whole body, for clients that expect Google's shape.
    pub body: Value,
}

impl GoogleError {
    /// Reads an error from a body: `{"error": {…}}`, the same in a list of one, an error that is
    /// only a text, or a bare text. Anything else is no error.
    pub fn read(body: &Value) -> Option<Self> {
        match body {
            Value::Array(items) if items.len() == 1 => items.first().and_then(Self::read),
            Value::Object(members) => Self::from_member(members.get("error")?, body),
            Value::String(_) => Self::from_member(body, body),
            _ => None,
        }
    }

    /// The HTTP status code that the error stands for, from its number or else from its name.
    pub fn http_status(&self) -> Option<u16> {
        self.code
            .or_else(|| http_status_of(self.status.as_deref()?))
    }

    /// The members of `error.details` that are of the type `google.rpc.{name}`.
    pub fn details<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Value> {
        let details = self
            .body
            .pointer("/error/details")
            .and_then(Value::as_array);
        details.into_iter().flatten().filter(move |detail| {
            let kind = detail
                .get("@type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            kind.strip_suffix(name)
                .is_some_and(|prefix| prefix.ends_with("google.rpc."))
        })
    }

    fn from_member(error: &Value, body: &Value) -> Option<Self> {
        let text = |name| error.get(name).and_then(Value::as_str);
        match error {
            Value::Object(_) => Some(Self {
                code: error.get("code").and_then(status_number),
                status: text("status").map(str::to_owned),
                message: text("message").unwrap_or_default().to_owned(),
                body: body.clone(),
            }),
            Value::String(message) => Some(Self {
                code: None,
                status: None,
                message: message.clone(),
                body: body.clone(),
            }),
            _ => None,
        }
    }
}

/// A number that can be the status of an error.
fn status_number(value: &Value) -> Option<u16> {
    value
        .as_u64()
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| *code >= 400)
}

/// Google's own map from the names of errors to HTTP.
fn http_status_of(status: &str) -> Option<u16> {
    Some(match status {
        "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" => 400,
        "UNAUTHENTICATED" => 401,
        "PERMISSION_DENIED" => 403,
        "NOT_FOUND" => 404,
        "ALREADY_EXISTS" | "ABORTED" => 409,
        "RESOURCE_EXHAUSTED" => 429,
        "CANCELLED" => 499,
        "UNKNOWN" | "INTERNAL" | "DATA_LOSS" => 500,
        "UNIMPLEMENTED" => 501,
        "UNAVAILABLE" => 503,
        "DEADLINE_EXCEEDED" => 504,
        _ => return None,
    })
}
