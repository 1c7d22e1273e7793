//! `interactions`: create, get, cancel, delete; in the background or as a stream.

use serde_json::{Value, json};

use super::super::clock;
use super::super::fault::Fault;
use super::super::http::Request;
use super::super::reply::Reply;
use super::super::state::State;
use super::answer::Draft;
use super::asked::{Asked, prompt_text};
use super::errors::{self, Refusal};

/// Answers a call; there is no list, as there is none in the real API.
pub(super) fn answer(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Reply {
    let words: Vec<&str> = rest.split('/').collect();
    match (request.method.as_str(), words.as_slice()) {
        ("POST", ["interactions"]) => create(state, request, fault),
        ("GET", ["interactions", id]) => get(state, request, id, fault),
        ("POST", ["interactions", id, "cancel"]) => cancel(state, id),
        ("DELETE", ["interactions", id]) => {
            state.remove(KIND, id);
            Reply::json(200, &json!({}))
        }
        _ => error(404, "not_found", "Not found."),
    }
}

fn create(state: &mut State, request: &Request, fault: &Fault) -> Reply {
    let Ok(body) = request.json() else {
        return error(400, "invalid_request", "Invalid JSON payload received.");
    };
    let texts = [
        body["system_instruction"].as_str().unwrap_or_default(),
        &prompt_text(&body),
    ];
    let plain = json!({"contents": [{"parts": [{"text": texts.concat()}]}]});
    let model = body["model"].as_str().unwrap_or_default();
    let asked = Asked::new(request, fault, model, "interaction", Ok(plain));
    let (draft, n) = match super::buy(state, &asked, fault) {
        Ok(bought) => bought,
        Err(refusal) => return refuse(&refusal),
    };
    let background = body["background"] == true;
    let id = format!("v1_{n:06}_{}", draft.response_id);
    let done = interaction(&id, model, &draft);
    if body["store"] != false {
        let polls = fault.number("polls").unwrap_or(u64::from(background));
        state.put(KIND, &id, json!({"polls": polls, "interaction": done}));
    }
    let mut reply = if background {
        Reply::json(200, &in_progress(&done))
    } else if body["stream"] == true {
        stream(&done, &draft, None)
    } else {
        Reply::json(200, &done)
    };
    reply.ledger_entry = Some(n);
    errors::google_headers(reply)
}

/// A background job is in progress for as many looks as it was scripted with.
fn get(state: &mut State, request: &Request, id: &str, fault: &Fault) -> Reply {
    let Some(stored) = state
        .find(KIND, id)
        .filter(|_| !fault.has("not-found"))
        .cloned()
    else {
        return error(404, "not_found", "Interaction not found.");
    };
    let polls = stored["polls"].as_u64().unwrap_or(0);
    if polls > 0 {
        let mut stored = stored.clone();
        stored["polls"] = Value::from(polls - 1);
        state.put(KIND, id, stored.clone());
        return Reply::json(200, &in_progress(&stored["interaction"]));
    }
    if request.query("stream") == Some("true") {
        let text = stored["interaction"]["steps"][0]["content"][0]["text"].as_str();
        let pieces = super::text::pieces(text.unwrap_or_default(), 4);
        return replay(
            &stored["interaction"],
            &pieces,
            request.query("last_event_id"),
        );
    }
    Reply::json(200, &stored["interaction"])
}

fn cancel(state: &mut State, id: &str) -> Reply {
    let Some(mut stored) = state.find(KIND, id).cloned() else {
        return error(404, "not_found", "Interaction not found.");
    };
    if stored["polls"] != 0 {
        stored["polls"] = Value::from(0);
        stored["interaction"]["status"] = Value::from("cancelled");
        stored["interaction"]["steps"] = json!([]);
        state.put(KIND, id, stored.clone());
    }
    Reply::json(200, &stored["interaction"])
}

fn interaction(id: &str, model: &str, draft: &Draft) -> Value {
    let now = clock::now_rfc3339();
    let (input, output, thought) = (
        draft.usage.prompt,
        draft.usage.candidates,
        draft.usage.thoughts,
    );
    let status = if draft.finish() == "STOP" {
        "completed"
    } else {
        "incomplete"
    };
    json!({
        "id": id, "object": "interaction", "status": status, "model": model, "created": now,
        "updated": now, "service_tier": "standard",
        "steps": [{"type": "model_output",
            "content": [{"type": "text", "text": draft.texts().concat()}]}],
        "usage": {"total_input_tokens": input, "total_output_tokens": output,
            "total_thought_tokens": thought, "total_tokens": input + output + thought,
            "total_cached_tokens": 0, "total_tool_use_tokens": 0},
    })
}

fn in_progress(interaction: &Value) -> Value {
    let mut shown = interaction.clone();
    shown["status"] = Value::from("in_progress");
    shown["steps"] = json!([]);
    shown.as_object_mut().map(|members| members.remove("usage"));
    shown
}

fn stream(done: &Value, draft: &Draft, after: Option<&str>) -> Reply {
    replay(done, &draft.texts(), after)
}

/// The events in order, from the one after `last_event_id`; `[DONE]` ends them.
fn replay(done: &Value, texts: &[String], after: Option<&str>) -> Reply {
    let mut events = vec![
        json!({"event_type": "interaction.created", "interaction": in_progress(done)}),
        json!({"event_type": "step.start", "index": 0, "step": {"type": "model_output"}}),
    ];
    events.extend(texts.iter().map(|text| {
        json!({"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": text}})
    }));
    events.push(json!({"event_type": "step.stop", "index": 0}));
    events.push(json!({"event_type": "interaction.completed", "interaction": done}));
    let skipped = after
        .and_then(|id| id.strip_prefix("evt_")?.parse().ok())
        .unwrap_or(0);
    let mut reply = Reply::new(200, "text/event-stream", "");
    reply.chunked = true;
    reply.pieces = (1_usize..)
        .zip(&events)
        .filter(|(n, _)| *n > skipped)
        .map(|(n, event)| {
            let mut event = event.clone();
            event["event_id"] = Value::from(format!("evt_{n}"));
            let name = event["event_type"].as_str().unwrap_or_default();
            format!("event: {name}\ndata: {event}\n\n").into_bytes()
        })
        .collect();
    reply.pieces.push(b"data: [DONE]\n\n".to_vec());
    reply
}

/// Codes are words here.
fn refuse(refusal: &Refusal) -> Reply {
    let code = match refusal.status {
        "INVALID_ARGUMENT" => "invalid_request",
        "FAILED_PRECONDITION" => "failed_precondition",
        "UNAUTHENTICATED" => "authentication",
        "PERMISSION_DENIED" => "permission_denied",
        "NOT_FOUND" => "model_not_found",
        "RESOURCE_EXHAUSTED" => "rate_limit_exceeded",
        "UNAVAILABLE" => "unavailable",
        "DEADLINE_EXCEEDED" => "deadline_exceeded",
        _ => "internal",
    };
    error(refusal.code, code, &refusal.message)
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    let reply = Reply::json(
        status,
        &json!({"error": {"code": code, "message": message}}),
    );
    errors::google_headers(reply)
}

const KIND: &str = "gemini/interactions";
