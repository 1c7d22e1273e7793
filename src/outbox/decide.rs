//! What an attempt's outcome makes of its delivery: a total function.

use serde_json::json;

use crate::outbox::backoff::next_attempt_at;
use crate::publish::settings::Ambiguous;
use crate::publish::{Failure, IdempotencyClass, Outcome};
use crate::store::deliveries::Leased;
use crate::store::leases::Finish;
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
    /// It was broken off for want of budget: it goes on with the next drain, and counts for nothing.
    BrokenOff,
}

/// How an attempt came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself.
    Over(Outcome),
    /// For want of budget, between two steps.
    BrokenOff,
}

impl Tally {
    /// The word in logs and data points.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Retried => "retried",
            Self::Dead => "dead",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::BrokenOff => "broken_off",
        }
    }
}

/// Decides what becomes of a delivery.
pub fn decide(
    delivery: &Leased,
    ending: &Ending,
    class: IdempotencyClass,
    policy: Ambiguous,
    attempt: &Attempt,
) -> (Tally, Finish) {
    let outcome = match ending {
        Ending::Over(outcome) => outcome,
        Ending::BrokenOff => return broken_off(delivery, attempt),
    };
    let base = Finish {
        status: "pending",
        next_attempt_at: attempt.ended_at,
        attempts: delivery.attempts.saturating_add(1),
        maybe_sent: delivery.maybe_sent,
        progress: attempt.progress.clone(),
        reference: None,
        error: None,
        attempt: Some(log_entry(outcome, attempt)),
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
            if class == IdempotencyClass::None && policy == Ambiguous::AtMostOnce {
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

/// Steps were taken that a later attempt must look for, and none is known to have failed.
fn broken_off(delivery: &Leased, attempt: &Attempt) -> (Tally, Finish) {
    let finish = Finish {
        status: "pending",
        next_attempt_at: attempt.ended_at.plus(GO_ON_AFTER),
        attempts: delivery.attempts,
        maybe_sent: true,
        progress: attempt.progress.clone(),
        reference: None,
        error: None,
        attempt: None,
    };
    (Tally::BrokenOff, finish)
}

fn again(delivery: &Leased, failure: &Failure, attempt: &Attempt, base: Finish) -> (Tally, Finish) {
    let at = next_attempt_at(
        base.attempts,
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

/// An attempt that was broken off goes on with another drain, not with this one.
const GO_ON_AFTER: Span = Span::from_seconds(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(attempts: u32) -> Leased {
        Leased {
            id: "dlv_1".to_owned(),
            generation_id: "gen_1".to_owned(),
            account: "acme".to_owned(),
            site: "blog".to_owned(),
            pipeline: "daily".to_owned(),
            publisher: "hook".to_owned(),
            target: "x".to_owned(),
            maybe_sent: false,
            interrupted: false,
            attempts,
            progress: None,
            created_at: Timestamp::default(),
            due_since: Timestamp::default(),
        }
    }

    fn decided(attempts: u32, ending: &Ending, class: IdempotencyClass) -> (Tally, Finish) {
        let attempt = Attempt {
            started_at: Timestamp::from_millis(1_000),
            ended_at: Timestamp::from_millis(1_250),
            progress: Some("post 7".to_owned()),
            random: 0,
        };
        decide(
            &delivery(attempts),
            ending,
            class,
            Ambiguous::AtMostOnce,
            &attempt,
        )
    }

    fn failed(outcome: fn(Failure) -> Outcome) -> Ending {
        Ending::Over(outcome(Failure::new("timed_out", "too late")))
    }

    #[test]
    fn an_ambiguous_attempt_is_marked_and_only_a_destination_that_cannot_be_asked_waits_for_a_person()
     {
        let ambiguous = failed(Outcome::Ambiguous);
        let (tally, finish) = decided(0, &ambiguous, IdempotencyClass::Probe);
        assert_eq!((tally, finish.status), (Tally::Retried, "pending"));
        assert!(finish.maybe_sent);
        let (tally, finish) = decided(0, &ambiguous, IdempotencyClass::None);
        assert_eq!(
            (tally, finish.status),
            (Tally::OutcomeUnknown, "outcome_unknown")
        );
        assert_eq!(finish.error.as_deref(), Some("timed_out: too late"));
    }

    #[test]
    fn the_tenth_failure_is_the_last() {
        let transient = failed(Outcome::Transient);
        assert_eq!(
            decided(8, &transient, IdempotencyClass::None).0,
            Tally::Retried
        );
        let (tally, finish) = decided(9, &transient, IdempotencyClass::None);
        assert_eq!(
            (tally, finish.status, finish.attempts),
            (Tally::Dead, "dead", 10)
        );
        assert!(!finish.maybe_sent);
    }

    #[test]
    fn what_was_broken_off_counts_for_nothing_and_is_looked_for() {
        let (tally, finish) = decided(9, &Ending::BrokenOff, IdempotencyClass::None);
        assert_eq!(
            (tally, finish.status, finish.attempts),
            (Tally::BrokenOff, "pending", 9)
        );
        assert!(finish.maybe_sent && finish.attempt.is_none());
        assert_eq!(finish.progress.as_deref(), Some("post 7"));
    }
}
