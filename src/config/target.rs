//! Where in a destination an output goes: text with places for what is known at the claim.

use crate::time::Timestamp;

/// A target with its places still open.
///
/// ```
/// use oncepress::config::{Target, TargetValues};
/// let target = Target::parse("{site}/{id}.md").unwrap();
/// let values = TargetValues { site: "demo", id: "gen_1", ..TargetValues::default() };
/// assert_eq!(target.fill(&values), "demo/gen_1.md");
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
    /// `{date}`: the day (UTC) of the request's anchor.
    pub anchor: Timestamp,
    /// `{id}`: the generation's.
    pub id: &'a str,
    /// `{topic}`, made safe as a part of a path; `untitled` where there is none.
    pub topic: Option<&'a str>,
}

impl Target {
    /// Reads a target; says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > TARGET_MAX_BYTES {
            return Err(format!("must have 1 to {TARGET_MAX_BYTES} bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err("must have no control characters".to_owned());
        }
        Ok(Self {
            text: text.to_owned(),
            parts: parts(text)?,
        })
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
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = rest.as_str().chars().next();
        match (c, next) {
            ('{', Some('{')) | ('}', Some('}')) => {
                rest.next();
                plain.push(c);
            }
            ('{', _) => {
                let (name, after) = rest.as_str().split_once('}').ok_or(UNCLOSED)?;
                parts.push(Part::Text(std::mem::take(&mut plain)));
                parts.push(place(name)?);
                rest = after.chars();
            }
            ('}', _) => return Err(UNCLOSED.to_owned()),
            _ => plain.push(c),
        }
    }
    parts.push(Part::Text(plain));
    parts.retain(|part| *part != Part::Text(String::new()));
    Ok(parts)
}

fn place(name: &str) -> Result<Part, String> {
    match name {
        "account" => Ok(Part::Account),
        "site" => Ok(Part::Site),
        "pipeline" => Ok(Part::Pipeline),
        "date" => Ok(Part::Date),
        "id" => Ok(Part::Id),
        "topic" => Ok(Part::Topic),
        _ => Err("may use {account} {site} {pipeline} {date} {id} {topic} and no other".to_owned()),
    }
}

/// A topic as one part of a path: letters and digits of any script, all else one hyphen.
fn path_part(topic: &str) -> String {
    let mut part = String::new();
    for c in topic.chars().take(TOPIC_PART_MAX_CHARS) {
        if c.is_alphanumeric() || c == '_' {
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

const UNCLOSED: &str = "has a brace without its partner; `{{` and `}}` stand for braces";
/// An object's key in R2 has at most 1,024 bytes, and a prefix needs some of them.
pub const TARGET_MAX_BYTES: usize = 512;
/// A file's name has at most 255 bytes on most systems; Japanese takes three bytes a character.
const TOPIC_PART_MAX_CHARS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled_and_doubled_braces_are_text() {
        let target = Target::parse("{account}/{site}-{pipeline}/{date}/{{{id}}}-{topic}").unwrap();
        let values = TargetValues {
            account: "acme",
            site: "blog",
            pipeline: "daily",
            anchor: Timestamp::from_millis(0),
            id: "gen_1",
            topic: Some("../Größe & 東京 2026!"),
        };
        assert_eq!(
            target.fill(&values),
            "acme/blog-daily/1970-01-01/{gen_1}-Größe-東京-2026"
        );
    }

    #[test]
    fn a_topic_never_adds_a_path_segment() {
        let target = Target::parse("a/{topic}").unwrap();
        for topic in ["", "..", "///", "\u{0}\n", "．．"] {
            let values = TargetValues {
                topic: Some(topic),
                ..TargetValues::default()
            };
            assert_eq!(target.fill(&values), "a/untitled", "{topic:?}");
        }
    }

    #[test]
    fn an_unknown_place_or_a_lone_brace_is_refused() {
        for text in [
            "",
            "{slug}",
            "{id",
            "id}",
            "{}",
            "{ id }",
            "a\nb",
            &"a".repeat(513),
        ] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
