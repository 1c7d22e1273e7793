//! Reading a destination's answer: one table from status codes to outcomes, for all publishers.

use serde_json::Value;

use super::excerpt::excerpt;
use super::{Failure, Outcome, Reply, failure};
use crate::outbox::retry_after;
use crate::ports::HttpError;
use crate::time::{Span, Timestamp};

/// A whole answer to an HTTP request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON, if it is JSON (and was not cut).
    pub(crate) fn json(&self) -> Option<Value> {
        serde_json::from_str(str::from_utf8(&self.body).ok()?).ok()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The text of `message`, the member that says why in most APIs; empty where there is none.
    pub(crate) fn message(&self) -> String {
        let json = self.json();
        let message = json.as_ref().and_then(|json| json.get("message")?.as_str());
        message.unwrap_or_default().to_owned()
    }

    /// The wait that the answer asks for: `Retry-After`, else GitHub's time of reset.
    fn retry_after(&self, now: Timestamp) -> Option<Span> {
        let asked = self
            .header("retry-after")
            .and_then(|value| retry_after::parse(value, now));
        asked.or_else(|| {
            let exhausted = self.header("x-ratelimit-remaining")? == "0";
            let reset = self.header("x-ratelimit-reset").filter(|_| exhausted)?;
            retry_after::parse_epoch_seconds(reset, now)
        })
    }
}

/// What was sent: a lost answer to a write leaves its effect unknown, one to a look does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Look,
    Write,
}

/// Turns failures into outcomes, knowing what this delivery may have done already.
#[derive(Debug)]
pub(crate) struct Judge {
    /// An earlier write may have taken effect, so nothing can be called certainly absent.
    uncertain: bool,
    secrets: Vec<String>,
}

impl Judge {
    pub(crate) fn new(maybe_sent: bool, secrets: Vec<String>) -> Self {
        Self {
            uncertain: maybe_sent,
            secrets,
        }
    }

    /// From here on something of ours is at the destination.
    pub(crate) fn wrote(&mut self) {
        self.uncertain = true;
    }

    /// Takes the answer out of a reply, or says how the attempt ended without one.
    pub(crate) fn answer(&self, reply: Reply, sent: Sent) -> Result<Answer, Outcome> {
        match reply {
            Reply::Http {
                status,
                headers,
                body,
            } => Ok(Answer {
                status,
                headers,
                body,
            }),
            Reply::HttpFailed(error) => Err(self.lost(&error, sent)),
            Reply::Put(_) | Reply::Object(_) | Reply::Sent | Reply::Failed(_) => Err(unexpected()),
        }
    }

    fn lost(&self, error: &HttpError, sent: Sent) -> Outcome {
        let code = match error {
            HttpError::NotSent(_) => failure::NOT_SENT,
            HttpError::Lost(_) => failure::CONNECTION_LOST,
            HttpError::TimedOut => failure::TIMED_OUT,
        };
        // The cause is the platform's own text; it may name the URL, and a URL may hold a secret.
        let detail = excerpt(
            error.to_string().as_bytes(),
            DETAIL_MAX_BYTES,
            &self.secrets(),
        );
        let failed = Failure::new(code, detail);
        match error {
            HttpError::NotSent(_) => self.again(failed),
            HttpError::Lost(_) | HttpError::TimedOut => self.unknown_if(sent, failed),
        }
    }

    /// The outcome of an answer that is no success and that the publisher itself can't explain.
    pub(crate) fn refused(&self, answer: &Answer, sent: Sent, now: Timestamp) -> Outcome {
        let status = answer.status;
        let (code, detail) = explain(status);
        let mut failed = self.failure(answer, code, detail);
        failed.retry_after = answer.retry_after(now);
        match status {
            // An application that names a time to come back has not acted; a gateway that lost its
            // connection answers 503 too, but without one.
            503 if answer.header("retry-after").is_some() => self.again(failed),
            500.. => self.unknown_if(sent, failed),
            408 | 409 | 425 | 429 => self.again(failed),
            400..=499 => Outcome::Permanent(failed),
            _ => self.again(failed),
        }
    }

    /// Not now, for a reason the publisher knows; certainly absent unless an earlier write is open.
    pub(crate) fn again(&self, failed: Failure) -> Outcome {
        if self.uncertain {
            Outcome::Ambiguous(failed)
        } else {
            Outcome::Transient(failed)
        }
    }

    fn unknown_if(&self, sent: Sent, failed: Failure) -> Outcome {
        match sent {
            Sent::Look => self.again(failed),
            Sent::Write => Outcome::Ambiguous(failed),
        }
    }

    /// Like [`Judge::refused`], for a shortage of requests whatever the status says.
    pub(crate) fn rate_limited(&self, answer: &Answer, now: Timestamp) -> Outcome {
        let (_, detail) = explain(429);
        let mut failed = self.failure(answer, failure::RATE_LIMITED, detail);
        failed.retry_after = answer.retry_after(now);
        self.again(failed)
    }

    /// An answer of success that can't be read: what was asked for may well have been done.
    pub(crate) fn unreadable(&self, answer: &Answer, sent: Sent) -> Outcome {
        let detail = "the destination's answer can't be read";
        self.unknown_if(sent, self.failure(answer, failure::INVALID_ANSWER, detail))
    }

    pub(crate) fn permanent(
        &self,
        answer: &Answer,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Outcome {
        Outcome::Permanent(self.failure(answer, code, detail))
    }

    /// A failure with the answer's status and the start of its body.
    pub(crate) fn failure(
        &self,
        answer: &Answer,
        code: &'static str,
        detail: impl Into<String>,
    ) -> Failure {
        let kept = excerpt(&answer.body, EXCERPT_MAX_BYTES, &self.secrets());
        Failure {
            code,
            detail: detail.into(),
            status: Some(answer.status),
            retry_after: None,
            excerpt: (!kept.is_empty()).then_some(kept),
        }
    }

    /// A value of the answer, fit to be kept as the delivery's reference.
    pub(crate) fn reference(&self, value: &str) -> Option<String> {
        let kept = excerpt(
            value.trim().as_bytes(),
            REFERENCE_MAX_BYTES,
            &self.secrets(),
        );
        (!kept.is_empty()).then_some(kept)
    }

    fn secrets(&self) -> Vec<&str> {
        self.secrets.iter().map(String::as_str).collect()
    }
}

/// The outcome where the driver's reply does not belong to the effect: nobody knows what was done.
pub(crate) fn unexpected() -> Outcome {
    let detail = "the reply does not belong to what was asked for";
    Outcome::Ambiguous(Failure::new(failure::UNEXPECTED_REPLY, detail))
}

fn explain(status: u16) -> (&'static str, &'static str) {
    match status {
        401 | 403 => (
            failure::CREDENTIALS_REFUSED,
            "the destination refuses the credentials; renew them, then requeue",
        ),
        404 => (
            failure::TARGET_MISSING,
            "the destination is not there, or these credentials can't see it",
        ),
        408 => (
            failure::TIMED_OUT,
            "the destination gave up waiting for the request",
        ),
        409 => (failure::TARGET_MOVED, "the destination reports a conflict"),
        410 => (failure::ENDPOINT_GONE, "the destination is gone for good"),
        413 => (
            failure::CONTENT_TOO_LARGE,
            "the text is larger than the destination takes",
        ),
        425 | 429 => (
            failure::RATE_LIMITED,
            "the destination asks to come back later",
        ),
        400..=499 => (failure::REJECTED, "the destination refused the request"),
        300..=399 => (
            failure::REDIRECT_REFUSED,
            "the destination redirects, which is never followed; configure its new address",
        ),
        500.. => (
            failure::UNAVAILABLE,
            "the destination, or a gateway before it, failed",
        ),
        _ => (
            failure::INVALID_ANSWER,
            "the destination answered with an odd status",
        ),
    }
}

/// Kept of an answer: enough to see what is wrong, small enough for ten attempts in one row.
const EXCERPT_MAX_BYTES: usize = 500;
const DETAIL_MAX_BYTES: usize = 300;
/// Long enough for any URL that people use.
const REFERENCE_MAX_BYTES: usize = 2_000;
