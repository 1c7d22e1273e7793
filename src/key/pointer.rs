//! JSON pointers (RFC 6901): how a place in a document is named.

use std::fmt;

use super::limits::POINTER_MAX_BYTES;

/// A parsed JSON pointer.
///
/// ```
/// use oncepress::key::pointer::JsonPointer;
/// let pointer = JsonPointer::parse("/tools/0/a~1b").unwrap();
/// assert_eq!(pointer.tokens(), ["tools", "0", "a/b"]);
/// assert_eq!(pointer.to_string(), "/tools/0/a~1b");
/// assert_eq!(JsonPointer::parse("tools"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer(Vec<String>);

impl JsonPointer {
    /// Reads a pointer: empty (the whole document) or `/`-led tokens, `~` only as `~0` or `~1`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self(Vec::new()));
        }
        text.strip_prefix('/')?
            .split('/')
            .map(unescape)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The tokens from the outside in, unescaped.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for JsonPointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|token| write!(f, "/{}", escape(token)))
    }
}

/// A pointer that grows from the inside out, while an error leaves the parser.
#[derive(Debug, Default)]
pub(super) struct Trail(Vec<String>);

impl Trail {
    /// Adds the token of the next enclosing value. A token too long to be named is not copied.
    fn push(&mut self, token: &str) {
        let fits = token.len() < POINTER_MAX_BYTES;
        self.0.push(if fits {
            escape(token)
        } else {
            "x".repeat(POINTER_MAX_BYTES)
        });
    }

    /// The trail one token further out.
    pub(super) fn inside(mut self, token: &str) -> Self {
        self.push(token);
        self
    }

    /// The pointer, cut to the nearest enclosing value whose pointer is short enough.
    pub(super) fn pointer(&self) -> String {
        let mut pointer = String::new();
        for token in self.0.iter().rev() {
            let length = pointer.len().saturating_add(token.len()).saturating_add(1);
            if length > POINTER_MAX_BYTES {
                break;
            }
            pointer.push('/');
            pointer.push_str(token);
        }
        pointer
    }
}

/// A token as it stands in a pointer.
pub(super) fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

fn unescape(token: &str) -> Option<String> {
    let mut plain = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(next) = chars.next() {
        plain.push(match next {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_stands_only_before_0_or_1() {
        for text in ["/~", "/a~2", "/~~0", "a", " /a"] {
            assert_eq!(JsonPointer::parse(text), None, "{text}");
        }
        assert_eq!(JsonPointer::parse("/~01").unwrap().tokens(), ["~1"]);
        assert_eq!(JsonPointer::parse("").unwrap().tokens(), [""; 0]);
        assert_eq!(JsonPointer::parse("/").unwrap().tokens(), [""]);
    }

    #[test]
    fn a_trail_is_cut_at_the_nearest_value_that_can_be_named() {
        let mut trail = Trail::default();
        trail.push("leaf");
        trail.push(&"n".repeat(POINTER_MAX_BYTES));
        trail.push("a/b");
        assert_eq!(trail.pointer(), "/a~1b");
        trail.push("");
        assert_eq!(trail.pointer(), "//a~1b");
    }
}
