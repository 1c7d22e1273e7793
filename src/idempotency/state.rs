//! The states of a generation, and the verdict on a request that asks for its key.
//!
//! Both are total functions of what is stored and the present moment. The arbiter's SQL
//! (`store::claims`) makes the same decision inside one transaction; a test holds the two together.

use crate::time::Timestamp;

/// Where a generation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Claimed and waiting in the queue; nothing was sent.
    Queued,
    /// A runner holds it.
    Running,
    /// Its output is committed and fit to publish.
    Generated,
    /// Its output is paid for and stored, but not fit to publish by itself.
    Held,
    /// It failed for sure, or was given up; its key is free.
    Failed,
    /// Nobody knows whether Gemini did, and billed, the work.
    Unknown,
    /// Paid for by a runner whose claim had passed to a successor; kept as evidence.
    Superseded,
}

impl State {
    /// The word in the database and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Generated => "generated",
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Superseded => "superseded",
        }
    }

    /// The word for callers, to whom waiting in the queue is running.
    pub const fn public(self) -> &'static str {
        match self {
            Self::Queued => "running",
            other => other.as_str(),
        }
    }

    /// The state of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Generated,
        Self::Held,
        Self::Failed,
        Self::Unknown,
        Self::Superseded,
    ];
}

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The state of the generation that holds the key.
    pub state: State,
    /// When its runner's lease ends.
    pub lease_until: Timestamp,
    /// Where its window starts.
    pub anchor_at: Timestamp,
    /// Where its window, or its operation key, ends.
    pub expires_at: Timestamp,
    /// Whether a delivery of it is still owed.
    pub owed: bool,
    /// The fingerprint of the request that made it.
    pub fingerprint: String,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The fingerprint of the asking request.
    pub fingerprint: String,
    /// Whether the key is the caller's own.
    pub operation: bool,
    /// Where the asking request's window would start: its arrival, or its `requestedAt`.
    pub anchor: Timestamp,
    /// Whether the caller gave that anchor.
    pub anchor_given: bool,
}

impl Ask {
    /// The latest anchor of a first request that this one can repeat. A given slot before the
    /// first one's is another slot; an arrival before it is the clock of another machine.
    pub fn latest_anchor(&self) -> Timestamp {
        if self.operation || !self.anchor_given {
            Timestamp::from_millis(MAX_TIME_MS)
        } else {
            self.anchor
        }
    }
}

/// The answer to "is this request fresh?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nobody holds the key: it may be claimed.
    Fresh,
    /// Answer from the stored result.
    Replay,
    /// Wait for the running one.
    Attach,
    /// Its outcome is unknown: nothing may be bought until that is settled.
    Pending,
    /// Its output waits for a person.
    Held,
    /// The same operation key with another request.
    Conflict,
}

/// The lifecycle table, row by row.
pub fn verdict(standing: Option<&Standing>, ask: &Ask, now: Timestamp) -> Verdict {
    let Some(standing) = standing else {
        return Verdict::Fresh;
    };
    let settled = match standing.state {
        State::Queued => Verdict::Attach,
        State::Running if now < standing.lease_until => Verdict::Attach,
        State::Running | State::Unknown => Verdict::Pending,
        State::Held => Verdict::Held,
        State::Generated if standing.owed || in_window(standing, ask) => Verdict::Replay,
        State::Generated | State::Failed | State::Superseded => Verdict::Fresh,
    };
    if settled != Verdict::Fresh && ask.operation && ask.fingerprint != standing.fingerprint {
        return Verdict::Conflict;
    }
    settled
}

fn in_window(standing: &Standing, ask: &Ask) -> bool {
    ask.anchor < standing.expires_at && standing.anchor_at <= ask.latest_anchor()
}

/// Past every date that this service meets, and exact in a double.
const MAX_TIME_MS: i64 = 9_007_199_254_740_991;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    const T0: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn standing(state: State) -> Standing {
        Standing {
            state,
            lease_until: T0.plus(Span::from_minutes(14)),
            anchor_at: T0,
            expires_at: T0.plus(Span::from_minutes(30)),
            owed: false,
            fingerprint: "f".to_owned(),
        }
    }

    fn ask(minutes: i64) -> Ask {
        Ask {
            fingerprint: "f".to_owned(),
            operation: false,
            anchor: T0.plus(Span::from_minutes(minutes)),
            anchor_given: false,
        }
    }

    fn at(standing: &Standing, minutes: i64) -> Verdict {
        verdict(
            Some(standing),
            &ask(minutes),
            T0.plus(Span::from_minutes(minutes)),
        )
    }

    #[test]
    fn a_key_that_nobody_holds_is_fresh() {
        assert_eq!(verdict(None, &ask(0), T0), Verdict::Fresh);
        assert_eq!(at(&standing(State::Failed), 0), Verdict::Fresh);
    }

    #[test]
    fn a_running_generation_is_attached_to_until_its_lease_ends() {
        let running = standing(State::Running);
        assert_eq!(at(&running, 13), Verdict::Attach);
        assert_eq!(at(&running, 14), Verdict::Pending);
        assert_eq!(at(&running, 10_000), Verdict::Pending);
    }

    #[test]
    fn the_window_is_half_open_and_counted_from_the_anchor() {
        let done = standing(State::Generated);
        assert_eq!(at(&done, 0), Verdict::Replay);
        let just_before = T0.plus(Span::from_millis(30 * 60_000 - 1));
        let asked = Ask {
            anchor: just_before,
            ..ask(0)
        };
        assert_eq!(verdict(Some(&done), &asked, just_before), Verdict::Replay);
        assert_eq!(at(&done, 30), Verdict::Fresh);
    }

    #[test]
    fn what_is_owed_is_replayed_at_any_age() {
        let owed = Standing {
            owed: true,
            ..standing(State::Generated)
        };
        assert_eq!(at(&owed, 100_000), Verdict::Replay);
    }

    #[test]
    fn an_earlier_slot_is_another_slot_but_an_earlier_arrival_is_not() {
        let done = standing(State::Generated);
        let slot = |ms| Ask {
            anchor: T0.plus(Span::from_millis(ms)),
            anchor_given: true,
            ..ask(0)
        };
        assert_eq!(verdict(Some(&done), &slot(0), T0), Verdict::Replay);
        assert_eq!(verdict(Some(&done), &slot(-1), T0), Verdict::Fresh);
        let arrival = Ask {
            anchor_given: false,
            ..slot(-8 * 3_600_000)
        };
        assert_eq!(verdict(Some(&done), &arrival, T0), Verdict::Replay);
    }

    #[test]
    fn an_operation_key_conflicts_only_while_it_is_bound() {
        let other = Ask {
            fingerprint: "g".to_owned(),
            operation: true,
            ..ask(1)
        };
        let now = T0.plus(Span::from_minutes(1));
        for state in [
            State::Queued,
            State::Running,
            State::Unknown,
            State::Held,
            State::Generated,
        ] {
            assert_eq!(
                verdict(Some(&standing(state)), &other, now),
                Verdict::Conflict
            );
        }
        assert_eq!(
            verdict(Some(&standing(State::Failed)), &other, now),
            Verdict::Fresh
        );
        let later = Ask {
            anchor: T0.plus(Span::from_hours(25)),
            ..other
        };
        let done = standing(State::Generated);
        assert_eq!(verdict(Some(&done), &later, later.anchor), Verdict::Fresh);
    }
}
