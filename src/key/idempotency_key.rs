//! The `Idempotency-Key` header: a purchase that the caller names.

use std::fmt;

use super::limits::OPERATION_KEY_MAX_CHARS;

/// A caller's key: 1 to 128 characters, `[A-Za-z0-9][A-Za-z0-9._:-]*`.
///
/// The header holds it bare, as most clients send it, or as a string in double quotes, as
/// structured fields (RFC 9651) want it: both are the same key.
///
/// ```
/// use oncepress::key::idempotency_key::{KeyFault, OperationKey};
/// let bare = OperationKey::parse(&["job-17:2"]).unwrap().unwrap();
/// assert_eq!(OperationKey::parse(&["\"job-17:2\""]), Ok(Some(bare)));
/// assert_eq!(OperationKey::parse(&["a", "a"]), Err(KeyFault::Repeated));
/// assert_eq!(OperationKey::parse(&[]), Ok(None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationKey(String);

impl OperationKey {
    /// Reads all values of the header; none at all is no key.
    pub fn parse(values: &[&str]) -> Result<Option<Self>, KeyFault> {
        match values {
            [] => Ok(None),
            [value] => one(value.trim_matches([' ', '\t'])).map(Some),
            _ => Err(KeyFault::Repeated),
        }
    }

    /// The key, without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a header is no operation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The header was sent more than once.
    #[error("Idempotency-Key was sent more than once")]
    Repeated,
    /// There is nothing in it.
    #[error("Idempotency-Key is empty")]
    Empty,
    /// It is too long.
    #[error("Idempotency-Key has more than 128 characters")]
    TooLong,
    /// It is a list (perhaps of two headers that something on the way has joined).
    #[error("Idempotency-Key is a list; it must be one key")]
    List,
    /// Parameters follow it.
    #[error("Idempotency-Key has parameters; it must be a key alone")]
    Parameters,
    /// A quote is missing, or there are quotes or escapes inside.
    #[error("Idempotency-Key must be bare, or have one double quote on either side")]
    Quotes,
    /// It starts with something else than a letter or a digit.
    #[error("Idempotency-Key must start with an ASCII letter or digit")]
    Start,
    /// There are other characters in it than a key has.
    #[error("Idempotency-Key may hold ASCII letters, digits, '.', '_', ':' and '-' only")]
    Character,
}

/// A trimmed value of the header.
fn one(value: &str) -> Result<OperationKey, KeyFault> {
    let Some(quoted) = value.strip_prefix('"') else {
        return key(value);
    };
    let (inside, after) = quoted.split_once('"').ok_or(KeyFault::Quotes)?;
    match after.trim_start_matches([' ', '\t']).chars().next() {
        None => key(inside),
        Some(';') => Err(KeyFault::Parameters),
        Some(',') => Err(KeyFault::List),
        Some(_) => Err(KeyFault::Quotes),
    }
}

fn key(text: &str) -> Result<OperationKey, KeyFault> {
    let Some(first) = text.chars().next() else {
        return Err(KeyFault::Empty);
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    match text.chars().find(|c| !plain(*c)) {
        Some('"' | '\\') => Err(KeyFault::Quotes),
        Some(';') => Err(KeyFault::Parameters),
        Some(',') => Err(KeyFault::List),
        Some(_) => Err(KeyFault::Character),
        None if !first.is_ascii_alphanumeric() => Err(KeyFault::Start),
        None if text.len() > OPERATION_KEY_MAX_CHARS => Err(KeyFault::TooLong),
        None => Ok(OperationKey(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refusal(value: &str) -> KeyFault {
        OperationKey::parse(&[value]).unwrap_err()
    }

    proptest! {
        #[test]
        fn a_key_is_the_same_bare_and_quoted(text in "[A-Za-z0-9][A-Za-z0-9._:-]{0,127}") {
            for value in [text.clone(), format!("\"{text}\""), format!(" \t\"{text}\" ")] {
                let key = OperationKey::parse(&[&value]).unwrap().unwrap();
                prop_assert_eq!(key.as_str(), &text);
            }
        }

        #[test]
        fn whatever_is_taken_is_a_key(value: String) {
            if let Ok(Some(key)) = OperationKey::parse(&[&value]) {
                let text = key.as_str();
                prop_assert!((1..=128).contains(&text.len()));
                prop_assert!(value.trim_matches([' ', '\t', '"']) == text);
                prop_assert!(!text.contains(|c: char| !c.is_ascii_alphanumeric() && !"._:-".contains(c)));
                prop_assert!(text.starts_with(|c: char| c.is_ascii_alphanumeric()));
            }
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_reason() {
        for (value, fault) in [
            ("", KeyFault::Empty),
            ("  ", KeyFault::Empty),
            ("\"\"", KeyFault::Empty),
            ("a, b", KeyFault::List),
            ("a,a", KeyFault::List),
            ("\"a\", \"b\"", KeyFault::List),
            ("a;p=1", KeyFault::Parameters),
            ("\"a\";p", KeyFault::Parameters),
            ("\"a\" ; p", KeyFault::Parameters),
            ("\"a", KeyFault::Quotes),
            ("a\"", KeyFault::Quotes),
            ("\"", KeyFault::Quotes),
            ("\"a\"b\"", KeyFault::Quotes),
            ("\"a\"\"b\"", KeyFault::Quotes),
            ("\"a\\\"b\"", KeyFault::Quotes),
            ("\"a\\\\b\"", KeyFault::Quotes),
            ("a\\b", KeyFault::Quotes),
            (".a", KeyFault::Start),
            ("-a", KeyFault::Start),
            (":YQ:", KeyFault::Start),
            ("\"_a\"", KeyFault::Start),
            ("a b", KeyFault::Character),
            ("\" a\"", KeyFault::Character),
            ("a/b", KeyFault::Character),
            ("?1", KeyFault::Character),
            ("'a'", KeyFault::Character),
            ("é", KeyFault::Character),
            ("キー", KeyFault::Character),
            ("a\u{0}", KeyFault::Character),
            ("a\n", KeyFault::Character),
            ("\u{a0}a", KeyFault::Character),
        ] {
            assert_eq!(refusal(value), fault, "{value:?}");
        }
    }

    #[test]
    fn a_key_ends_at_128_characters() {
        let longest = "k".repeat(128);
        assert!(OperationKey::parse(&[&longest]).is_ok());
        assert!(OperationKey::parse(&[&format!("\"{longest}\"")]).is_ok());
        assert_eq!(refusal(&format!("{longest}k")), KeyFault::TooLong);
        assert_eq!(refusal(&format!("\"{longest}k\"")), KeyFault::TooLong);
    }

    #[test]
    fn the_header_twice_is_refused_even_if_both_are_the_same() {
        for values in [&["a", "b"][..], &["a", "a"], &["a", ""], &["a", "b", "c"]] {
            assert_eq!(OperationKey::parse(values), Err(KeyFault::Repeated));
        }
    }
}
