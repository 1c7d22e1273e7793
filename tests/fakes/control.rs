//! `/__fakes`: scripts, configuration, ledger, dumps of what the destinations hold, gates, reset.

use serde_json::{Map, Value, json};

use super::http::Request;
use super::reply::Reply;
use super::state::{Shared, State};

/// Answers a call of the test's own.
pub(crate) fn answer(state: &mut State, shared: &Shared, request: &Request, rest: &str) -> Reply {
    let words: Vec<&str> = rest.split('/').filter(|word| !word.is_empty()).collect();
    match (request.method.as_str(), words.as_slice()) {
        ("GET", ["health"]) => Reply::json(200, &json!({"ok": true})),
        ("GET", ["ledger"]) => Reply::json(200, &state.ledger_json()),
        ("DELETE", ["ledger"]) => {
            state.ledger_clear();
            Reply::empty(204)
        }
        ("GET", ["script"]) => Reply::json(200, &state.script.to_json()),
        ("POST", ["script"]) => add_script(state, request),
        ("DELETE", ["script"]) => {
            state.script = super::script::Script::default();
            Reply::empty(204)
        }
        ("GET", ["config"]) => Reply::json(200, state.find("config", "all").unwrap_or(&json!({}))),
        ("POST", ["config"]) => configure(state, request),
        ("POST", ["release", gate]) => {
            shared.open_gate(gate);
            Reply::empty(204)
        }
        ("POST", ["reset"]) => {
            state.reset();
            shared.reset_gates();
            Reply::empty(204)
        }
        ("GET", ["webhook", name]) => Reply::json(200, &super::webhook::dump(state, name)),
        ("GET", ["github"]) => Reply::json(200, &super::github::dump(state)),
        ("GET", [kind]) if DUMPED.contains(kind) => Reply::json(200, &dump(state, kind)),
        _ => refuse(404, "no such control"),
    }
}

/// Everything under the kinds of a service, as `{"kind":[…]}`.
fn dump(state: &State, service: &str) -> Value {
    let mut dump = Map::new();
    for kind in state.kinds(service) {
        let documents: Vec<_> = state
            .all(&kind)
            .map(|(_, document)| document.clone())
            .collect();
        let name = kind[service.len()..].trim_start_matches('/').to_owned();
        dump.insert(name, Value::Array(documents));
    }
    Value::Object(dump)
}

/// One script entry or a list of them; none is queued where one is wrong.
fn add_script(state: &mut State, request: &Request) -> Reply {
    let Ok(body) = request.json() else {
        return refuse(400, "not JSON");
    };
    let entries = match body {
        Value::Array(entries) => entries,
        entry => vec![entry],
    };
    let mut trial = super::script::Script::default();
    if let Err(problem) = entries.iter().try_for_each(|entry| trial.add(entry)) {
        return refuse(400, &problem);
    }
    let added = entries.iter().try_for_each(|entry| state.script.add(entry));
    added.map_or_else(|problem| refuse(400, &problem), |()| Reply::empty(204))
}

/// Merges settings, member by member: `{"webhook":{"blog":{"secrets":["whsec_…"]}}}`.
fn configure(state: &mut State, request: &Request) -> Reply {
    let Ok(change @ Value::Object(_)) = request.json() else {
        return refuse(400, "not a JSON object");
    };
    let mut settings = state
        .find("config", "all")
        .cloned()
        .unwrap_or_else(|| json!({}));
    merge(&mut settings, change);
    state.put("config", "all", settings);
    Reply::empty(204)
}

fn merge(settings: &mut Value, change: Value) {
    match (settings, change) {
        (Value::Object(settings), Value::Object(change)) => {
            for (name, value) in change {
                merge(settings.entry(name).or_insert(Value::Null), value);
            }
        }
        (settings, change) => *settings = change,
    }
}

fn refuse(status: u16, problem: &str) -> Reply {
    Reply::json(status, &json!({"error": problem}))
}

/// The services whose contents can be read as a whole.
const DUMPED: [&str; 4] = ["webhook", "wordpress", "ghost", "slack"];
