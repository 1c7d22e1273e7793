//! JSON as it was sent: exact numbers, members in order, nothing merged or lost.
//!
//! `serde_json` takes numbers through `f64` and the last of two members with one name. A request
//! that is hashed and paid for allows neither, so requests are read by this parser (RFC 8259).
//!
//! ```
//! use oncepress::key::json::{Json, JsonFault};
//! let json = Json::parse(br#"{ "seed": 9007199254740993, "n": [1.0] }"#).unwrap();
//! assert_eq!(json.write(), r#"{"seed":9007199254740993,"n":[1.0]}"#);
//! let error = Json::parse(br#"{"a": {"b": 1, "\u0062": 2}}"#).unwrap_err();
//! assert_eq!(error.kind, JsonFault::DuplicateName);
//! assert_eq!(error.to_string(), "a member name occurs twice at /a/b (byte 15)");
//! ```

use super::decimal::Decimal;
use super::parse;

/// A JSON value. Equality is that of the spelling: member order and `1` versus `1.0` count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Self>),
    /// An object: its members in the order they were sent.
    Object(Vec<(String, Self)>),
}

impl Json {
    /// Parses a whole document.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        parse::document(bytes)
    }

    /// The value as compact JSON: numbers as they were spelled, strings escaped only where JSON
    /// asks for it (so that NUL is `\u0000`).
    pub fn write(&self) -> String {
        let mut out = String::new();
        self.write_to(&mut out);
        out
    }

    /// The member of this name, if this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?
            .iter()
            .find(|(member, _)| member == name)
            .map(|(_, value)| value)
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    /// The number, if this is one.
    pub fn as_number(&self) -> Option<&Number> {
        if let Self::Number(number) = self {
            Some(number)
        } else {
            None
        }
    }

    /// The elements, if this is an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(elements) = self {
            Some(elements)
        } else {
            None
        }
    }

    /// The members in their order, if this is an object.
    pub fn as_object(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(members) = self {
            Some(members)
        } else {
            None
        }
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    fn write_to(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(number) => out.push_str(number.as_str()),
            Self::String(text) => write_string(text, out),
            Self::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    separate(index, out);
                    element.write_to(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    separate(index, out);
                    write_string(name, out);
                    out.push(':');
                    value.write_to(out);
                }
                out.push('}');
            }
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Json {
    fn from(value: i64) -> Self {
        Self::Number(value.into())
    }
}

/// A number in the spelling it was sent in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(Box<str>);

impl Number {
    /// Reads a number in JSON's grammar; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        Decimal::is_number(text).then(|| Self(text.into()))
    }

    /// The spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value as an integer, if it is one (`3.0` and `30e-1` are) and fits.
    pub fn to_i64(&self) -> Option<i64> {
        Decimal::parse(&self.0)?.to_i64()
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(value.to_string().into())
    }
}

/// Why a text is not JSON that we take, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{} (byte {offset})", at(.pointer))]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonFault,
    /// Which value it is in; cut to an enclosing value where the pointer would be very long.
    pub pointer: String,
    /// Where in the text it is, in bytes.
    pub offset: usize,
}

/// What can be wrong with a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// The text ends inside a value, or holds none.
    #[error("the text ends too early")]
    UnexpectedEnd,
    /// Something else than JSON's grammar wants here.
    #[error("not JSON")]
    UnexpectedCharacter,
    /// Text follows the document.
    #[error("text follows the JSON document")]
    TrailingText,
    /// Bytes that are not UTF-8.
    #[error("not UTF-8")]
    InvalidUtf8,
    /// A byte order mark leads the document.
    #[error("a byte order mark leads the document")]
    ByteOrderMark,
    /// A control character stands in a string without an escape.
    #[error("a control character stands in a string")]
    ControlCharacter,
    /// A backslash is followed by nothing that JSON knows.
    #[error("unknown escape in a string")]
    InvalidEscape,
    /// Half of a surrogate pair: no character at all.
    #[error("a lone surrogate escape is not a character")]
    LoneSurrogate,
    /// A number outside JSON's grammar.
    #[error("not a number as JSON spells it")]
    InvalidNumber,
    /// A number longer than [`NUMBER_MAX_CHARS`](super::limits::NUMBER_MAX_CHARS).
    #[error("a number of more than 1000 characters")]
    NumberTooLong,
    /// Two members of one object have the same name (after unescaping).
    #[error("a member name occurs twice")]
    DuplicateName,
    /// More than [`JSON_DEPTH_MAX`](crate::limits::JSON_DEPTH_MAX) arrays and objects in each other.
    #[error("nested more than 128 deep")]
    TooDeep,
    /// More than [`JSON_VALUES_MAX`](super::limits::JSON_VALUES_MAX) values.
    #[error("more than 250000 values")]
    TooManyValues,
}

fn at(pointer: &str) -> String {
    if pointer.is_empty() {
        String::new()
    } else {
        format!(" at {pointer}")
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    // Everything between two escapes is copied in one piece.
    while let Some(end) = rest.bytes().position(needs_escape) {
        let (plain, from) = rest.split_at_checked(end).unwrap_or((rest, ""));
        out.push_str(plain);
        let mut chars = from.chars();
        if let Some(special) = chars.next() {
            write_escape(special, out);
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

fn needs_escape(byte: u8) -> bool {
    matches!(byte, 0..=0x1f | b'"' | b'\\')
}

/// Escapes a quote, a backslash or a control character.
fn write_escape(special: char, out: &mut String) {
    match special {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        other => {
            out.push_str("\\u00");
            out.extend([u32::from(other) >> 4, u32::from(other) & 0xf].map(hex_digit));
        }
    }
}

fn hex_digit(value: u32) -> char {
    char::from_digit(value, 16).unwrap_or('0')
}
