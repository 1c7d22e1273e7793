//! Reads how long Gemini asks to be left alone.

use crate::gemini::google::GoogleError;
use crate::limits::RETRY_AFTER_MAX;
use crate::outbox::retry_after;
use crate::time::{Span, Timestamp};

/// The delay that an answer asks for, in whole seconds rounded up and never over
/// [`RETRY_AFTER_MAX`]. Where it is said more than once, the longest counts.
pub(crate) fn asked_for(
    headers: &[(String, String)],
    error: Option<&GoogleError>,
    now: Timestamp,
) -> Option<Span> {
    let header = headers.iter().filter(|(name, _)| name == "retry-after");
    let in_header = header.filter_map(|(_, value)| retry_after::parse(value, now));
    let in_body = error.into_iter().flat_map(in_body).map(Span::from_millis);
    in_header.chain(in_body).max().map(rounded_up)
}

/// The delays in Google's details and words, in milliseconds.
fn in_body(error: &GoogleError) -> Vec<i64> {
    let infos = error
        .details("RetryInfo")
        .filter_map(|info| info.get("retryDelay")?.as_str());
    let delays = infos.filter_map(|delay| milliseconds(delay, &[("s", 1_000)]));
    delays.chain(in_message(&error.message)).collect()
}

/// How long until a quota per day is renewed.
///
/// Google renews it at midnight in California, which is 07:00 or 08:00 UTC with the season. The
/// later one is waited for: a try before it would only be refused. The delay that Google itself
/// names is that of the quota per minute, so it is no help.
pub(crate) fn until_daily_renewal(now: Timestamp) -> Span {
    let day = Span::from_hours(24).millis();
    let renewal = Span::from_hours(8).millis();
    let since = now.millis().saturating_sub(renewal).rem_euclid(day);
    rounded_up(Span::from_millis(day.saturating_sub(since)))
}

fn rounded_up(span: Span) -> Span {
    let seconds = i64::try_from(span.seconds_up()).unwrap_or(i64::MAX);
    Span::from_seconds(seconds).min(RETRY_AFTER_MAX)
}

/// Reads the `58.82s`, `899.3ms` or `1h2m3s` of "Please retry in 58.82s."
fn in_message(message: &str) -> Option<i64> {
    let (_, rest) = message.split_once("Please retry in ")?;
    let text = rest.split_whitespace().next()?;
    milliseconds(text.trim_end_matches(['.', ',']), &UNITS)
}

/// Reads numbers with units, each unit once and in the order of `units`; milliseconds, rounded up.
fn milliseconds(text: &str, units: &[(&str, i64)]) -> Option<i64> {
    let mut rest = text;
    let mut units = units;
    let mut total = 0_i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at_checked(end)?;
        let end = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end)?;
        let at = units.iter().position(|(name, _)| *name == unit)?;
        let (_, scale) = *units.get(at)?;
        units = units.get(at.saturating_add(1)..)?;
        total = total.saturating_add(scaled_up(number, scale)?);
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// `number` times `scale`, rounded up. The number has digits and at most one point, with digits
/// on both sides.
fn scaled_up(number: &str, scale: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let plain =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(fraction) {
        return None;
    }
    let whole = whole.parse::<i64>().unwrap_or(i64::MAX);
    // Nine digits hold a nanosecond; what is finer only says whether to round up.
    let (nanos, finer) = fraction.split_at_checked(9).unwrap_or((fraction, ""));
    let digits = i64::try_from(nanos.len()).ok()?;
    let power = (0..9_i64.saturating_sub(digits)).fold(1_i64, |power, _| power.saturating_mul(10));
    let nanos = nanos.parse::<i64>().ok()?.saturating_mul(power);
    let nanos = nanos.saturating_add(i64::from(finer.bytes().any(|byte| byte != b'0')));
    let part = nanos.saturating_mul(scale).saturating_add(999_999_999) / 1_000_000_000;
    Some(whole.saturating_mul(scale).saturating_add(part))
}

/// Milliseconds of the units in Google's messages, largest first.
const UNITS: [(&str, i64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn error(message: &str, delay: &str) -> GoogleError {
        let info =
            json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay});
        let body = json!({"error": {"code": 429, "message": message, "details": [info]}});
        GoogleError::read(&body).unwrap()
    }

    fn seconds(headers: &[(&str, &str)], message: &str, delay: &str) -> Option<u64> {
        let headers: Vec<_> = headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect();
        asked_for(&headers, Some(&error(message, delay)), Timestamp::default())
            .map(Span::seconds_up)
    }

    #[test]
    fn the_delay_of_retry_info_is_rounded_up() {
        assert_eq!(seconds(&[], "", "53.016342224s"), Some(54));
        assert_eq!(seconds(&[], "", "58s"), Some(58));
        assert_eq!(seconds(&[], "", "0.0000000001s"), Some(1));
        assert_eq!(seconds(&[], "", "0s"), Some(0));
    }

    #[test]
    fn the_delay_in_the_message_is_read_in_every_unit() {
        assert_eq!(seconds(&[], "Quota. Please retry in 58.82s.", ""), Some(59));
        assert_eq!(seconds(&[], "Please retry in 899.32ms.", ""), Some(1));
        assert_eq!(
            seconds(&[], "Please retry in 1h2m3.5s, or upgrade.", ""),
            Some(3_724)
        );
    }

    #[test]
    fn the_longest_delay_counts_and_is_capped_at_a_day() {
        assert_eq!(
            seconds(&[("retry-after", "7")], "Please retry in 9s.", "8s"),
            Some(9)
        );
        assert_eq!(
            seconds(&[("retry-after", "99999999999999999999")], "", ""),
            Some(86_400)
        );
        assert_eq!(seconds(&[], "", "99999999999999999999s"), Some(86_400));
    }

    #[test]
    fn what_is_not_a_delay_is_none() {
        let no_durations = [
            "", "s", "5", "-5s", "+5s", "5 s", "5.s", ".5s", "1.2.3s", "5S", "1e3s", "５s", "5s5h",
        ];
        for text in no_durations {
            assert_eq!(
                seconds(&[], &format!("Please retry in {text}"), text),
                None,
                "{text}"
            );
        }
        for text in ["", "1.5", "-1", "+1", "1s", "soon"] {
            assert_eq!(seconds(&[("retry-after", text)], "", ""), None, "{text}");
        }
    }

    #[test]
    fn a_daily_quota_is_renewed_at_eight_utc() {
        let wait = |text| until_daily_renewal(Timestamp::parse_rfc3339(text).unwrap()).seconds_up();
        assert_eq!(wait("2026-11-30T07:59:59.5Z"), 1);
        assert_eq!(wait("2026-11-30T08:00:00Z"), 86_400);
        assert_eq!(wait("2026-11-30T20:00:00Z"), 43_200);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in ".*", now: i64) {
            let _ = seconds(&[("retry-after", &text)], &format!("Please retry in {text}"), &text);
            prop_assert!(until_daily_renewal(Timestamp::from_millis(now)) <= RETRY_AFTER_MAX);
        }
    }
}
