//! Where in a destination an output goes: text with places for what is known at the claim.

use crate::publish::target::check;
use crate::time::Timestamp;

/// A target with its places still open. Whatever fills them, the result is a sound path.
///
/// ```
/// use oncepress::config::{Target, TargetValues};
/// let target = Target::parse("{site}/{topic}.md").unwrap();
/// let values = TargetValues { site: "demo", topic: Some("../犬 & 猫"), ..TargetValues::default() };
/// assert_eq!(target.fill(&values), "demo/犬-猫.md");
/// assert!(Target::parse("../{id}").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    text: String,
    parts: Vec<Part>,
}

/// What the places of a target stand for.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetValues<'a> {
    /// `{account}`.
    pub account: &'a str,
    /// `{site}`.
    pub site: &'a str,
    /// `{pipeline}`.
    pub pipeline: &'a str,
    /// `{date}`: the day (UTC) of this moment.
    pub anchor: Timestamp,
    /// `{id}`: the generation's.
    pub id: &'a str,
    /// `{topic}`, made safe as a part of a path; `untitled` where there is none.
    pub topic: Option<&'a str>,
}

impl Target {
    /// Reads a target; says what is wrong with it. The shortest and the longest values that its
    /// places can have are tried, so that nothing can be wrong with it once it is paid for.
    pub fn parse(text: &str) -> Result<Self, String> {
        let target = Self {
            text: text.to_owned(),
            parts: parts(text)?,
        };
        let (name, topic) = ("n".repeat(64), "t".repeat(TOPIC_MAX_BYTES));
        for (name, topic) in [("n", "t"), (name.as_str(), topic.as_str())] {
            let filled = target.fill(&TargetValues {
                account: name,
                site: name,
                pipeline: name,
                anchor: Timestamp::default(),
                id: "gen_00000000000000000000000000000000",
                topic: Some(topic),
            });
            check(&filled).map_err(|fault| fault.trim_start_matches("the target ").to_owned())?;
        }
        Ok(target)
    }

    /// The target as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The target with its places filled.
    pub fn fill(&self, values: &TargetValues<'_>) -> String {
        let mut filled = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Account => filled.push_str(values.account),
                Part::Site => filled.push_str(values.site),
                Part::Pipeline => filled.push_str(values.pipeline),
                Part::Date => filled.push_str(&values.anchor.to_date_string()),
                Part::Id => filled.push_str(values.id),
                Part::Topic => filled.push_str(&path_part(values.topic.unwrap_or_default())),
            }
        }
        filled
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Account,
    Site,
    Pipeline,
    Date,
    Id,
    Topic,
}

fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, tail) = after.split_once('}').ok_or(PLACES)?;
        parts.push(plain(before)?);
        parts.push(match name {
            "account" => Part::Account,
            "site" => Part::Site,
            "pipeline" => Part::Pipeline,
            "date" => Part::Date,
            "id" => Part::Id,
            "topic" => Part::Topic,
            _ => return Err(PLACES.to_owned()),
        });
        rest = tail;
    }
    parts.push(plain(rest)?);
    Ok(parts)
}

fn plain(text: &str) -> Result<Part, String> {
    if text.contains('}') {
        Err(PLACES.to_owned())
    } else {
        Ok(Part::Text(text.to_owned()))
    }
}

/// A topic as one part of a path: letters and digits of any script, all else one hyphen.
/// Combining marks are kept, so that decomposed letters stay whole.
fn path_part(topic: &str) -> String {
    let mut part = String::new();
    for c in topic.chars() {
        if part.len().saturating_add(c.len_utf8()) > TOPIC_MAX_BYTES {
            break;
        }
        if c.is_alphanumeric() || matches!(c, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}') {
            part.push(c);
        } else if !part.is_empty() && !part.ends_with('-') {
            part.push('-');
        }
    }
    let part = part.trim_end_matches('-');
    if part.is_empty() {
        "untitled".to_owned()
    } else {
        part.to_owned()
    }
}

const PLACES: &str = "may use {account} {site} {pipeline} {date} {id} {topic} and no other braces";
/// A part of a path may have 255 bytes on most file systems; a date and an ending need room.
const TOPIC_MAX_BYTES: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_place_is_filled() {
        let target = Target::parse("{account}/{site}-{pipeline}/{date}/{id}-{topic}").unwrap();
        let values = TargetValues {
            account: "acme",
            site: "blog",
            pipeline: "daily",
            anchor: Timestamp::from_millis(0),
            id: "gen_1",
            topic: Some(" C++ / Gro\u{308}ße & 東京!"),
        };
        let filled = "acme/blog-daily/1970-01-01/gen_1-C-Gro\u{308}ße-東京";
        assert_eq!(target.fill(&values), filled);
    }

    #[test]
    fn a_topic_without_letters_is_untitled() {
        let target = Target::parse("a/{topic}").unwrap();
        for topic in ["", "..", "///", "\u{0}\n", "．．", "\u{202e}"] {
            let values = TargetValues {
                topic: Some(topic),
                ..TargetValues::default()
            };
            assert_eq!(target.fill(&values), "a/untitled", "{topic:?}");
        }
    }

    #[test]
    fn what_can_not_become_a_sound_path_is_refused() {
        let long = "a".repeat(901);
        let grows = "{topic}".repeat(5);
        for text in [
            "",
            "{slug}",
            "{id",
            "id}",
            "{}",
            "{ id }",
            "{{id}}",
            "a\nb",
            "/{id}",
            "../{id}",
            "a//b",
            "{site}/",
            " a",
            long.as_str(),
            grows.as_str(),
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_topic_leaves_its_part_of_the_path(topic in any::<String>()) {
            let target = Target::parse("posts/{topic}.md").unwrap();
            let filled = target.fill(&TargetValues { topic: Some(&topic), ..TargetValues::default() });
            prop_assert_eq!(check(&filled), Ok(()));
            prop_assert_eq!(filled.split('/').count(), 2);
        }
    }
}
