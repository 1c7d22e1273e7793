//! One call of Gemini, from the head of the answer to its outcome; it does no IO itself.
//!
//! ```
//! use oncepress::gemini::exchange::Exchange;
//! use oncepress::time::Timestamp;
//! let mut exchange = Exchange::begin(200, &[]);
//! let chunks = exchange.push(b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]},\
//!     \"finishReason\":\"STOP\"}]}\r\n\r\n");
//! assert_eq!(chunks.len(), 1);
//! let answer = exchange.end(None, Timestamp::default()).unwrap();
//! assert_eq!(answer.text, "Hi");
//! ```

use crate::gemini::answer::{Assembled, Assembler, LastWord};
use crate::gemini::error::{self, ERROR_BODY_MAX_BYTES, Failure};
use crate::gemini::google::GoogleError;
use crate::gemini::sse::{Chunk, End, Event, Reader, StreamFault};
use crate::gemini::usage::Tier;
use crate::limits::GEMINI_ANSWER_MAX_BYTES;
use crate::ports::HttpError;
use crate::time::Timestamp;

/// A call whose answer is arriving.
#[derive(Debug)]
pub struct Exchange {
    status: u16,
    headers: Vec<(String, String)>,
    reader: Reader,
    assembler: Assembler,
    chunks: usize,
    bytes: usize,
    refusal: Vec<u8>,
    error: Option<GoogleError>,
}

impl Exchange {
    /// The head of the answer is there; names of `headers` are in lower case.
    pub fn begin(status: u16, headers: &[(String, String)]) -> Self {
        let kept = headers
            .iter()
            .filter(|(name, _)| KEPT_HEADERS.contains(&name.as_str()));
        Self {
            status,
            headers: kept.cloned().collect(),
            reader: Reader::default(),
            assembler: Assembler::default(),
            chunks: 0,
            bytes: 0,
            refusal: Vec::new(),
            error: None,
        }
    }

    /// Takes the next piece of the body; gives the chunks of the answer that are whole by now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Chunk> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if !self.is_success() {
            let room = ERROR_BODY_MAX_BYTES.saturating_sub(self.refusal.len());
            self.refusal.extend(piece.iter().take(room));
            return Vec::new();
        }
        if !self.wants_more() {
            return Vec::new();
        }
        let mut chunks = Vec::new();
        for event in self.reader.push(piece) {
            match event {
                Event::Chunk(chunk) if self.error.is_none() => {
                    self.assembler.absorb(&chunk.value);
                    self.chunks = self.chunks.saturating_add(1);
                    chunks.push(chunk);
                }
                Event::Error(error) if self.error.is_none() => self.error = Some(error),
                // Google's error is its last word.
                Event::Chunk(_) | Event::Error(_) => {}
            }
        }
        chunks
    }

    /// Whether the rest of the body can still change the outcome.
    pub fn wants_more(&self) -> bool {
        if self.is_success() {
            self.error.is_none()
                && self.reader.fault().is_none()
                && self.bytes <= GEMINI_ANSWER_MAX_BYTES
        } else {
            self.refusal.len() < ERROR_BODY_MAX_BYTES
        }
    }

    /// The body has ended, or broke off with `cut`: the answer, or why there is none.
    ///
    /// A stream that breaks off after its `finishReason` is a whole answer, since that is the last
    /// that Gemini sends; throwing it away would be to buy it again. Where the reason had come
    /// before and was followed by more, it proves nothing, and the outcome is unknown.
    pub fn end(self, cut: Option<&HttpError>, now: Timestamp) -> Result<Assembled, Failure> {
        if !self.is_success() {
            return Err(error::classify(
                self.status,
                &self.headers,
                &self.refusal,
                now,
            ));
        }
        if let Some(error) = self.error {
            return Err(if self.chunks == 0 {
                error::classify_in_body(&self.headers, error, now)
            } else {
                error::after_output(error)
            });
        }
        let oversized = self.bytes > GEMINI_ANSWER_MAX_BYTES;
        let end = self.reader.finish();
        let mut answer = self.assembler.finish();
        let ended_cleanly = cut.is_none() && matches!(end, End::Whole | End::Between);
        let whole = match answer.last_word {
            LastWord::Ended => true,
            LastWord::EndedAgain => ended_cleanly,
            LastWord::Open if answer.candidates == 0 && answer.block_reason.is_some() => true,
            LastWord::Open => cut.is_none() && end == End::Whole && is_counted(&answer),
        };
        if !whole || oversized {
            return Err(incomplete(self.status, end, cut, oversized));
        }
        if let Some(usage) = &mut answer.usage {
            usage.tier = usage.tier.or_else(|| served_tier(&self.headers));
        }
        Ok(answer)
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Whether an answer without a reason to end is Gemini's at all, and not some other JSON.
fn is_counted(answer: &Assembled) -> bool {
    answer.candidates > 0 || answer.usage.is_some()
}

fn incomplete(status: u16, end: End, cut: Option<&HttpError>, oversized: bool) -> Failure {
    let broke_off = "Gemini's answer broke off before it was finished.";
    match (cut, end) {
        _ if oversized => error::not_an_answer(StreamFault::TooLarge, status),
        // The head of an answer was there, so even this says nothing of what Gemini did.
        (Some(HttpError::NotSent(_)), _) => Failure::unknown(broke_off, Some(status)),
        (Some(cut), _) => Failure {
            status: Some(status),
            ..error::transport(cut)
        },
        (None, End::Fault(fault)) => error::not_an_answer(fault, status),
        (None, End::Empty) => Failure::unknown("Gemini's answer is empty.", Some(status)),
        (None, End::Whole | End::Between | End::Inside) => {
            Failure::unknown(broke_off, Some(status))
        }
    }
}

fn served_tier(headers: &[(String, String)]) -> Option<Tier> {
    let (_, value) = headers.iter().find(|(name, _)| name == SERVED_TIER)?;
    Tier::parse(value)
}

const SERVED_TIER: &str = "x-gemini-service-tier";
/// The header fields that the outcome depends on.
const KEPT_HEADERS: [&str; 2] = ["retry-after", SERVED_TIER];
