//! The path of a request from its keys to its answer.
//!
//! Isolate cache, then KV, then the arbiter in the database, then the runner. The caches only ever
//! answer with results, which never change; whether a request is *fresh* is decided by the arbiter
//! alone, and where it can't be asked the request is refused, never guessed fresh.

use serde_json::json;

use crate::app::{App, RunnerError, delivery_id};
use crate::config::{self, KvFailurePolicy};
use crate::error::{Code, Problem, Source};
use crate::idempotency::body;
use crate::idempotency::follow::Lasting;
use crate::idempotency::live::{Feed, Live, Step};
use crate::idempotency::mark::{Mark, answers};
use crate::idempotency::output::unfit;
use crate::idempotency::reading::NoTap;
use crate::idempotency::record::{Generation, Job, Settlement, Stored, Surface};
use crate::idempotency::recovery::{settlement_of, stored};
use crate::idempotency::runner::execute;
use crate::idempotency::state::{Ask, Standing, State, Verdict, verdict};
use crate::key::identity::Identity;
use crate::limits::{
    DELIVERIES_MAX, KV_MARK_TTL, LEASE, OPERATION_KEY_TTL, OUTPUT_INLINE_MAX_BYTES, WAIT_MAX,
};
use crate::metrics::Cause;
use crate::ports::DbError;
use crate::publish::target::{Placeholders, expand};
use crate::store::accounts::Access;
use crate::store::claims::{self, Claim, Claimed, Destination};
use crate::store::settle;
use crate::time::{Span, Timestamp};

/// A request whose keys are known: nothing of it has been stored yet.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a column, or a fact of the request"
)]
#[derive(Clone, Debug)]
pub struct Asked {
    /// Who asks.
    pub access: Access,
    /// How the request came in.
    pub surface: Surface,
    /// Its site.
    pub site: String,
    /// Its pipeline.
    pub pipeline: String,
    /// What it is about, for people.
    pub topic: Option<String>,
    /// The model that was asked for.
    pub model: String,
    /// Whether JSON was asked for.
    pub json_mode: bool,
    /// Whether it continues an earlier answer.
    pub continues: bool,
    /// The caller's own key.
    pub operation: Option<String>,
    /// Fingerprint, digest and leaves.
    pub identity: Identity,
    /// Where its window starts.
    pub anchor: Timestamp,
    /// Whether the caller gave that.
    pub anchor_given: bool,
    /// How long its window is.
    pub window: Span,
    /// Where the output goes.
    pub destinations: Vec<config::Destination>,
    /// Whether the request itself named them.
    pub destinations_named: bool,
    /// The path at Gemini.
    pub upstream: String,
    /// The body for Gemini.
    pub body: String,
    /// Upper estimate of its cost, in credits.
    pub credits: i64,
    /// This request's id.
    pub request_id: String,
    /// How long the caller waits; a client of Gemini follows to the end.
    pub wait: Span,
    /// Whether the caller wants the work done in the queue.
    pub background: bool,
}

/// How a request is answered, where it is not refused.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Made now.
    Made(Box<Stored>),
    /// Answered from the stored result.
    Replayed(Box<Stored>),
    /// Paid for and stored, but held; drop-in callers get it all the same.
    Held {
        /// Why.
        reason: String,
        /// The stored answer.
        stored: Box<Stored>,
        /// Whether it was made now.
        made: bool,
    },
    /// It goes on, or waits in the queue.
    Accepted {
        /// The generation's id.
        generation_id: String,
    },
    /// It is being generated, and its caller, a client of Gemini, follows it.
    Running {
        /// The generation's id.
        generation_id: String,
        /// The first request's id.
        request_id: String,
        /// The key's mark in the caches.
        mark: String,
        /// Whether this request made it.
        made: bool,
        /// The run, where it is done in this handler.
        live: Option<Live>,
    },
}

/// The keys of a request in the stores.
#[derive(Clone, Debug)]
struct Keys {
    shown: String,
    claim: String,
    mark: String,
    fingerprint: String,
}

impl Keys {
    fn of(asked: &Asked) -> Self {
        let account = &asked.access.account;
        let fingerprint = asked.identity.fingerprint.to_string();
        match &asked.operation {
            Some(key) => Self {
                shown: key.clone(),
                claim: format!("o:{account}:{key}"),
                mark: format!("op:{account}:{key}"),
                fingerprint,
            },
            None => Self {
                shown: asked.identity.derived_key.clone(),
                claim: format!(
                    "d:{account}:{}:{}:{}",
                    asked.site, asked.pipeline, asked.identity.digest
                ),
                mark: asked.identity.derived_key.clone(),
                fingerprint,
            },
        }
    }
}

/// Answers a request: by replay, by joining a running generation, or by making it.
pub async fn ask(app: &App, asked: Asked) -> Result<Reply, Problem> {
    let keys = Keys::of(&asked);
    match cached(app, &asked, &keys).await {
        Cached::Result(stored) => {
            let cause = Cause::of(asked.surface, asked.background);
            app.count_replay(&stored, &asked.access.timezone, cause);
            return Ok(Reply::Replayed(stored));
        }
        Cached::Unreadable if app.config().kv_failure_policy == KvFailurePolicy::Deny => {
            return Err(Problem::new(
                Code::DedupUnavailable,
                "Nothing can tell whether this request was made before; try again with the same \
                 key.",
            ));
        }
        Cached::Nothing | Cached::Unreadable => {}
    }
    arbitrate(app, asked, &keys).await
}

/// What the caches know.
enum Cached {
    Result(Box<Stored>),
    Nothing,
    Unreadable,
}

async fn cached(app: &App, asked: &Asked, keys: &Keys) -> Cached {
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
fn usable(stored: &Stored, asked: &Asked, keys: &Keys, now: Timestamp) -> bool {
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

/// The destinations that a duplicate names and the generation does not have yet. Only what a
/// request itself names is added; a pipeline's own destinations were frozen at the claim.
fn missing(
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

/// Steps 5 to 9: claims the key, or answers from whoever holds it.
async fn arbitrate(app: &App, asked: Asked, keys: &Keys) -> Result<Reply, Problem> {
    let now = app.now();
    let claim = claim_of(app, &asked, keys, now);
    let results = app
        .run(claims::batch(&claim))
        .await
        .map_err(|error| store_problem(app, &error))?;
    let claimed = claims::read(&results).map_err(|error| store_problem(app, &error))?;
    let Claimed {
        holder,
        body,
        credits,
    } = claimed;
    let Some(holder) = holder else {
        return Err(no_credits(app, &asked.access.timezone, &claim, credits));
    };
    if holder.id == claim.job.generation_id {
        return fresh(app, &asked, keys, claim).await;
    }
    let standing = standing_of(&holder);
    match verdict(Some(&standing), &ask_of(&asked, keys, now), now) {
        Verdict::Fresh => Err(no_credits(app, &asked.access.timezone, &claim, credits)),
        Verdict::Conflict => Err(conflict(&asked, &holder)),
        Verdict::Pending => Err(pending(&holder.id)),
        Verdict::Held => held_again(app, &holder).await,
        Verdict::Replay => replay(app, &asked, keys, &holder, body).await,
        Verdict::Attach => attach(app, &asked, keys, holder).await,
    }
}

fn claim_of(app: &App, asked: &Asked, keys: &Keys, now: Timestamp) -> Claim {
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

/// A scheduler's slot moves the window of a derived key, never the 24 hours of an operation key.
fn ask_of(asked: &Asked, keys: &Keys, now: Timestamp) -> Ask {
    let operation = asked.operation.is_some();
    Ask {
        fingerprint: keys.fingerprint.clone(),
        operation,
        anchor: if operation { now } else { asked.anchor },
        anchor_given: asked.anchor_given && !operation,
    }
}

fn standing_of(holder: &Generation) -> Standing {
    Standing {
        state: holder.state,
        lease_until: holder.lease_until,
        anchor_at: holder.anchor_at,
        expires_at: holder.expires_at,
        owed: holder.owed,
        fingerprint: holder.fingerprint.clone(),
    }
}

/// The key is ours: marks it and runs the generation.
async fn fresh(app: &App, asked: &Asked, keys: &Keys, claim: Claim) -> Result<Reply, Problem> {
    let until = claim.job.lease_until;
    app.isolate.put(&keys.mark, Mark::RUNNING, until);
    mark_running(app, keys.mark.clone());
    let Claim {
        job, body, state, ..
    } = claim;
    let generation_id = job.generation_id.clone();
    if state == State::Queued {
        return enqueue(app, &job).await;
    }
    if let Err(problem) = body::keep(app, &body, &asked.body).await {
        let why = "its body could not be stored";
        let _ = app
            .run(settle::fail(&job, "store_unavailable", why, app.now()))
            .await;
        return Err(problem.generation(generation_id));
    }
    if asked.surface != Surface::Api {
        return begin(app, keys, job, body).await;
    }
    let wait = if asked.background {
        Span::default()
    } else {
        asked.wait.min(WAIT_MAX)
    };
    match run(app, job, body, wait).await {
        Ok(Some(settlement)) => made(app, keys, &generation_id, settlement),
        Ok(None) => Ok(Reply::Accepted { generation_id }),
        Err(error) => {
            log_unreachable(app, &generation_id, &error);
            Err(pending(&generation_id))
        }
    }
}

/// Starts a run whose caller follows it.
async fn begin(app: &App, keys: &Keys, job: Job, body: String) -> Result<Reply, Problem> {
    let generation_id = job.generation_id.clone();
    let request_id = job.request_id.clone();
    let live = if app.runner.is_some() {
        match run(app, job, body, Span::default()).await {
            Ok(None) => None,
            Ok(Some(settlement)) => return made(app, keys, &generation_id, settlement),
            Err(error) => {
                // It may have started all the same, which following it finds out.
                log_unreachable(app, &generation_id, &error);
                None
            }
        }
    } else {
        let live = Live::default();
        let (handle, seen) = (app.clone(), live.clone());
        app.background.spawn(Box::pin(async move {
            let settlement = execute(&handle, &job, body, &seen).await;
            after_commit(&handle, &settlement);
            seen.end(&job.token, settlement);
        }));
        Some(live)
    };
    Ok(Reply::Running {
        generation_id,
        request_id,
        mark: keys.mark.clone(),
        made: true,
        live,
    })
}

fn log_unreachable(app: &App, generation_id: &str, error: &RunnerError) {
    app.log(
        "runner_unreachable",
        json!({"generationId": generation_id, "error": error.to_string()}),
    );
}

/// Starts a run where runs are done, and waits for its end.
pub async fn run(
    app: &App,
    job: Job,
    body: String,
    wait: Span,
) -> Result<Option<Settlement>, RunnerError> {
    let Some(runner) = &app.runner else {
        return Ok(Some(run_inline(app, job, body).await));
    };
    // Starting the same job twice is starting it once, so an unclear first try is repeated.
    match runner.start(job.clone(), body.clone(), wait).await {
        Err(RunnerError::Unreachable(_)) => runner.start(job, body, wait).await,
        answer => answer,
    }
}

/// Runs a generation in the handler, for calls shorter than a connection lives.
async fn run_inline(app: &App, job: Job, body: String) -> Settlement {
    let settlement = execute(app, &job, body, &NoTap).await;
    after_commit(app, &settlement);
    settlement
}

/// What follows a commit, after the answer: the result mark, and the drain of what is owed now.
pub fn after_commit(app: &App, settlement: &Settlement) {
    let Settlement::Generated { stored } = settlement else {
        return;
    };
    let (app, stored) = (app.clone(), stored.clone());
    let background = app.background.clone();
    background.spawn(Box::pin(async move {
        mark_result(&app, &stored).await;
        if !stored.destinations.is_empty() {
            crate::outbox::drain::drain_generation(&app, &stored.generation_id).await;
        }
        app.flush_now().await;
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

fn mark_running(app: &App, key: String) {
    let handle = app.clone();
    app.background.spawn(Box::pin(async move {
        put_mark(&handle, &key, Mark::RUNNING.to_owned()).await;
    }));
}

async fn put_mark(app: &App, key: &str, text: String) {
    if let Err(error) = app.kv_put(key, text, Some(KV_MARK_TTL)).await {
        app.log("kv_write_failed", json!({"error": error.to_string()}));
    }
}

/// Keeps a result in the isolate while it answers.
fn remember(app: &App, key: &str, stored: &Stored) {
    if stored.body.len() <= OUTPUT_INLINE_MAX_BYTES {
        let until = stored.expires_at.min(app.now().plus(KV_MARK_TTL));
        app.isolate.put(key, &Mark::result(stored), until);
    }
}

async fn enqueue(app: &App, job: &Job) -> Result<Reply, Problem> {
    let generation_id = job.generation_id.clone();
    let message = json!({"generationId": generation_id}).to_string();
    let Some(queues) = &app.queues else {
        return Err(pending(&generation_id));
    };
    match queues.send("JOBS", message, Span::default()).await {
        Ok(()) => Ok(Reply::Accepted { generation_id }),
        Err(error) => {
            app.log(
                "queue_refused",
                json!({"generationId": generation_id,
                "error": error.to_string()}),
            );
            // A message that was accepted all the same finds the generation failed, and is dropped.
            let batch = settle::fail(job, "store_unavailable", "the queue refused it", app.now());
            let _ = app.run(batch).await;
            Err(
                Problem::new(Code::StoreUnavailable, "The queue can't be reached.")
                    .generation(generation_id),
            )
        }
    }
}

/// The answer to the caller whose claim it was.
fn made(
    app: &App,
    keys: &Keys,
    generation_id: &str,
    settlement: Settlement,
) -> Result<Reply, Problem> {
    match settlement {
        Settlement::Generated { stored } => {
            remember(app, &keys.mark, &stored);
            Ok(Reply::Made(stored))
        }
        Settlement::Held { reason, stored } => {
            app.isolate.remove(&keys.mark);
            Ok(Reply::Held {
                reason,
                stored,
                made: true,
            })
        }
        other => {
            app.isolate.remove(&keys.mark);
            Err(failure(generation_id, other))
        }
    }
}

/// What the end of a run that was followed means to the caches and the figures; `body` is its whole
/// answer, where the follower has kept it.
///
/// `caught` is the account's time zone where the follower's request was a duplicate.
pub(crate) fn followed(
    app: &App,
    mark: &str,
    caught: Option<&str>,
    end: &Settlement,
    body: Option<String>,
) {
    match end {
        Settlement::Generated { stored } => {
            if let Some(zone) = caught {
                app.count_replay(stored, zone, Cause::Overlap);
            }
            if let Some(body) = body {
                let whole = Stored {
                    body,
                    ..Stored::clone(stored)
                };
                remember(app, mark, &whole);
            }
        }
        Settlement::Held { .. } | Settlement::Failed { .. } | Settlement::Unknown { .. } => {
            if caught.is_none() {
                app.isolate.remove(mark);
            }
        }
    }
}

/// The refusal that a settlement without an output comes to.
pub(crate) fn failure(generation_id: &str, settlement: Settlement) -> Problem {
    match settlement {
        Settlement::Failed {
            code,
            detail,
            retry_after_ms,
            google,
        } => {
            // Freed by policy or given up by a person: nobody knows, or somebody has paid.
            let Some(known) = Code::parse(&code) else {
                return pending(generation_id);
            };
            let mut problem = Problem::new(known, detail).generation(generation_id);
            if known.source() == Source::Gemini {
                // A definite failure gives all of its credits back; where the outcome is unknown
                // this header is absent.
                problem = problem.header("x-oncepress-credits", "0");
            }
            if let Some(ms) = retry_after_ms {
                problem = problem.after(Span::from_millis(ms));
            }
            if let Some((status, body)) = google {
                problem = problem.upstream(status, body);
            }
            problem
        }
        Settlement::Unknown { .. } | Settlement::Generated { .. } | Settlement::Held { .. } => {
            pending(generation_id)
        }
    }
}

pub(crate) fn pending(generation_id: &str) -> Problem {
    Problem::new(
        Code::RequestReconciliationPending,
        "Whether Gemini did the work is not known yet; it is being settled.",
    )
    .generation(generation_id)
}

fn conflict(asked: &Asked, holder: &Generation) -> Problem {
    let pointers = crate::key::leaves::Leaves::from_json(&holder.leaves)
        .map(|leaves| leaves.diff(&asked.identity.leaves))
        .unwrap_or_default();
    Problem::conflict(pointers).generation(&holder.id)
}

/// The account's credits of the day do not suffice for this request's upper estimate.
fn no_credits(
    app: &App,
    zone: &str,
    claim: &Claim,
    credits: Option<(Option<i64>, i64, i64)>,
) -> Problem {
    let Some((Some(limit), spent, reserved)) = credits else {
        return Problem::new(Code::StoreUnavailable, "The claim could not be decided.");
    };
    let left = limit.saturating_sub(spent).saturating_sub(reserved).max(0);
    Problem::new(
        Code::CreditsExhausted,
        format!(
            "This request may cost {} credits; {left} are left today.",
            claim.credits
        ),
    )
    .after(until_midnight(app, zone))
    .member("creditsNeeded", claim.credits)
    .member("creditsLeft", left)
}

/// How long until the account's day ends: its credits start anew then.
fn until_midnight(app: &App, zone: &str) -> Span {
    let now = app.now();
    let offset = Span::from_minutes(i64::from(app.zones.offset_minutes(zone, now).unwrap_or(0)));
    let day = Span::from_days(1).millis();
    Span::from_millis(day.saturating_sub(now.plus(offset).millis().rem_euclid(day)))
}

/// A store that can't be reached refuses the request before anything is spent.
pub fn store_problem(app: &App, error: &DbError) -> Problem {
    app.log("store_failed", json!({"error": error.to_string()}));
    Problem::new(Code::StoreUnavailable, "The database can't be reached.")
}

async fn held_again(app: &App, holder: &Generation) -> Result<Reply, Problem> {
    let result = stored(app, holder, None)
        .await
        .map_err(|error| store_problem(app, &error))?;
    Ok(Reply::Held {
        reason: holder.reason.clone().unwrap_or_default(),
        stored: Box::new(result),
        made: false,
    })
}

async fn replay(
    app: &App,
    asked: &Asked,
    keys: &Keys,
    holder: &Generation,
    body: Option<String>,
) -> Result<Reply, Problem> {
    let mut result = stored(app, holder, body)
        .await
        .map_err(|error| store_problem(app, &error))?;
    if was_passed_on(asked, holder)
        && let Some(reason) = unfit(app, holder, &result.body)
    {
        return Ok(Reply::Held {
            reason: reason.to_owned(),
            stored: Box::new(result),
            made: false,
        });
    }
    let more = owe_missing(app, asked, holder).await?;
    result
        .destinations
        .extend(more.iter().map(|d| format!("{}={}", d.publisher, d.target)));
    let cause = Cause::of(asked.surface, asked.background);
    app.count_replay(&result, &asked.access.timezone, cause);
    // An operation key's anchor is its creation, so a mark answers for the rest of its life.
    remember(app, &keys.mark, &result);
    let (handle, again, owed) = (app.clone(), result.clone(), !more.is_empty());
    app.background.spawn(Box::pin(async move {
        mark_result(&handle, &again).await;
        if owed {
            crate::outbox::drain::drain_generation(&handle, &again.generation_id).await;
        }
    }));
    Ok(Reply::Replayed(Box::new(result)))
}

/// Whether a duplicate wants to have published what was bought to be passed on only, and so was
/// never asked whether it is fit for that.
fn was_passed_on(asked: &Asked, holder: &Generation) -> bool {
    let have = &holder.destinations;
    asked.surface != Surface::Api
        && have.is_empty()
        && !missing(
            asked,
            have,
            &holder.id,
            holder.anchor_at,
            holder.topic.as_deref(),
        )
        .is_empty()
}

/// Waits until it is known what was bought, and only then adds destinations to it.
async fn attach_to_publish(
    app: &App,
    asked: &Asked,
    keys: &Keys,
    id: &str,
) -> Result<Reply, Problem> {
    let mut feed = Lasting::new(app, id);
    let end = loop {
        match feed.next().await {
            Ok(Step::Piece(_)) => {}
            Ok(Step::End(end)) => break end,
            Err(error) => {
                log_unreachable(app, id, &error);
                return Err(pending(id));
            }
        }
    };
    if let Settlement::Failed { .. } | Settlement::Unknown { .. } = end {
        return Err(failure(id, end));
    }
    let failed = |error: DbError| store_problem(app, &error);
    let results = app.run(settle::load(id)).await.map_err(failed)?;
    match settle::read_load(&results, 0).map_err(failed)? {
        Some((holder, _)) if holder.state == State::Held => held_again(app, &holder).await,
        Some((holder, _)) => replay(app, asked, keys, &holder, None).await,
        None => Err(pending(id)),
    }
}

/// Adds the destinations that a duplicate names to the generation that is there.
async fn owe_missing(
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

/// Waits for a running generation; one whose runner never started is started here.
async fn attach(
    app: &App,
    asked: &Asked,
    keys: &Keys,
    holder: Generation,
) -> Result<Reply, Problem> {
    if was_passed_on(asked, &holder) {
        return attach_to_publish(app, asked, keys, &holder.id).await;
    }
    owe_missing(app, asked, &holder).await?;
    if asked.background {
        return Ok(Reply::Accepted {
            generation_id: holder.id,
        });
    }
    if asked.surface != Surface::Api {
        return Ok(Reply::Running {
            generation_id: holder.id,
            request_id: holder.request_id,
            mark: keys.mark.clone(),
            made: false,
            live: None,
        });
    }
    let wait = asked.wait.min(WAIT_MAX);
    let settlement = match &app.runner {
        Some(runner) if holder.state == State::Running => {
            match runner.attach(&holder.id, wait).await {
                Ok(settlement) => settlement,
                Err(RunnerError::NotHere) => start_or_read(app, &holder.id, wait).await?,
                Err(RunnerError::Unreachable(_)) => poll(app, &holder.id, wait).await?,
            }
        }
        _ => poll(app, &holder.id, wait).await?,
    };
    match settlement {
        Some(Settlement::Generated { stored }) => {
            app.count_replay(&stored, &asked.access.timezone, Cause::Overlap);
            remember(app, &keys.mark, &stored);
            Ok(Reply::Replayed(stored))
        }
        Some(Settlement::Held { reason, stored }) => Ok(Reply::Held {
            reason,
            stored,
            made: false,
        }),
        Some(other) => Err(failure(&holder.id, other)),
        None => Err(in_progress(&holder.id)),
    }
}

fn in_progress(generation_id: &str) -> Problem {
    Problem::new(
        Code::GenerationInProgress,
        "The same request is being worked on; ask again with the same key.",
    )
    .generation(generation_id)
}

/// No runner knows the generation: it was settled meanwhile, or its claimant died before it could
/// start one. The same job under the same token can only be started once, whoever asks.
async fn start_or_read(app: &App, id: &str, wait: Span) -> Result<Option<Settlement>, Problem> {
    let failed = |error: DbError| store_problem(app, &error);
    let until = app.now().plus(wait);
    loop {
        let results = app.run(settle::load(id)).await.map_err(failed)?;
        let found = settle::read_load(&results, 0).map_err(failed)?;
        let Some((generation, body)) = found else {
            return Err(pending(id));
        };
        if generation.state != State::Running {
            let settlement = settlement_of(app, &generation).await;
            return settlement.map(Some).map_err(failed);
        }
        let now = app.now();
        if now >= generation.updated_at.plus(FORGOTTEN_AFTER) {
            let left = until.since(now).max(Span::default());
            let started = run(app, Job::of(&generation), body, left).await;
            return started.map_err(|_| pending(id));
        }
        if now >= until {
            return Ok(None);
        }
        // Its claimant may be about to start it.
        app.clock.sleep(POLL).await;
    }
}

/// Looks again and again until the generation is settled or the wait is over.
async fn poll(app: &App, id: &str, wait: Span) -> Result<Option<Settlement>, Problem> {
    let until = app.now().plus(wait);
    loop {
        if app.now() >= until {
            return Ok(None);
        }
        app.clock.sleep(POLL).await;
        let results = app
            .run(settle::load(id))
            .await
            .map_err(|e| store_problem(app, &e))?;
        let found = settle::read_load(&results, 0).map_err(|e| store_problem(app, &e))?;
        let Some((generation, _)) = found else {
            return Err(pending(id));
        };
        if !matches!(generation.state, State::Queued | State::Running) {
            let settlement = settlement_of(app, &generation).await;
            return settlement
                .map(Some)
                .map_err(|error| store_problem(app, &error));
        }
    }
}

/// A claim whose runner does not know it after this long was left by a claimant that died; between
/// claim and start lie milliseconds.
const FORGOTTEN_AFTER: Span = Span::from_seconds(10);
/// Between two looks at a generation that no runner can be asked about.
const POLL: Span = Span::from_seconds(1);
