//! The cron trigger's work, every minute: overdue generations, evidence, the drain, stale
//! deliveries, purge. Each part has its own bound, and a part that fails leaves the others alone.

use serde_json::{Value, json};

use crate::app::{App, RunnerError};
use crate::config::OnUnknown;
use crate::guard::{self, Memory, Verdict};
use crate::idempotency::body;
use crate::idempotency::record::{Generation, Job};
use crate::idempotency::recovery::{bring_in_by_name, give_up};
use crate::idempotency::runner::failed_batch;
use crate::idempotency::state::State;
use crate::limits::{LEASE, RECONCILE_AFTER};
use crate::notify;
use crate::outbox::budget::Budget;
use crate::outbox::drain::{Drained, drain};
use crate::ports::DbError;
use crate::store::evidence::PREFIX;
use crate::store::maintenance;
use crate::store::row::{first, rows};
use crate::store::settle;
use crate::time::{Span, Timestamp};

/// One firing of the cron trigger; a Worker that is not fit to run does nothing. A second firing for the same minute does nothing.
pub async fn tick(app: &App, memory: &Memory, scheduled_at: Timestamp) {
    if let Some(fault) = app.settings.faults.first() {
        app.log("misconfigured", json!({"name": fault.name}));
        return;
    }
    let started = app.now();
    let budget = Budget::new(app.config().subrequest_budget, started.plus(TIME));
    if !*memory.borrow() {
        budget.force(guard::COST_MAX);
    }
    let verdict = guard::check(app, memory).await;
    if verdict != Verdict::Own {
        app.log(
            "foreign_environment",
            json!({"verdict": format!("{verdict:?}")}),
        );
        return;
    }
    let token = app.id("tick_");
    let mut batch = maintenance::tick(scheduled_at, &token, started);
    // By the later of two clocks: one that is behind makes no wait a future one.
    let latest = started.max(scheduled_at);
    batch.push(maintenance::mend_waits(latest, MENDED_MAX));
    // The statements now, and at the end its summary and the isolate's counts.
    budget.force(3_u32.saturating_add(COST_OF_END));
    match app.run(batch).await {
        Ok(results) if !is_own(&results, &token) => {
            app.log(
                "tick_repeated",
                json!({"scheduledAt": scheduled_at.to_rfc3339()}),
            );
            return;
        }
        Ok(_) => {}
        Err(error) => {
            app.log("tick_failed", json!({"error": error.to_string()}));
            return;
        }
    }
    let summary = work(app, &budget, scheduled_at).await;
    app.log("tick", summary.clone());
    let finished = maintenance::finish_tick(scheduled_at, &summary.to_string(), app.now());
    if let Err(error) = app.run(vec![finished]).await {
        app.log("tick_failed", json!({"error": error.to_string()}));
    }
    app.flush_now().await;
}

fn is_own(results: &[crate::ports::Rows], token: &str) -> bool {
    first(results, 1)
        .ok()
        .flatten()
        .and_then(|row| row.text("token").ok())
        .is_some_and(|first| first == token)
}

async fn work(app: &App, budget: &Budget, scheduled_at: Timestamp) -> Value {
    // Each part is boxed, so that they do not become parts of one another.
    let minute = scheduled_at.seconds().div_euclid(60);
    // Telling people has its own share, so that no backlog keeps them from hearing of it; what it
    // leaves is the others'.
    let telling = Budget::new(
        budget.set_aside(notify::send::SUBREQUESTS),
        app.now().plus(TIME),
    );
    let notified = Box::pin(notify::send::tick(app, &telling, scheduled_at)).await;
    budget.put_back(telling.left());
    // Half is the drain's, however much there is to reconcile…
    let for_drain = budget.set_aside(budget.left() / 2);
    let evidence = Box::pin(bring_in_evidence(app, budget, minute)).await;
    let settled = Box::pin(reconcile(app, budget)).await;
    budget.put_back(for_drain);
    // …and a little is for what comes after it, however much is due.
    let tidies = minute.rem_euclid(PURGE_EVERY) == 0;
    let rest = if tidies {
        COST_OF_STALE.saturating_add(COST_OF_TIDYING)
    } else {
        COST_OF_STALE
    };
    let for_rest = budget.set_aside(rest);
    let drained = Box::pin(drain_logged(app, budget)).await;
    budget.put_back(for_rest);
    let stale = Box::pin(alert_stale(app, budget)).await;
    let purged = if tidies {
        let purged = Box::pin(purge(app, budget)).await;
        body::sweep(app, budget, minute.div_euclid(PURGE_EVERY)).await;
        purged
    } else {
        0
    };
    json!({"evidence": evidence, "settled": settled, "drained": drained.to_json(),
        "stale": stale, "purged": purged, "notified": notified.to_json(),
        "budgetLeft": budget.left()})
}

/// A drain whose failure is logged, not passed on.
async fn drain_logged(app: &App, budget: &Budget) -> Drained {
    match drain(app, budget).await {
        Ok(drained) => drained,
        Err(error) => {
            app.log("drain_failed", json!({"error": error.to_string()}));
            Drained {
                left: true,
                ..Drained::default()
            }
        }
    }
}

/// What fell back to R2 or KV comes into the database. KV's list calls are few on the free plan
/// (1,000 a day), so KV is looked at every fifth minute.
async fn bring_in_evidence(app: &App, budget: &Budget, minute: i64) -> u32 {
    let mut names: Vec<String> = Vec::new();
    if let Some(objects) = &app.objects {
        budget.force(1);
        match objects.list(PREFIX).await {
            Ok(found) => names.extend(found),
            Err(error) => app.log("evidence_unreadable", json!({"error": error.to_string()})),
        }
    }
    if minute.rem_euclid(KV_EVIDENCE_EVERY) == 0 {
        budget.force(1);
        match app.kv_list(PREFIX).await {
            Ok(found) => names.extend(found),
            Err(error) => app.log("evidence_unreadable", json!({"error": error.to_string()})),
        }
    }
    let mut brought_in = 0_u32;
    for name in names {
        if !budget.take(COST_OF_EVIDENCE) {
            break;
        }
        match bring_in_by_name(app, &name).await {
            Ok(found) => brought_in = brought_in.saturating_add(u32::from(found)),
            Err(error) => {
                app.log(
                    "evidence_not_brought_in",
                    json!({"error": error.to_string()}),
                );
            }
        }
    }
    brought_in
}

/// Settles generations whose runner is overdue, and starts those whose claimant died before it
/// could start one.
async fn reconcile(app: &App, budget: &Budget) -> u32 {
    let now = app.now();
    budget.force(1);
    let frees = app.config().on_unknown == OnUnknown::Regenerate;
    let found = app.run(vec![maintenance::unsettled(&maintenance::Overdue {
        now,
        // Looked at once, at the age of one to two minutes: was its run ever started?
        young: (
            now.plus(LEASE).minus(Span::from_minutes(2)),
            now.plus(LEASE).minus(Span::from_minutes(1)),
        ),
        // A claim's lease ends a minute before its fate is decided.
        decided: frees.then(|| now.minus(RECONCILE_AFTER).plus(LEASE)),
        limit: RECONCILE_MAX,
    })]);
    let ids = found.await.and_then(|results| {
        rows(&results, 0)?
            .map(|row| row.text("id"))
            .collect::<Result<Vec<_>, _>>()
    });
    let ids = match ids {
        Ok(ids) => ids,
        Err(error) => {
            app.log("reconcile_failed", json!({"error": error.to_string()}));
            return 0;
        }
    };
    let mut settled = 0_u32;
    for id in ids {
        if !budget.take(COST_OF_RECONCILING) {
            break;
        }
        match settle_overdue(app, &id).await {
            Ok(()) => settled = settled.saturating_add(1),
            Err(error) => app.log(
                "reconcile_failed",
                json!({"generationId": id,
                "error": error.to_string()}),
            ),
        }
    }
    settled
}

/// Decides one overdue generation: by evidence, by its runner's word, else by policy.
async fn settle_overdue(app: &App, id: &str) -> Result<(), DbError> {
    let results = app.run(settle::load(id)).await?;
    let Some((generation, body)) = settle::read_load(&results, 0)? else {
        return Ok(());
    };
    let job = Job::of(&generation);
    let name = format!("{PREFIX}{}.{}", job.generation_id, job.token);
    if bring_in_by_name(app, &name).await? {
        return Ok(());
    }
    let now = app.now();
    match generation.state {
        State::Running if now < generation.lease_until => {
            start_forgotten(app, &generation, job, body).await;
        }
        State::Running => overdue(app, job).await?,
        State::Unknown => {
            give_up(
                app,
                &job,
                generation
                    .detail
                    .as_deref()
                    .unwrap_or("the outcome is unknown"),
            )
            .await;
        }
        State::Queued => send_again(app, id).await?,
        State::Generated | State::Held | State::Failed | State::Superseded => {}
    }
    Ok(())
}

/// A queued generation that nobody has taken: its message may be lost, and a second one does no
/// harm, since taking it is atomic.
async fn send_again(app: &App, id: &str) -> Result<(), DbError> {
    let Some(queues) = &app.queues else {
        return Ok(());
    };
    let message = json!({"generationId": id}).to_string();
    if let Err(error) = queues.send("JOBS", message, Span::default()).await {
        app.log(
            "queue_refused",
            json!({"generationId": id, "error": error.to_string()}),
        );
        return Ok(());
    }
    // Only after it was sent: a tick that dies in between sends a second one in a minute.
    app.run(vec![maintenance::await_message(
        id,
        app.now().plus(MESSAGE_EVERY),
    )])
    .await?;
    Ok(())
}

/// A claim whose runner does not know it was never started: its claimant died in between.
async fn start_forgotten(app: &App, generation: &Generation, job: Job, body: String) {
    let Some(runner) = &app.runner else { return };
    if let Err(RunnerError::NotHere) = runner.attach(&generation.id, Span::default()).await {
        app.log(
            "forgotten_run_started",
            json!({"generationId": generation.id}),
        );
        let _ = runner.start(job, body, Span::default()).await;
    }
}

/// A lease is over. A runner that has never heard of the job never sent it; else nobody knows.
async fn overdue(app: &App, job: Job) -> Result<(), DbError> {
    if let Some(runner) = &app.runner
        && let Err(RunnerError::NotHere) = runner.attach(&job.generation_id, Span::default()).await
    {
        let why = "the run was never started";
        let again = job.from_queue.then(Span::default);
        app.run(failed_batch(&job, "gemini_unavailable", why, again, app.now()).0)
            .await?;
        return Ok(());
    }
    let now = app.now();
    let why = "the runner did not come back before its lease was over";
    if job.lease_until.plus(RECONCILE_AFTER).minus(LEASE) <= now {
        give_up(app, &job, why).await;
    } else {
        app.run(settle::unknown(&job, "lease_over", why, now))
            .await?;
    }
    Ok(())
}

/// What has been owed for too long reaches a person.
async fn alert_stale(app: &App, budget: &Budget) -> u64 {
    let now = app.now();
    budget.force(2);
    let threshold = now.minus(app.config().stale_after);
    match app
        .run(maintenance::alert_stale(threshold, now, STALE_MAX))
        .await
    {
        Ok(results) => results.get(1).map_or(0, |marked| marked.changes),
        Err(error) => {
            app.log("stale_check_failed", json!({"error": error.to_string()}));
            0
        }
    }
}

/// Deletes what is past its retention, in small batches; large outputs first.
async fn purge(app: &App, budget: &Budget) -> usize {
    match purge_batch(app, budget).await {
        Ok(count) => count,
        Err(error) => {
            app.log("purge_failed", json!({"error": error.to_string()}));
            0
        }
    }
}

async fn purge_batch(app: &App, budget: &Budget) -> Result<usize, DbError> {
    let now = app.now();
    if !budget.take(6) {
        return Ok(0);
    }
    let results = app
        .run(vec![maintenance::purgeable(now, PURGE_MAX)])
        .await?;
    let mut ids: Vec<String> = Vec::new();
    for row in rows(&results, 0)? {
        let id = row.text("id")?;
        if row.optional_text("output_where")?.as_deref() == Some("r2")
            && let (Some(objects), Some(output)) = (&app.objects, row.optional_text("output_id")?)
        {
            let name = crate::idempotency::runner::output_object(&output);
            if !budget.take(1) || objects.delete(&name).await.is_err() {
                continue;
            }
        }
        ids.push(id);
    }
    let count = ids.len();
    let list = Value::from(ids).to_string();
    app.run(maintenance::purge(&list, now)).await?;
    Ok(count)
}

/// A tick stops beginning work after this long; the next one comes in a minute.
const TIME: Span = Span::from_seconds(50);
/// Purge runs every so many minutes.
const PURGE_EVERY: i64 = 10;
/// Generations that one purge deletes.
const PURGE_MAX: usize = 50;
/// KV is searched for evidence every so many minutes.
const KV_EVIDENCE_EVERY: i64 = 5;
/// Overdue generations that one tick looks at.
const RECONCILE_MAX: usize = 10;
/// A queued generation that nobody takes gets a further message this often.
const MESSAGE_EVERY: Span = Span::from_hours(1);
/// A look, evidence in two stores, its runner, the settlement.
const COST_OF_RECONCILING: u32 = 12;
/// The tick's summary, and the counts that the isolate gathered.
const COST_OF_END: u32 = 4;
/// Finding and marking stale deliveries.
const COST_OF_STALE: u32 = 2;
/// A purge of a few outputs in R2, and a look for bodies that nobody needs.
const COST_OF_TIDYING: u32 = 12;
/// Reading it, committing it (some statements), deleting it.
const COST_OF_EVIDENCE: u32 = 8;
/// Deliveries whose wait one tick measures anew, after a clock was set back.
const MENDED_MAX: usize = 500;
/// Deliveries that one tick reports as stale.
const STALE_MAX: usize = 500;
