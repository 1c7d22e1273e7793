//! The JSON parser: one pass, linear but for a sort of the names of large objects.

use super::json::{Json, JsonError, JsonFault, Number};
use super::limits::{JSON_VALUES_MAX, NUMBER_MAX_CHARS};
use super::pointer::Trail;
use crate::limits::JSON_DEPTH_MAX;
use crate::sorted::sort_unstable_by;

/// Parses a whole document.
pub(super) fn document(bytes: &[u8]) -> Result<Json, JsonError> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return Err(Stop::new(JsonFault::ByteOrderMark, 0).into_error());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => whole(text).map_err(Stop::into_error),
        Err(error) => Err(not_utf8(bytes, error.valid_up_to())),
    }
}

/// The first fault of a text that is UTF-8 only up to `end`. The part before is parsed, to find
/// the value that the bad byte is in, or a fault that comes earlier.
fn not_utf8(bytes: &[u8], end: usize) -> JsonError {
    let valid = bytes
        .get(..end)
        .and_then(|valid| std::str::from_utf8(valid).ok())
        .unwrap_or("");
    let stop = match whole(valid) {
        Err(stop) if stop.at < end => return stop.into_error(),
        Err(stop) => Stop {
            kind: JsonFault::InvalidUtf8,
            ..stop
        },
        Ok(_) => Stop::new(JsonFault::InvalidUtf8, end),
    };
    stop.into_error()
}

fn whole(text: &str) -> Result<Json, Stop> {
    let mut parser = Parser {
        text,
        at: 0,
        values: 0,
    };
    parser.blank();
    let value = parser.value(0)?;
    parser.blank();
    if parser.at == text.len() {
        Ok(value)
    } else {
        Err(parser.stop(JsonFault::TrailingText))
    }
}

/// A fault on its way out of the parser: each level that it leaves adds its token.
struct Stop {
    kind: JsonFault,
    at: usize,
    trail: Trail,
}

impl Stop {
    fn new(kind: JsonFault, at: usize) -> Self {
        Self {
            kind,
            at,
            trail: Trail::default(),
        }
    }

    fn inside(self, token: &str) -> Self {
        Self {
            trail: self.trail.inside(token),
            ..self
        }
    }

    fn into_error(self) -> JsonError {
        JsonError {
            kind: self.kind,
            pointer: self.trail.pointer(),
            offset: self.at,
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    values: usize,
}

impl<'a> Parser<'a> {
    /// One value inside `depth` arrays and objects. The recursion ends at `JSON_DEPTH_MAX`.
    fn value(&mut self, depth: usize) -> Result<Json, Stop> {
        self.values = self.values.saturating_add(1);
        if self.values > JSON_VALUES_MAX {
            return Err(self.stop(JsonFault::TooManyValues));
        }
        match self.peek() {
            Some(b'{' | b'[') if depth >= JSON_DEPTH_MAX => Err(self.stop(JsonFault::TooDeep)),
            Some(b'{') => self.object(depth.saturating_add(1)),
            Some(b'[') => self.array(depth.saturating_add(1)),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Json::Bool(true)),
            Some(b'f') => self.literal("false", Json::Bool(false)),
            Some(b'n') => self.literal("null", Json::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, Stop> {
        self.step();
        let mut members: Vec<(String, Json)> = Vec::new();
        let mut offsets: Vec<usize> = Vec::new();
        self.blank();
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.blank();
            offsets.push(self.at);
            let name = self.string()?;
            self.blank();
            let value = self
                .expect(b':')
                .and_then(|()| {
                    self.blank();
                    self.value(depth)
                })
                .map_err(|stop| stop.inside(&name))?;
            members.push((name, value));
            self.blank();
            if self.take(b'}') {
                break;
            }
            self.expect(b',')?;
        }
        match repeated(&members) {
            Some((name, index)) => {
                let offset = offsets.get(index).copied().unwrap_or(self.at);
                Err(Stop::new(JsonFault::DuplicateName, offset).inside(name))
            }
            None => Ok(Json::Object(members)),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, Stop> {
        self.step();
        let mut elements = Vec::new();
        self.blank();
        if self.take(b']') {
            return Ok(Json::Array(elements));
        }
        loop {
            self.blank();
            let index = elements.len();
            let element = self
                .value(depth)
                .map_err(|stop| stop.inside(&index.to_string()))?;
            elements.push(element);
            self.blank();
            if self.take(b']') {
                return Ok(Json::Array(elements));
            }
            self.expect(b',')?;
        }
    }

    fn string(&mut self) -> Result<String, Stop> {
        self.expect(b'"')?;
        let run = self.run();
        if self.take(b'"') {
            return Ok(run.to_owned());
        }
        let mut text = run.to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.step();
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.stop(JsonFault::ControlCharacter)),
                None => return Err(self.stop(JsonFault::UnexpectedEnd)),
            }
            text.push_str(self.run());
        }
    }

    /// The characters of a string up to the next one that means something.
    fn run(&mut self) -> &'a str {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let length = rest
            .iter()
            .position(|byte| matches!(byte, 0..=0x1f | b'"' | b'\\'));
        self.at = start.saturating_add(length.unwrap_or(rest.len()));
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// One escape; the cursor is at its backslash, and stays there if it is refused.
    fn escape(&mut self) -> Result<char, Stop> {
        let start = self.at;
        self.step();
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            Some(_) => return Err(Stop::new(JsonFault::InvalidEscape, start)),
            None => return Err(self.stop(JsonFault::UnexpectedEnd)),
        };
        self.step();
        Ok(plain)
    }

    /// `\uXXXX`, or two of them that make up one character; the cursor is at the `u`.
    fn unicode_escape(&mut self, start: usize) -> Result<char, Stop> {
        let first = self.four_hex_digits(start)?;
        if let Some(plain) = char::from_u32(first) {
            return Ok(plain);
        }
        if !self.take(b'\\') || self.peek() != Some(b'u') {
            return Err(self.lone(start));
        }
        let second = self.four_hex_digits(start)?;
        // A low surrogate in front puts the sum beyond the last character.
        let low = second
            .checked_sub(LOW_SURROGATE_FIRST)
            .filter(|low| *low < SURROGATE_SPAN);
        let high = first
            .saturating_sub(HIGH_SURROGATE_FIRST)
            .saturating_mul(SURROGATE_SPAN);
        low.and_then(|low| char::from_u32(high.saturating_add(low).saturating_add(0x1_0000)))
            .ok_or_else(|| Stop::new(JsonFault::LoneSurrogate, start))
    }

    fn lone(&self, start: usize) -> Stop {
        let ended = self.at == self.text.len();
        if ended {
            self.stop(JsonFault::UnexpectedEnd)
        } else {
            Stop::new(JsonFault::LoneSurrogate, start)
        }
    }

    fn four_hex_digits(&mut self, start: usize) -> Result<u32, Stop> {
        let mut value = 0_u32;
        for _ in 0..4 {
            self.step();
            let digit = match self.peek() {
                Some(byte) => char::from(byte).to_digit(16),
                None => return Err(self.stop(JsonFault::UnexpectedEnd)),
            };
            let Some(digit) = digit else {
                return Err(Stop::new(JsonFault::InvalidEscape, start));
            };
            value = value.saturating_mul(16).saturating_add(digit);
        }
        self.step();
        Ok(value)
    }

    fn number(&mut self) -> Result<Json, Stop> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        let other = |byte: &u8| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().position(other).unwrap_or(rest.len());
        if length > NUMBER_MAX_CHARS {
            return Err(self.stop(JsonFault::NumberTooLong));
        }
        self.at = start.saturating_add(length);
        self.text
            .get(start..self.at)
            .and_then(Number::parse)
            .map(Json::Number)
            .ok_or_else(|| Stop::new(JsonFault::InvalidNumber, start))
    }

    fn literal(&mut self, word: &str, value: Json) -> Result<Json, Stop> {
        for byte in word.bytes() {
            self.expect(byte)?;
        }
        Ok(value)
    }

    fn blank(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.step();
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn step(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.step();
        }
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        if self.take(byte) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn unexpected(&self) -> Stop {
        let ended = self.at >= self.text.len();
        let end = JsonFault::UnexpectedEnd;
        self.stop(if ended {
            end
        } else {
            JsonFault::UnexpectedCharacter
        })
    }

    fn stop(&self, kind: JsonFault) -> Stop {
        Stop::new(kind, self.at)
    }
}

/// The first member, in order, whose name an earlier one has.
fn repeated(members: &[(String, Json)]) -> Option<(&str, usize)> {
    let names = || members.iter().map(|(name, _)| name.as_str());
    if members.len() <= FEW_MEMBERS {
        let mut all = names().enumerate();
        return all
            .find(|(at, name)| names().take(*at).any(|other| other == *name))
            .map(swap);
    }
    let mut sorted: Vec<(&str, usize)> = names().enumerate().map(swap).collect();
    sort_unstable_by(&mut sorted, Ord::cmp);
    let pairs = sorted.iter().zip(sorted.iter().skip(1));
    pairs
        .filter(|(left, right)| left.0 == right.0)
        .map(|(_, right)| *right)
        .min_by_key(|at| at.1)
}

fn swap((index, name): (usize, &str)) -> (&str, usize) {
    (name, index)
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Up to so many names are compared each with each: cheaper than a sort, and without allocation.
const FEW_MEMBERS: usize = 12;
const HIGH_SURROGATE_FIRST: u32 = 0xd800;
const LOW_SURROGATE_FIRST: u32 = 0xdc00;
const SURROGATE_SPAN: u32 = 0x400;

#[cfg(test)]
mod tests;
