//! When a delivery is tried again: growing waits with full jitter over 72 hours.
//!
//! Each retry has a window, counted from the first attempt, and lies anywhere in it with equal
//! chance, so that the rows of one outage don't come back as one wave. The last window opens at
//! 72 hours: ten attempts can't be used up before a weekend is over, whatever the dice say, and
//! not later than 96 hours where the drain runs on time.

use crate::limits::{ATTEMPTS_MAX, DELIVERY_RETRY_SPAN};
use crate::time::{Span, Timestamp};

/// When to try again after `attempts` failed ones, the first of them at `first_attempt_at`;
/// `None` once they are used up.
///
/// `random` spreads the retries. A wait that the destination asked for is never undercut.
///
/// ```
/// use oncepress::outbox::backoff::next_attempt_at;
/// use oncepress::time::{Span, Timestamp};
/// let first = Timestamp::from_millis(0);
/// let asked = Some(Span::from_hours(1));
/// assert_eq!(next_attempt_at(1, first, first, 0, None), Some(first.plus(Span::from_seconds(30))));
/// assert_eq!(next_attempt_at(1, first, first, 0, asked), Some(first.plus(Span::from_hours(1))));
/// assert_eq!(next_attempt_at(10, first, first, 0, None), None);
/// ```
pub fn next_attempt_at(
    attempts: u32,
    first_attempt_at: Timestamp,
    now: Timestamp,
    random: u64,
    retry_after: Option<Span>,
) -> Option<Timestamp> {
    if attempts >= ATTEMPTS_MAX {
        return None;
    }
    // A first attempt in the future is a clock that was set back; it must not stall the row.
    let first = first_attempt_at.min(now);
    let waited = now.since(first);
    let at = now.plus(delay(attempts, waited, random));
    Some(at.max(now.plus(retry_after.unwrap_or_default())))
}

/// How long to wait after `attempts` failed ones, `waited` after the first of them.
///
/// A row that is late (its window has opened already) waits a random part of a window's length, so
/// that attempts missed during a pause are not burnt in a burst.
pub fn delay(attempts: u32, waited: Span, random: u64) -> Span {
    let retry = usize::try_from(attempts)
        .unwrap_or(usize::MAX)
        .clamp(1, OPENS_AFTER.len());
    let opens = OPENS_AFTER
        .get(retry.saturating_sub(1))
        .copied()
        .unwrap_or(DELIVERY_RETRY_SPAN);
    let closes = OPENS_AFTER.get(retry).copied().unwrap_or(LAST_CLOSES_AFTER);
    let length_ms = closes.millis().saturating_sub(opens.millis());
    let until_open_ms = opens.millis().saturating_sub(waited.millis()).max(0);
    Span::from_millis(until_open_ms.saturating_add(part_of(length_ms, random)))
}

/// A part of `whole_ms`, from nothing to just below all of it, as `random` says.
fn part_of(whole_ms: i64, random: u64) -> i64 {
    let whole = u128::from(whole_ms.unsigned_abs());
    let part = u128::from(random).saturating_mul(whole) >> u64::BITS;
    i64::try_from(part).unwrap_or(whole_ms)
}

/// When the window of each retry opens, after the first attempt; it closes as the next one opens.
/// Three to four times the one before, until a day apart: a blip costs a minute, an outage of a
/// weekend no more than ten calls.
const OPENS_AFTER: [Span; 9] = [
    Span::from_seconds(30),
    Span::from_minutes(2),
    Span::from_minutes(8),
    Span::from_minutes(30),
    Span::from_hours(2),
    Span::from_hours(8),
    Span::from_hours(24),
    Span::from_hours(48),
    DELIVERY_RETRY_SPAN,
];
const LAST_CLOSES_AFTER: Span = Span::from_hours(96);
const _: () = assert!(
    OPENS_AFTER.len() + 1 == ATTEMPTS_MAX as usize,
    "one window a retry"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The moments of all attempts of a delivery that always fails at once.
    fn attempts(first: Timestamp, mut random: impl FnMut() -> u64) -> Vec<Timestamp> {
        let mut moments = vec![first];
        while let Some(at) = next_attempt_at(
            u32::try_from(moments.len()).unwrap(),
            first,
            moments[moments.len() - 1],
            random(),
            None,
        ) {
            moments.push(at);
        }
        moments
    }

    #[test]
    fn ten_attempts_take_72_hours_with_the_lowest_dice_and_under_96_with_the_highest() {
        let first = Timestamp::from_millis(0);
        for (random, least, most) in [(0, 72, 72), (u64::MAX, 95, 96)] {
            let moments = attempts(first, || random);
            assert_eq!(moments.len(), 10);
            let hours = moments[9].since(first).millis() / 3_600_000;
            assert!((least..=most).contains(&hours), "{hours}");
        }
    }

    #[test]
    fn a_pause_of_the_drain_burns_no_attempts_in_a_burst() {
        let late = Span::from_hours(200);
        assert_eq!(delay(9, late, u64::MAX / 2).millis() / 3_600_000, 11);
        assert_eq!(delay(1, late, u64::MAX / 2).millis() / 1_000, 44);
    }

    #[test]
    fn every_part_of_a_window_is_drawn() {
        let mut eighths = [0_u32; 8];
        for step in 0..64_u64 {
            let wait = delay(1, Span::from_millis(0), step << 58).millis() - 30_000;
            eighths[usize::try_from(wait * 8 / 90_000).unwrap()] += 1;
        }
        assert_eq!(eighths, [8; 8]);
    }

    proptest! {
        #[test]
        fn retries_move_forward_and_span_72_hours_whatever_the_dice(
            seeds in proptest::collection::vec(any::<u64>(), 9), start in 0_i64..4_000_000_000_000,
        ) {
            let first = Timestamp::from_millis(start);
            let mut dice = seeds.into_iter();
            let moments = attempts(first, || dice.next().unwrap_or(0));
            prop_assert_eq!(moments.len(), 10);
            prop_assert!(moments.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert!(moments[9].since(first) >= DELIVERY_RETRY_SPAN);
            prop_assert!(moments[9].since(first) <= LAST_CLOSES_AFTER);
        }

        #[test]
        fn what_the_destination_asked_for_is_never_undercut(
            tries in 0_u32..10, random in any::<u64>(), asked_ms in 0_i64..86_400_000,
            now in any::<i64>(), first in any::<i64>(),
        ) {
            let (now, first) = (Timestamp::from_millis(now), Timestamp::from_millis(first));
            let asked = Span::from_millis(asked_ms);
            let at = next_attempt_at(tries, first, now, random, Some(asked)).unwrap();
            prop_assert!(at >= now.plus(asked));
            prop_assert!(at <= now.plus(LAST_CLOSES_AFTER));
        }
    }
}
