//! `Retry-After`: every form that RFC 9110 allows, and nothing else.

use crate::limits::RETRY_AFTER_MAX;
use crate::time::{Span, Timestamp};

/// How long a destination asks to be left alone; `None` where the value is not one of the four
/// legal forms (a whole number of seconds, or a date in one of three notations).
///
/// A date that has passed asks for nothing; no more than [`RETRY_AFTER_MAX`] is honoured.
///
/// ```
/// use oncepress::outbox::retry_after::parse;
/// use oncepress::time::{Span, Timestamp};
/// let now = Timestamp::parse_rfc3339("1994-11-06T08:49:00Z").unwrap();
/// assert_eq!(parse("120", now), Some(Span::from_seconds(120)));
/// assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT", now), Some(Span::from_seconds(37)));
/// assert_eq!(parse("1e300", now), None);
/// ```
pub fn parse(value: &str, now: Timestamp) -> Option<Span> {
    let value = value.trim_matches([' ', '\t']);
    if let Some(seconds) = whole_number(value) {
        return Some(bounded(Span::from_seconds(seconds)));
    }
    let at = imf_fixdate(value)
        .or_else(|| rfc_850(value, now))
        .or_else(|| asctime(value))?;
    Some(bounded(at.since(now)))
}

/// The same for a time given as seconds since the epoch, as `x-ratelimit-reset` does.
pub fn parse_epoch_seconds(value: &str, now: Timestamp) -> Option<Span> {
    let seconds = whole_number(value.trim_matches([' ', '\t']))?;
    Some(bounded(
        Timestamp::from_millis(seconds.saturating_mul(1_000)).since(now),
    ))
}

fn bounded(span: Span) -> Span {
    span.clamp(Span::from_millis(0), RETRY_AFTER_MAX)
}

/// Digits and nothing else; a number beyond `i64` is as good as its largest.
fn whole_number(text: &str) -> Option<i64> {
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits_only.then(|| text.parse().unwrap_or(i64::MAX))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<Timestamp> {
    let rest = strip_any(text, &DAYS)?
        .strip_prefix(", ")?
        .strip_suffix(" GMT")?;
    let mut parts = rest.split(' ');
    let day = number(parts.next()?, 2)?;
    let month = month(parts.next()?)?;
    let year = number(parts.next()?, 4)?;
    let at = moment(year, month, day, parts.next()?)?;
    parts.next().is_none().then_some(at)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc_850(text: &str, now: Timestamp) -> Option<Timestamp> {
    let rest = strip_any(text, &LONG_DAYS)?
        .strip_prefix(", ")?
        .strip_suffix(" GMT")?;
    let (date, time) = rest.split_once(' ')?;
    let mut parts = date.split('-');
    let day = number(parts.next()?, 2)?;
    let month = month(parts.next()?)?;
    let two_digits = number(parts.next()?, 2)?;
    if parts.next().is_some() {
        return None;
    }
    moment(full_year(two_digits, now), month, day, time)
}

/// The year that two digits mean: of the present century, unless that is more than 50 years ahead.
fn full_year(two_digits: i64, now: Timestamp) -> i64 {
    let (this_year, _, _) = now.date();
    let century = this_year.saturating_sub(this_year.rem_euclid(100));
    let year = century.saturating_add(two_digits);
    if year > this_year.saturating_add(50) {
        year.saturating_sub(100)
    } else {
        year
    }
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<Timestamp> {
    let rest = strip_any(text, &DAYS)?.strip_prefix(' ')?;
    let month = month(rest.get(..3)?)?;
    let day = rest.get(3..6)?.strip_prefix(' ')?;
    let day = match day.strip_prefix(' ') {
        Some(digit) => number(digit, 1)?,
        None => number(day, 2)?,
    };
    let (time, year) = rest.get(6..)?.strip_prefix(' ')?.split_once(' ')?;
    moment(number(year, 4)?, month, day, time)
}

/// A date and `hh:mm:ss`; second 60 (a leap second) is the first moment of the next minute.
fn moment(year: i64, month: i64, day: i64, time: &str) -> Option<Timestamp> {
    let mut parts = time.split(':');
    let hour = number(parts.next()?, 2)?;
    let minute = number(parts.next()?, 2)?;
    let second = number(parts.next()?, 2)?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let start = Timestamp::from_date(year, month, day)?;
    let in_day = Span::from_hours(hour)
        .saturating_add(Span::from_minutes(minute))
        .saturating_add(Span::from_seconds(second));
    Some(start.plus(in_day))
}

fn number(text: &str, digits: usize) -> Option<i64> {
    if text.len() == digits {
        whole_number(text)
    } else {
        None
    }
}

fn month(name: &str) -> Option<i64> {
    let index = MONTHS.iter().position(|month| *month == name)?;
    i64::try_from(index.checked_add(1)?).ok()
}

fn strip_any<'a>(text: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: Option<i64> = Some(86_400);

    fn seconds(value: &str) -> Option<i64> {
        let now = Timestamp::parse_rfc3339("2026-11-30T00:00:00Z").unwrap();
        parse(value, now).map(|span| span.millis() / 1_000)
    }

    #[test]
    fn legal_values_are_honoured_up_to_a_day() {
        for (value, expected) in [
            ("0", Some(0)),
            ("53", Some(53)),
            (" \t7 ", Some(7)),
            ("007", Some(7)),
            ("86400", DAY),
            ("86401", DAY),
            ("86400000000000", DAY),
            ("9223372036854775807", DAY),
            ("99999999999999999999999999999999999999999", DAY),
            ("Mon, 30 Nov 2026 00:02:00 GMT", Some(120)),
            ("Monday, 30-Nov-26 00:02:00 GMT", Some(120)),
            ("Mon Nov 30 00:02:00 2026", Some(120)),
            ("Tue Dec  1 00:00:00 2026", DAY),
            ("Mon, 30 Nov 2026 00:00:60 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", DAY),
            ("Monday, 30-Nov-76 00:00:00 GMT", DAY),
            ("Tuesday, 30-Nov-77 00:00:00 GMT", Some(0)),
        ] {
            assert_eq!(seconds(value), expected, "{value}");
        }
    }

    #[test]
    fn illegal_values_ask_for_nothing_and_break_nothing() {
        for value in [
            "",
            " ",
            "inf",
            "Infinity",
            "NaN",
            "1e300",
            "1e3",
            "-5",
            "+3",
            "-0",
            "1.5",
            "0x10",
            "1_000",
            "5s",
            "5 ",
            "１２",
            "\u{a0}5",
            "5\u{0}",
            "5, 6",
            "soon",
            "Mon, 30 Nov 2026 00:02:00 UTC",
            "Mon, 30 Nov 2026 00:02:00 +0900",
            "Mon, 30 Nov 2026 00:02:00",
            "Mon, 30 nov 2026 00:02:00 GMT",
            "mon, 30 Nov 2026 00:02:00 GMT",
            "Mon, 31 Nov 2026 00:02:00 GMT",
            "Mon, 00 Nov 2026 00:02:00 GMT",
            "Mon, 30 Nov 2026 24:00:00 GMT",
            "Mon, 30 Nov 2026 00:60:00 GMT",
            "Mon, 30 Nov 2026 00:00:61 GMT",
            "Mon, 3 Nov 2026 00:02:00 GMT",
            "Mon, 30  Nov 2026 00:02:00 GMT",
            "Mon, 30 Nov 26 00:02:00 GMT",
            "Mon, 30-Nov-26 00:02:00 GMT",
            "Monday, 30-Nov-2026 00:02:00 GMT",
            "Monday, 30-Nov-26-1 00:02:00 GMT",
            "Mon Nov 30 00:02:00 2026 GMT",
            "Mon Nov 030 00:02:00 2026",
            "Mon Nov日 0 00:02:00 2026",
            "Mon Nov",
            "Mon, ",
            "2026-11-30T00:02:00Z",
            "Mon, 30 Nov 2026 00:02:00 GMT GMT",
        ] {
            // Optional white space around a value is not part of it.
            let expected = (value == "5 ").then_some(5);
            assert_eq!(seconds(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_reset_given_as_a_moment_is_a_wait() {
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(
            parse_epoch_seconds("1060", now),
            Some(Span::from_seconds(60))
        );
        assert_eq!(parse_epoch_seconds("1", now), Some(Span::from_seconds(0)));
        assert_eq!(
            parse_epoch_seconds("9223372036854775807", now),
            Some(RETRY_AFTER_MAX)
        );
        assert_eq!(parse_epoch_seconds("-1", now), None);
    }

    proptest! {
        #[test]
        fn any_text_gives_nothing_or_a_span_between_zero_and_a_day(
            value in "[ -~日,:]{0,40}", now in any::<i64>(),
        ) {
            if let Some(span) = parse(&value, Timestamp::from_millis(now)) {
                prop_assert!((Span::from_millis(0)..=RETRY_AFTER_MAX).contains(&span));
            }
        }

        #[test]
        fn all_three_notations_of_one_moment_agree(offset in 0_i64..86_400) {
            let now = Timestamp::parse_rfc3339("2026-11-30T00:00:00Z").unwrap();
            let (h, m, s) = (offset / 3_600, offset / 60 % 60, offset % 60);
            for text in [
                format!("Mon, 30 Nov 2026 {h:02}:{m:02}:{s:02} GMT"),
                format!("Monday, 30-Nov-26 {h:02}:{m:02}:{s:02} GMT"),
                format!("Mon Nov 30 {h:02}:{m:02}:{s:02} 2026"),
            ] {
                prop_assert_eq!(parse(&text, now), Some(Span::from_seconds(offset)));
            }
        }
    }
}
