//! Which publishers are left alone: one that keeps failing keeps its rows unspent.
//!
//! After three failures in a row a publisher is left alone, at first for a minute, then longer; a
//! single row then tries again. A destination that refuses credentials fails as much as one that is
//! down: its rows wait for a person instead of dying one by one.

use std::cell::RefCell;

use crate::publish::{Failure, Outcome, failure};
use crate::sorted::SortedMap;
use crate::time::{Span, Timestamp};

/// How the publishers of one drain fare.
#[derive(Debug, Default)]
pub struct Circuits(RefCell<SortedMap<String, Circuit>>);

#[derive(Clone, Copy, Debug, Default)]
struct Circuit {
    failures: i64,
    open_until: Timestamp,
    /// Left alone for the rest of this drain.
    opened: bool,
    changed: bool,
}

impl Circuit {
    /// A pause that ends later than any that is given was written under a clock that has been set
    /// back since: nobody is left alone for as long as a clock was wrong.
    fn is_open(&self, now: Timestamp) -> bool {
        self.open_until > now && self.open_until <= now.plus(OPEN_MAX).plus(OPEN_MAX)
    }
}

/// What an attempt says about its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answered as one that works, if only to refuse this one delivery.
    Works,
    /// It failed; it may have said for how long.
    Fails(Option<Span>),
    /// It asks for fewer requests, for so long.
    Busy(Option<Span>),
}

impl Health {
    /// What an outcome says about the destination.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Permanent(failed) if concerns_all(failed) => Self::Fails(None),
            Outcome::Published { .. } | Outcome::Permanent(_) => Self::Works,
            Outcome::Transient(failed) | Outcome::Ambiguous(failed) => {
                if failed.code == failure::RATE_LIMITED {
                    Self::Busy(failed.retry_after)
                } else {
                    Self::Fails(failed.retry_after)
                }
            }
        }
    }
}

/// Whether a permanent failure is the whole destination's, not that of one delivery.
fn concerns_all(failed: &Failure) -> bool {
    matches!(
        failed.code,
        failure::CREDENTIALS_REFUSED
            | failure::TARGET_MISSING
            | failure::ENDPOINT_GONE
            | failure::REDIRECT_REFUSED
    )
}

impl Circuits {
    /// Takes over what earlier drains recorded.
    pub fn learn(&self, publisher: &str, failures: i64, open_until: Timestamp) {
        let known = Circuit {
            failures,
            open_until,
            ..Circuit::default()
        };
        let mut circuits = self.0.borrow_mut();
        circuits.get_or_insert_with(publisher.to_owned(), || known);
    }

    /// How many of `share` rows a publisher may be tried with: one, where it was failing till now.
    pub fn quota(&self, publisher: &str, share: usize, now: Timestamp) -> usize {
        match self.0.borrow().get(publisher) {
            Some(circuit) if circuit.failures < OPEN_AFTER => share,
            Some(circuit) if circuit.opened || circuit.is_open(now) => 0,
            Some(_) => share.min(1),
            None => share,
        }
    }

    /// Takes note of an attempt.
    pub fn note(&self, publisher: &str, health: Health, now: Timestamp) {
        let mut circuits = self.0.borrow_mut();
        let circuit = circuits.get_or_insert_with(publisher.to_owned(), Circuit::default);
        let Some(circuit) = circuit else { return };
        let (failures, asked) = match health {
            Health::Works if circuit.failures == 0 => return,
            Health::Works => (0, None),
            Health::Fails(asked) => (circuit.failures.saturating_add(1), asked),
            Health::Busy(asked) => (circuit.failures.saturating_add(1).max(OPEN_AFTER), asked),
        };
        let opens = failures >= OPEN_AFTER;
        let asked = asked.unwrap_or_default().min(OPEN_MAX);
        *circuit = Circuit {
            failures,
            open_until: if opens {
                now.plus(pause(failures).max(asked))
            } else {
                now
            },
            opened: opens,
            changed: true,
        };
    }

    /// What is to be recorded: publisher, failures in a row, left alone until.
    pub fn changed(&self) -> Vec<(String, i64, Timestamp)> {
        let circuits = self.0.borrow();
        let changed = circuits.iter().filter(|(_, circuit)| circuit.changed);
        changed
            .map(|(name, circuit)| (name.clone(), circuit.failures, circuit.open_until))
            .collect()
    }
}

/// How long a publisher is left alone after so many failures in a row.
fn pause(failures: i64) -> Span {
    let doublings = failures.saturating_sub(OPEN_AFTER).clamp(0, 4);
    OPEN_FOR.saturating_mul(1_i64 << doublings).min(OPEN_MAX)
}

/// Failures in a row after which a publisher is left alone.
pub const OPEN_AFTER: i64 = 3;
/// For how long, at first; doubled with each further failure.
pub const OPEN_FOR: Span = Span::from_minutes(1);
/// For how long at most: a repaired destination is noticed soon.
pub const OPEN_MAX: Span = Span::from_minutes(16);

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: Health = Health::Fails(None);

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_millis(minute * 60_000)
    }

    /// The next drain's circuits, from what this one recorded.
    fn next_drain(circuits: &Circuits) -> Circuits {
        let next = Circuits::default();
        for (name, failures, until) in circuits.changed() {
            next.learn(&name, failures, until);
        }
        next
    }

    #[test]
    fn three_failures_in_a_row_leave_the_rest_of_the_drain_unspent() {
        let circuits = Circuits::default();
        for _ in 0..3 {
            assert_eq!(circuits.quota("p", 20, at(0)), 20);
            circuits.note("p", DOWN, at(0));
        }
        assert_eq!(circuits.quota("p", 20, at(0)), 0);
        assert_eq!(
            circuits.quota("p", 20, at(90)),
            0,
            "however long the drain takes"
        );
        assert_eq!(circuits.quota("q", 20, at(0)), 20, "another publisher");
    }

    #[test]
    fn a_success_between_failures_starts_the_count_anew() {
        let circuits = Circuits::default();
        for health in [DOWN, DOWN, Health::Works, DOWN, DOWN] {
            circuits.note("p", health, at(0));
        }
        assert_eq!(circuits.quota("p", 20, at(0)), 20);
    }

    #[test]
    fn one_row_tries_again_after_each_pause_and_a_success_lets_all_through() {
        let mut circuits = Circuits::default();
        circuits.learn("p", 2, at(0));
        circuits.note("p", DOWN, at(0));
        let mut now = 0;
        for pause in [1, 2, 4, 8, 16, 16, 16] {
            circuits = next_drain(&circuits);
            assert_eq!(circuits.quota("p", 20, at(now + pause - 1)), 0);
            now += pause;
            assert_eq!(circuits.quota("p", 20, at(now)), 1);
            circuits.note("p", DOWN, at(now));
            assert_eq!(circuits.quota("p", 20, at(now)), 0);
        }
        circuits = next_drain(&circuits);
        circuits.note("p", Health::Works, at(now + 16));
        assert_eq!(circuits.quota("p", 20, at(now + 16)), 20);
        assert_eq!(next_drain(&circuits).quota("p", 20, at(now + 16)), 20);
    }

    #[test]
    fn a_destination_that_asks_for_fewer_requests_is_left_alone_at_once_for_as_long_as_it_says() {
        let circuits = Circuits::default();
        circuits.note("p", Health::Busy(Some(Span::from_minutes(5))), at(0));
        let next = next_drain(&circuits);
        assert_eq!(next.quota("p", 20, at(4)), 0);
        assert_eq!(next.quota("p", 20, at(5)), 1);
    }

    #[test]
    fn refused_credentials_are_the_destinations_failure_and_a_taken_target_is_not() {
        let refused = |code| Health::of(&Outcome::Permanent(Failure::new(code, "")));
        assert_eq!(refused(failure::CREDENTIALS_REFUSED), DOWN);
        assert_eq!(refused(failure::TARGET_TAKEN), Health::Works);
    }

    #[test]
    fn nothing_is_recorded_of_a_publisher_that_works() {
        let circuits = Circuits::default();
        circuits.note("p", Health::Works, at(0));
        assert!(circuits.changed().is_empty());
    }
}
