//! A person decides: what is unknown is run again or given up, what is held is published, given up
//! or run again. Each decision is one transaction with its audit row.

use serde_json::json;

use crate::app::App;
use crate::error::{Code, Problem};
use crate::http::validate::{ResolveAction, ResolveRequest};
use crate::idempotency::gateway::{self, store_problem};
use crate::idempotency::record::{Generation, Job};
use crate::idempotency::recovery::bring_in_by_name;
use crate::idempotency::state::State;
use crate::limits::{LEASE, RETENTION};
use crate::ports::{DbError, Statement};
use crate::store::audit::{self, Act};
use crate::store::evidence::PREFIX;
use crate::store::row::first;
use crate::store::{accounts, integer, settle, statement, text};
use crate::time::{Span, Timestamp};

/// What came of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It is done.
    Done,
    /// The generation runs again.
    Runs,
}

/// Carries a decision out, where the generation's state allows it.
pub async fn resolve(
    app: &App,
    actor: &str,
    generation: &Generation,
    request: &ResolveRequest,
) -> Result<Resolved, Problem> {
    let overdue = generation.state == State::Running && app.now() >= generation.lease_until;
    let allowed = match (generation.state, request.action) {
        (State::Held, _) | (State::Unknown, ResolveAction::Regenerate | ResolveAction::Abandon) => {
            true
        }
        (State::Running, ResolveAction::Regenerate | ResolveAction::Abandon) => overdue,
        _ => false,
    };
    if !allowed {
        return Err(invalid_state(generation));
    }
    // What was paid for and lies in the fallback store is no longer unknown.
    let name = format!("{PREFIX}{}.{}", generation.id, generation.token);
    if generation.state != State::Held
        && bring_in_by_name(app, &name)
            .await
            .map_err(|error| store_problem(app, &error))?
    {
        return Err(invalid_state(generation));
    }
    let reason = &request.reason;
    match request.action {
        ResolveAction::Publish => {
            let decision = publishing(generation, app.now());
            let resolved = decide(app, actor, generation, reason, decision).await?;
            let (handle, id) = (app.clone(), generation.id.clone());
            app.background.spawn(Box::pin(async move {
                crate::outbox::drain::drain_generation(&handle, &id).await;
                handle.flush_now().await;
            }));
            Ok(resolved)
        }
        ResolveAction::Abandon => {
            decide(app, actor, generation, reason, abandoning(generation)).await
        }
        ResolveAction::Regenerate => regenerate(app, actor, generation, reason).await,
    }
}

fn invalid_state(generation: &Generation) -> Problem {
    Problem::new(
        Code::InvalidState,
        format!(
            "A generation that is {} can't be resolved so.",
            generation.state.public()
        ),
    )
    .generation(&generation.id)
}

fn audited(
    app: &App,
    actor: &str,
    generation: &Generation,
    action: &str,
    reason: &str,
) -> Statement {
    let token = app.id("act_");
    let act = Act {
        actor,
        account: &generation.account,
        action,
        subject: &generation.id,
        reason: Some(reason),
        token: &token,
    };
    audit::record(&act, app.now())
}

/// A decision that settles a generation.
struct Decision {
    action: &'static str,
    /// The state that it puts the generation in.
    wanted: State,
    settle: &'static str,
    /// What becomes of the deliveries that wait.
    deliveries: Statement,
}

/// Releases what is held to its destinations.
fn publishing(generation: &Generation, now: Timestamp) -> Decision {
    let params = vec![
        text(&generation.id),
        text(&generation.token),
        integer(now.millis()),
    ];
    Decision {
        action: "publish",
        wanted: State::Generated,
        settle: PUBLISH,
        deliveries: statement(RELEASE, params),
    }
}

/// Gives up what is held, unknown or overdue.
fn abandoning(generation: &Generation) -> Decision {
    let params = vec![text(&generation.id), text(&generation.token)];
    Decision {
        action: "abandon",
        wanted: State::Failed,
        settle: ABANDON,
        deliveries: statement(CANCEL_WAITING, params),
    }
}

/// Settles, in one transaction with its audit row; refused where somebody else was faster.
async fn decide(
    app: &App,
    actor: &str,
    generation: &Generation,
    reason: &str,
    decision: Decision,
) -> Result<Resolved, Problem> {
    let now = app.now();
    let failed = |error: DbError| store_problem(app, &error);
    let own = || vec![text(&generation.id), text(&generation.token)];
    let mut settled = own();
    settled.extend([integer(now.millis()), integer(now.plus(RETENTION).millis())]);
    let batch = vec![
        statement(decision.settle, settled),
        decision.deliveries,
        statement(DROP_BODY, own()),
        audited(app, actor, generation, decision.action, reason),
        standing(&generation.id),
    ];
    let results = app.run(batch).await.map_err(failed)?;
    let row = first(&results, 4).map_err(failed)?;
    let state = row.and_then(|row| row.text("state").ok());
    if state.as_deref() == Some(decision.wanted.as_str()) {
        Ok(Resolved::Done)
    } else {
        Err(invalid_state(generation))
    }
}

/// Runs the generation again now, under a new token, and pays for it today. What an earlier run
/// bought or may have cost stays as evidence, in a row of its own.
async fn regenerate(
    app: &App,
    actor: &str,
    generation: &Generation,
    reason: &str,
) -> Result<Resolved, Problem> {
    let now = app.now();
    let failed = |error: DbError| store_problem(app, &error);
    let token = app.id("tok_");
    let evidence_id = app.id("gen_");
    let today = credit_day(app, &generation.account, now)
        .await
        .map_err(failed)?;
    let mut batch = vec![
        statement(
            KEEP_REPLACED,
            vec![
                text(&generation.id),
                text(&generation.token),
                text(&evidence_id),
                integer(now.millis()),
                integer(now.plus(RETENTION).millis()),
                text(&today),
            ],
        ),
        statement(
            REGENERATE,
            vec![
                text(&generation.id),
                text(&generation.token),
                text(&token),
                integer(now.plus(LEASE).millis()),
                integer(now.millis()),
                text(&today),
                text(&evidence_id),
            ],
        ),
        audited(app, actor, generation, "regenerate", reason),
    ];
    batch.extend(settle::load(&generation.id));
    let results = app.run(batch).await.map_err(failed)?;
    let found = settle::read_load(&results, 3).map_err(failed)?;
    let Some((fresh, body)) = found.filter(|(fresh, _)| fresh.token == token) else {
        return Err(no_room_or_moved(generation));
    };
    let job = Job::of(&fresh);
    app.log(
        "regenerated",
        json!({"generationId": fresh.id, "actor": actor}),
    );
    start(app, job, body);
    Ok(Resolved::Runs)
}

/// Today, where the account is.
async fn credit_day(app: &App, account: &str, now: Timestamp) -> Result<String, DbError> {
    let results = app.run(vec![accounts::find(account)]).await?;
    let zone = first(&results, 0)?
        .map(|row| row.text("timezone"))
        .transpose()?;
    Ok(app.local_date(zone.as_deref().unwrap_or("UTC"), now))
}

fn no_room_or_moved(generation: &Generation) -> Problem {
    Problem::new(
        Code::InvalidState,
        "The generation was settled meanwhile, or the account's credits of the day do not suffice.",
    )
    .generation(&generation.id)
}

fn start(app: &App, job: Job, body: String) {
    let handle = app.clone();
    app.background.spawn(Box::pin(async move {
        let _ = gateway::run(&handle, job, body, Span::default()).await;
    }));
}

fn standing(id: &str) -> Statement {
    statement(
        "SELECT state, token FROM generations WHERE id = ?1",
        vec![text(id)],
    )
}

const PUBLISH: &str = "UPDATE generations SET state = 'generated', updated_at = ?3, \
  expires_at = MAX(expires_at, ?3 + expires_at - anchor_at), \
  purge_at = CASE WHEN EXISTS (SELECT 1 FROM deliveries WHERE generation_id = ?1 \
    AND status = 'waiting') THEN NULL ELSE ?4 END \
WHERE id = ?1 AND token = ?2 AND state = 'held'";

const RELEASE: &str = "UPDATE deliveries SET status = 'pending', next_attempt_at = ?3, \
  due_since = ?3 WHERE generation_id = ?1 AND status = 'waiting' AND EXISTS (SELECT 1 \
    FROM generations WHERE id = ?1 AND token = ?2 AND state = 'generated')";

const DROP_BODY: &str = "DELETE FROM request_bodies WHERE generation_id = ?1 AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state IN ('generated', 'failed'))";

const ABANDON: &str = "UPDATE generations SET state = 'failed', \
  reason = 'abandoned', \
  credits_spent = credits_spent + credits_reserved, credits_reserved = 0, \
  completed_at = COALESCE(completed_at, ?3), updated_at = ?3, purge_at = ?4 \
WHERE id = ?1 AND token = ?2 AND state IN ('held', 'unknown', 'running')";

const CANCEL_WAITING: &str = "DELETE FROM deliveries WHERE generation_id = ?1 \
  AND status = 'waiting' AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state = 'failed')";

const KEEP_REPLACED: &str = "INSERT INTO generations (id, account, site, pipeline, topic, surface, \
  key, claim_key, operation, fingerprint, leaves, state, reason, token, lease_until, anchor_at, \
  expires_at, request_id, model, json_mode, continues, upstream, created_at, credit_day, \
  credits_spent, output_id, output_where, output_parts, output_type, output_headers, \
  model_version, finish_reason, prompt_tokens, cached_tokens, output_tokens, thought_tokens, \
  total_tokens, cost_nano, completed_at, updated_at, evidence_of, purge_at) \
SELECT ?3, account, site, pipeline, topic, surface, key, claim_key, operation, fingerprint, leaves, \
  'superseded', 'replaced', token, lease_until, anchor_at, expires_at, request_id, model, json_mode, \
  continues, upstream, created_at, credit_day, credits_spent + credits_reserved, output_id, \
  output_where, output_parts, output_type, output_headers, model_version, finish_reason, \
  prompt_tokens, cached_tokens, output_tokens, thought_tokens, total_tokens, cost_nano, \
  COALESCE(completed_at, ?4), ?4, id, ?5 FROM generations \
WHERE id = ?1 AND token = ?2 AND state IN ('held', 'unknown', 'running') \
  AND NOT EXISTS (SELECT 1 FROM accounts a \
    LEFT JOIN credit_days cd ON cd.account = a.account AND cd.day = ?6 \
    WHERE a.account = generations.account AND a.daily_credits IS NOT NULL \
      AND COALESCE(cd.spent, 0) + COALESCE(cd.reserved, 0) + generations.credits_estimate \
        > a.daily_credits)";

// The window starts anew with a person's decision, so that the caller's next try is a replay.
const REGENERATE: &str = "UPDATE generations SET state = 'running', token = ?3, \
  lease_until = ?4, updated_at = ?5, reason = NULL, detail = NULL, \
  expires_at = MAX(expires_at, ?5 + expires_at - anchor_at), \
  credit_day = ?6, credits_spent = 0, credits_reserved = credits_estimate, \
  output_id = NULL, output_where = NULL, output_parts = 0, output_type = NULL, \
  output_headers = NULL, model_version = NULL, finish_reason = NULL, prompt_tokens = 0, \
  cached_tokens = 0, output_tokens = 0, thought_tokens = 0, total_tokens = 0, cost_nano = 0, \
  completed_at = NULL \
WHERE id = ?1 AND token = ?2 AND state IN ('held', 'unknown', 'running') \
  AND EXISTS (SELECT 1 FROM generations e WHERE e.id = ?7)";
