//! Faults: a bag of named knobs, from a script's JSON or from a marker in the prompt.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Service;
use super::reply::{Cut, CutAt, CutHow, Reply};

/// The knobs turned for one request; none is the usual case.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fault {
    knobs: Map<String, Value>,
}

impl Fault {
    /// Reads `{"delay":100,"reset-mid":2}` or `"reset-mid:2"`; an unknown knob is refused by name.
    pub(crate) fn parse(value: &Value) -> Result<Self, String> {
        let fault = match value {
            Value::Object(knobs) => Self {
                knobs: knobs.clone(),
            },
            Value::String(word) => Self::from_word(word),
            Value::Number(status) => Self::from_word(&status.to_string()),
            _ => return Err("a fault is an object, a name or a status".to_owned()),
        };
        match fault.knobs.keys().find(|name| !is_known(name)) {
            Some(name) => Err(format!("unknown fault: {name}")),
            None => Ok(fault),
        }
    }

    /// Reads the short form: `name`, `name:argument`, or a bare status.
    fn from_word(word: &str) -> Self {
        let (name, argument) = match word.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (word, None),
        };
        let value = match argument {
            None => Value::Bool(true),
            Some(text) => text
                .parse::<u64>()
                .map_or_else(|_| Value::from(text), Value::from),
        };
        let mut knobs = Map::new();
        match name.parse::<u16>() {
            Ok(status) => knobs.insert("status".to_owned(), Value::from(status)),
            Err(_) => knobs.insert(name.to_owned(), value),
        };
        Self { knobs }
    }

    /// Adds another's knobs; its own win.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, value) in other.knobs {
            self.knobs.entry(name).or_insert(value);
        }
    }

    /// Whether the knob is turned.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.knobs
            .get(name)
            .is_some_and(|value| *value != Value::Bool(false))
    }

    /// The knob's number, where it has one.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.knobs.get(name)?.as_u64()
    }

    /// The knob's number, or this where the knob is turned without one.
    pub(crate) fn number_or(&self, name: &str, default: u64) -> Option<u64> {
        self.has(name).then(|| self.number(name).unwrap_or(default))
    }

    /// The knob's text, where it has one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.knobs.get(name)?.as_str()
    }

    /// The knob's words, where a number counts as one.
    pub(crate) fn words(&self, name: &str) -> Option<String> {
        match self.knobs.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// The knobs as they were given.
    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.knobs.clone())
    }

    /// The reply of a fault that keeps the request from the service: nothing takes effect.
    pub(crate) fn instead_of_service(&self, service: Service) -> Option<Reply> {
        let at = CutAt::Headers;
        if self.has("reset-before") {
            return Some(cut_reply(Cut {
                at,
                how: CutHow::Reset,
            }));
        }
        if self.has("close-before") {
            return Some(cut_reply(Cut {
                at,
                how: CutHow::Close,
            }));
        }
        if let Some(seconds) = self.number_or("hang", HANG_SECONDS) {
            return Some(cut_reply(Cut {
                at,
                how: CutHow::Hang(Duration::from_secs(seconds)),
            }));
        }
        if let Some(status) = HTML_STATUSES
            .iter()
            .find(|s| self.has(&format!("html-{s}")))
        {
            return Some(html(*status));
        }
        if let Some(to) = self.text("redirect-to") {
            let status = self.status().unwrap_or(302);
            return Some(Reply::empty(status).with_header("location", to));
        }
        // Gemini clothes a status in its own error body, GitHub one of its limits.
        let own =
            service == Service::Gemini || self.has("rate-limited") || self.has("secondary-limit");
        let plain = !own || self.has("body");
        let status = self.status().or(self.has("body").then_some(200));
        status.filter(|_| plain).map(|status| {
            let body = match self.knobs.get("body") {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => format!("{{\"message\":\"fake {status}\"}}"),
            };
            Reply::new(status, "application/json; charset=utf-8", body)
        })
    }

    /// The scripted status.
    pub(crate) fn status(&self) -> Option<u16> {
        self.number("status")
            .and_then(|status| u16::try_from(status).ok())
    }

    /// Turns the knobs that change a reply on its way: after the service has done its part.
    pub(crate) fn dress(&self, reply: &mut Reply) {
        self.replace_after_commit(reply);
        if let Some(Value::Object(headers)) = self.knobs.get("headers") {
            for (name, value) in headers {
                reply
                    .headers
                    .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                reply.headers.push((name.clone(), value));
            }
        }
        if self.has("truncated-json") {
            let whole = reply.pieces.concat();
            reply.pieces = vec![whole[..whole.len() / 2].to_vec()];
        }
        self.plan(reply);
    }

    fn plan(&self, reply: &mut Reply) {
        let ms = |name, default| self.number_or(name, default).map(Duration::from_millis);
        let plan = &mut reply.plan;
        plan.gate = self.text("gate").map(str::to_owned);
        plan.gate_mid = self.text("gate-mid").map(str::to_owned);
        plan.delay = ms("delay", 1000).unwrap_or_default();
        plan.pace = ms("drip", 50).unwrap_or_default();
        if self.has("one-byte") {
            plan.step_bytes = Some(1);
        }
        if let Some(pace) = ms("slow-loris", 100) {
            plan.step_bytes = Some(1);
            plan.step_pace = pace;
        }
        let Some(cut) = self.cut() else {
            if reply.plan.gate_mid.is_some() || !reply.plan.pace.is_zero() {
                split_single_piece(reply);
            }
            return;
        };
        split_single_piece(reply);
        reply.chunked |= cut.at == CutAt::End;
        reply.plan.cut = Some(cut);
    }

    fn cut(&self) -> Option<Cut> {
        let seconds = self.number("seconds").unwrap_or(HANG_SECONDS);
        [
            ("reset", CutHow::Reset),
            ("close", CutHow::Close),
            ("hang", CutHow::Hang(Duration::from_secs(seconds))),
        ]
        .into_iter()
        .find_map(|(word, how)| {
            let count = |place: &str| {
                let count = self.number_or(&format!("{word}-{place}"), 1)?;
                usize::try_from(count).ok()
            };
            let at = if self.has(&format!("commit-then-{word}")) {
                CutAt::Headers
            } else if let Some(pieces) = count("mid") {
                CutAt::Pieces(pieces)
            } else if let Some(bytes) = count("at") {
                CutAt::Bytes(bytes)
            } else if self.has(&format!("{word}-end")) {
                CutAt::End
            } else {
                return None;
            };
            Some(Cut { at, how })
        })
    }

    /// `commit-then-502` and its like: the effect stands, the answer denies it.
    fn replace_after_commit(&self, reply: &mut Reply) {
        let status = self.knobs.keys().find_map(|name| commit_then_status(name));
        if let Some(status) = status {
            let ledger_entry = reply.ledger_entry;
            *reply = Reply {
                ledger_entry,
                denied: true,
                ..html(status)
            };
        }
    }
}

fn cut_reply(cut: Cut) -> Reply {
    let mut reply = Reply::empty(200);
    reply.plan.cut = Some(cut);
    reply
}

fn html(status: u16) -> Reply {
    let body = format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n<center><h1>{status}</h1>\
         </center>\r\n<hr><center>cloudflare</center>\r\n</body>\r\n</html>\r\n"
    );
    Reply::new(status, "text/html; charset=UTF-8", body).with_header("server", "cloudflare")
}

/// A body in one piece becomes several, so that there is a middle.
fn split_single_piece(reply: &mut Reply) {
    if let [piece] = reply.pieces.as_slice() {
        let size = piece.len().div_ceil(PIECES_OF_A_WHOLE).max(1);
        reply.pieces = piece.chunks(size).map(<[u8]>::to_vec).collect();
    }
}

fn commit_then_status(name: &str) -> Option<u16> {
    let status = name.strip_prefix("commit-then-")?.parse().ok()?;
    (200..=599).contains(&status).then_some(status)
}

fn is_known(name: &str) -> bool {
    KNOBS.contains(&name) || commit_then_status(name).is_some()
}

/// Statuses of the HTML pages that proxies answer with.
const HTML_STATUSES: [u16; 4] = [200, 502, 503, 524];
/// Longer than any client waits.
const HANG_SECONDS: u64 = 3600;
/// Enough pieces for a cut to have a before and an after.
const PIECES_OF_A_WHOLE: usize = 8;

/// Every knob there is; README.md says what each does.
#[rustfmt::skip]
const KNOBS: &[&str] = &[
    // Any service, nothing takes effect.
    "status", "body", "reset-before", "close-before", "hang", "html-200", "html-502", "html-503",
    "html-524", "redirect-to",
    // Any service, the effect stands.
    "none", "headers", "late-commit", "delay", "drip", "slow-loris", "one-byte", "gate", "gate-mid",
    "commit-then-reset", "commit-then-close", "commit-then-hang", "reset-mid", "close-mid",
    "hang-mid", "reset-at", "close-at", "hang-at", "reset-end", "close-end", "hang-end", "seconds",
    "truncated-json",
    // Gemini: refusals.
    "per-day", "region", "bad-key", "retry-delay",
    // Gemini: answers.
    "size", "say", "chunks", "prompt-tokens", "output-tokens", "thought-tokens", "cached-tokens",
    "no-finish", "raw-error-mid", "data-error-mid", "empty", "max-tokens", "max-tokens-thinking",
    "block", "safety", "recitation", "malformed-function-call", "finish", "continuation",
    "function-call", "image", "invalid-json", "lf", "unknown-fields", "unknown-enum", "no-usage",
    "array-body", "stop-each-chunk", "finish-alone", "two-objects", "thought-without-text", "nul",
    "line-separators",
    // Gemini: batches and interactions.
    "polls", "not-found", "no-metadata",
    // Destinations.
    "duplicate-suffix", "head-moves", "ruleset", "empty-repository", "rate-limited",
    "secondary-limit", "no-service", "update-collision",
];
