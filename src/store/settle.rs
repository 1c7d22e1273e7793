//! Settling a generation: commit, failure, unknown. Each batch checks token and state, and says at
//! the end what the row holds, so that a lost reply and a lost lease are told apart.

use crate::idempotency::record::{Generation, Job, Tokens};
use crate::idempotency::state::State;
use crate::json_form::json_form;
use crate::limits::RETENTION;
use crate::ports::{DbError, Rows, SqlValue, Statement};
use crate::store::row::first;
use crate::store::{count, integer, optional, statement, text};
use crate::time::Timestamp;

/// A paid-for output on its way into the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purchase {
    /// Names the output; made once, before the first try of the commit.
    pub output_id: String,
    /// Why it is held; `None` where it is fit to publish.
    pub held: Option<String>,
    /// The same in words.
    pub detail: Option<String>,
    /// Whether it is held where another generation went to the same target within a day.
    pub holds_near_duplicates: bool,
    /// The answer in parts; empty where it lies in R2.
    pub parts: Vec<String>,
    /// Whether the answer lies in R2.
    pub in_r2: bool,
    /// The media type of the answer.
    pub content_type: String,
    /// Gemini's tracing headers, as JSON.
    pub headers: String,
    /// The model that answered.
    pub model_version: Option<String>,
    /// Why Gemini stopped.
    pub finish_reason: Option<String>,
    /// What was used.
    pub tokens: Tokens,
    /// What it cost, in nano-USD.
    pub cost_nano: i64,
    /// The same in credits, rounded up.
    pub credits: i64,
    /// When the last byte was there.
    pub completed_at: Timestamp,
}

json_form!(Purchase {
    output_id,
    held,
    detail,
    holds_near_duplicates,
    parts,
    in_r2,
    content_type,
    headers,
    model_version,
    finish_reason,
    tokens,
    cost_nano,
    credits,
    completed_at,
});

impl Purchase {
    /// The state it puts the generation in.
    pub const fn state(&self) -> State {
        if self.held.is_some() {
            State::Held
        } else {
            State::Generated
        }
    }
}

/// Whether a settling batch took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The row holds what the batch wrote, now or by an earlier run of the same batch.
    Yes,
    /// Somebody else settled it, or holds it now.
    Lost(Option<State>),
}

/// Output, usage, cost and the outbox rows, in one transaction.
///
/// A runner whose lease is over may still commit while nobody has taken the key: its token stands.
pub fn commit(job: &Job, purchase: &Purchase) -> Vec<Statement> {
    let mut params = vec![
        text(&job.generation_id),
        text(&job.token),
        text(purchase.state().as_str()),
        optional(purchase.held.as_deref()),
        optional(purchase.detail.as_deref()),
    ];
    params.extend(bought(purchase));
    let mut batch = vec![statement(COMMIT, params)];
    batch.extend(keep_output(&job.generation_id, purchase));
    if purchase.holds_near_duplicates && purchase.held.is_none() {
        let (id, output) = (text(&job.generation_id), text(&purchase.output_id));
        batch.push(statement(HOLD_NEAR, vec![id, output, text(REASON_NEAR)]));
    }
    batch.push(statement(
        RELEASE_DELIVERIES,
        vec![
            text(&job.generation_id),
            text(&purchase.output_id),
            integer(purchase.completed_at.millis()),
        ],
    ));
    batch.push(statement(
        DROP_BODY,
        vec![text(&job.generation_id), text(&job.token)],
    ));
    batch.push(standing(&job.generation_id));
    batch
}

/// What was bought, in the order of the columns from `output_id` on; then now, and the end of
/// retention.
fn bought(purchase: &Purchase) -> [SqlValue; 16] {
    let now = purchase.completed_at;
    let tokens = &purchase.tokens;
    let tokens_of = |count: u64| integer(i64::try_from(count).unwrap_or(i64::MAX));
    [
        text(&purchase.output_id),
        text(if purchase.in_r2 { "r2" } else { "d1" }),
        count(purchase.parts.len()),
        text(&purchase.content_type),
        text(&purchase.headers),
        optional(purchase.model_version.as_deref()),
        optional(purchase.finish_reason.as_deref()),
        tokens_of(tokens.prompt),
        tokens_of(tokens.cached),
        tokens_of(tokens.output),
        tokens_of(tokens.thought),
        tokens_of(tokens.total),
        integer(purchase.cost_nano),
        integer(purchase.credits),
        integer(now.millis()),
        integer(now.plus(RETENTION).millis()),
    ]
}

/// Stores the parts of an output that the generation `id` names.
fn keep_output<'a>(id: &'a str, purchase: &'a Purchase) -> impl Iterator<Item = Statement> + 'a {
    let parts = purchase.parts.iter().enumerate();
    parts.map(move |(part, body)| {
        let output = text(&purchase.output_id);
        statement(KEEP_OUTPUT, vec![text(id), output, count(part), text(body)])
    })
}

/// Reads whether the output named `output_id` is the generation's.
pub fn read_commit(results: &[Rows], output_id: &str) -> Result<Settled, DbError> {
    let Some(row) = first(results, results.len().saturating_sub(1))? else {
        return Ok(Settled::Lost(None));
    };
    if row.optional_text("output_id")?.as_deref() == Some(output_id) {
        return Ok(Settled::Yes);
    }
    Ok(Settled::Lost(State::parse(&row.text("state")?)))
}

/// Why a committed output is held, where the commit itself found a reason.
pub fn read_held(results: &[Rows]) -> Result<Option<String>, DbError> {
    let Some(row) = first(results, results.len().saturating_sub(1))? else {
        return Ok(None);
    };
    let held = row.text("state")? == State::Held.as_str();
    Ok(if held {
        row.optional_text("reason")?
    } else {
        None
    })
}

/// A definite failure: the credits go back and the key is free, in one transaction.
pub fn fail(job: &Job, reason: &str, detail: &str, now: Timestamp) -> Vec<Statement> {
    let common = vec![text(&job.generation_id), text(&job.token)];
    let mut params = common.clone();
    params.extend([
        text(reason),
        text(detail),
        integer(now.millis()),
        integer(now.plus(RETENTION).millis()),
    ]);
    vec![
        statement(FAIL, params),
        statement(DROP_DELIVERIES, common.clone()),
        statement(DROP_BODY, common),
        standing(&job.generation_id),
    ]
}

/// The outcome is unknown: the key stays bound and the credits stay reserved.
pub fn unknown(job: &Job, reason: &str, detail: &str, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            UNKNOWN,
            vec![
                text(&job.generation_id),
                text(&job.token),
                text(reason),
                text(detail),
                integer(now.millis()),
            ],
        ),
        standing(&job.generation_id),
    ]
}

/// Frees the key of a generation whose outcome is unknown; its credits stay reserved, since it may
/// have been billed. A late runner can still commit while nobody has taken the key.
pub fn free_unknown(id: &str, token: &str, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            FREE_UNKNOWN,
            vec![
                text(id),
                text(token),
                text(REASON_FREED),
                integer(now.millis()),
                integer(now.plus(RETENTION).millis()),
            ],
        ),
        statement(DROP_BODY, vec![text(id), text(token)]),
        standing(id),
    ]
}

/// Puts a queued job whose runner died back into the queue. What the dead runner may have bought is
/// charged at its estimate; the next run reserves anew. Nothing changes where the account's credits
/// of the day do not suffice for that.
pub fn free_to_queue(job: &Job, detail: &str, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            FREE_TO_QUEUE,
            vec![
                text(&job.generation_id),
                text(&job.token),
                text(REASON_FREED),
                text(detail),
                integer(now.millis()),
            ],
        ),
        standing(&job.generation_id),
    ]
}

/// Reads whether a generation is in the state that a batch wanted, under the same token.
pub fn read_state(results: &[Rows], wanted: State, token: &str) -> Result<Settled, DbError> {
    let Some(row) = first(results, results.len().saturating_sub(1))? else {
        return Ok(Settled::Lost(None));
    };
    let state = State::parse(&row.text("state")?);
    let own = row.text("token")? == token && state == Some(wanted);
    Ok(if own {
        Settled::Yes
    } else {
        Settled::Lost(state)
    })
}

/// Keeps what a late runner paid for as evidence of a generation that a successor took over.
pub fn supersede(job: &Job, evidence_id: &str, purchase: &Purchase) -> Vec<Statement> {
    let mut params = vec![
        text(&job.generation_id),
        text(evidence_id),
        text(&job.token),
    ];
    params.extend(bought(purchase));
    let mut batch = vec![statement(EVIDENCE, params)];
    batch.extend(keep_output(evidence_id, purchase));
    batch.push(statement(
        RELEASE_RESERVATION,
        vec![
            text(&job.generation_id),
            text(&job.token),
            text(REASON_FREED),
        ],
    ));
    batch.push(statement(
        RELEASE_REPLACED,
        vec![text(&job.generation_id), text(&job.token)],
    ));
    batch
}

/// Takes a queued generation for a runner: a new token and a fresh lease.
pub fn take(id: &str, token: &str, lease_until: Timestamp, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            TAKE,
            vec![
                text(id),
                text(token),
                integer(lease_until.millis()),
                integer(now.millis()),
            ],
        ),
        statement(LOAD, vec![text(id)]),
        statement(LOAD_BODY, vec![text(id)]),
    ]
}

/// Puts a generation whose attempt failed for sure back into the queue. Its message comes again by
/// itself; only where it has not come by `lost_at` is it taken for lost.
pub fn requeue(
    job: &Job,
    reason: &str,
    detail: &str,
    lost_at: Timestamp,
    now: Timestamp,
) -> Vec<Statement> {
    vec![
        statement(
            REQUEUE,
            vec![
                text(&job.generation_id),
                text(&job.token),
                text(reason),
                text(detail),
                integer(now.millis()),
                integer(lost_at.millis()),
            ],
        ),
        standing(&job.generation_id),
    ]
}

/// A generation and its request's body, for a runner that starts over.
pub fn load(id: &str) -> Vec<Statement> {
    vec![
        statement(LOAD, vec![text(id)]),
        statement(LOAD_BODY, vec![text(id)]),
    ]
}

/// Reads [`load`], or [`take`] from its second statement on.
pub fn read_load(results: &[Rows], from: usize) -> Result<Option<(Generation, String)>, DbError> {
    let Some(row) = first(results, from)? else {
        return Ok(None);
    };
    let generation = Generation::read(row)?;
    let body = crate::store::row::rows(results, from.saturating_add(1))?
        .map(|row| row.text("body"))
        .collect::<Result<String, _>>()?;
    Ok(Some((generation, body)))
}

fn standing(id: &str) -> Statement {
    statement(
        "SELECT state, token, output_id, reason FROM generations WHERE id = ?1",
        vec![text(id)],
    )
}

/// Why a generation of unknown outcome is failed: its key was freed by policy or by a person.
pub const REASON_FREED: &str = "unknown_freed";

/// Why the second generation for one target within a day is held.
pub const REASON_NEAR: &str = "near_duplicate";

const COMMIT: &str = "UPDATE generations SET state = ?3, reason = ?4, detail = ?5, \
  output_where = ?7, output_parts = ?8, output_type = ?9, output_headers = ?10, \
  model_version = ?11, finish_reason = ?12, prompt_tokens = ?13, cached_tokens = ?14, \
  output_tokens = ?15, thought_tokens = ?16, total_tokens = ?17, cost_nano = ?18, \
  output_id = ?6, credits_reserved = 0, credits_spent = credits_spent + ?19, \
  completed_at = ?20, updated_at = ?20, \
  purge_at = CASE WHEN ?3 = 'held' OR EXISTS (SELECT 1 FROM deliveries \
    WHERE generation_id = ?1 AND status = 'waiting') THEN NULL ELSE ?21 END \
WHERE id = ?1 AND token = ?2 AND (state IN ('running', 'unknown') \
  OR (state = 'failed' AND reason = 'unknown_freed' AND NOT EXISTS (SELECT 1 FROM generations n \
    WHERE n.claim_key = generations.claim_key \
      AND n.state IN ('queued', 'running', 'unknown', 'held')) \
    AND NOT EXISTS (SELECT 1 FROM generations n WHERE n.claim_key = generations.claim_key \
      AND n.state = 'generated' AND n.created_at >= generations.created_at)))";

const KEEP_OUTPUT: &str = "INSERT INTO outputs (output_id, part, body) \
SELECT ?2, ?3, ?4 FROM generations WHERE id = ?1 AND output_id = ?2 ON CONFLICT DO NOTHING";

// Of two at once the one that commits first goes out: what still waits is nobody's forerunner.
const HOLD_NEAR: &str = "UPDATE generations SET state = 'held', reason = ?3, purge_at = NULL, \
  detail = 'another generation went to the same target within a day' \
WHERE id = ?1 AND output_id = ?2 AND state = 'generated' AND EXISTS (SELECT 1 \
  FROM deliveries mine JOIN deliveries other INDEXED BY deliveries_by_target \
    ON other.publisher = mine.publisher AND other.target = mine.target \
    AND other.created_at BETWEEN mine.created_at - 86400000 AND mine.created_at + 86400000 \
  WHERE mine.generation_id = ?1 AND mine.status = 'waiting' AND other.generation_id <> ?1 \
    AND other.account = mine.account \
    AND other.status IN ('pending', 'published', 'dead', 'outcome_unknown'))";

const RELEASE_DELIVERIES: &str = "UPDATE deliveries SET status = 'pending', \
  next_attempt_at = ?3, due_since = ?3 \
WHERE generation_id = ?1 AND status = 'waiting' AND EXISTS (SELECT 1 FROM generations \
  WHERE id = ?1 AND output_id = ?2 AND state = 'generated')";

const DROP_BODY: &str = "DELETE FROM request_bodies WHERE generation_id = ?1 AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state IN ('generated', 'failed'))";

const DROP_DELIVERIES: &str = "DELETE FROM deliveries WHERE generation_id = ?1 \
  AND status = 'waiting' AND EXISTS \
  (SELECT 1 FROM generations WHERE id = ?1 AND token = ?2 AND state = 'failed')";

const FAIL: &str = "UPDATE generations SET state = 'failed', reason = ?3, detail = ?4, \
  credits_reserved = 0, completed_at = ?5, updated_at = ?5, purge_at = ?6 \
WHERE id = ?1 AND token = ?2 AND state IN ('queued', 'running', 'unknown')";

const UNKNOWN: &str = "UPDATE generations SET state = 'unknown', reason = ?3, detail = ?4, \
  updated_at = ?5 WHERE id = ?1 AND token = ?2 AND state = 'running'";

const FREE_UNKNOWN: &str = "UPDATE generations SET state = 'failed', reason = ?3, \
  completed_at = ?4, updated_at = ?4, purge_at = ?5 \
WHERE id = ?1 AND token = ?2 AND state IN ('running', 'unknown')";

const EVIDENCE: &str = "INSERT INTO generations (id, account, site, pipeline, topic, surface, key, \
  claim_key, operation, fingerprint, leaves, state, reason, token, lease_until, anchor_at, \
  expires_at, request_id, model, json_mode, upstream, created_at, credit_day, output_id, \
  output_where, output_parts, output_type, output_headers, model_version, finish_reason, \
  prompt_tokens, cached_tokens, output_tokens, thought_tokens, total_tokens, cost_nano, \
  credits_spent, completed_at, updated_at, evidence_of, purge_at) \
SELECT ?2, account, site, pipeline, topic, surface, key, claim_key, operation, fingerprint, leaves, \
  'superseded', 'lease_lost', ?3, lease_until, anchor_at, expires_at, request_id, model, json_mode, \
  upstream, created_at, credit_day, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, \
  ?18, ?18, ?1, ?19 FROM generations \
WHERE id = ?1 AND output_id IS NOT ?4 ON CONFLICT (id) DO NOTHING";

const RELEASE_RESERVATION: &str = "UPDATE generations SET credits_reserved = 0, credits_spent = \
  CASE WHEN reason = 'abandoned' AND output_id IS NULL THEN 0 ELSE credits_spent END \
WHERE id = ?1 AND token = ?2 AND state = 'failed' AND reason IN (?3, 'abandoned')";

// A run that a person replaced was charged at its estimate; now its own cost is known.
const RELEASE_REPLACED: &str = "UPDATE generations SET credits_spent = 0 \
WHERE evidence_of = ?1 AND token = ?2 AND reason = 'replaced' AND output_id IS NULL \
  AND credits_spent > 0";

const TAKE: &str = "UPDATE generations SET state = 'running', token = ?2, lease_until = ?3, \
  updated_at = ?4 WHERE id = ?1 AND state = 'queued'";

const REQUEUE: &str = "UPDATE generations SET state = 'queued', reason = ?3, detail = ?4, \
  lease_until = ?6, updated_at = ?5 WHERE id = ?1 AND token = ?2 AND state = 'running'";

const FREE_TO_QUEUE: &str = "UPDATE generations SET state = 'queued', reason = ?3, detail = ?4, \
  credits_spent = credits_spent + credits_reserved, updated_at = ?5 \
WHERE id = ?1 AND token = ?2 AND state IN ('running', 'unknown') \
  AND NOT EXISTS (SELECT 1 FROM accounts a JOIN credit_days cd ON cd.account = a.account \
    WHERE a.account = generations.account AND cd.day = generations.credit_day \
      AND cd.spent + cd.reserved + generations.credits_reserved > a.daily_credits)";

const LOAD: &str = "SELECT g.*, \
  (SELECT json_group_array(d.publisher || '=' || d.target) FROM deliveries d \
    WHERE d.generation_id = g.id) AS destinations \
FROM generations g WHERE g.id = ?1";

const LOAD_BODY: &str = "SELECT body FROM request_bodies WHERE generation_id = ?1 ORDER BY part";

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
#[path = "settle_tests.rs"]
mod tests;
