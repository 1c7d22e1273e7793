//! What a request claims, and the destinations that a repeat adds.

use super::{Asked, Keys, ask_of, store_problem};
use crate::app::{App, delivery_id};
use crate::error::{Code, Problem};
use crate::idempotency::body;
use crate::idempotency::record::{Generation, Job};
use crate::idempotency::state::State;
use crate::limits::{DELIVERIES_MAX, LEASE, OPERATION_KEY_TTL};
use crate::publish::target::{Placeholders, expand};
use crate::store::claims::{self, Claim, Destination};
use crate::time::Timestamp;

pub(super) fn claim_of(app: &App, asked: &Asked, keys: &Keys, now: Timestamp) -> Claim {
    let generation_id = app.id("gen_");
    let ask = ask_of(asked, keys, now);
    let destinations = resolve(asked, &generation_id, ask.anchor, asked.topic.as_deref());
    let queued = asked.background && app.queues.is_some();
    let expires_at = if ask.operation {
        now.plus(OPERATION_KEY_TTL)
    } else {
        asked.anchor.plus(asked.window)
    };
    let job = Job {
        token: app.id("tok_"),
        account: asked.access.account.clone(),
        site: asked.site.clone(),
        pipeline: asked.pipeline.clone(),
        topic: asked.topic.clone(),
        surface: asked.surface,
        key: keys.shown.clone(),
        claim_key: keys.claim.clone(),
        operation: ask.operation,
        fingerprint: keys.fingerprint.clone(),
        request_id: asked.request_id.clone(),
        model: asked.model.clone(),
        json_mode: asked.json_mode,
        credits: asked.credits,
        continues: asked.continues,
        upstream: asked.upstream.clone(),
        created_at: now,
        anchor_at: ask.anchor,
        expires_at,
        lease_until: now.plus(LEASE),
        destinations: destinations
            .iter()
            .map(|d| format!("{}={}", d.publisher, d.target))
            .collect(),
        from_queue: queued,
        generation_id,
    };
    Claim {
        state: if queued {
            State::Queued
        } else {
            State::Running
        },
        leaves: asked.identity.leaves.to_json(),
        body: body::claimed(app, &asked.body, &job.generation_id),
        destinations,
        credit_day: app.local_date(&asked.access.timezone, now),
        credits: asked.credits,
        latest_anchor: ask.latest_anchor(),
        now,
        job,
    }
}

fn resolve(
    asked: &Asked,
    generation_id: &str,
    created_at: Timestamp,
    topic: Option<&str>,
) -> Vec<Destination> {
    let values = Placeholders {
        account: &asked.access.account,
        site: &asked.site,
        pipeline: &asked.pipeline,
        generation_id,
        topic,
        at: created_at,
    };
    let mut resolved: Vec<Destination> = Vec::new();
    for destination in &asked.destinations {
        // What can't be filled in was refused when the configuration or the request was read.
        let pattern = &destination.target;
        let target = expand(pattern, &values).unwrap_or_else(|_| pattern.clone());
        let id = delivery_id(generation_id, &destination.publisher, &target);
        if resolved.iter().all(|known| known.delivery_id != id) {
            let publisher = destination.publisher.clone();
            resolved.push(Destination {
                delivery_id: id,
                publisher,
                target,
            });
        }
    }
    resolved
}

/// The destinations that a duplicate names and the generation does not have yet. Only what a
/// request itself names is added; a pipeline's own destinations were frozen at the claim.
pub(super) fn missing(
    asked: &Asked,
    have: &[String],
    generation_id: &str,
    created_at: Timestamp,
    topic: Option<&str>,
) -> Vec<Destination> {
    if !asked.destinations_named {
        return Vec::new();
    }
    resolve(asked, generation_id, created_at, topic)
        .into_iter()
        .filter(|d| !have.contains(&format!("{}={}", d.publisher, d.target)))
        .collect()
}

/// Adds the destinations that a duplicate names to the generation that is there.
pub(super) async fn owe_missing(
    app: &App,
    asked: &Asked,
    holder: &Generation,
) -> Result<Vec<Destination>, Problem> {
    let topic = holder.topic.as_deref();
    let missing = missing(
        asked,
        &holder.destinations,
        &holder.id,
        holder.anchor_at,
        topic,
    );
    if missing.len().saturating_add(holder.destinations.len()) > DELIVERIES_MAX {
        return Err(Problem::new(
            Code::InvalidRequest,
            format!("A generation can have {DELIVERIES_MAX} deliveries; it has too many already."),
        )
        .generation(&holder.id));
    }
    if !missing.is_empty() {
        app.run(claims::owe_more(&holder.id, &missing, app.now()))
            .await
            .map_err(|error| store_problem(app, &error))?;
    }
    Ok(missing)
}
