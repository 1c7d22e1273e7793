//! One call of Gemini, from the head of the answer to its outcome; it does no IO itself.
//!
//! ```
//! use oncepress::gemini::exchange::Exchange;
//! use oncepress::time::Timestamp;
//! let mut exchange = Exchange::begin(200, &[]);
//! let chunks = exchange.push(
//!     b"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hi\"}]}, \
//!       \"finishReason\": \"STOP\"}]}\r\n\r\n",
//! );
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
    bytes_max: usize,
    refusal: Vec<u8>,
    error: Option<GoogleError>,
    candidates: usize,
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
            bytes_max: GEMINI_ANSWER_MAX_BYTES,
            refusal: Vec::new(),
            error: None,
            candidates: 0,
        }
    }

    /// The request asked for so many candidates: those that did not begin count too.
    #[must_use]
    pub fn expecting(mut self, candidates: usize) -> Self {
        self.candidates = candidates;
        self
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
            self.error.is_none() && self.reader.fault().is_none() && self.bytes <= self.bytes_max
        } else {
            self.refusal.len() < ERROR_BODY_MAX_BYTES
        }
    }

    /// How much of the body has come.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The body has ended, or broke off with `cut`: the answer, or why there is none.
    ///
    /// A stream that breaks off after its `finishReason` is a whole answer, since that is the last
    /// that Gemini sends; throwing it away would be to buy it again. Where the reason had come
    /// before and was followed by more, or another candidate had not ended, it proves nothing, and
    /// the outcome is unknown.
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
        let oversized = self.bytes > self.bytes_max;
        let end = self.reader.finish();
        let mut answer = self.assembler.finish();
        let ended_cleanly = cut.is_none() && matches!(end, End::Whole | End::Between);
        let whole = match answer.last_word {
            LastWord::Ended => {
                ended_cleanly || answer.ended.iter().len() >= answer.candidates.max(self.candidates)
            }
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

/// Reads a stored answer again; `None` where it is none. It was within the bound as it came: as it is
/// stored it may be longer, and the bound may have been another.
pub fn reread(stored: &str, now: Timestamp) -> Option<Assembled> {
    let mut exchange = Exchange::begin(200, &[]);
    exchange.bytes_max = usize::MAX;
    exchange.push(stored.as_bytes());
    exchange.end(None, now).ok()
}

/// Whether an answer without a reason to end is Gemini's at all, and not some other JSON.
fn is_counted(answer: &Assembled) -> bool {
    answer.candidates > 0 || answer.usage.is_some()
}

fn incomplete(status: u16, end: End, cut: Option<&HttpError>, oversized: bool) -> Failure {
    let broke_off = "Gemini's answer broke off before it was finished.";
    match (cut, end) {
        _ if oversized => error::not_an_answer(StreamFault::TooLarge, status),
        (Some(cut @ (HttpError::Lost(_) | HttpError::TimedOut)), _) => Failure {
            status: Some(status),
            ..error::transport(cut)
        },
        (None, End::Fault(fault)) => error::not_an_answer(fault, status),
        (None, End::Empty) => Failure::unknown("Gemini's answer is empty.", Some(status)),
        // The head of an answer was there, so that nothing was sent says nothing of what Gemini did.
        (Some(HttpError::NotSent(_)), _) | (None, End::Whole | End::Between | End::Inside) => {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gemini::error::{Class, FailureCode};

    const FIRST: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"On\"}]}}],\
        \"usageMetadata\":{\"promptTokenCount\":4,\"totalTokenCount\":4}}\r\n\r\n";
    const LAST: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"ce\"}]},\
        \"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":4,\
        \"candidatesTokenCount\":2,\"totalTokenCount\":6}}\r\n\r\n";
    const OVERLOADED: &str = "{\n  \"error\": {\"code\": 503, \"message\": \"Overloaded.\",\n  \
        \"status\": \"UNAVAILABLE\"}\n}";

    fn ended(pieces: &[&str], cut: Option<&HttpError>) -> Result<Assembled, Failure> {
        let mut exchange = Exchange::begin(200, &[("x-gemini-service-tier".into(), "flex".into())]);
        for piece in pieces {
            exchange.push(piece.as_bytes());
        }
        exchange.end(cut, Timestamp::default())
    }

    fn lost() -> HttpError {
        HttpError::Lost("reset".to_owned())
    }

    #[track_caller]
    fn check_unknown(pieces: &[&str], cut: Option<&HttpError>, message: &str) {
        let failure = ended(pieces, cut).unwrap_err();
        assert_eq!(
            (failure.class(), failure.message.as_str()),
            (Class::Unknown, message)
        );
    }

    #[test]
    fn a_stream_read_to_its_end_is_an_answer() {
        let answer = ended(&[FIRST, LAST], None).unwrap();
        assert_eq!(answer.text, "Once");
        let usage = answer.usage.unwrap();
        assert_eq!((usage.total_tokens, usage.tier), (6, Some(Tier::Flex)));
    }

    #[test]
    fn a_stream_cut_after_its_finish_reason_is_whole() {
        assert_eq!(ended(&[FIRST, LAST], Some(&lost())).unwrap().text, "Once");
        assert_eq!(
            ended(&[FIRST, LAST, "data: {\"usageMeta"], None)
                .unwrap()
                .text,
            "Once"
        );
        assert_eq!(ended(&[FIRST, LAST, "<html>"], None).unwrap().text, "Once");
    }

    #[test]
    fn a_finish_reason_that_more_followed_proves_nothing_once_the_stream_is_cut() {
        assert_eq!(ended(&[LAST, LAST], None).unwrap().text, "cece");
        check_unknown(
            &[LAST, LAST],
            Some(&lost()),
            "The connection to Gemini was lost before its answer was whole.",
        );
    }

    #[test]
    fn a_stream_cut_before_every_candidate_ended_is_unknown() {
        let second = |reason: &str| {
            format!(
                "data: {{\"candidates\":[{{\"index\":1,\"content\":{{\"parts\":[{{\"text\":\"b\"}}]}},\
                 \"finishReason\":{reason}}}]}}\r\n\r\n"
            )
        };
        check_unknown(
            &[&second("null"), FIRST, LAST],
            Some(&lost()),
            "The connection to Gemini was lost before its answer was whole.",
        );
        let ended_both = [&second("\"STOP\""), FIRST, LAST];
        assert_eq!(ended(&ended_both, Some(&lost())).unwrap().text, "Once");
        let asked_for_two = |pieces: &[&str], cut: Option<&HttpError>| {
            let mut exchange = Exchange::begin(200, &[]).expecting(2);
            for piece in pieces {
                exchange.push(piece.as_bytes());
            }
            exchange.end(cut, Timestamp::default())
        };
        assert!(asked_for_two(&[FIRST, LAST], Some(&lost())).is_err());
        assert!(asked_for_two(&[FIRST, LAST], None).is_ok());
        assert!(asked_for_two(&ended_both, Some(&lost())).is_ok());
    }

    #[test]
    fn a_stream_cut_before_its_finish_reason_is_unknown() {
        let broke_off = "Gemini's answer broke off before it was finished.";
        check_unknown(&[FIRST], None, broke_off);
        check_unknown(&[FIRST, "data: {\"candi"], None, broke_off);
        check_unknown(
            &[FIRST, "[DONE]"],
            None,
            "What came is not an answer of Gemini.",
        );
        check_unknown(&[], None, "Gemini's answer is empty.");
        check_unknown(&["\r\n\r\n"], None, "Gemini's answer is empty.");
        check_unknown(
            &["<html>504</html>"],
            None,
            "A web page came in place of Gemini's answer.",
        );
        check_unknown(&["{\"success\": true}"], None, broke_off);
        check_unknown(
            &[FIRST],
            Some(&HttpError::TimedOut),
            "Gemini did not finish its answer in time.",
        );
        check_unknown(&[], Some(&HttpError::NotSent(String::new())), broke_off);
    }

    #[test]
    fn a_whole_answer_without_a_finish_reason_is_an_answer() {
        let unary = r#"{"candidates": [{"content": {"role": "model"}}], "usageMetadata": {}}"#;
        assert_eq!(ended(&[unary], None).unwrap().finish_reason, None);
        let blocked = "data: {\"promptFeedback\": {\"blockReason\": \"SAFETY\"}}\r\n\r\n";
        assert_eq!(
            ended(&[blocked], None).unwrap().block_reason.as_deref(),
            Some("SAFETY")
        );
    }

    #[test]
    fn an_error_before_any_output_is_as_its_status() {
        for body in [OVERLOADED, &format!("[{OVERLOADED}]")] {
            let failure = ended(&[body], None).unwrap_err();
            assert_eq!(failure.code, FailureCode::Unavailable);
        }
        let failure = ended(
            &["data: {\"error\": {\"status\": \"DEADLINE_EXCEEDED\"}}\n\n"],
            None,
        );
        assert_eq!(failure.unwrap_err().class(), Class::Unknown);
        check_unknown(
            &["{\"error\": \"odd\"}"],
            None,
            "Gemini reported an error that says nothing of its kind.",
        );
    }

    #[test]
    fn an_error_after_output_is_unknown_whatever_its_status() {
        for pieces in [
            [FIRST, OVERLOADED].as_slice(),
            &[FIRST, LAST, OVERLOADED, LAST],
        ] {
            check_unknown(
                pieces,
                None,
                "Gemini broke off after it had begun to answer; what it made may be billed. \
                 Google says: UNAVAILABLE: Overloaded.",
            );
        }
    }

    #[test]
    fn nothing_more_is_read_once_the_outcome_is_clear() {
        let mut exchange = Exchange::begin(200, &[]);
        assert!(exchange.wants_more());
        exchange.push(b"<html>");
        assert!(!exchange.wants_more());

        let mut exchange = Exchange::begin(503, &[]);
        exchange.push(&vec![b' '; ERROR_BODY_MAX_BYTES]);
        assert!(!exchange.wants_more());
        assert_eq!(exchange.push(LAST.as_bytes()), []);
    }

    proptest! {
        #[test]
        fn any_bytes_come_to_an_outcome(
            status in 0_u16..1_000,
            pieces in prop::collection::vec(prop_oneof![
                Just(FIRST.as_bytes().to_vec()), Just(LAST.as_bytes().to_vec()),
                Just(OVERLOADED.as_bytes().to_vec()), prop::collection::vec(any::<u8>(), 0..32),
            ], 0..6),
            cut: bool,
        ) {
            let mut exchange = Exchange::begin(status, &[]);
            let chunks: usize = pieces.iter().map(|piece| exchange.push(piece).len()).sum();
            let cut = cut.then(lost);
            match exchange.end(cut.as_ref(), Timestamp::default()) {
                Ok(_) => prop_assert!(chunks > 0),
                // What made output is never called a definite failure.
                Err(failure) => prop_assert!(chunks == 0 || failure.class() == Class::Unknown),
            }
        }
    }
}
