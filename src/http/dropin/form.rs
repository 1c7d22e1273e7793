//! The forms of an answer: Gemini's unary JSON, its server-sent events, its growing JSON list.
//!
//! An answer is stored in the form in which it was bought. The other forms are made of that one,
//! always the same way, so that each form is the same in every replay.

use crate::error::{Code, Problem};
use crate::gemini::lenient::parse;
use crate::gemini::merge::merge_chunks;
use crate::gemini::request::Method;
use crate::gemini::sse::{DATA, END, event};
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

    /// Brings a stored answer into this form; not a byte changes in the form of the purchase.
    pub(super) fn shape(self, stored: &mut Stored) {
        if self != Self::Unary && !stored.is_stream() {
            stored.body = event(&stored.body);
        }
        match self {
            Self::Unary if stored.is_stream() => stored.body = merged(&stored.body),
            Self::Events | Self::Unary => {}
            Self::List => {
                let mut writer = Writer::new(self);
                stored.body = writer.events(&stored.body) + writer.end();
            }
        }
        self.content_type().clone_into(&mut stored.content_type);
    }
}

/// The documents of whole events.
fn documents(events: &str) -> impl Iterator<Item = &str> {
    events
        .split(END)
        .filter_map(|event| event.strip_prefix(DATA))
}

/// The unary answer that a stream's chunks come to.
fn merged(events: &str) -> String {
    merge_chunks(documents(events).filter_map(parse)).to_string()
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

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

    fn whole(form: Form, stored: &Stored) -> String {
        let mut stored = stored.clone();
        form.shape(&mut stored);
        assert_eq!(stored.content_type, form.content_type());
        stored.body
    }

    #[test]
    fn the_form_of_the_purchase_is_given_byte_for_byte() {
        let stream = stored("text/event-stream", EVENTS);
        assert_eq!(whole(Form::Events, &stream), EVENTS);
        let unary = stored("application/json; charset=UTF-8", UNARY);
        assert_eq!(whole(Form::Unary, &unary), UNARY);
    }

    #[test]
    fn the_other_forms_are_made_of_it() {
        let stream = stored("text/event-stream", EVENTS);
        insta::assert_snapshot!(whole(Form::Unary, &stream), @r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"日本\n🎉"}]},"finishReason":"STOP"}],"responseId":"r","usageMetadata":{"totalTokenCount":3}}"#);
        let list: Vec<Value> = serde_json::from_str(&whole(Form::List, &stream)).unwrap();
        assert_eq!(list.len(), 2);
        assert!(whole(Form::List, &stream).contains("},\n{"));
        let unary = stored("application/json; charset=UTF-8", UNARY);
        insta::assert_snapshot!(whole(Form::Events, &unary).trim_end(), @r#"data: {   "candidates": [     {"finishReason": "STOP"}   ] }"#);
        assert!(whole(Form::Events, &unary).ends_with("}\r\n\r\n"));
        let list: Value = serde_json::from_str(&whole(Form::List, &unary)).unwrap();
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
