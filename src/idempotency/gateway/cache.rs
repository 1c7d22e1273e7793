//! What isolate and KV know of a key: results are answers, anything else is a hint at most.

use serde_json::json;

use super::claim::missing;
use super::{Asked, Keys};
use crate::app::App;
use crate::idempotency::mark::{Mark, answers};
use crate::idempotency::record::Stored;
use crate::limits::{KV_MARK_TTL, OUTPUT_INLINE_MAX_BYTES};
use crate::time::{Span, Timestamp};

/// What the caches know.
pub(super) enum Cached {
    Result(Box<Stored>),
    Nothing,
    Unreadable,
}

pub(super) async fn cached(app: &App, asked: &Asked, keys: &Keys) -> Cached {
    let now = app.now();
    let local = app
        .isolate
        .get(&keys.mark, now)
        .and_then(|text| Mark::parse(&text));
    if let Some(Mark::Result(stored)) = &local
        && usable(stored, asked, keys, now)
    {
        return Cached::Result(stored.clone());
    }
    let text = match app.kv_get(&keys.mark).await {
        Ok(text) => text,
        Err(error) => {
            app.log(
                "kv_read_failed",
                json!({"requestId": asked.request_id,
                "error": error.to_string()}),
            );
            // What the isolate knows to have been asked before is no guess for the arbiter.
            return if local.is_some() {
                Cached::Nothing
            } else {
                Cached::Unreadable
            };
        }
    };
    match text.as_deref().and_then(Mark::parse) {
        Some(Mark::Result(stored)) if usable(&stored, asked, keys, now) => {
            remember(app, &keys.mark, &stored);
            Cached::Result(stored)
        }
        Some(Mark::Pointer(stored, object)) if usable(&stored, asked, keys, now) => {
            fetch_pointed(app, stored, &object).await
        }
        _ => Cached::Nothing,
    }
}

async fn fetch_pointed(app: &App, mut stored: Box<Stored>, object: &str) -> Cached {
    let Some(objects) = &app.objects else {
        return Cached::Nothing;
    };
    let Ok(Some(found)) = objects.get(object).await else {
        return Cached::Nothing;
    };
    let Ok(body) = String::from_utf8(found.bytes) else {
        return Cached::Nothing;
    };
    stored.body = body;
    Cached::Result(stored)
}

/// Whether a cached result answers this request as it is.
pub(super) fn usable(stored: &Stored, asked: &Asked, keys: &Keys, now: Timestamp) -> bool {
    let operation = asked.operation.is_some();
    let anchor = if operation {
        stored.anchor_at.max(now)
    } else {
        asked.anchor
    };
    answers(stored, &keys.claim, &keys.fingerprint, operation, anchor)
        && missing(
            asked,
            &stored.destinations,
            &stored.generation_id,
            stored.anchor_at,
            stored.topic.as_deref(),
        )
        .is_empty()
}

/// Keeps a result in the isolate while it answers.
pub(super) fn remember(app: &App, key: &str, stored: &Stored) {
    if stored.body.len() <= OUTPUT_INLINE_MAX_BYTES {
        let until = stored.expires_at.min(app.now().plus(KV_MARK_TTL));
        app.isolate.put(key, &Mark::result(stored), until);
    }
}

pub(super) fn mark_running(app: &App, key: String) {
    let handle = app.clone();
    app.background.spawn(Box::pin(async move {
        put_mark(&handle, &key, Mark::RUNNING.to_owned()).await;
    }));
}

/// Writes the result mark into KV; large answers are pointed to.
pub async fn mark_result(app: &App, stored: &Stored) {
    let left = stored.expires_at.since(app.now());
    if left <= Span::default() {
        return;
    }
    let key = mark_key(stored);
    let text = match &stored.object {
        Some(object) => Mark::pointer(stored, object),
        None => Mark::result(stored),
    };
    put_mark(app, &key, text).await;
}

async fn put_mark(app: &App, key: &str, text: String) {
    if let Err(error) = app.kv_put(key, text, Some(KV_MARK_TTL)).await {
        app.log("kv_write_failed", json!({"error": error.to_string()}));
    }
}

/// The name of a stored result's mark.
fn mark_key(stored: &Stored) -> String {
    if let Some(operation) = stored.claim_key.strip_prefix("o:") {
        format!("op:{operation}")
    } else {
        let scope = stored
            .claim_key
            .strip_prefix("d:")
            .unwrap_or(&stored.claim_key);
        let (scope, digest) = scope.rsplit_once(':').unwrap_or((scope, ""));
        format!("idem:{scope}:{}", digest.get(..32).unwrap_or(digest))
    }
}
