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
        let value: Value = serde_json::from_slice(&text).map_err(|_| StreamFault::NotJson)?;
        let raw = String::from_utf8(text).map_err(|_| StreamFault::NotJson)?;
        self.values = self.values.saturating_add(1);
        Ok(match GoogleError::read(&value) {
            Some(error) => Event::Error(error),
            None => Event::Chunk(Chunk { raw, value }),
        })
    }
}

/// Largest event. A unary answer is one event, so it is the bound of the whole answer.
pub const EVENT_MAX_BYTES: usize = GEMINI_ANSWER_MAX_BYTES;
/// Longest name of a field; the longest that means something is `event`.
const FIELD_NAME_MAX_BYTES: usize = 64;
const KNOWN_FIELDS: [&[u8]; 4] = [b"data", b"event", b"id", b"retry"];
const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];
