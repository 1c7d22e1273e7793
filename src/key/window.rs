//! How long a derived key means the same purchase: from its first request's anchor, for a span.

use crate::limits::{REQUESTED_AT_FUTURE, REQUESTED_AT_PAST, WINDOW_DEFAULT, WINDOW_MINUTES};
use crate::time::{Span, Timestamp};

/// The point in time that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// When the request came in.
    Arrival(Timestamp),
    /// `requestedAt`: the slot of the caller's scheduler.
    Requested(Timestamp),
}

impl Anchor {
    /// The anchor of a request that came in `now`, with its `requestedAt`, if any.
    pub fn parse(requested_at: Option<&str>, now: Timestamp) -> Result<Self, WindowFault> {
        let Some(text) = requested_at else {
            return Ok(Self::Arrival(now));
        };
        let at = Timestamp::parse_rfc3339(text).ok_or(WindowFault::NotATime)?;
        if at < now.minus(REQUESTED_AT_PAST) {
            return Err(WindowFault::TooEarly);
        }
        if at > now.plus(REQUESTED_AT_FUTURE) {
            return Err(WindowFault::TooLate);
        }
        Ok(Self::Requested(at))
    }

    /// The point in time.
    pub const fn at(self) -> Timestamp {
        match self {
            Self::Arrival(at) | Self::Requested(at) => at,
        }
    }
}

/// The window of a derived key. The first request sets it, and no duplicate moves or extends it.
///
/// ```
/// use oncepress::key::window::{Anchor, Window};
/// use oncepress::time::{Span, Timestamp};
/// let now = Timestamp::parse_rfc3339("2026-11-30T09:00:00Z").unwrap();
/// let window = Window::open(Anchor::Arrival(now), None).unwrap();
/// let later = |minutes| Anchor::Arrival(now.plus(Span::from_minutes(minutes)));
/// assert!(window.covers(later(29)));
/// assert!(!window.covers(later(30)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first request's anchor.
    pub anchor: Timestamp,
    /// How long the key holds from there.
    pub length: Span,
}

impl Window {
    /// The window of a first request, with its `windowMinutes`, if any.
    pub fn open(anchor: Anchor, minutes: Option<i64>) -> Result<Self, WindowFault> {
        let length = match minutes {
            None => WINDOW_DEFAULT,
            Some(minutes) if WINDOW_MINUTES.contains(&minutes) => Span::from_minutes(minutes),
            Some(_) => return Err(WindowFault::Minutes),
        };
        Ok(Self {
            anchor: anchor.at(),
            length,
        })
    }

    /// Whether a later request is the same purchase: `0 ≤ Δ < window`.
    ///
    /// A request that arrives "before" the first one was only timed by another machine's clock;
    /// it counts as simultaneous. A `requestedAt` before the anchor is another slot.
    pub fn covers(&self, later: Anchor) -> bool {
        let delta = later.at().since(self.anchor);
        let begun = matches!(later, Anchor::Arrival(_)) || delta >= Span::from_millis(0);
        begun && delta < self.length
    }

    /// The first moment that the window no longer covers.
    pub const fn end(&self) -> Timestamp {
        self.anchor.plus(self.length)
    }
}

/// What can be wrong with `requestedAt` and `windowMinutes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowFault {
    /// `requestedAt` is no date-time.
    #[error("requestedAt must be an RFC 3339 date-time with an offset")]
    NotATime,
    /// `requestedAt` lies too far back.
    #[error("requestedAt must not lie more than 24 hours in the past")]
    TooEarly,
    /// `requestedAt` lies too far ahead.
    #[error("requestedAt must not lie more than 5 minutes in the future")]
    TooLate,
    /// `windowMinutes` is out of range.
    #[error("windowMinutes must be 1 to 43200")]
    Minutes,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_795_996_800_000);

    fn requested(offset: Span) -> Result<Anchor, WindowFault> {
        Anchor::parse(Some(&NOW.plus(offset).to_rfc3339()), NOW)
    }

    #[test]
    fn requested_at_ranges_from_a_day_back_to_five_minutes_ahead() {
        let ms = Span::from_millis;
        let (past, future) = (-24 * 60 * 60_000, 5 * 60_000);
        assert_eq!(
            requested(ms(past)),
            Ok(Anchor::Requested(NOW.plus(ms(past))))
        );
        assert_eq!(requested(ms(past - 1)), Err(WindowFault::TooEarly));
        assert_eq!(
            requested(ms(future)),
            Ok(Anchor::Requested(NOW.plus(ms(future))))
        );
        assert_eq!(requested(ms(future + 1)), Err(WindowFault::TooLate));
        for text in ["", "now", "2026-11-30", "2026-11-30T09:00:00", "1764493200"] {
            assert_eq!(
                Anchor::parse(Some(text), NOW),
                Err(WindowFault::NotATime),
                "{text}"
            );
        }
        assert_eq!(Anchor::parse(None, NOW), Ok(Anchor::Arrival(NOW)));
    }

    #[test]
    fn window_minutes_are_1_to_43200_and_30_by_default() {
        let length = |minutes| Window::open(Anchor::Arrival(NOW), minutes).map(|w| w.length);
        assert_eq!(length(None), Ok(Span::from_minutes(30)));
        assert_eq!(length(Some(1)), Ok(Span::from_minutes(1)));
        assert_eq!(length(Some(43_200)), Ok(Span::from_days(30)));
        for minutes in [0, -1, 43_201, i64::MAX, i64::MIN] {
            assert_eq!(
                length(Some(minutes)),
                Err(WindowFault::Minutes),
                "{minutes}"
            );
        }
    }

    #[test]
    fn the_window_starts_at_the_anchor_for_slots_and_ends_before_its_end_for_all() {
        let window = Window::open(Anchor::Arrival(NOW), None).unwrap();
        let before = NOW.minus(Span::from_millis(1));
        assert!(!window.covers(Anchor::Requested(before)));
        assert!(window.covers(Anchor::Arrival(before)));
        assert!(window.covers(Anchor::Requested(NOW)));
        for anchor in [Anchor::Requested, Anchor::Arrival] {
            assert!(window.covers(anchor(window.end().minus(Span::from_millis(1)))));
            assert!(!window.covers(anchor(window.end())));
        }
    }

    proptest! {
        #[test]
        fn the_window_runs_from_the_anchor_and_never_from_a_clock_bucket(
            anchor in 0_i64..4_000_000_000_000, minutes in 1_i64..=43_200, share in 0.0_f64..2.0,
        ) {
            let anchor = Timestamp::from_millis(anchor);
            let window = Window::open(Anchor::Requested(anchor), Some(minutes)).unwrap();
            let length = minutes * 60_000;
            #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a test")]
            let delta = (length as f64 * share) as i64;
            let later = Anchor::Requested(anchor.plus(Span::from_millis(delta)));
            prop_assert_eq!(window.covers(later), delta < length);
            prop_assert_eq!(window.covers(later), later.at() < window.end());
        }
    }
}
