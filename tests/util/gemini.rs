//! A model of Gemini: what it answers, and a ledger of what it bills.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use serde_json::{Value, json};

/// What Gemini does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Answers, after its usual time.
    Answer,
    /// Answers with another reason to end than STOP.
    Ends(&'static str),
    /// Refuses: status code and Google's word for it; nothing is billed.
    Refuse(u16, &'static str),
    /// 429 for the quota of the day.
    DayQuota,
    /// 504: maybe billed.
    Deadline,
    /// A gateway's page in place of an answer: maybe billed.
    Page(u16),
    /// The request never left.
    NotSent,
    /// The connection is lost before the head of the answer; billed.
    LostHead,
    /// The stream breaks off in the middle; billed.
    CutMiddle,
    /// The stream breaks off after its last byte; billed.
    CutAfter,
    /// The answer never comes; billed.
    Hang,
    /// An error as an event in the stream, after some output; billed.
    ErrorAfterOutput,
    /// An error as the only event of a stream with status 200; not billed.
    ErrorBefore,
}

impl Act {
    pub fn bills(self) -> bool {
        !matches!(
            self,
            Self::Refuse(..) | Self::DayQuota | Self::NotSent | Self::ErrorBefore
        )
    }
}

/// One request that Gemini got.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: i64,
    pub prompt: String,
    pub act: Act,
    /// The isolate that asked.
    pub home: u64,
    /// The generation that was running for this prompt then.
    pub generation: String,
    /// The text that was bought; of this entry only.
    pub text: String,
    /// The fencing token of the run that asked, where it is known.
    pub token: Option<String>,
    /// Whether the last byte reached the isolate that asked.
    pub whole: bool,
    /// Whether a store took it, the fallback store included.
    pub kept: bool,
    /// Why buying the same again is inside P3's stretch.
    pub excuse: Option<&'static str>,
}

/// Gemini.
pub struct Gemini {
    pub ledger: RefCell<Vec<Entry>>,
    pub script: RefCell<VecDeque<Act>>,
    /// What it does where no script says otherwise.
    pub habit: RefCell<Option<Box<dyn FnMut() -> Act>>>,
    pub latency_ms: Cell<i64>,
    /// Pads every text to so many bytes.
    pub text_bytes: Cell<usize>,
}

impl Default for Gemini {
    fn default() -> Self {
        Self {
            ledger: RefCell::default(),
            script: RefCell::default(),
            habit: RefCell::default(),
            latency_ms: Cell::new(2_000),
            text_bytes: Cell::new(0),
        }
    }
}

impl Gemini {
    pub fn then(&self, acts: &[Act]) {
        self.script.borrow_mut().extend(acts);
    }

    pub fn next_act(&self) -> Act {
        let scripted = self.script.borrow_mut().pop_front();
        scripted.unwrap_or_else(|| {
            let mut habit = self.habit.borrow_mut();
            habit.as_mut().map_or(Act::Answer, |habit| habit())
        })
    }

    /// How many calls were billed.
    pub fn billed(&self) -> usize {
        self.ledger
            .borrow()
            .iter()
            .filter(|entry| entry.act.bills())
            .count()
    }

    /// How many calls came.
    pub fn asked(&self) -> usize {
        self.ledger.borrow().len()
    }

    pub fn text(&self, number: usize) -> String {
        let mut text = format!("text-{number:04} of Gemini");
        while text.len() < self.text_bytes.get() {
            text.push_str(" 続きの文章です。");
        }
        text
    }
}

/// What of a text the last chunk of a stream holds: enough to find it by, in any form.
pub fn tail_of(text: &str) -> &str {
    text.get(HEAD_BYTES..).unwrap_or(text)
}

/// The number of the purchase whose text this is, whole or as the last part of a stream.
pub fn number_in(text: &str) -> Option<usize> {
    let (before, _) = text.split_once(" of Gemini")?;
    before.get(before.len().checked_sub(4)?..)?.parse().ok()
}

/// What of a text comes in the first chunk of a stream.
const HEAD_BYTES: usize = 5;

/// The prompt in a request's body; two accounts ask for the same content, and a label that is no
/// part of the content tells them apart.
pub fn prompt_of(body: &[u8]) -> String {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let at = |pointer| body.pointer(pointer).and_then(Value::as_str);
    let text = at("/contents/0/parts/0/text").unwrap_or_default();
    match at("/labels/who") {
        Some(who) => format!("{text} of {who}"),
        None => text.to_owned(),
    }
}

/// The status code of an act, and the pieces of its answer's body; an error ends them early.
pub fn answer(act: Act, text: &str, stream: bool) -> (u16, Vec<Option<Vec<u8>>>) {
    let usage = json!({"promptTokenCount": 1000, "candidatesTokenCount": 500,
        "totalTokenCount": 1500});
    let chunk = |part: &str, reason: Option<&str>| {
        let mut candidate = json!({"content": {"role": "model", "parts": [{"text": part}]}});
        if let Some(reason) = reason {
            candidate["finishReason"] = reason.into();
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m-001"})
    };
    let error = |code: u16, status: &str| json!({"error": {"code": code, "message": "Refused by the model.", "status": status}});
    let event = |value: &Value| Some(format!("data: {value}\r\n\r\n").into_bytes());
    let (head, tail) = text.split_at(HEAD_BYTES);
    let reason = if let Act::Ends(reason) = act {
        reason
    } else {
        "STOP"
    };
    let first = event(&chunk(head, None));
    let last = event(&chunk(tail, Some(reason)));
    let (status, pieces) = match act {
        Act::Refuse(status, word) => (status, vec![Some(error(status, word).to_string().into())]),
        Act::DayQuota => (429, vec![Some(day_quota().to_string().into())]),
        Act::Deadline => (
            504,
            vec![Some(error(504, "DEADLINE_EXCEEDED").to_string().into())],
        ),
        Act::Page(status) => (status, vec![Some(b"<html>Bad gateway</html>".to_vec())]),
        Act::CutMiddle => (200, vec![first, None]),
        Act::CutAfter => (200, vec![first, last, None]),
        Act::ErrorAfterOutput => (200, vec![first, event(&error(503, "UNAVAILABLE"))]),
        Act::ErrorBefore => (200, vec![event(&error(503, "UNAVAILABLE"))]),
        _ if stream => (200, vec![first, last]),
        _ => (
            200,
            vec![Some(chunk(text, Some(reason)).to_string().into())],
        ),
    };
    (status, pieces)
}

fn day_quota() -> Value {
    json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota.",
        "details": [{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [
            {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}})
}
