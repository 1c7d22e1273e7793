//! `/webhook/{name}`: takes in whatever is posted, checks its signature, tells repeats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::clock;
use super::http::Request;
use super::reply::Reply;
use super::state::State;

/// Records the request; 401 where its signature fails, 200 with `duplicate` where it is a repeat.
pub(crate) fn answer(state: &mut State, request: &Request, rest: &str) -> Reply {
    let name = rest
        .trim_start_matches('/')
        .split('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let verified = verify(state, request, &name);
    let id = request
        .header("webhook-id")
        .or_else(|| request.header("idempotency-key"));
    let kind = format!("webhook/{name}");
    let seen = id.is_some()
        && state
            .all(&kind)
            .any(|(_, known)| known["id"].as_str() == id && known["accepted"] == true);
    let dedupe = state.setting(&format!("/webhook/{name}/dedupe")) == Some(&Value::Bool(true));
    let accepted = verified != Some(false) && request.method != "GET";
    let record = record(request, verified, accepted, seen);
    state.add(&kind, |n| {
        let mut record = record;
        record.insert("n".to_owned(), Value::from(n));
        Value::Object(record)
    });
    match (request.method.as_str(), verified) {
        ("GET", _) => Reply::text(200, "a webhook lives here"),
        (_, Some(false)) => Reply::json(401, &json!({"error": "signature does not match"})),
        _ if seen && dedupe => Reply::json(200, &json!({"ok": true, "duplicate": true})),
        _ => Reply::json(200, &json!({"ok": true})),
    }
}

/// What arrived at one webhook: `effects` counts accepted requests, `distinct` their ids.
pub(crate) fn dump(state: &State, name: &str) -> Value {
    let items: Vec<&Value> = state
        .all(&format!("webhook/{name}"))
        .map(|(_, record)| record)
        .collect();
    let accepted = items.iter().filter(|item| item["accepted"] == true);
    let repeats = accepted
        .clone()
        .filter(|item| item["duplicate"] == true)
        .count();
    let effects = accepted.count();
    json!({"count": items.len(), "effects": effects, "distinct": effects - repeats,
        "items": items})
}

fn record(
    request: &Request,
    verified: Option<bool>,
    accepted: bool,
    seen: bool,
) -> Map<String, Value> {
    let mut headers = Map::new();
    for (name, value) in &request.headers {
        headers.insert(name.clone(), Value::from(value.as_str()));
    }
    let mut record = Map::new();
    let mut set = |name: &str, value: Value| record.insert(name.to_owned(), value);
    set("at", Value::from(clock::now_rfc3339()));
    set("method", Value::from(request.method.as_str()));
    set("path", Value::from(request.path.as_str()));
    set(
        "id",
        request
            .header("webhook-id")
            .or(request.header("idempotency-key"))
            .into(),
    );
    set("accepted", Value::from(accepted));
    set("verified", verified.map_or(Value::Null, Value::from));
    set("duplicate", Value::from(seen));
    set("headers", Value::Object(headers));
    set(
        "bodySha256",
        Value::from(hex::encode(Sha256::digest(&request.body))),
    );
    match std::str::from_utf8(&request.body) {
        Ok(text) => set("body", Value::from(text)),
        Err(_) => set("bodyBase64", Value::from(STANDARD.encode(&request.body))),
    };
    record
}

/// By Standard Webhooks 1.0; `None` where no secret is set. Any of the secrets will do.
fn verify(state: &State, request: &Request, name: &str) -> Option<bool> {
    let secrets = state
        .setting(&format!("/webhook/{name}/secrets"))?
        .as_array()?;
    let signed = signed_bytes(request);
    let signatures = request.header("webhook-signature").unwrap_or_default();
    let fits = |secret: &Value, signature: &str| {
        let secret = secret.as_str().unwrap_or_default();
        let key = STANDARD
            .decode(secret.trim_start_matches("whsec_"))
            .unwrap_or_default();
        let signature = signature
            .strip_prefix("v1,")
            .and_then(|text| STANDARD.decode(text).ok());
        signature.is_some_and(|signature| {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length is a key");
            mac.update(signed.as_deref().unwrap_or_default());
            mac.verify_slice(&signature).is_ok()
        })
    };
    let any = signatures
        .split(' ')
        .any(|one| secrets.iter().any(|secret| fits(secret, one)));
    Some(signed.is_some() && any)
}

/// `id.timestamp.body`; `None` where a header is missing, or 5 minutes off.
fn signed_bytes(request: &Request) -> Option<Vec<u8>> {
    let (id, timestamp) = (
        request.header("webhook-id")?,
        request.header("webhook-timestamp")?,
    );
    let seconds: u64 = timestamp.parse().ok()?;
    if id.contains('.') || seconds.abs_diff(clock::now_ms() / 1000) > TOLERANCE_SECONDS {
        return None;
    }
    let mut signed = format!("{id}.{timestamp}.").into_bytes();
    signed.extend_from_slice(&request.body);
    Some(signed)
}

/// What the reference libraries allow, past and future.
const TOLERANCE_SECONDS: u64 = 5 * 60;
