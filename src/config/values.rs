//! Parsers of single configuration values; each says what is wrong without repeating the value.

use crate::time::Span;

/// A parsed value, or what is wrong with it, for people.
pub(crate) type Parsed<T> = Result<T, String>;

/// One of a few words.
pub(super) fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Parsed<T> {
    let found = choices.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<String> = choices
            .iter()
            .map(|(word, _)| format!("`{word}`"))
            .collect();
        format!("must be {}", words.join(" or "))
    })
}

/// A whole number within a range.
pub(super) fn integer(text: &str, range: std::ops::RangeInclusive<i64>) -> Parsed<i64> {
    let number = text
        .trim()
        .parse::<i64>()
        .ok()
        .filter(|number| range.contains(number));
    number.ok_or_else(|| {
        format!(
            "must be a whole number from {} to {}",
            range.start(),
            range.end()
        )
    })
}

/// The name of an account, site, pipeline, publisher or environment.
pub(crate) fn name(text: &str) -> Parsed<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts_well && text.len() <= 64 && text.chars().all(allowed) {
        return Ok(text.to_owned());
    }
    Err("must be 1 to 64 of `a-z 0-9 . _ -`, starting with a letter or digit".to_owned())
}

/// A model's id, with or without its collection: safe as a part of a URL's path.
pub(super) fn model(text: &str) -> Parsed<String> {
    if is_model(text) {
        return Ok(text.to_owned());
    }
    Err("must be a model's id, such as `gemini-3.8-flash`".to_owned())
}

/// Whether a text is a model's id, so that it is safe as a part of Gemini's path.
pub fn is_model(text: &str) -> bool {
    let id = text
        .strip_prefix("models/")
        .or(text.strip_prefix("tunedModels/"))
        .unwrap_or(text);
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.len() <= 128
        && id.chars().all(allowed)
}

/// The origin and path of an https URL, or of an http URL on the loopback interface, without a
/// slash at its end.
pub(super) fn base_url(text: &str) -> Parsed<String> {
    let url = web_url(text)?;
    if text.contains(['?', '#']) {
        return Err("must have no query and no fragment".to_owned());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// An https URL, or an http URL on the loopback interface.
pub(super) fn web_url(text: &str) -> Parsed<String> {
    let (secure, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (None, Some(rest)) => (false, rest),
        (None, None) => return Err("must be an https URL".to_owned()),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    if text
        .chars()
        .any(|c| c.is_whitespace() || c.is_control() || c == '\\')
    {
        return Err("must have no spaces, control characters or backslashes".to_owned());
    }
    if authority.contains('@') {
        return Err("must have no user name or password".to_owned());
    }
    let host = host_of(authority).ok_or("must name a host, and a port only as a number")?;
    if !secure && !is_loopback(host) {
        return Err("must be https, unless its host is the loopback interface".to_owned());
    }
    Ok(text.to_owned())
}

/// A web origin: scheme, host and port alone.
pub(super) fn origin(text: &str) -> Parsed<String> {
    let url = web_url(text)?;
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    if authority.contains(['/', '?', '#']) || text.chars().any(|c| c.is_ascii_uppercase()) {
        return Err("must be an origin in lower case, such as `https://example.com`".to_owned());
    }
    Ok(url)
}

/// A secret that travels in a header field.
pub(super) fn header_secret(text: &str, characters_min: usize) -> Parsed<String> {
    if text.len() < characters_min {
        return Err(format!("must have {characters_min} characters or more"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be ASCII without spaces".to_owned());
    }
    Ok(text.to_owned())
}

/// A time of day, `HH:MM`, since midnight.
pub(super) fn time_of_day(text: &str) -> Parsed<Span> {
    let part = |text: &str, below: i64| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>()
            .ok()
            .filter(|number| digits && *number < below)
    };
    let parts = text.split_once(':');
    let parts = parts.and_then(|(hours, minutes)| Some((part(hours, 24)?, part(minutes, 60)?)));
    let (hours, minutes) = parts.ok_or("must be a time of day from 00:00 to 23:59")?;
    Ok(Span::from_hours(hours).saturating_add(Span::from_minutes(minutes)))
}

/// A positive decimal in millionths: `149.5` is 149,500,000.
pub(super) fn millionths(text: &str) -> Parsed<i64> {
    let fault = || "must be a decimal above 0 with at most six places, below 1000000000".to_owned();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() > 9 || fraction.len() > 6 {
        return Err(fault());
    }
    let padded = format!("{whole}{fraction:0<6}");
    padded
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(fault)
}

/// An ISO 4217 code.
pub(super) fn currency(text: &str) -> Parsed<String> {
    let valid = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase());
    if valid {
        Ok(text.to_owned())
    } else {
        Err("must be three capitals, such as `JPY`".to_owned())
    }
}

/// The host of `host[:port]`, an IPv6 address still in its brackets.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            let host = authority.get(..inside.len().checked_add(2)?)?;
            (
                host,
                after
                    .strip_prefix(':')
                    .or_else(|| after.is_empty().then_some("0"))?,
            )
        }
        None => authority.split_once(':').unwrap_or((authority, "0")),
    };
    (!host.is_empty() && port.parse::<u16>().is_ok()).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    let v4 = host
        .parse::<std::net::Ipv4Addr>()
        .is_ok_and(|address| address.is_loopback());
    v4 || host == "localhost" || host == "[::1]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_the_loopback_interface_only() {
        for url in [
            "https://a.example/x/",
            "http://localhost:8080",
            "http://127.0.0.1/p",
            "http://[::1]:1",
        ] {
            assert!(base_url(url).is_ok(), "{url}");
        }
        for url in [
            "http://a.example",
            "http://127.0.0.1.example",
            "http://localhost@a.example",
            "ftp://a",
            "https://",
            "https://a:b",
            "https:// a",
            "https://a/?q",
            "http://[::1",
            "a.example",
            "http://localhost:99999",
            "https://a\\@b",
            "http://2130706433",
        ] {
            assert!(base_url(url).is_err(), "{url}");
        }
        assert_eq!(
            base_url("https://a.example/x//"),
            Ok("https://a.example/x".to_owned())
        );
    }

    #[test]
    fn an_origin_has_no_path() {
        assert!(origin("https://a.example:8443").is_ok());
        for text in ["https://a.example/", "https://A.example", "*", "null"] {
            assert!(origin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_keeps_its_six_places() {
        assert_eq!(millionths("149.5"), Ok(149_500_000));
        assert_eq!(millionths("1"), Ok(1_000_000));
        assert_eq!(millionths("0.000001"), Ok(1));
        for text in [
            "0",
            "-1",
            "1e3",
            "",
            ".5",
            "1.",
            "1.0000001",
            "1000000000",
            "１",
        ] {
            assert!(millionths(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_of_day_has_two_digits_each() {
        assert_eq!(time_of_day("08:05"), Ok(Span::from_minutes(485)));
        for text in ["8:05", "24:00", "08:60", "08:05:00", "", "+8:05", "0８:00"] {
            assert!(time_of_day(text).is_err(), "{text}");
        }
    }
}
