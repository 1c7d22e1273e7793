//! What an attempt's outcome makes of its delivery: a total function.

use serde_json::json;

use crate::outbox::backoff::next_attempt_at;
use crate::publish::settings::Ambiguous;
use crate::publish::{Failure, IdempotencyClass, Outcome};
use crate::store::deliveries::{Finish, Leased};
use crate::time::{Span, Timestamp};

/// What is known of an attempt besides its outcome.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What a later attempt should know.
    pub progress: Option<String>,
    /// Random bits for the backoff.
    pub random: u64,
}

/// How the outbox counts an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tally {
    /// The destination has it.
    Published,
    /// It is tried again later.
    Retried,
    /// It is not tried again without a person.
    Dead,
    /// Nobody can tell, and a person decides.
    OutcomeUnknown,
}

/// Decides what becomes of a delivery.
pub fn decide(
    delivery: &Leased,
    outcome: &Outcome,
    class: IdempotencyClass,
    policy: Ambiguous,
    attempt: &Attempt,
) -> (Tally, Finish) {
    let base = Finish {
        status: "pending",
        next_attempt_at: attempt.ended_at,
        counts: true,
        maybe_sent: delivery.maybe_sent,
        progress: attempt.progress.clone(),
        reference: None,
        error: None,
        attempt: log_entry(outcome, attempt),
    };
    match outcome {
        Outcome::Published { reference, .. } => (
            Tally::Published,
            Finish {
                status: "published",
                reference: reference.clone(),
                ..base
            },
        ),
        Outcome::Permanent(failure) => (
            Tally::Dead,
            Finish {
                status: "dead",
                error: Some(words(failure)),
                ..base
            },
        ),
        Outcome::Transient(failure) => again(delivery, failure, attempt, base),
        Outcome::Ambiguous(failure) => {
            let base = Finish {
                maybe_sent: true,
                ..base
            };
            if waits_for_a_person(class, policy) {
                let error = Some(words(failure));
                return (
                    Tally::OutcomeUnknown,
                    Finish {
                        status: "outcome_unknown",
                        error,
                        ..base
                    },
                );
            }
            again(delivery, failure, attempt, base)
        }
    }
}

/// Whether a delivery that may have arrived is not sent again without a person.
pub fn waits_for_a_person(class: IdempotencyClass, policy: Ambiguous) -> bool {
    class == IdempotencyClass::None && policy == Ambiguous::AtMostOnce
}

fn again(delivery: &Leased, failure: &Failure, attempt: &Attempt, base: Finish) -> (Tally, Finish) {
    let attempts = delivery.attempts.saturating_add(1);
    let at = next_attempt_at(
        attempts,
        delivery.due_since,
        attempt.ended_at,
        attempt.random,
        failure.retry_after,
    );
    let error = Some(words(failure));
    match at {
        Some(next_attempt_at) => (
            Tally::Retried,
            Finish {
                next_attempt_at,
                error,
                ..base
            },
        ),
        None => (
            Tally::Dead,
            Finish {
                status: "dead",
                error,
                ..base
            },
        ),
    }
}

fn words(failure: &Failure) -> String {
    if failure.detail.is_empty() {
        failure.code.to_owned()
    } else {
        format!("{}: {}", failure.code, failure.detail)
    }
}

/// One attempt as the API shows it.
fn log_entry(outcome: &Outcome, attempt: &Attempt) -> String {
    let latency: Span = attempt.ended_at.since(attempt.started_at);
    let (name, failure) = match outcome {
        Outcome::Published {
            replayed: false, ..
        } => ("published", None),
        Outcome::Published { replayed: true, .. } => ("already_there", None),
        Outcome::Transient(failure) => ("transient", Some(failure)),
        Outcome::Ambiguous(failure) => ("ambiguous", Some(failure)),
        Outcome::Permanent(failure) => ("permanent", Some(failure)),
    };
    json!({
        "at": attempt.started_at.to_rfc3339(),
        "outcome": name,
        "status": failure.and_then(|failure| failure.status),
        "latencyMs": latency.millis(),
        "error": failure.map(words),
        "excerpt": failure.and_then(|failure| failure.excerpt.clone()),
    })
    .to_string()
}
