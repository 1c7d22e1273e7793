//! `batches`: create, get, list, cancel, delete. Creating one twice makes two, as in the real API.

use serde_json::{Value, json};

use super::super::clock;
use super::super::fault::Fault;
use super::super::http::Request;
use super::super::reply::Reply;
use super::super::state::State;
use super::asked::Asked;
use super::errors::{self, Style, pretty_reply};

/// Answers a call about batches.
pub(super) fn answer(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Reply {
    match (request.method.as_str(), rest) {
        ("POST", rest) => match rest.rsplit_once(':') {
            Some((model, "batchGenerateContent")) => create(state, request, model, fault),
            Some((name, "cancel")) => cancel(state, name),
            _ => not_found(),
        },
        ("GET", "batches") => {
            let operations: Vec<Value> = state.all(KIND).map(|(_, stored)| shown(stored)).collect();
            pretty_reply(200, &json!({ "operations": operations }))
        }
        ("GET", name) => get(state, name),
        ("DELETE", name) if state.find(KIND, name).is_some() => {
            state.remove(KIND, name);
            pretty_reply(200, &json!({}))
        }
        _ => not_found(),
    }
}

/// Bills each request at once; the results show after as many looks as were scripted.
fn create(state: &mut State, request: &Request, model: &str, fault: &Fault) -> Reply {
    let Ok(body) = request.json() else {
        return errors::invalid("Invalid JSON payload received.").reply(Style::Unary);
    };
    let batch = &body["batch"];
    let Some(items) = batch
        .pointer("/inputConfig/requests/requests")
        .and_then(Value::as_array)
    else {
        return errors::invalid("Only inlined requests are known here.").reply(Style::Unary);
    };
    let mut results = Vec::new();
    let mut last_entry = None;
    for item in items {
        let asked = Asked::new(request, fault, model, "batch", Ok(item["request"].clone()));
        let mut result = match super::buy(state, &asked, fault) {
            Ok((draft, n)) => {
                last_entry = Some(n);
                json!({"response": draft.whole(fault)})
            }
            // One that is wrong as a whole is refused; a scripted failure is one too.
            Err(refusal) if results.is_empty() => return refusal.reply(Style::Unary),
            Err(refusal) => refusal.to_json(),
        };
        if !fault.has("no-metadata") && !item["metadata"].is_null() {
            result["metadata"] = item["metadata"].clone();
        }
        results.push(result);
    }
    let n = state.all(KIND).count() + 1;
    let name = format!("batches/fake{n:08}");
    let stored = json!({
        "name": name, "displayName": batch["displayName"], "model": model, "results": results,
        "polls": fault.number("polls").unwrap_or(1), "state": "BATCH_STATE_PENDING",
        "createTime": clock::now_rfc3339(),
    });
    state.put(KIND, &name, stored.clone());
    let mut reply = pretty_reply(200, &shown(&stored));
    reply.ledger_entry = last_entry;
    reply
}

fn get(state: &mut State, name: &str) -> Reply {
    let Some(mut stored) = state.find(KIND, name).cloned() else {
        return not_found();
    };
    if stored["state"] != "BATCH_STATE_CANCELLED" {
        let polls = stored["polls"].as_u64().unwrap_or(0);
        let next = if polls > 0 {
            "BATCH_STATE_RUNNING"
        } else {
            "BATCH_STATE_SUCCEEDED"
        };
        stored["state"] = Value::from(next);
        stored["polls"] = Value::from(polls.saturating_sub(1));
        state.put(KIND, name, stored.clone());
    }
    pretty_reply(200, &shown(&stored))
}

fn cancel(state: &mut State, name: &str) -> Reply {
    let Some(mut stored) = state.find(KIND, name).cloned() else {
        return not_found();
    };
    if stored["state"] != "BATCH_STATE_SUCCEEDED" {
        stored["state"] = Value::from("BATCH_STATE_CANCELLED");
        state.put(KIND, name, stored);
    }
    pretty_reply(200, &json!({}))
}

/// The long-running operation; counts are strings there.
fn shown(stored: &Value) -> Value {
    let count = stored["results"].as_array().map_or(0, Vec::len).to_string();
    let succeeded = stored["state"] == "BATCH_STATE_SUCCEEDED";
    let mut stats = json!({"requestCount": count});
    stats[if succeeded {
        "successfulRequestCount"
    } else {
        "pendingRequestCount"
    }] = Value::from(count);
    let mut metadata = json!({
        "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch",
        "model": stored["model"], "displayName": stored["displayName"], "state": stored["state"],
        "createTime": stored["createTime"], "updateTime": stored["createTime"],
        "batchStats": stats, "name": stored["name"],
    });
    let mut operation = json!({"name": stored["name"]});
    if succeeded {
        let output = json!({"inlinedResponses": {"inlinedResponses": stored["results"]}});
        metadata["output"] = output.clone();
        metadata["endTime"] = stored["createTime"].clone();
        operation["response"] = output;
        operation["done"] = Value::from(true);
    }
    operation["metadata"] = metadata;
    operation
}

fn not_found() -> Reply {
    let message = "Requested entity was not found.";
    pretty_reply(
        404,
        &json!({"error": {"code": 404, "message": message, "status": "NOT_FOUND"}}),
    )
}

const KIND: &str = "gemini/batches";
