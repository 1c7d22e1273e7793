//! The canonical form: one byte string for all spellings of one value.
//!
//! Members are sorted by name, numbers are exact decimals, strings stay as they are (no Unicode
//! normalisation), array order is kept, and `null` is not absence.
//!
//! Every value is written as a tag, its length, and its content:
//!
//! | value | bytes |
//! |---|---|
//! | `null`, `true`, `false` | `n` `t` `f` |
//! | number | `d` length `:` canonical decimal |
//! | string up to 128 bytes, member name | `s` length `:` UTF-8 |
//! | longer string | `h` length `:` its SHA-256, 32 bytes |
//! | array | `a` count `:` elements |
//! | object | `o` count `:` name, value, name, value, … |
//!
//! From left to right each tag and length says where its value ends, so no two different values
//! are written alike (but for two strings with one SHA-256, which is what all identity rests on).

use sha2::{Digest as _, Sha256};

use super::decimal::Decimal;
use super::fields::Kind;
use super::json::Json;
use super::limits::TEXT_IN_PLACE_MAX_BYTES;
use super::pointer::Trail;
use crate::sorted::sort_unstable_by;

/// A JSON value in canonical form, borrowed from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Canonical<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number: its canonical decimal.
    Number(String),
    /// A string that is hashed in place.
    Text(&'a str),
    /// A longer string: its length in bytes and its SHA-256.
    LongText(usize, [u8; 32]),
    /// An array.
    Array(Vec<Self>),
    /// An object, sorted by name.
    Object(Vec<(&'a str, Self)>),
}

/// A member name occurs twice in an object, perhaps in two spellings of one field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the same member occurs twice at {pointer}")]
pub struct RepeatedMember {
    /// The member.
    pub pointer: String,
}

/// Where canonical bytes go.
pub trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Sha256 {
    fn put(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<'a> Canonical<'a> {
    /// The canonical form of a value as it stands.
    ///
    /// ```
    /// use oncepress::key::{canonical::Canonical, json::Json};
    /// let bytes = |text: &[u8]| {
    ///     let json = Json::parse(text).unwrap();
    ///     let mut bytes = Vec::new();
    ///     Canonical::of(&json).unwrap().write(&mut bytes);
    ///     String::from_utf8(bytes).unwrap()
    /// };
    /// assert_eq!(bytes(br#"{"b":[1.0,null],"a":"x"}"#), "o2:s1:as1:xs1:ba2:d1:1n");
    /// ```
    pub fn of(json: &'a Json) -> Result<Self, RepeatedMember> {
        Self::of_kind(json, Kind::Plain)
    }

    /// The canonical form of a string.
    pub fn text(text: &'a str) -> Self {
        if text.len() <= TEXT_IN_PLACE_MAX_BYTES {
            Self::Text(text)
        } else {
            Self::LongText(text.len(), Sha256::digest(text).into())
        }
    }

    /// The canonical form of a value that Google gives names to, in either spelling.
    pub(super) fn of_kind(json: &'a Json, kind: Kind) -> Result<Self, RepeatedMember> {
        build(json, kind).map_err(|trail| RepeatedMember {
            pointer: trail.pointer(),
        })
    }

    /// Writes the canonical bytes.
    pub fn write(&self, sink: &mut impl Sink) {
        match self {
            Self::Null => sink.put(b"n"),
            Self::Bool(true) => sink.put(b"t"),
            Self::Bool(false) => sink.put(b"f"),
            Self::Number(decimal) => write_bytes(b'd', decimal.len(), decimal.as_bytes(), sink),
            Self::Text(text) => write_bytes(b's', text.len(), text.as_bytes(), sink),
            Self::LongText(length, digest) => write_bytes(b'h', *length, digest, sink),
            Self::Array(elements) => {
                write_bytes(b'a', elements.len(), b"", sink);
                for element in elements {
                    element.write(sink);
                }
            }
            Self::Object(members) => {
                write_bytes(b'o', members.len(), b"", sink);
                for (name, value) in members {
                    write_bytes(b's', name.len(), name.as_bytes(), sink);
                    value.write(sink);
                }
            }
        }
    }

    /// How many values it holds: none in a scalar.
    pub(super) fn children(&self) -> usize {
        match self {
            Self::Array(elements) => elements.len(),
            Self::Object(members) => members.len(),
            _ => 0,
        }
    }

    /// The member of this name.
    pub(super) fn member(&mut self, name: &str) -> Option<&mut Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let at = members
            .binary_search_by(|(member, _)| (*member).cmp(name))
            .ok()?;
        members.get_mut(at).map(|(_, value)| value)
    }

    /// Takes the member of this name away.
    pub(super) fn remove(&mut self, name: &str) {
        if let Self::Object(members) = self {
            members.retain(|(member, _)| *member != name);
        }
    }
}

/// The trail of an error leads from the inside out.
fn build(json: &Json, kind: Kind) -> Result<Canonical<'_>, Trail> {
    Ok(match json {
        Json::Null => Canonical::Null,
        Json::Bool(value) => Canonical::Bool(*value),
        Json::Number(number) => {
            let spelled = number.as_str();
            let exact = Decimal::parse(spelled).map(|decimal| decimal.to_string());
            Canonical::Number(exact.unwrap_or_else(|| spelled.to_owned()))
        }
        Json::String(text) => Canonical::text(text),
        Json::Array(elements) => {
            let inside = |(index, element): (usize, _)| {
                build(element, kind).map_err(|trail| trail.inside(&index.to_string()))
            };
            let elements = elements.iter().enumerate().map(inside);
            Canonical::Array(elements.collect::<Result<_, _>>()?)
        }
        Json::Object(members) => Canonical::Object(build_members(members, kind)?),
    })
}

fn build_members(
    members: &[(String, Json)],
    kind: Kind,
) -> Result<Vec<(&str, Canonical<'_>)>, Trail> {
    let mut sorted = Vec::with_capacity(members.len());
    for (sent, value) in members {
        let (name, kind) = kind.member(sent);
        sorted.push((
            name,
            build(value, kind).map_err(|trail| trail.inside(sent))?,
        ));
    }
    sort_unstable_by(&mut sorted, |(left, _), (right, _)| left.cmp(right));
    let mut neighbours = sorted.iter().zip(sorted.iter().skip(1));
    match neighbours.find(|(left, right)| left.0 == right.0) {
        Some(((name, _), _)) => Err(Trail::default().inside(name)),
        None => Ok(sorted),
    }
}

fn write_bytes(tag: u8, length: usize, bytes: &[u8], sink: &mut impl Sink) {
    sink.put(format!("{}{length}:", char::from(tag)).as_bytes());
    sink.put(bytes);
}

#[cfg(test)]
mod tests;
