//! Gemini's answer as it arrives: what is kept of it, and what those who follow it get at once.

use serde_json::Value;

use crate::app::App;
use crate::gemini::answer::{Assembled, reason};
use crate::gemini::error::Failure;
use crate::gemini::exchange::Exchange;
use crate::gemini::sse::{Chunk, event};
use crate::idempotency::record::Surface;
use crate::idempotency::room::Place;
use crate::ports::{HttpAnswer, HttpError};
use crate::time::Timestamp;

/// Who follows a running stream. The last chunk with a `finishReason`, and all after it, are not
/// given here: they wait for the commit.
pub trait Tap {
    /// Takes the next piece of the answer.
    fn push(&self, piece: &str);
    /// Gives back all that it took, where it remembers that: an answer is held in memory once.
    fn taken(&self) -> Option<String>;
}

/// Follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTap;

impl Tap for NoTap {
    fn push(&self, _piece: &str) {}

    fn taken(&self) -> Option<String> {
        None
    }
}

/// An answer that is arriving, and the form in which it is kept.
pub(super) struct Reading {
    exchange: Exchange,
    surface: Surface,
    /// What is kept and not with the tap, piece by piece: one buffer that grows would hold it twice.
    kept: Vec<Vec<u8>>,
    /// What may be the end of a stream, and waits for the commit.
    last: String,
    tapped: bool,
}

impl Reading {
    /// Of a call that asked for so many candidates.
    pub(super) fn begin(
        surface: Surface,
        candidates: usize,
        answer: &HttpAnswer,
        tap: &dyn Tap,
    ) -> Self {
        Self {
            exchange: Exchange::begin(answer.status, &answer.headers).expecting(candidates),
            surface,
            kept: Vec::new(),
            last: String::new(),
            tapped: tap.taken().is_some(),
        }
    }

    /// Reads to the end, or to where it broke off.
    pub(super) async fn read(
        &mut self,
        app: &App,
        place: &Place,
        mut answer: HttpAnswer,
        tap: &dyn Tap,
    ) -> Option<HttpError> {
        while self.exchange.wants_more() {
            place.hold(self.exchange.bytes());
            place.wait(&*app.clock).await;
            match answer.body.next().await {
                Ok(Some(piece)) => self.take(piece, tap),
                Ok(None) => return None,
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn take(&mut self, piece: Vec<u8>, tap: &dyn Tap) {
        let chunks = self.exchange.push(&piece);
        match self.surface {
            Surface::Api => {}
            Surface::Generate => self.kept.push(piece),
            Surface::Stream => {
                for chunk in &chunks {
                    self.pass_on(chunk, tap);
                }
            }
        }
    }

    /// Passes a chunk on, unless it may be the last: one that names a reason to end, and what comes
    /// after it, until content shows that the answer goes on.
    fn pass_on(&mut self, chunk: &Chunk, tap: &dyn Tap) {
        if !self.last.is_empty() && has_content(&chunk.value) {
            let before = std::mem::take(&mut self.last);
            self.give(&before, tap);
        }
        let event = event(&chunk.raw);
        if !self.last.is_empty() || names_end(&chunk.value) {
            self.last.push_str(&event);
        } else {
            self.give(&event, tap);
        }
    }

    fn give(&mut self, events: &str, tap: &dyn Tap) {
        tap.push(events);
        if !self.tapped {
            self.kept.push(events.as_bytes().to_vec());
        }
    }

    pub(super) fn end(
        self,
        cut: Option<&HttpError>,
        now: Timestamp,
        tap: &dyn Tap,
    ) -> Result<(Assembled, String), Failure> {
        let assembled = self.exchange.end(cut, now)?;
        // The reader has found the body to be JSON, and JSON is UTF-8.
        let kept = String::from_utf8(self.kept.concat())
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let taken = (self.surface == Surface::Stream).then(|| tap.taken());
        let text = match taken.flatten() {
            Some(text) => text + &kept + &self.last,
            None => kept + &self.last,
        };
        Ok((assembled, text))
    }
}

fn names_end(chunk: &Value) -> bool {
    candidates(chunk).any(|candidate| reason(candidate).is_some())
        || chunk.pointer("/promptFeedback/blockReason").is_some()
}

fn has_content(chunk: &Value) -> bool {
    candidates(chunk).any(|candidate| {
        let parts = candidate
            .pointer("/content/parts")
            .and_then(Value::as_array);
        parts.is_some_and(|parts| !parts.is_empty())
    })
}

fn candidates(chunk: &Value) -> impl Iterator<Item = &Value> {
    let list = chunk.get("candidates").and_then(Value::as_array);
    list.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::limits::GEMINI_ANSWER_MAX_BYTES;
    use crate::outbox::attempt::output_text;
    use crate::ports::{ByteSource, Task};

    /// Notes what it is given; remembers it for the run or not.
    #[derive(Default)]
    struct Noted {
        pieces: RefCell<Vec<String>>,
        remembers: bool,
    }

    impl Tap for Noted {
        fn push(&self, piece: &str) {
            self.pieces.borrow_mut().push(piece.to_owned());
        }

        fn taken(&self) -> Option<String> {
            self.remembers.then(|| self.pieces.borrow().concat())
        }
    }

    struct Nothing;

    impl ByteSource for Nothing {
        fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>> {
            Box::pin(async { Ok(None) })
        }
    }

    /// A chunk that says this, and ends for this reason, as JSON.
    fn chunk(text: &str, reason: &str) -> String {
        let parts = if text.is_empty() {
            String::new()
        } else {
            format!(r#""content":{{"parts":[{{"text":"{text}"}}]}},"#)
        };
        format!("data: {{\"candidates\":[{{{parts}\"finishReason\":{reason}}}]}}\r\n\r\n")
    }

    /// How many of the chunks were passed on after each, and what is kept of all.
    fn passed_on(chunks: &[String], remembers: bool) -> (Vec<usize>, String) {
        let tap = Noted {
            remembers,
            ..Noted::default()
        };
        let answer = HttpAnswer {
            status: 200,
            headers: Vec::new(),
            body: Box::new(Nothing),
        };
        let mut reading = Reading::begin(Surface::Stream, 1, &answer, &tap);
        let mut passed = Vec::new();
        for chunk in chunks {
            reading.take(chunk.as_bytes().to_vec(), &tap);
            passed.push(tap.pieces.borrow().concat().matches("data: ").count());
        }
        let (_, text) = reading.end(None, Timestamp::default(), &tap).unwrap();
        (passed, text)
    }

    #[test]
    fn only_what_may_be_the_end_waits_for_the_commit() {
        let stop = "\"STOP\"";
        for (chunks, passed) in [
            (vec![chunk("a", "null"), chunk("b", stop)], vec![1, 1]),
            (
                vec![chunk("a", stop), chunk("b", stop), chunk("c", stop)],
                vec![0, 1, 2],
            ),
            (
                vec![chunk("a", stop), chunk("", "null"), chunk("b", stop)],
                vec![0, 0, 2],
            ),
            (
                vec![chunk("a", "\"FINISH_REASON_UNSPECIFIED\""), chunk("", stop)],
                vec![1, 1],
            ),
        ] {
            for remembers in [true, false] {
                let all = chunks.concat();
                assert_eq!(passed_on(&chunks, remembers), (passed.clone(), all));
            }
        }
    }

    #[test]
    fn what_came_within_the_bound_can_be_published_though_it_is_longer_as_it_is_stored() {
        let bare = |chunk: String| chunk.replace("\r\n", "\n");
        let mut chunks = vec![bare(chunk("a", "null")); 1_000];
        let last = bare(chunk("b", "\"STOP\""));
        let frame = bare(chunk("c", "null")).len() - 1;
        let others = chunks.concat().len() + frame + last.len();
        let filling = "c".repeat(GEMINI_ANSWER_MAX_BYTES - others);
        chunks.extend([bare(chunk(&filling, "null")), last]);
        assert_eq!(chunks.concat().len(), GEMINI_ANSWER_MAX_BYTES);
        let (_, stored) = passed_on(&chunks, false);
        assert!(stored.len() > GEMINI_ANSWER_MAX_BYTES);
        let text = output_text(Surface::Stream, &stored, Timestamp::default()).unwrap();
        assert_eq!(text.len(), 1_000 + filling.len() + 1);
    }
}
