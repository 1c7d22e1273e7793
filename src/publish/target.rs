//! Targets: where in a destination a text goes, filled in once and checked before anything is paid.

use super::excerpt::cut;
use crate::time::Timestamp;

/// What a target's placeholders stand for.
#[derive(Clone, Copy, Debug)]
pub struct Placeholders<'a> {
    /// `{account}`
    pub account: &'a str,
    /// `{site}`
    pub site: &'a str,
    /// `{pipeline}`
    pub pipeline: &'a str,
    /// `{id}`: the generation's id.
    pub generation_id: &'a str,
    /// `{topic}`, made safe for a path.
    pub topic: Option<&'a str>,
    /// `{date}`: the UTC date of this moment.
    pub at: Timestamp,
}

/// Fills in a target's placeholders, or says what is wrong with it.
///
/// ```
/// use oncepress::publish::target::{Placeholders, expand};
/// use oncepress::time::Timestamp;
/// let values = Placeholders {
///     account: "default", site: "blog", pipeline: "daily", generation_id: "gen_1",
///     topic: Some("../犬 & 猫"), at: Timestamp::from_millis(0),
/// };
/// assert_eq!(expand("{site}/{date}-{topic}.md", &values).unwrap(), "blog/1970-01-01-犬-猫.md");
/// assert!(expand("../{id}", &values).is_err());
/// ```
pub fn expand(pattern: &str, values: &Placeholders<'_>) -> Result<String, &'static str> {
    let mut target = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, tail) = after.split_once('}').ok_or(UNKNOWN_PLACEHOLDER)?;
        target.push_str(before);
        match name {
            "account" => target.push_str(values.account),
            "site" => target.push_str(values.site),
            "pipeline" => target.push_str(values.pipeline),
            "date" => target.push_str(&values.at.to_date_string()),
            "id" => target.push_str(values.generation_id),
            "topic" => target.push_str(&path_safe(values.topic.unwrap_or_default())),
            _ => return Err(UNKNOWN_PLACEHOLDER),
        }
        rest = tail;
    }
    target.push_str(rest);
    if rest.contains('}') {
        return Err(UNKNOWN_PLACEHOLDER);
    }
    check(&target)?;
    Ok(target)
}

/// Checks a target as written in the configuration: its placeholders and everything around them.
pub fn check_pattern(pattern: &str) -> Result<(), &'static str> {
    let values = Placeholders {
        account: "a",
        site: "s",
        pipeline: "p",
        generation_id: "gen_0",
        topic: None,
        at: Timestamp::from_millis(0),
    };
    expand(pattern, &values).map(|_| ())
}

/// Checks a target whose placeholders are filled in: a relative path that leads nowhere else.
///
/// ```
/// use oncepress::publish::target::check;
/// assert!(check("blog/2026-11-30/犬と猫.md").is_ok());
/// assert!(check("blog/../secrets.md").is_err());
/// ```
pub fn check(target: &str) -> Result<(), &'static str> {
    if target.is_empty() || target.len() > TARGET_MAX_BYTES {
        return Err("the target must have 1 to 900 bytes");
    }
    if !is_path(target) {
        return Err(
            "the target must be a relative path without empty, `.` or `..` parts, `\\`, \
             invisible characters or outer white space",
        );
    }
    Ok(())
}

/// A relative path with nothing in it that could lead elsewhere or hide.
pub(crate) fn is_path(text: &str) -> bool {
    let visible = text
        .chars()
        .all(|c| !c.is_control() && c != '\\' && !is_invisible(c));
    let whole = text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    visible && whole && text.trim() == text
}

/// Marks that turn the reading direction or take no room: they make two names look like one.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A topic as one part of a path: letters and digits of any script, `-` for everything between.
fn path_safe(topic: &str) -> String {
    let mut safe = String::new();
    for c in topic.chars().take(TOPIC_READ_MAX_CHARS) {
        // Combining marks are kept, so that decomposed letters stay whole.
        if c.is_alphanumeric() || matches!(c, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}') {
            safe.push(c);
        } else if !safe.is_empty() && !safe.ends_with('-') {
            safe.push('-');
        }
    }
    let safe = cut(&safe, TOPIC_MAX_BYTES).trim_matches('-');
    if safe.is_empty() {
        "untitled".to_owned()
    } else {
        safe.to_owned()
    }
}

const UNKNOWN_PLACEHOLDER: &str =
    "may use {account} {site} {pipeline} {date} {id} {topic} and no other braces";
/// R2's limit for a whole name is 1,024 bytes, and a prefix needs some of them.
const TARGET_MAX_BYTES: usize = 900;

/// A part of a path may have 255 bytes on most file systems; a date and an ending need room.
const TOPIC_MAX_BYTES: usize = 200;
const TOPIC_READ_MAX_CHARS: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn values(topic: Option<&str>) -> Placeholders<'_> {
        Placeholders {
            account: "default",
            site: "blog",
            pipeline: "daily",
            generation_id: "gen_00",
            topic,
            at: Timestamp::parse_rfc3339("2026-11-30T23:59:59Z").unwrap(),
        }
    }

    #[test]
    fn every_placeholder_is_filled_in() {
        let all = "{account}/{site}/{pipeline}/{date}/{id}/{topic}";
        let expanded = expand(all, &values(Some(" C++ / 日本語 ")));
        assert_eq!(
            expanded.unwrap(),
            "default/blog/daily/2026-11-30/gen_00/C-日本語"
        );
        assert_eq!(expand("{topic}", &values(None)).unwrap(), "untitled");
        assert_eq!(expand("{topic}", &values(Some("///"))).unwrap(), "untitled");
    }

    #[test]
    fn what_leads_elsewhere_or_hides_is_refused() {
        for target in [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "../a",
            "a/.",
            "a\\b",
            "a\nb",
            "a\u{0}b",
            " a",
            "a ",
            "a\u{202e}b",
            "a\u{200b}",
            "\u{feff}a",
            "a\u{7f}",
        ] {
            assert!(check(target).is_err(), "{target:?} passed");
        }
        assert!(check(&"a".repeat(901)).is_err());
        assert!(check(&"a".repeat(900)).is_ok());
        assert!(check("a b/.hidden/...").is_ok());
    }
}
