//! `openai/chat/completions`: the compatible endpoint, whose stream does end with `[DONE]`.

use serde_json::{Value, json};

use super::super::clock;
use super::super::fault::Fault;
use super::super::http::Request;
use super::super::reply::Reply;
use super::super::state::State;
use super::answer::Draft;
use super::asked::{Asked, prompt_text};
use super::errors::{self, Style};

/// Answers a chat, as one object or as a stream.
pub(super) fn answer(state: &mut State, request: &Request, fault: &Fault) -> Reply {
    let Ok(body) = request.json() else {
        return errors::invalid("Invalid JSON payload received.").reply(Style::Array);
    };
    let plain = json!({"contents": [{"parts": [{"text": prompt_text(&body)}]}]});
    let model = body["model"].as_str().unwrap_or_default();
    let asked = Asked::new(request, fault, model, "chat", Ok(plain));
    let (draft, n) = match super::buy(state, &asked, fault) {
        Ok(bought) => bought,
        Err(refusal) => return refusal.reply(Style::Array),
    };
    let mut reply = if body["stream"] == true {
        stream(&draft, model)
    } else {
        let message = json!({"role": "assistant", "content": draft.texts().concat()});
        let mut object = object(&draft, model, "chat.completion");
        object["choices"] =
            json!([{"index": 0, "message": message, "finish_reason": reason(&draft)}]);
        object["usage"] = usage(&draft);
        errors::google_headers(Reply::json(200, &object))
    };
    reply.ledger_entry = Some(n);
    reply
}

fn stream(draft: &Draft, model: &str) -> Reply {
    let texts = draft.texts();
    let count = texts.len();
    let mut reply = errors::google_headers(Reply::new(200, "text/event-stream", ""));
    reply.chunked = true;
    reply.pieces = texts
        .into_iter()
        .enumerate()
        .map(|(index, text)| {
            let last = index + 1 == count;
            let mut object = object(draft, model, "chat.completion.chunk");
            let finish = if last {
                Value::from(reason(draft))
            } else {
                Value::Null
            };
            let delta = json!({"role": "assistant", "content": text});
            object["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
            if last {
                object["usage"] = usage(draft);
            }
            format!("data: {object}\n\n").into_bytes()
        })
        .collect();
    reply.pieces.push(b"data: [DONE]\n\n".to_vec());
    reply
}

fn object(draft: &Draft, model: &str, kind: &str) -> Value {
    json!({"id": draft.response_id, "object": kind, "created": clock::now_ms() / 1000,
        "model": model})
}

fn usage(draft: &Draft) -> Value {
    let (input, output) = (
        draft.usage.prompt,
        draft.usage.candidates + draft.usage.thoughts,
    );
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

fn reason(draft: &Draft) -> &'static str {
    match draft.finish() {
        "MAX_TOKENS" => "length",
        "STOP" => "stop",
        _ => "content_filter",
    }
}
