//! Local dates: which day it is somewhere, and when a day begins there.
//!
//! Nothing here assumes that a day has 24 hours, that its midnight exists, or that a local time
//! comes once.

use crate::ports::Zones;
use crate::sorted::sort_by;
use crate::time::{Span, Timestamp};

/// The wall clock of `zone` at `at`, as if it showed UTC; UTC itself for a zone nobody knows.
pub fn wall_clock(zones: &dyn Zones, zone: &str, at: Timestamp) -> Timestamp {
    at.plus(offset(zones, zone, at))
}

/// The date in `zone` at `at`, `YYYY-MM-DD`.
pub fn local_date(zones: &dyn Zones, zone: &str, at: Timestamp) -> String {
    wall_clock(zones, zone, at).to_date_string()
}

/// How far the day has gone by the wall clock.
pub fn time_of_day(zones: &dyn Zones, zone: &str, at: Timestamp) -> Span {
    let clock = wall_clock(zones, zone, at);
    Span::from_millis(clock.millis().rem_euclid(DAY_MS))
}

/// The first moment of the date after the present one in `zone`.
///
/// Where the clocks are put forward over midnight, that is the moment they are; where they are put
/// back to the evening before, it is the midnight that counts.
pub fn next_day(zones: &dyn Zones, zone: &str, now: Timestamp) -> Timestamp {
    let today = wall_clock(zones, zone, now);
    let days = today.millis().div_euclid(DAY_MS).saturating_add(1);
    let midnight = Timestamp::from_millis(days.saturating_mul(DAY_MS));
    let date = midnight.to_date_string();
    let guess = midnight.minus(offset(zones, zone, now));
    let around = [-1, 0, 1].map(|side| guess.plus(Span::from_hours(side)));
    let mut candidates: Vec<Timestamp> = around
        .iter()
        .map(|near| midnight.minus(offset(zones, zone, *near)))
        .collect();
    sort_by(&mut candidates, Ord::cmp);
    let begins = |at: &Timestamp| {
        local_date(zones, zone, *at) == date
            && local_date(zones, zone, at.minus(Span::from_millis(1))) != date
    };
    candidates.into_iter().find(begins).unwrap_or(guess)
}

/// A date `YYYY-MM-DD` that exists, as its midnight in UTC.
pub fn parse_date(text: &str) -> Option<Timestamp> {
    (text.len() == 10)
        .then(|| Timestamp::parse_rfc3339(&format!("{text}T00:00:00Z")))
        .flatten()
}

fn offset(zones: &dyn Zones, zone: &str, at: Timestamp) -> Span {
    let minutes = zones.offset_minutes(zone, at).unwrap_or(0);
    Span::from_minutes(i64::from(minutes))
}

const DAY_MS: i64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// One change of the clocks: (from that moment on, minutes east of UTC).
    struct Change(Timestamp, i32, i32);

    impl Zones for Change {
        fn offset_minutes(&self, _: &str, at: Timestamp) -> Option<i32> {
            Some(if at < self.0 { self.1 } else { self.2 })
        }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).unwrap()
    }

    #[test]
    fn a_day_begins_at_its_midnight_however_long_the_day_before_was() {
        // Berlin, 25 October 2026: 25 hours.
        let zone = Change(at("2026-10-25T01:00:00Z"), 120, 60);
        let next = next_day(&zone, "Europe/Berlin", at("2026-10-24T23:00:00Z"));
        assert_eq!(next, at("2026-10-25T23:00:00Z"));
        // And 29 March 2026: 23 hours.
        let zone = Change(at("2026-03-29T01:00:00Z"), 60, 120);
        let next = next_day(&zone, "Europe/Berlin", at("2026-03-29T00:30:00Z"));
        assert_eq!(next, at("2026-03-29T22:00:00Z"));
    }

    #[test]
    fn a_midnight_that_is_skipped_or_repeated_is_found() {
        // Clocks go from 00:00 to 01:00: the day begins at the change.
        let zone = Change(at("2026-09-06T04:00:00Z"), -240, -180);
        let next = next_day(&zone, "America/Santiago", at("2026-09-05T20:00:00Z"));
        assert_eq!(next, at("2026-09-06T04:00:00Z"));
        // Clocks go from 24:00 back to 23:00: the day begins at the second midnight.
        let zone = Change(at("2026-04-05T03:00:00Z"), -180, -240);
        let next = next_day(&zone, "America/Santiago", at("2026-04-05T01:00:00Z"));
        assert_eq!(next, at("2026-04-05T04:00:00Z"));
    }

    #[test]
    fn only_dates_that_exist_are_read() {
        assert_eq!(parse_date("2026-02-28"), Some(at("2026-02-28T00:00:00Z")));
        for wrong in [
            "2026-02-29",
            "2026-2-28",
            "20260228",
            "",
            "2026-02-28T",
            "２026-02-1",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
    }
}
