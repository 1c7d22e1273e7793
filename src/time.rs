//! Points in time and spans, as whole milliseconds; nothing here reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z, without leap seconds.
///
/// ```
/// use oncepress::time::Timestamp;
/// let slot = Timestamp::parse_rfc3339("2026-11-30T09:00:00+09:00").unwrap();
/// assert_eq!(slot.to_rfc3339(), "2026-11-30T00:00:00.000Z");
/// ```
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// A span of time in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(i64);

impl Span {
    /// A span of so many milliseconds.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// A span of so many seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// A span of so many minutes.
    pub const fn from_minutes(minutes: i64) -> Self {
        Self(minutes.saturating_mul(60_000))
    }

    /// A span of so many hours.
    pub const fn from_hours(hours: i64) -> Self {
        Self(hours.saturating_mul(3_600_000))
    }

    /// A span of so many days of 24 hours.
    pub const fn from_days(days: i64) -> Self {
        Self(days.saturating_mul(86_400_000))
    }

    /// The span in milliseconds.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The span in whole seconds, rounded up; never negative (as `Retry-After` wants it).
    pub const fn seconds_up(self) -> u64 {
        if self.0 <= 0 {
            0
        } else {
            (self.0.unsigned_abs().saturating_add(999)) / 1_000
        }
    }

    /// The sum, kept within range.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The span so many times over, kept within range.
    #[must_use]
    pub const fn saturating_mul(self, times: i64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Timestamp {
    /// A timestamp from milliseconds since the epoch.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// This point moved forward by a span.
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// This point moved back by a span.
    #[must_use]
    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// How long after `earlier` this point is; negative if it is before.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The calendar date (UTC) as (year, month 1–12, day 1–31).
    pub fn date(self) -> (i64, u32, u32) {
        civil_from_days(self.0.div_euclid(DAY_MS))
    }

    /// `YYYY-MM-DD` in UTC.
    pub fn to_date_string(self) -> String {
        let (year, month, day) = self.date();
        format!("{year:04}-{month:02}-{day:02}")
    }

    /// RFC 3339 in UTC with milliseconds: `2026-11-30T00:00:00.000Z`.
    pub fn to_rfc3339(self) -> String {
        let in_day = self.0.rem_euclid(DAY_MS);
        let (ms, seconds) = (in_day % 1_000, in_day / 1_000);
        let (h, m, s) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        format!("{}T{h:02}:{m:02}:{s:02}.{ms:03}Z", self.to_date_string())
    }

    /// Reads an RFC 3339 date-time with any offset; fractions finer than a millisecond are cut.
    /// A leap second (`:60`) counts as the first moment of the next minute.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let year = digits(bytes, 0, 4)?;
        let (month, day) = (digits(bytes, 5, 2)?, digits(bytes, 8, 2)?);
        let (hour, minute, second) = (
            digits(bytes, 11, 2)?,
            digits(bytes, 14, 2)?,
            digits(bytes, 17, 2)?,
        );
        let punctuation = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        let plain = punctuation
            .iter()
            .all(|(at, byte)| bytes.get(*at) == Some(byte));
        let separated = matches!(bytes.get(10), Some(b'T' | b't' | b' '));
        if !plain || !separated || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        let (ms, at) = fraction(bytes, 19)?;
        let offset_minutes = offset(bytes, at)?;
        let days = days_from_civil(year, month, day);
        let seconds = days
            .checked_mul(86_400)?
            .checked_add(hour.checked_mul(3_600)?)?
            .checked_add(minute.checked_mul(60)?)?
            .checked_add(second)?
            .checked_sub(offset_minutes.checked_mul(60)?)?;
        Some(Self(seconds.checked_mul(1_000)?.checked_add(ms)?))
    }

    /// The start of the day `year`-`month`-`day` in UTC, if that date exists.
    pub fn from_date(year: i64, month: i64, day: i64) -> Option<Self> {
        let exists = (0..=9_999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day);
        exists.then(|| Self(days_from_civil(year, month, day).saturating_mul(DAY_MS)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

fn digits(bytes: &[u8], at: usize, count: usize) -> Option<i64> {
    let end = at.checked_add(count)?;
    bytes.get(at..end)?.iter().try_fold(0_i64, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value.checked_mul(10)?.checked_add(i64::from(digit))
    })
}

/// Milliseconds of an optional `.fff…` and where the text goes on.
fn fraction(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    if bytes.get(at) != Some(&b'.') {
        return Some((0, at));
    }
    let start = at.checked_add(1)?;
    let count = bytes
        .get(start..)?
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if count == 0 {
        return None;
    }
    let padded: Vec<u8> = bytes
        .get(start..start.checked_add(count.min(3))?)?
        .iter()
        .copied()
        .chain([b'0'; 3])
        .take(3)
        .collect();
    Some((digits(&padded, 0, 3)?, start.checked_add(count)?))
}

/// Minutes east of UTC of `Z` or `±hh:mm`, which must end the text.
fn offset(bytes: &[u8], at: usize) -> Option<i64> {
    let rest = bytes.get(at..)?;
    match rest {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let (hours, minutes) = (digits(rest, 1, 2)?, digits(rest, 4, 2)?);
            let total = hours.checked_mul(60)?.checked_add(minutes)?;
            let valid = hours <= 23 && minutes <= 59;
            valid.then_some(if *sign == b'-' {
                total.saturating_neg()
            } else {
                total
            })
        }
        _ => None,
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since the epoch of a date in the proleptic Gregorian calendar. The year starts in March
/// here, so that the leap day is its last; an era is the calendar's period of 400 years.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "years are at most four digits wide"
)]
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day counted from the epoch: the inverse of [`days_from_civil`].
#[expect(
    clippy::arithmetic_side_effects,
    reason = "days come from an i64 of milliseconds"
)]
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + days.div_euclid(146_097) * 400 + i64::from(month <= 2);
    (
        year,
        u32::try_from(month).unwrap_or(1),
        u32::try_from(day).unwrap_or(1),
    )
}

const DAY_MS: i64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_fractions_and_leap_days_are_read() {
        let at = |text| Timestamp::parse_rfc3339(text).map(Timestamp::millis);
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2024-02-29T23:59:59.1239Z"), Some(1_709_251_199_123));
        assert_eq!(at("1970-01-01T09:00:00.5+09:00"), Some(500));
        assert_eq!(at("1969-12-31T19:00:00-05:00"), Some(0));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T00:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-30T24:00:00Z",
            "2026-11-30T00:00:00.Z",
            "2026-11-30T00:00:00+9:00",
            "2026-11-30T00:00:00Zx",
            "２026-11-30T00:00:00Z",
            "2026-11-30T00:60:00Z",
        ] {
            assert_eq!(Timestamp::parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_round_trips() {
        for day in 0..146_097 {
            let at = Timestamp::from_millis(day * DAY_MS);
            assert_eq!(Timestamp::parse_rfc3339(&at.to_rfc3339()), Some(at));
        }
    }
}
