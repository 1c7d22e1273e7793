//! The wall clock, as the services print it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// Now, as `2026-11-30T08:00:00.123Z`.
pub(crate) fn now_rfc3339() -> String {
    rfc3339_ms(now_ms())
}

/// A moment, as `2026-11-30T08:00:00.123Z`.
pub(crate) fn rfc3339_ms(ms: u64) -> String {
    format!("{}.{:03}Z", date_time(ms / 1000), ms % 1000)
}

/// Seconds since 1970, as `2026-11-30T08:00:00`.
pub(crate) fn date_time(seconds: u64) -> String {
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a day since 1970; whole years, then whole months, are taken off.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

fn leap(year: u64) -> u64 {
    u64::from((year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400))
}

/// Seconds since 1970 of `2026-11-30T08:00:00Z`, with or without a fraction or an offset.
pub(crate) fn parse_seconds(text: &str) -> Option<u64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days_of_years: u64 = (1970..year).map(|year| 365 + leap(year)).sum();
    let lengths = [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let days_of_months: u64 = lengths.iter().take(usize::try_from(month - 1).ok()?).sum();
    let days = days_of_years + days_of_months + day - 1;
    let local = days * 86_400 + hour * 3600 + minute * 60 + second;
    let zone = text
        .get(19..)?
        .trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if matches!(zone, "Z" | "z" | "") {
        return Some(local);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let offset = hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60;
    if zone.starts_with('-') {
        Some(local + offset)
    } else {
        local.checked_sub(offset)
    }
}
