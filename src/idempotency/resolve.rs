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
use crate::store::{integer, settle, statement, text};
use crate::time::Span;

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
    match request.action {
        ResolveAction::Publish => publish(app, actor, generation, &request.reason).await,
        ResolveAction::Abandon => abandon(app, actor, generation, &request.reason).await,
        ResolveAction::Regenerate => regenerate(app, actor, generation, &request.reason).await,
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

async fn publish(
    app: &App,
    actor: &str,
    generation: &Generation,
    reason: &str,
) -> Result<Resolved, Problem> {
    let now = app.now();
    let failed = |error: DbError| store_problem(app, &error);
    let batch = vec![
        statement(
            PUBLISH,
            vec![
                text(&generation.id),
                text(&generation.token),
                integer(now.millis()),
                integer(now.plus(RETENTION).millis()),
            ],
        ),
        statement(
            RELEASE,
            vec![
                text(&generation.id),
                text(&generation.token),
                integer(now.millis()),
            ],
        ),
        statement(
            DROP_BODY,
            vec![text(&generation.id), text(&generation.token)],
        ),
        audited(app, actor, generation, "publish", reason),
        standing(&generation.id),
    ];
    let results = app.run(batch).await.map_err(failed)?;
    let row = first(&results, 4).map_err(failed)?;
    let state = row.and_then(|row| row.text("state").ok());
    if state.as_deref() != Some(State::Generated.as_str()) {
        return Err(invalid_state(generation));
    }
    let (handle, id) = (app.clone(), generation.id.clone());
    app.background.spawn(Box::pin(async move {
        crate::outbox::drain::drain_generation(&handle, &id).await;
    }));
    Ok(Resolved::Done)
}

async fn abandon(
    app: &App,
    actor: &str,
    generation: &Generation,
    reason: &str,
) -> Result<Resolved, Problem> {
    let now = app.now();
    let failed = |error: DbError| store_problem(app, &error);
    let batch = vec![
        statement(
            ABANDON,
            vec![
                text(&generation.id),
                text(&generation.token),
                integer(now.millis()),
                integer(now.plus(RETENTION).millis()),
            ],
        ),
        statement(
            CANCEL_WAITING,
            vec![text(&generation.id), text(&generation.token)],
        ),
        statement(
            DROP_BODY,
            vec![text(&generation.id), text(&generation.token)],
        ),
        audited(app, actor, generation, "abandon", reason),
        standing(&generation.id),
    ];
    let results = app.run(batch).await.map_err(failed)?;
    let row = first(&results, 4).map_err(failed)?;
    let state = row.and_then(|row| row.text("state").ok());
    if state.as_deref() != Some(State::Failed.as_str()) {
        return Err(invalid_state(generation));
    }
    Ok(Resolved::Done)
}

/// Runs the generation again now, under a new token; what it may have cost before stays charged.
async fn regenerate(
    app: &App,
    actor: &str,
    generation: &Generation,
    reason: &str,
) -> Result<Resolved, Problem> {
    let now = app.now();
    let failed = |error: DbError| store_problem(app, &error);
    let token = app.id("tok_");
    let lease_until = now.plus(LEASE);
    let mut batch = vec![
        statement(
            REGENERATE,
            vec![
                text(&generation.id),
                text(&generation.token),
                text(&token),
                integer(lease_until.millis()),
                integer(now.millis()),
            ],
        ),
        // The output that this run replaces can't be reached any more.
        statement(
            DROP_OUTPUT,
            vec![
                text(&generation.id),
                text(&token),
                crate::store::optional(generation.output_id.as_deref()),
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
  purge_at = CASE WHEN EXISTS (SELECT 1 FROM deliveries WHERE generation_id = ?1 \
    AND status = 'waiting') THEN NULL ELSE ?4 END \
WHERE id = ?1 AND token = ?2 AND state = 'held'";

const RELEASE: &str = "UPDATE deliveries SET status = 'pending', next_attempt_at = ?3, \
  due_since = ?3 WHERE generation_id = ?1 AND status = 'waiting' AND EXISTS (SELECT 1 \
    FROM generations WHERE id = ?1 AND token = ?2 AND state = 'generated')";

const DROP_BODY: &str = "DELETE FROM request_bodies WHERE generation_id = ?1 AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state IN ('generated', 'failed'))";

const ABANDON: &str = "UPDATE generations SET state = 'failed', \
  reason = CASE state WHEN 'held' THEN 'abandoned' ELSE 'unknown_freed' END, \
  completed_at = COALESCE(completed_at, ?3), updated_at = ?3, purge_at = ?4 \
WHERE id = ?1 AND token = ?2 AND state IN ('held', 'unknown', 'running')";

const CANCEL_WAITING: &str = "DELETE FROM deliveries WHERE generation_id = ?1 \
  AND status = 'waiting' AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state = 'failed')";

const DROP_OUTPUT: &str = "DELETE FROM outputs WHERE output_id = ?3 AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state = 'running')";

const REGENERATE: &str = "UPDATE generations SET state = 'running', token = ?3, \
  lease_until = ?4, updated_at = ?5, reason = NULL, detail = NULL, \
  output_id = NULL, output_where = NULL, output_parts = 0, \
  credits_spent = credits_spent + credits_reserved, \
  credits_reserved = MAX(credits_reserved, credits_spent) \
WHERE id = ?1 AND token = ?2 AND state IN ('held', 'unknown', 'running') \
  AND NOT EXISTS (SELECT 1 FROM accounts a JOIN credit_days cd ON cd.account = a.account \
    WHERE a.account = generations.account AND cd.day = generations.credit_day \
      AND a.daily_credits IS NOT NULL AND cd.spent + cd.reserved \
        + MAX(generations.credits_reserved, generations.credits_spent) > a.daily_credits)";
