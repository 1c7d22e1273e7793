//! Reads Gemini's answer as it arrives, in pieces cut anywhere.
//!
//! What comes is decided by the body and never by its content type: server-sent events, a JSON
//! list that grows, one JSON object, or raw JSON between two events (Gemini reports errors so).
//!
//! ```
//! use oncepress::gemini::sse::{End, Event, Reader};
//! let mut reader = Reader::default();
//! let mut events = reader.push(b"data: {\"candidates\": [{\"finish");
//! events.extend(reader.push(b"Reason\": \"STOP\"}]}\r\n\r\n"));
//! assert!(matches!(&events[..], [Event::Chunk(chunk)] if chunk.raw.ends_with("\"STOP\"}]}")));
//! assert_eq!(reader.finish(), End::Between);
//! ```

use serde_json::Value;

use crate::gemini::google::GoogleError;
use crate::gemini::lenient::parse;
use crate::gemini::splitter::{List, Splitter};
use crate::limits::GEMINI_ANSWER_MAX_BYTES;

/// An incremental reader of one answer's body.
#[derive(Debug, Default)]
pub struct Reader {
    line: Line,
    name: Vec<u8>,
    after_cr: bool,
    bom: usize,
    raw: bool,
    splitter: Splitter,
    events: Framed,
    values: usize,
    fault: Option<StreamFault>,
}

/// Something that the body said.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A part of the answer.
    Chunk(Chunk),
    /// Google's error, in place of an answer or in the middle of one.
    Error(GoogleError),
}

/// One `GenerateContentResponse`, as it came and as it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// The JSON text, byte for byte.
    pub raw: String,
    /// The same, parsed.
    pub value: Value,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its own grammar says that nothing is missing: one JSON object, or a list that was closed.
    Whole,
    /// After a whole event; only a `finishReason` can say whether more was to come.
    Between,
    /// Inside an event.
    Inside,
    /// With nothing in it.
    Empty,
    /// It is not what Gemini sends.
    Fault(StreamFault),
}

/// Why a body can't be Gemini's answer; nothing after it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// Markup, as a gateway's error page.
    #[error("the body is a web page")]
    Markup,
    /// Neither JSON nor server-sent events with JSON in them.
    #[error("the body is not JSON")]
    NotJson,
    /// An event ended inside its JSON.
    #[error("an event ends inside its JSON")]
    BrokenEvent,
    /// One event is over [`EVENT_MAX_BYTES`].
    #[error("one event is too large")]
    TooLarge,
}

/// Where the next byte falls outside raw JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// At the start of a line.
    #[default]
    Start,
    /// In the name of a field.
    Name,
    /// In the value of a `data` field.
    Data,
    /// In a comment, or in the value of a field that does not matter.
    Skipped,
}

/// Whether server-sent events were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Framed {
    #[default]
    No,
    Yes,
}

impl Reader {
    /// Takes the next piece of the body; gives the events that are whole by now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in piece {
            if self.fault.is_some() {
                break;
            }
            match self.take(*byte) {
                Ok(event) => events.extend(event),
                Err(fault) => self.fault = Some(fault),
            }
        }
        events
    }

    /// What is wrong with the body so far; after a fault nothing more is read.
    pub fn fault(&self) -> Option<StreamFault> {
        self.fault
    }

    /// Says how the body ended.
    pub fn finish(self) -> End {
        if let Some(fault) = self.fault {
            return End::Fault(fault);
        }
        if self.splitter.is_open() || self.line == Line::Name {
            return End::Inside;
        }
        if self.values == 0 {
            return End::Empty;
        }
        let alone = self.values == 1 || self.splitter.list() == List::Closed;
        if alone && self.events == Framed::No {
            End::Whole
        } else {
            End::Between
        }
    }

    fn take(&mut self, byte: u8) -> Result<Option<Event>, StreamFault> {
        if self.bom < BOM.len() {
            if BOM.get(self.bom) == Some(&byte) {
                self.bom = self.bom.saturating_add(1);
                return Ok(None);
            }
            self.bom = BOM.len();
        }
        if self.raw {
            return self.feed(byte);
        }
        let second_of_crlf = byte == b'\n' && self.after_cr;
        self.after_cr = byte == b'\r';
        match byte {
            b'\n' if second_of_crlf => Ok(None),
            b'\r' | b'\n' => self.end_line(),
            _ => self.in_line(byte),
        }
    }

    fn in_line(&mut self, byte: u8) -> Result<Option<Event>, StreamFault> {
        match (self.line, byte) {
            (Line::Start, b' ' | b'\t' | b',') | (Line::Skipped, _) => Ok(None),
            (Line::Start, b'{' | b'[') if self.splitter.is_open() => Err(StreamFault::BrokenEvent),
            (Line::Start, b'{' | b'[') => {
                self.raw = true;
                self.feed(byte)
            }
            (Line::Start, b'<') => Err(StreamFault::Markup),
            (Line::Start, b':') => {
                self.line = Line::Skipped;
                Ok(None)
            }
            (Line::Name, b':') => {
                self.line = self.field()?;
                Ok(None)
            }
            (Line::Start | Line::Name, _) => {
                self.line = Line::Name;
                self.name.push(byte);
                let fits = self.name.len() <= FIELD_NAME_MAX_BYTES;
                if fits {
                    Ok(None)
                } else {
                    Err(StreamFault::NotJson)
                }
            }
            // Some gateways end a stream with `data: [DONE]`, which is no list.
            (Line::Data, b'D') if self.splitter.awaits_item() => {
                self.splitter.forget_list();
                self.line = Line::Skipped;
                Ok(None)
            }
            (Line::Data, _) => self.feed(byte),
        }
    }

    fn end_line(&mut self) -> Result<Option<Event>, StreamFault> {
        match std::mem::take(&mut self.line) {
            Line::Start if self.splitter.is_open() => Err(StreamFault::BrokenEvent),
            Line::Start | Line::Skipped => Ok(None),
            Line::Data => self.feed(b'\n'),
            Line::Name => {
                let known = KNOWN_FIELDS.contains(&self.name.as_slice());
                self.name.clear();
                if known {
                    Ok(None)
                } else {
                    Err(StreamFault::NotJson)
                }
            }
        }
    }

    /// What the field whose name has just ended holds.
    fn field(&mut self) -> Result<Line, StreamFault> {
        let name = std::mem::take(&mut self.name);
        if name == b"data" {
            self.events = Framed::Yes;
            return Ok(Line::Data);
        }
        let plain = name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
        if plain {
            Ok(Line::Skipped)
        } else {
            Err(StreamFault::NotJson)
        }
    }

    fn feed(&mut self, byte: u8) -> Result<Option<Event>, StreamFault> {
        let text = self.splitter.push(byte)?;
        self.raw = self.raw && self.splitter.is_open();
        text.map(|text| self.event(text)).transpose()
    }

    fn event(&mut self, text: Vec<u8>) -> Result<Event, StreamFault> {
        let raw = String::from_utf8(text).map_err(|_| StreamFault::NotJson)?;
        let value = parse(&raw).ok_or(StreamFault::NotJson)?;
        self.values = self.values.saturating_add(1);
        Ok(match GoogleError::read(&value) {
            Some(error) => Event::Error(error),
            None => Event::Chunk(Chunk { raw, value }),
        })
    }
}

/// One event of a JSON document, whose line breaks are white space between its tokens: inside
/// strings they are escaped.
pub fn event(json: &str) -> String {
    let json = json.trim();
    let mut event = String::with_capacity(json.len().saturating_add(10));
    event.push_str(DATA);
    for (at, line) in json.split(['\r', '\n']).enumerate() {
        if at > 0 {
            event.push(' ');
        }
        event.push_str(line);
    }
    event.push_str(END);
    event
}

/// How an event begins and ends here.
pub(crate) const DATA: &str = "data: ";
pub(crate) const END: &str = "\r\n\r\n";
/// Largest event. A unary answer is one event, so it is the bound of the whole answer.
pub const EVENT_MAX_BYTES: usize = GEMINI_ANSWER_MAX_BYTES;
/// Longest name of a field; the longest that means something is `event`.
const FIELD_NAME_MAX_BYTES: usize = 64;
const KNOWN_FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: &str = r#"{"candidates": [{"content": {"parts": [{"text": "}]\"é😀"}]}}]}"#;
    const ERROR: &str =
        "{\n  \"error\": {\n    \"code\": 503,\n    \"message\": \"Overloaded\"\n  }\n}";

    /// What a body says and how it ends: `c` for a chunk, the status for an error.
    fn said(body: &str) -> (String, End) {
        read(body.as_bytes(), body.len().max(1))
    }

    fn read(body: &[u8], size: usize) -> (String, End) {
        let mut reader = Reader::default();
        let mut said = Vec::new();
        for event in body.chunks(size).flat_map(|piece| reader.push(piece)) {
            said.push(match event {
                Event::Chunk(chunk) => {
                    let parsed: Value = serde_json::from_str(&chunk.raw).unwrap();
                    assert_eq!(parsed, chunk.value);
                    "c".to_owned()
                }
                Event::Error(error) => error
                    .http_status()
                    .map_or(error.message, |status| status.to_string()),
            });
        }
        (said.join(" "), reader.finish())
    }

    #[track_caller]
    fn check(body: &str, said_wanted: &str, end: End) {
        assert_eq!(said(body), (said_wanted.to_owned(), end), "{body:?}");
        for size in [1, 2, 3, 7] {
            assert_eq!(
                read(body.as_bytes(), size),
                said(body),
                "in pieces of {size}: {body:?}"
            );
        }
    }

    #[test]
    fn events_end_with_any_line_break_and_any_space_after_the_colon() {
        for line in ["\r\n", "\n", "\r"] {
            check(
                &format!("data: {CHUNK}{line}{line}data:{CHUNK}{line}{line}"),
                "c c",
                End::Between,
            );
        }
        check(
            &format!("data: {CHUNK}\n\n\n\r\n\ndata: {CHUNK}\n\n"),
            "c c",
            End::Between,
        );
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        check(&format!("data: {CHUNK}"), "c", End::Between);
        check(&format!("data: {CHUNK}\r"), "c", End::Between);
    }

    #[test]
    fn comments_and_other_fields_are_skipped() {
        let body = format!(": ping\n\nevent: x\nid: 7\nretry\n: [\ndata: {CHUNK}\nx-y: {{\n\n");
        check(&body, "c", End::Between);
    }

    #[test]
    fn one_event_may_span_lines_and_hold_several_objects() {
        let (head, tail) = CHUNK.split_at(15);
        check(
            &format!("data: {head}\ndata: {tail}\n\n"),
            "c",
            End::Between,
        );
        check(&format!("data: {CHUNK}{CHUNK}\n\n"), "c c", End::Between);
        check(
            &format!("data: {CHUNK}\ndata: {CHUNK}\n\n"),
            "c c",
            End::Between,
        );
        check(
            &format!("data: [{CHUNK}, {CHUNK}]\n\n"),
            "c c",
            End::Between,
        );
    }

    #[test]
    fn a_done_mark_and_a_byte_order_mark_are_no_events() {
        check(
            &format!("\u{feff}data: {CHUNK}\n\ndata: [DONE]\n\n"),
            "c",
            End::Between,
        );
        check(&format!("\u{feff}{CHUNK}"), "c", End::Whole);
        check("data:[DONE]", "", End::Empty);
    }

    #[test]
    fn an_error_is_found_in_every_form() {
        check(ERROR, "503", End::Whole);
        check(&format!("[{ERROR}]"), "503", End::Whole);
        check(
            &format!("data: {CHUNK}\r\n\r\n{ERROR}\r\n"),
            "c 503",
            End::Between,
        );
        check(
            &format!(
                "data: {CHUNK}\r\n\r\ndata: [{}]\r\n\r\n",
                ERROR.replace('\n', "")
            ),
            "c 503",
            End::Between,
        );
        check(
            "data: {\"error\": {\"status\": \"UNAVAILABLE\"}}\n\n",
            "503",
            End::Between,
        );
        check(
            "data: \"went \\\"wrong\\\"\"\n\n",
            "went \"wrong\"",
            End::Between,
        );
        check("{\"error\": \"went wrong\"}", "went wrong", End::Whole);
        check("{\"error\": null}", "c", End::Whole);
    }

    #[test]
    fn a_list_is_read_as_it_grows() {
        check(
            &format!("[{CHUNK},\r\n{CHUNK}\n,\n{ERROR}]\n"),
            "c c 503",
            End::Whole,
        );
        check(&format!("[{CHUNK},\r\n"), "c", End::Inside);
        check(&format!("[{CHUNK}, {{\"candi"), "c", End::Inside);
        check("[]", "", End::Empty);
    }

    #[test]
    fn one_plain_object_is_whole_by_itself() {
        check(CHUNK, "c", End::Whole);
        check(&format!("\n {CHUNK}\n\n"), "c", End::Whole);
        check(&format!("{CHUNK}\n{CHUNK}\n"), "c c", End::Between);
    }

    #[test]
    fn what_is_cut_says_so() {
        check("", "", End::Empty);
        check("\r\n\r\n: ping\r\n\r\n", "", End::Empty);
        check("{\"candidates\": [{\"te", "", End::Inside);
        check(
            &format!("data: {CHUNK}\r\n\r\ndata: {{\"candi"),
            "c",
            End::Inside,
        );
        check(&format!("data: {CHUNK}\r\n\r\nda"), "c", End::Inside);
    }

    #[test]
    fn what_is_not_gemini_is_a_fault() {
        let fault = |fault| ("", End::Fault(fault));
        for (body, (wanted, end)) in [
            ("<!DOCTYPE html><html>", fault(StreamFault::Markup)),
            ("\n\n <html>", fault(StreamFault::Markup)),
            ("upstream connect error: reset", fault(StreamFault::NotJson)),
            ("error code 524\n", fault(StreamFault::NotJson)),
            ("data: null\n\n", fault(StreamFault::NotJson)),
            ("data: {\"a\": }\n\n", fault(StreamFault::NotJson)),
            ("data: {\"a\": 1]\n\n", fault(StreamFault::NotJson)),
            ("[[1]]", fault(StreamFault::NotJson)),
            (
                "data: {\"a\":\n\ndata: 1}\n\n",
                fault(StreamFault::BrokenEvent),
            ),
            (
                "data: {\"a\":\n{\"b\": 1}\n\n",
                fault(StreamFault::BrokenEvent),
            ),
        ] {
            check(body, wanted, end);
        }
        check(
            &format!("data: {CHUNK}\n\n<html>"),
            "c",
            End::Fault(StreamFault::Markup),
        );
    }

    #[test]
    fn invalid_utf8_is_a_fault() {
        let (said, end) = read(b"data: {\"a\": \"\xff\"}\n\n", 1);
        assert_eq!((said.as_str(), end), ("", End::Fault(StreamFault::NotJson)));
    }

    #[test]
    fn separators_of_unicode_inside_a_text_break_no_line() {
        check(
            "data: {\"text\": \"a\u{2028}b\u{85}c\"}\n\n",
            "c",
            End::Between,
        );
    }

    /// Bodies that are nearly right, and so reach deep.
    fn body() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            Just("data: "),
            Just("data:"),
            Just("\n"),
            Just("\r\n"),
            Just("\r"),
            Just(CHUNK),
            Just(ERROR),
            Just("["),
            Just("]"),
            Just(","),
            Just("{"),
            Just("}"),
            Just("\""),
            Just("\\"),
            Just("[DONE]"),
            Just(": x"),
            Just("id: 1"),
            Just("\u{feff}"),
            Just("é"),
        ];
        let made = prop::collection::vec(token, 0..24).prop_map(|all| all.concat().into_bytes());
        prop_oneof![made, prop::collection::vec(any::<u8>(), 0..256)]
    }

    proptest! {
        #[test]
        fn any_split_reads_the_same(body in body(), cuts in prop::collection::vec(1_usize..9, 1..64)) {
            let mut whole = Reader::default();
            let mut split = Reader::default();
            let at_once = whole.push(&body);
            let mut by_piece = Vec::new();
            let mut rest = body.as_slice();
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                by_piece.extend(split.push(piece));
                rest = tail;
            }
            prop_assert_eq!(at_once, by_piece);
            prop_assert_eq!(whole.finish(), split.finish());
        }
    }
}
