//! How a job and its end travel between the handler and the runner: one line of JSON, then text.
//!
//! A run that is followed travels in frames, since the connection may cut it anywhere: a line with
//! the kind and the length of what follows, then that.

use serde_json::Value;

use crate::idempotency::live::Step;
use crate::idempotency::record::{Job, Settlement};
use crate::json_form::{JsonForm, json_form, object, read};
use crate::time::Span;

struct Start {
    job: Job,
    wait_ms: i64,
}

json_form!(Start { job, wait_ms });

struct End {
    settlement: Option<Settlement>,
}

json_form!(End { settlement });

/// Writes a start: the job, how long its caller waits, the request's body.
pub fn write_start(job: &Job, wait: Span, body: &str) -> String {
    let head = object(&[("job", job), ("wait_ms", &wait.millis())]);
    format!("{head}\n{body}")
}

/// Reads a start.
pub fn read_start(mut text: String) -> Option<(Job, Span, String)> {
    let start: Start = read(&take_line(&mut text)?)?;
    Some((start.job, Span::from_millis(start.wait_ms), text))
}

/// Takes the first line off a text, which may be large and is not copied.
fn take_line(text: &mut String) -> Option<String> {
    let at = text.find('\n')?;
    Some(text.drain(..=at).collect())
}

/// Writes how a run ended, or that it goes on.
pub fn write_end(settlement: Option<&Settlement>) -> String {
    let body = match settlement {
        Some(Settlement::Generated { stored } | Settlement::Held { stored, .. }) => &stored.body,
        _ => "",
    };
    let settlement = settlement.map_or(Value::Null, JsonForm::to_json);
    format!("{{\"settlement\":{settlement}}}\n{body}")
}

/// Reads how a run ended.
pub fn read_end(mut text: String) -> Option<Option<Settlement>> {
    let end: End = read(&take_line(&mut text)?)?;
    Some(end.settlement.map(|mut settlement| {
        if let Settlement::Generated { stored } | Settlement::Held { stored, .. } = &mut settlement
        {
            stored.body = text;
        }
        settlement
    }))
}

/// Writes a step of a run that is being followed.
pub fn write_step(step: &Step) -> String {
    let framed = |kind: char, text: &str| format!("{kind}{}\n{text}", text.len());
    match step {
        Step::Piece(text) => framed(PIECE, text),
        Step::End(settlement) => framed(END, &write_end(Some(settlement))),
    }
}

/// The text is not one that [`write_step`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runner's stream is damaged")]
pub struct Damaged;

/// Reads steps from bytes that are cut anywhere.
#[derive(Debug, Default)]
pub struct StepReader {
    bytes: Vec<u8>,
    frame: Option<(char, usize)>,
}

impl StepReader {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next step, once it is whole.
    pub fn step(&mut self) -> Result<Option<Step>, Damaged> {
        if self.frame.is_none() {
            self.frame = self.head()?;
        }
        let Some((kind, length)) = self.frame else {
            return Ok(None);
        };
        if self.bytes.len() < length {
            return Ok(None);
        }
        self.frame = None;
        let rest = self.bytes.split_off(length);
        let text = std::mem::replace(&mut self.bytes, rest);
        let text = String::from_utf8(text).map_err(|_| Damaged)?;
        match kind {
            PIECE => Ok(Some(Step::Piece(text))),
            END => match read_end(text) {
                Some(Some(settlement)) => Ok(Some(Step::End(settlement))),
                _ => Err(Damaged),
            },
            _ => Err(Damaged),
        }
    }

    fn head(&mut self) -> Result<Option<(char, usize)>, Damaged> {
        let found = self.bytes.iter().position(|byte| *byte == b'\n');
        let Some(at) = found else {
            let short = self.bytes.len() <= HEAD_MAX_BYTES;
            return if short { Ok(None) } else { Err(Damaged) };
        };
        let head: Vec<u8> = self.bytes.drain(..=at).collect();
        let head = std::str::from_utf8(&head).map_err(|_| Damaged)?.trim_end();
        let mut letters = head.chars();
        let kind = letters.next().ok_or(Damaged)?;
        let length = letters.as_str().parse().map_err(|_| Damaged)?;
        Ok(Some((kind, length)))
    }
}

const PIECE: char = 'p';
const END: char = 'e';
/// A kind and the digits of a length.
const HEAD_MAX_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::record::tests::stored;

    #[test]
    fn ends_without_an_output_come_back_as_they_were() {
        let failed = Settlement::Failed {
            code: "gemini_rate_limited".to_owned(),
            detail: "two\nlines".to_owned(),
            retry_after_ms: Some(5),
            google: Some((429, "{\"error\": {}}".to_owned())),
        };
        assert_eq!(read_end(write_end(Some(&failed))), Some(Some(failed)));
        assert_eq!(read_end(write_end(None)), Some(None));
        assert_eq!(read_end("nonsense".to_owned()), None);
    }

    #[test]
    fn steps_come_back_wherever_the_connection_cuts_them() {
        let steps = [
            Step::Piece("data: {\"t\":\"日本🎉\"}\r\n\r\n".to_owned()),
            Step::Piece("data: 1\n2\r\n\r\n".to_owned()),
            Step::End(Settlement::Generated {
                stored: Box::new(stored()),
            }),
        ];
        let wire: Vec<u8> = steps
            .iter()
            .flat_map(|step| write_step(step).into_bytes())
            .collect();
        for size in [1, 2, 3, 7, wire.len()] {
            let mut reader = StepReader::default();
            let mut read = Vec::new();
            for bytes in wire.chunks(size) {
                reader.push(bytes);
                while let Some(step) = reader.step().unwrap() {
                    read.push(step);
                }
            }
            assert_eq!(read, steps, "{size} bytes at a time");
        }
    }

    #[test]
    fn bytes_that_are_no_steps_are_damage() {
        for wire in ["x1\n.", "p\n", "pp\n", "e2\n{}", &"9".repeat(40)] {
            let mut reader = StepReader::default();
            reader.push(wire.as_bytes());
            assert_eq!(reader.step(), Err(Damaged), "{wire}");
        }
    }
}
