//! Says what a failed call of Gemini comes to: whose fault it is, whether it can have been billed,
//! and when to try again.
//!
//! The one question that matters is whether the failure is *definite*. A definite failure produced
//! nothing and is not billed, so its claim is freed and its own retry is fresh. Everything else is
//! *unknown*: nobody buys again until it has been looked at.
//!
//! | what came | class | code |
//! |---|---|---|
//! | 400, 404, 413, another 4xx, 501, a redirect | definite | `gemini_rejected` |
//! | 401, 403, 400 for a bad key | definite | `gemini_auth` |
//! | 429 | definite | `gemini_rate_limited` |
//! | 429 for a quota per day, 402 | definite | `gemini_quota_exhausted` |
//! | 409, and 500 or 503 in Google's words (or none) | definite | `gemini_unavailable` |
//! | nothing was sent | definite | `gemini_unavailable` |
//! | 500, 503 in somebody else's words | unknown | |
//! | 408, 499, 502, 504, 520 and above | unknown | |
//! | a lost connection, a time-out, a body that is cut or no answer of Gemini | unknown | |
//! | an error in a stream, before any of the answer | as its status | as its status |
//! | an error in a stream, after some of the answer | unknown | |
//!
//! Why so: Google's billing page says that a request that failed with 400 or 500 is not charged;
//! the other definite ones are refused before any work. It says nothing of streams that fail after
//! tokens were made, whatever the status of the error, and its staff says that what was accepted
//! may count even if it fails later. A web page with status 500, 502 or 503 comes from a gateway
//! between here and Gemini, which does not know whether Gemini went on and finished.

use crate::gemini::delay;
use crate::gemini::google::GoogleError;
use crate::gemini::redact;
use crate::gemini::sse::{Event, Reader, StreamFault};
use crate::ports::HttpError;
use crate::time::{Span, Timestamp};

/// A call of Gemini that gave no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What it comes to.
    pub code: FailureCode,
    /// What people are told: no key, no prompt, at most [`MESSAGE_CHARS_MAX`] characters.
    pub message: String,
    /// Not before this long from now, where that is known.
    pub retry_after: Option<Span>,
    /// The HTTP status code, where an answer began.
    pub status: Option<u16>,
    /// Google's own error, for clients that expect its shape.
    pub google: Option<Box<GoogleError>>,
}

/// What a failure comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// Gemini refused the request; unchanged, it will again.
    Rejected,
    /// Gemini refused the key of this service.
    Auth,
    /// Too many requests or tokens a minute.
    RateLimited,
    /// The quota of the day, or the prepaid credit, is used up.
    QuotaExhausted,
    /// Gemini could not work on the request.
    Unavailable,
    /// Gemini may have made, and billed, an output that never came.
    Unknown,
}

/// Whether a failed call can have been billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It was not.
    Definite,
    /// Nobody knows.
    Unknown,
}

impl Failure {
    /// Whether the call can have been billed.
    pub fn class(&self) -> Class {
        self.code.class()
    }

    pub(crate) fn unknown(message: &str, status: Option<u16>) -> Self {
        Self {
            code: FailureCode::Unknown,
            message: message.to_owned(),
            retry_after: None,
            status,
            google: None,
        }
    }
}

impl FailureCode {
    /// The stable code that callers see; an unknown outcome waits for reconciliation.
    pub fn code(self) -> &'static str {
        match self {
            Self::Rejected => "gemini_rejected",
            Self::Auth => "gemini_auth",
            Self::RateLimited => "gemini_rate_limited",
            Self::QuotaExhausted => "gemini_quota_exhausted",
            Self::Unavailable => "gemini_unavailable",
            Self::Unknown => "request_reconciliation_pending",
        }
    }

    /// Whether a call that failed so can have been billed.
    pub fn class(self) -> Class {
        match self {
            Self::Rejected
            | Self::Auth
            | Self::RateLimited
            | Self::QuotaExhausted
            | Self::Unavailable => Class::Definite,
            Self::Unknown => Class::Unknown,
        }
    }
}

/// What an answer with a status other than 2xx comes to. Names of `headers` are in lower case;
/// `body` is what came of it, up to [`ERROR_BODY_MAX_BYTES`].
///
/// ```
/// use oncepress::gemini::error::{FailureCode, classify};
/// use oncepress::time::{Span, Timestamp};
/// let body = br#"{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota.",
///     "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo",
///                  "retryDelay": "53.016342224s"}]}}"#;
/// let failure = classify(429, &[], body, Timestamp::default());
/// assert_eq!(failure.code, FailureCode::RateLimited);
/// assert_eq!(failure.retry_after, Some(Span::from_seconds(54)));
/// ```
pub fn classify(status: u16, headers: &[(String, String)], body: &[u8], now: Timestamp) -> Failure {
    let google = Reader::default()
        .push(body)
        .into_iter()
        .find_map(|event| match event {
            Event::Error(error) => Some(error),
            Event::Chunk(_) => None,
        });
    let foreign = !google.as_ref().is_some_and(is_google) && !body.trim_ascii().is_empty();
    let stated = google.as_ref().and_then(|error| error.code);
    let code = match (status, stated) {
        // Google's number says more than a gateway's status in front of it.
        (500.., Some(499 | 504)) => FailureCode::Unknown,
        (500 | 503, _) if foreign => FailureCode::Unknown,
        _ => code_of(status, google.as_ref()),
    };
    failure(code, status, headers, google, now)
}

/// What an error inside a body with status 2xx comes to, where nothing of the answer came before.
pub(crate) fn classify_in_body(
    headers: &[(String, String)],
    error: GoogleError,
    now: Timestamp,
) -> Failure {
    let Some(status) = error.http_status() else {
        return Failure {
            google: Some(Box::new(error)),
            ..Failure::unknown(
                "Gemini reported an error that says nothing of its kind.",
                None,
            )
        };
    };
    let code = code_of(status, Some(&error));
    failure(code, status, headers, Some(error), now)
}

/// What an error comes to that ends a stream after some of the answer came.
pub(crate) fn after_output(error: GoogleError) -> Failure {
    let status = error.http_status();
    let what = "Gemini broke off after it had begun to answer; what it made may be billed.";
    Failure {
        message: with_words(what, Some(&error)),
        google: Some(Box::new(error)),
        ..Failure::unknown(what, status)
    }
}

/// What an exchange without a whole answer comes to.
pub fn transport(error: &HttpError) -> Failure {
    match error {
        HttpError::NotSent(_) => Failure {
            code: FailureCode::Unavailable,
            ..Failure::unknown("The request to Gemini could not be sent.", None)
        },
        HttpError::Lost(_) => Failure::unknown(
            "The connection to Gemini was lost before its answer was whole.",
            None,
        ),
        HttpError::TimedOut => Failure::unknown("Gemini did not finish its answer in time.", None),
    }
}

/// What a body that is no answer of Gemini comes to.
pub(crate) fn not_an_answer(fault: StreamFault, status: u16) -> Failure {
    let message = match fault {
        StreamFault::Markup => "A web page came in place of Gemini's answer.",
        StreamFault::NotJson => "What came is not an answer of Gemini.",
        StreamFault::BrokenEvent => "A part of Gemini's answer is broken.",
        StreamFault::TooLarge => "Gemini's answer is too large to be stored.",
    };
    Failure::unknown(message, Some(status))
}

fn code_of(status: u16, google: Option<&GoogleError>) -> FailureCode {
    match status {
        400 if google.is_some_and(is_bad_key) => FailureCode::Auth,
        401 | 403 => FailureCode::Auth,
        402 => FailureCode::QuotaExhausted,
        408 | 499 => FailureCode::Unknown,
        429 if google.is_some_and(is_daily_quota) => FailureCode::QuotaExhausted,
        429 => FailureCode::RateLimited,
        // 409 is Google's `ABORTED`: a conflict inside, gone at the next try.
        409 | 500 | 503 => FailureCode::Unavailable,
        501 | 300..500 => FailureCode::Rejected,
        _ => FailureCode::Unknown,
    }
}

fn failure(
    code: FailureCode,
    status: u16,
    headers: &[(String, String)],
    google: Option<GoogleError>,
    now: Timestamp,
) -> Failure {
    let asked_for = delay::asked_for(headers, google.as_ref(), now);
    let retry_after = match code {
        FailureCode::RateLimited => Some(asked_for.unwrap_or(RATE_WINDOW)),
        FailureCode::QuotaExhausted if status == 402 => Some(PREPAID_RETRY),
        FailureCode::QuotaExhausted => Some(delay::until_daily_renewal(now)),
        FailureCode::Unavailable => asked_for,
        FailureCode::Rejected | FailureCode::Auth | FailureCode::Unknown => None,
    };
    let message = with_words(sentence(code, status, google.as_ref()), google.as_ref());
    Failure {
        code,
        message,
        retry_after,
        status: Some(status),
        google: google.map(Box::new),
    }
}

/// Our own sentence, and Google's words after it.
fn with_words(sentence: &str, google: Option<&GoogleError>) -> String {
    let Some(google) = google else {
        return sentence.to_owned();
    };
    let said = [
        google.status.as_deref().unwrap_or_default(),
        &google.message,
    ];
    let said: Vec<&str> = said.into_iter().filter(|part| !part.is_empty()).collect();
    if said.is_empty() {
        return sentence.to_owned();
    }
    let words = redact::for_people(&said.join(": "), GOOGLE_CHARS_MAX);
    format!("{sentence} Google says: {words}")
}

fn sentence(code: FailureCode, status: u16, google: Option<&GoogleError>) -> &'static str {
    match code {
        FailureCode::Rejected if google.is_some_and(is_region) => {
            "Gemini does not serve the region that this request left Cloudflare from."
        }
        FailureCode::Rejected => match status {
            300..400 => "Gemini's address answers with a redirect; check GEMINI_BASE_URL.",
            404 => "Gemini does not know this model, or something that the request refers to.",
            413 => "The request is too large for Gemini.",
            _ => "Gemini refused the request.",
        },
        FailureCode::Auth => "Gemini refused this service's API key; check GEMINI_API_KEY.",
        FailureCode::RateLimited => "Gemini's limit of requests or tokens a minute is reached.",
        FailureCode::QuotaExhausted if status == 402 => "Gemini's prepaid credit is used up.",
        FailureCode::QuotaExhausted => "Gemini's quota of the day is used up.",
        FailureCode::Unavailable => "Gemini is unavailable or overloaded.",
        FailureCode::Unknown => match status {
            504 | 408 | 524 => "Gemini did not finish its answer in time.",
            _ => "Something between here and Gemini broke the call off.",
        },
    }
}

/// Whether the error has Google's shape, and not only some member of that name.
fn is_google(error: &GoogleError) -> bool {
    error.code.is_some() || error.status.is_some()
}

fn is_bad_key(error: &GoogleError) -> bool {
    let reason = |info: &serde_json::Value| info.get("reason")?.as_str().map(str::to_owned);
    error
        .details("ErrorInfo")
        .filter_map(reason)
        .any(|reason| reason == "API_KEY_INVALID")
        || error.message.starts_with("API key not valid")
}

fn is_region(error: &GoogleError) -> bool {
    error.message.contains("location is not supported")
}

fn is_daily_quota(error: &GoogleError) -> bool {
    let violations = error
        .details("QuotaFailure")
        .filter_map(|failure| failure.get("violations")?.as_array())
        .flatten();
    violations
        .filter_map(|violation| violation.get("quotaId")?.as_str())
        .any(|quota| quota.contains("PerDay"))
}

/// Longest message for people.
pub const MESSAGE_CHARS_MAX: usize = 500;
/// As much of a failed answer's body as is read: Google's longest errors are a few kilobytes.
pub const ERROR_BODY_MAX_BYTES: usize = 65_536;
/// As much of Google's words as is shown; our own sentence comes before them.
const GOOGLE_CHARS_MAX: usize = 400;
/// Wait after a 429 without a delay: these quotas are counted by the minute.
const RATE_WINDOW: Span = Span::from_minutes(1);
/// Wait after a 402: a person has to pay first, so trying more often is no use.
const PREPAID_RETRY: Span = Span::from_hours(1);

#[cfg(test)]
mod tests;
