//! JSON as Gemini's clients read it: a `\u` escape of half a character is no reason to refuse it.
//!
//! JavaScript and Python accept such a half, and RFC 8259 leaves open what it means. An answer that
//! was paid for must not be lost by it: it reads as U+FFFD here, and is passed on as it came. Two halves
//! in two chunks are not joined: Gemini's texts are UTF-8 before they are JSON, and hold no halves.
//!
//! ```
//! use oncepress::gemini::lenient::parse;
//! assert_eq!(parse(r#"["\ud83c\udf89", "\ud83c"]"#).unwrap(), serde_json::json!(["🎉", "\u{fffd}"]));
//! assert_eq!(parse("[1"), None);
//! ```

use serde_json::Value;

/// Parses a JSON text.
pub fn parse(text: &str) -> Option<Value> {
    let exact = serde_json::from_str(text);
    exact
        .or_else(|_| serde_json::from_str(&whole_characters(text)))
        .ok()
}

/// The same text with U+FFFD in place of each escape that is half a character.
fn whole_characters(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let (taken, whole) = match (half(escape), escape.get(6..).and_then(half)) {
            (Some(Half::First), Some(Half::Second)) => (12, true),
            (Some(_), _) => (6, false),
            // A backslash and what it escapes, which may be a backslash.
            (None, _) => {
                let escaped = escape.chars().nth(1).map_or(0, char::len_utf8);
                (escaped.saturating_add(1), true)
            }
        };
        let (escape, after) = escape.split_at(taken.min(escape.len()));
        mended.push_str(if whole { escape } else { "\\ufffd" });
        rest = after;
    }
    mended.push_str(rest);
    mended
}

/// Which half of a character.
enum Half {
    First,
    Second,
}

/// Which half the escape is that the text begins with, if it is one.
fn half(text: &str) -> Option<Half> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xD800..0xDC00 => Some(Half::First),
        0xDC00..0xE000 => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_are_mended_and_nothing_else_is() {
        for (text, wanted) in [
            (r"\ud83d\ude00", r"\ud83d\ude00"),
            (r"a\ud83d", r"a\ufffd"),
            (r"\ude00b", r"\ufffdb"),
            (r"\ud83d\ud83d\ude00", r"\ufffd\ud83d\ude00"),
            (r"\ud83dA\ude00", r"\ufffdA\ufffd"),
            (r"\\ud83d", r"\\ud83d"),
            (r"\\\ud83d", r"\\\ufffd"),
            (r"\n日\ud8", r"\n日\ud8"),
            ("\\日", "\\日"),
            ("\\", "\\"),
        ] {
            assert_eq!(whole_characters(text), wanted);
        }
    }

    proptest! {
        #[test]
        fn any_list_of_escapes_is_read(units in prop::collection::vec(any::<u16>(), 0..8)) {
            let escapes: Vec<_> = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let read = parse(&format!("\"{}\"", escapes.concat()));
            prop_assert_eq!(read, Some(Value::from(String::from_utf16_lossy(&units))));
        }

        #[test]
        fn any_text_is_taken(text in any::<String>()) {
            let _ = whole_characters(&text);
        }
    }
}
