//! `/slack`: an incoming webhook. It has no way to tell a repeat, as the real one has none.

use serde_json::{Value, json};

use super::clock;
use super::fault::Fault;
use super::http::Request;
use super::reply::Reply;
use super::state::State;

/// Takes a message; `ok` is text.
pub(crate) fn answer(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Reply {
    if request.method != "POST" {
        return text(405, "method_not_allowed");
    }
    if fault.has("no-service") {
        // A failure that calls itself a success.
        return text(200, "no_service");
    }
    let Ok(message) = request.json() else {
        return text(400, "invalid_payload");
    };
    if let Some(problem) = problem(&message) {
        return text(400, problem);
    }
    state.add(
        "slack/messages",
        |n| json!({"n": n, "at": clock::now_rfc3339(), "path": rest, "message": message}),
    );
    text(200, "ok")
}

/// The checks of Block Kit that a builder of alerts can break.
fn problem(message: &Value) -> Option<&'static str> {
    let blocks = message["blocks"].as_array();
    if message["text"].as_str().is_none_or(str::is_empty) && blocks.is_none_or(Vec::is_empty) {
        return Some("no_text");
    }
    if message["text"]
        .as_str()
        .is_some_and(|text| text.chars().count() > 40_000)
    {
        return Some("msg_too_long");
    }
    let blocks = blocks.map(Vec::as_slice).unwrap_or_default();
    let broken = blocks.len() > 50 || blocks.iter().any(block_is_broken);
    broken.then_some("invalid_blocks")
}

fn block_is_broken(block: &Value) -> bool {
    let too_long = |value: &Value, max: usize| {
        value["text"]
            .as_str()
            .is_none_or(|text| text.is_empty() || text.chars().count() > max)
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match block["type"].as_str() {
        Some("header") => block["text"]["type"] != "plain_text" || too_long(&block["text"], 150),
        Some("section") => {
            let fields = list(&block["fields"]);
            let text = &block["text"];
            (text.is_null() && fields.is_empty())
                || (!text.is_null() && too_long(text, 3000))
                || fields.len() > 10
                || fields.iter().any(|field| too_long(field, 2000))
        }
        Some("context" | "actions") => {
            let elements = list(&block["elements"]);
            elements.is_empty() || elements.len() > 25
        }
        Some(_) => false,
        None => true,
    }
}

fn text(status: u16, body: &str) -> Reply {
    Reply::new(status, "text/html", body)
}
