//! A draft on the wire: one object, server-sent events, or one array in pieces.

use serde_json::{Value, json};

use super::super::fault::Fault;
use super::super::reply::Reply;
use super::answer::{Draft, Usage};
use super::errors::{self, Style};

impl Draft {
    /// The reply on the wire, in the endpoint's manner.
    pub(crate) fn reply(&self, fault: &Fault, style: Style) -> Reply {
        if style == Style::Unary {
            return errors::pretty_reply(200, &self.whole(fault))
                .with_header("x-gemini-service-tier", "standard");
        }
        let mut objects = self.objects(fault);
        let mut tail = None;
        for (knob, raw) in [("raw-error-mid", true), ("data-error-mid", false)] {
            if let Some(after) = fault.number_or(knob, 2) {
                objects.truncate(usize::try_from(after).unwrap_or(usize::MAX));
                let error = errors::by_status(fault.status().unwrap_or(503), fault, &self.model);
                tail = Some(if raw {
                    serde_json::to_string_pretty(&error.to_json()).unwrap_or_default()
                } else {
                    format!("data: {}\r\n\r\n", error.to_json())
                });
            }
        }
        let array = style == Style::Array || fault.has("array-body");
        let mut pieces = if array {
            array_pieces(&objects)
        } else {
            events(&objects, fault)
        };
        pieces.extend(tail.map(String::into_bytes));
        let content_type = match style {
            Style::Array => "application/json; charset=UTF-8",
            _ => "text/event-stream",
        };
        let mut reply = errors::google_headers(Reply::new(200, content_type, ""))
            .with_header("content-disposition", "attachment");
        reply.pieces = pieces;
        reply.chunked = true;
        reply
    }

    /// All of it as one object: neighbouring texts of one kind are joined.
    pub(crate) fn whole(&self, fault: &Fault) -> Value {
        let mut parts: Vec<Value> = Vec::new();
        for part in self.chunks.iter().flatten() {
            let joins = parts.last().is_some_and(|last| {
                last["text"].is_string()
                    && part["text"].is_string()
                    && last["thought"] == part["thought"]
            });
            match parts.last_mut() {
                Some(last) if joins => {
                    let joined =
                        [&last["text"], &part["text"]].map(|t| t.as_str().unwrap_or_default());
                    last["text"] = Value::from(joined.concat());
                    if !part["thoughtSignature"].is_null() {
                        last["thoughtSignature"] = part["thoughtSignature"].clone();
                    }
                }
                _ => parts.push(part.clone()),
            }
        }
        self.object(&parts, 1, 1, fault)
    }

    fn objects(&self, fault: &Fault) -> Vec<Value> {
        let mut chunks = self.chunks.clone();
        if fault.has("finish-alone") || chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let count = chunks.len();
        let object =
            |(index, parts): (usize, &Vec<Value>)| self.object(parts, index + 1, count, fault);
        chunks.iter().enumerate().map(object).collect()
    }

    /// The n-th of so many chunks.
    fn object(&self, parts: &[Value], n: usize, count: usize, fault: &Fault) -> Value {
        let last = n == count;
        let mut object = json!({});
        if let Some(reason) = &self.block_reason {
            object["promptFeedback"] = json!({ "blockReason": reason });
        } else {
            object["candidates"] = json!([self.candidate(parts, last, fault)]);
        }
        if !fault.has("no-usage") {
            object["usageMetadata"] = self.usage_json(n, count);
        }
        object["modelVersion"] = Value::from(self.model.as_str());
        object["responseId"] = Value::from(self.response_id.as_str());
        if fault.has("unknown-fields") {
            object["futureField"] = json!({"nested": [1, "二", null]});
        }
        if fault.has("unknown-enum") {
            object["modelStatus"] = json!({"modelStage": "STAGE_NOT_YET_KNOWN"});
        }
        object
    }

    fn candidate(&self, parts: &[Value], last: bool, fault: &Fault) -> Value {
        let mut candidate = json!({});
        let alone = last && fault.has("finish-alone");
        if !self.without_content && !alone {
            // Zero is left out: so is an empty list.
            candidate["content"] = match parts {
                [] => json!({"role": "model"}),
                parts => json!({"parts": parts, "role": "model"}),
            };
        }
        let finish = self
            .finish
            .as_ref()
            .filter(|_| last || fault.has("stop-each-chunk"));
        if let Some(finish) = finish {
            candidate["finishReason"] = Value::from(finish.as_str());
        }
        if let Some(message) = self.finish_message.filter(|_| last) {
            candidate["finishMessage"] = Value::from(message);
        }
        candidate["index"] = Value::from(0);
        if self.finish.as_deref() == Some("SAFETY") {
            candidate["safetyRatings"] = json!([{
                "category": "HARM_CATEGORY_DANGEROUS_CONTENT", "probability": "HIGH",
                "blocked": true,
            }]);
        }
        if let Some(token) = self.token.as_ref().filter(|_| last) {
            candidate["continuationToken"] = Value::from(token.as_str());
        }
        if fault.has("unknown-fields") {
            candidate["futureMember"] = Value::from("まだ知られていない");
        }
        candidate
    }

    /// A running total; zeros are left out.
    fn usage_json(&self, n: usize, count: usize) -> Value {
        let so_far = u64::try_from(n).unwrap_or(1);
        let count = u64::try_from(count).unwrap_or(1);
        let candidates = self.usage.candidates * so_far / count;
        let Usage {
            prompt,
            cached,
            thoughts,
            ..
        } = self.usage;
        let mut usage = json!({});
        let fields = [
            ("promptTokenCount", prompt),
            ("candidatesTokenCount", candidates),
            ("totalTokenCount", prompt + candidates + thoughts),
            ("cachedContentTokenCount", cached),
            ("thoughtsTokenCount", thoughts),
        ];
        for (name, tokens) in fields.into_iter().filter(|(_, tokens)| *tokens > 0) {
            usage[name] = Value::from(tokens);
        }
        usage["promptTokensDetails"] = json!([{"modality": "TEXT", "tokenCount": prompt}]);
        usage["serviceTier"] = Value::from("standard");
        usage
    }
}

fn events(objects: &[Value], fault: &Fault) -> Vec<Vec<u8>> {
    let end = if fault.has("lf") { "\n\n" } else { "\r\n\r\n" };
    let per_event = if fault.has("two-objects") { 2 } else { 1 };
    let event = |objects: &[Value]| {
        let payload: String = objects.iter().map(Value::to_string).collect();
        format!("data: {payload}{end}").into_bytes()
    };
    objects.chunks(per_event).map(event).collect()
}

fn array_pieces(objects: &[Value]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        let before = if index == 0 { "[" } else { ",\r\n" };
        let object = serde_json::to_string_pretty(object).unwrap_or_default();
        pieces.push(format!("{before}{object}\n").into_bytes());
    }
    pieces.push(b"]".to_vec());
    pieces
}
