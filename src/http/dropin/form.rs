//! The forms of an answer: Gemini's unary JSON, its server-sent events, its growing JSON list.
//!
//! An answer is stored in the form in which it was bought. The other forms are made of that one,
//! always the same way, so that each form is the same in every replay.

use serde_json::Value;

use crate::error::{Code, Problem};
use crate::gemini::lenient::parse;
use crate::gemini::merge::merge_chunks;
use crate::gemini::request::Method;
use crate::http::query;
use crate::idempotency::record::{EVENT_STREAM, Stored};

/// How a client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One `GenerateContentResponse`.
    Unary,
    /// `data: {…}` and a blank line for each chunk: exactly what every SDK reads.
    Events,
    /// `[{…},` and so on, a chunk an item, as it comes without `alt=sse`.
    List,
}

impl Form {
    /// What the method and `alt` ask for.
    pub(super) fn of(method: Method, query: &str) -> Result<Self, Problem> {
        let alt = query::value(query, "alt");
        match (method, alt.as_deref()) {
            (Method::Unary, None | Some("json" | "sse")) => Ok(Self::Unary),
            (Method::Stream, Some("sse")) => Ok(Self::Events),
            (Method::Stream, None | Some("json")) => Ok(Self::List),
            _ => Err(Problem::new(
                Code::InvalidRequest,
                "`alt` may be `json` or `sse`.",
            )),
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Events => EVENT_STREAM,
            Self::Unary | Self::List => "application/json; charset=UTF-8",
        }
    }

    /// A stored answer in this form; byte for byte where it is the form of the purchase.
    pub(super) fn whole(self, stored: &Stored) -> String {
        match (self, stored.is_stream()) {
            (Self::Events, true) | (Self::Unary, false) => stored.body.clone(),
            (Self::Events, false) => event(&stored.body),
            (Self::Unary, true) => merged(&stored.body),
            (Self::List, stream) => {
                let mut writer = Writer::new(self);
                let mut text = if stream {
                    writer.events(&stored.body)
                } else {
                    writer.events(&event(&stored.body))
                };
                text.push_str(writer.end());
                text
            }
        }
    }
}

/// One event of a JSON document, whose line breaks are white space between its tokens: inside
/// strings they are escaped.
pub(super) fn event(json: &str) -> String {
    format!("{DATA}{}{END}", json.replace(['\r', '\n'], " ").trim())
}

/// The documents of whole events.
fn documents(events: &str) -> impl Iterator<Item = &str> {
    events
        .split(END)
        .filter_map(|event| event.strip_prefix(DATA))
}

/// The unary answer that a stream's chunks come to.
fn merged(events: &str) -> String {
    let chunks: Vec<Value> = documents(events).filter_map(parse).collect();
    merge_chunks(&chunks).to_string()
}

/// Writes events in a form, as they come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    form: Form,
    begun: bool,
}

impl Writer {
    pub(super) const fn new(form: Form) -> Self {
        Self { form, begun: false }
    }

    /// Writes whole events.
    pub(super) fn events(&mut self, events: &str) -> String {
        if self.form == Form::Events {
            return events.to_owned();
        }
        let mut text = String::with_capacity(events.len());
        for document in documents(events) {
            text.push_str(if self.begun { ",\n" } else { "[" });
            text.push_str(document);
            self.begun = true;
        }
        text
    }

    /// Writes an error in place of what did not come.
    pub(super) fn error(&mut self, json: &[u8]) -> String {
        self.events(&event(&String::from_utf8_lossy(json)))
    }

    /// Writes what closes the form.
    pub(super) const fn end(self) -> &'static str {
        match (self.form, self.begun) {
            (Form::Events | Form::Unary, _) => "",
            (Form::List, true) => "]",
            (Form::List, false) => "[]",
        }
    }
}

const DATA: &str = "data: ";
const END: &str = "\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::record::tests;

    const EVENTS: &str = "data: {\"candidates\": [{\"content\": {\"role\": \"model\", \
        \"parts\": [{\"text\": \"日本\\n\"}]}}], \"responseId\": \"r\"}\r\n\r\n\
        data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"🎉\"}]}, \
        \"finishReason\": \"STOP\"}], \"usageMetadata\": {\"totalTokenCount\": 3}}\r\n\r\n";
    const UNARY: &str = "{\n  \"candidates\": [\n    {\"finishReason\": \"STOP\"}\n  ]\n}\n";

    fn stored(content_type: &str, body: &str) -> Stored {
        Stored {
            content_type: content_type.to_owned(),
            body: body.to_owned(),
            ..tests::stored()
        }
    }

    #[test]
    fn the_form_of_the_purchase_is_given_byte_for_byte() {
        let stream = stored("text/event-stream", EVENTS);
        assert_eq!(Form::Events.whole(&stream), EVENTS);
        let unary = stored("application/json; charset=UTF-8", UNARY);
        assert_eq!(Form::Unary.whole(&unary), UNARY);
    }

    #[test]
    fn the_other_forms_are_made_of_it() {
        let stream = stored("text/event-stream", EVENTS);
        insta::assert_snapshot!(Form::Unary.whole(&stream), @r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"日本\n🎉"}]},"finishReason":"STOP"}],"responseId":"r","usageMetadata":{"totalTokenCount":3}}"#);
        let list: Vec<Value> = serde_json::from_str(&Form::List.whole(&stream)).unwrap();
        assert_eq!(list.len(), 2);
        assert!(Form::List.whole(&stream).contains("},\n{"));
        let unary = stored("application/json; charset=UTF-8", UNARY);
        insta::assert_snapshot!(Form::Events.whole(&unary).trim_end(), @r#"data: {   "candidates": [     {"finishReason": "STOP"}   ] }"#);
        assert!(Form::Events.whole(&unary).ends_with("}\r\n\r\n"));
        let list: Value = serde_json::from_str(&Form::List.whole(&unary)).unwrap();
        assert_eq!(
            list.pointer("/0/candidates/0/finishReason").unwrap(),
            "STOP"
        );
    }

    #[test]
    fn a_list_that_fails_is_still_a_list() {
        let mut writer = Writer::new(Form::List);
        let text = [
            writer.events(EVENTS),
            writer.error(b"{\"error\":{\"code\":503}}"),
            writer.end().to_owned(),
        ]
        .concat();
        let list: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(list.get(2).unwrap().pointer("/error/code").unwrap(), 503);
        assert_eq!(Writer::new(Form::List).end(), "[]");
    }

    #[test]
    fn the_query_says_which_form() {
        let form = |method, query| Form::of(method, query).ok();
        assert_eq!(form(Method::Stream, "key=k&alt=sse"), Some(Form::Events));
        assert_eq!(form(Method::Stream, ""), Some(Form::List));
        assert_eq!(form(Method::Unary, ""), Some(Form::Unary));
        assert_eq!(form(Method::Stream, "alt=proto"), None);
    }
}
