//! Whose a request is: account, site and pipeline.

use std::fmt;

use super::limits::NAME_MAX_CHARS;

/// The name of an account, a site or a pipeline.
///
/// ```
/// use oncepress::key::scope::Name;
/// assert_eq!(Name::parse("blog.example-1").unwrap().as_str(), "blog.example-1");
/// assert_eq!(Name::parse("Blog"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The rule, for messages.
    pub const RULE: &str =
        "1 to 64 characters of a-z, 0-9, '.', '_' and '-', starting with a letter or a digit";

    /// Reads a name by [`Name::RULE`]; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() <= NAME_MAX_CHARS;
        let starts = text.starts_with(|first: char| is_letter_or_digit(first));
        let plain = text
            .chars()
            .all(|c| is_letter_or_digit(c) || matches!(c, '.' | '_' | '-'));
        (fits && starts && plain).then(|| Self(text.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a derived key holds: one pipeline of one site of one account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Whose it is.
    pub account: Name,
    /// The site that is published to.
    pub site: Name,
    /// The kind of text that is made.
    pub pipeline: Name,
}

fn is_letter_or_digit(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_1_to_64_plain_characters_and_starts_with_a_letter_or_digit() {
        for text in ["a", "0", "a.b_c-d", "9-", &"x".repeat(64)] {
            assert_eq!(Name::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            ".a",
            "_a",
            "-a",
            "A",
            "a b",
            "a/b",
            "a:b",
            "é",
            "１",
            &"x".repeat(65),
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
        assert!(Name::RULE.contains(&NAME_MAX_CHARS.to_string()));
    }
}
