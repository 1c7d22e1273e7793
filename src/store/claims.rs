//! The arbiter: one atomic claim of a key, in one round trip.
//!
//! The batch inserts the generation only where the lifecycle table says "fresh" and the account's
//! credits suffice, stores the request's body and the deliveries it will owe, and reads who holds
//! the key now. Slots of one key stand side by side: a later slot's generation does not make the
//! key forget an earlier one's. It is the same decision as
//! [`verdict`](crate::idempotency::state::verdict), made where nobody can step in between.

use crate::idempotency::record::{Generation, Job};
use crate::idempotency::state::State;
use crate::limits::D1_TEXT_MAX_BYTES;
use crate::ports::{DbError, Rows, SqlValue, Statement};
use crate::store::row::first;
use crate::store::{count, integer, optional, parts, statement, text};
use crate::time::Timestamp;

/// A destination of a generation, resolved and frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The delivery's id.
    pub delivery_id: String,
    /// The publisher's name.
    pub publisher: String,
    /// Where in it the output goes.
    pub target: String,
}

/// Everything that a claim writes.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The generation as its runner will know it.
    pub job: Job,
    /// `queued` or `running`.
    pub state: State,
    /// Digests a leaf of the request, as JSON.
    pub leaves: String,
    /// The request's body, as it goes to Gemini.
    pub body: String,
    /// What will be owed.
    pub destinations: Vec<Destination>,
    /// The day that pays.
    pub credit_day: String,
    /// Upper estimate of the cost, in credits.
    pub credits: i64,
    /// Latest anchor of a first request that this one repeats.
    pub latest_anchor: Timestamp,
    /// Now.
    pub now: Timestamp,
}

/// What the claim found.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The generation that holds the key now; `None` where nobody does, because the credits of the
    /// account do not suffice.
    pub holder: Option<Generation>,
    /// Its stored answer, where it is generated and small enough to be in the database.
    pub body: Option<String>,
    /// The account's credits for the day: (limit, spent, reserved).
    pub credits: Option<(Option<i64>, i64, i64)>,
}

/// The statements of a claim.
pub fn batch(claim: &Claim) -> Vec<Statement> {
    let mut batch = vec![insert(claim)];
    batch.extend(body_parts(
        &claim.job.generation_id,
        &claim.job.token,
        &claim.body,
    ));
    batch.extend(
        claim
            .destinations
            .iter()
            .map(|destination| owe(&claim.job, destination)),
    );
    batch.push(holder(claim));
    batch.push(credits(&claim.job.account, &claim.credit_day));
    batch
}

/// Reads what [`batch`] returned.
pub fn read(results: &[Rows]) -> Result<Claimed, DbError> {
    let holder_at = results.len().saturating_sub(2);
    let (holder, body) = match first(results, holder_at)? {
        Some(row) => (
            Some(Generation::read(row)?),
            row.optional_text("stored_body")?,
        ),
        None => (None, None),
    };
    let credits = match first(results, holder_at.saturating_add(1))? {
        Some(row) => Some((
            row.optional_integer("daily_credits")?,
            row.integer("spent")?,
            row.integer("reserved")?,
        )),
        None => None,
    };
    Ok(Claimed {
        holder,
        body,
        credits,
    })
}

fn insert(claim: &Claim) -> Statement {
    let job = &claim.job;
    statement(
        INSERT,
        vec![
            text(&job.generation_id),
            text(&job.account),
            text(&job.site),
            text(&job.pipeline),
            optional(job.topic.as_deref()),
            text(job.surface.as_str()),
            text(&job.key),
            text(&job.claim_key),
            integer(job.operation),
            text(&job.fingerprint),
            text(&claim.leaves),
            text(claim.state.as_str()),
            text(&job.token),
            integer(job.lease_until.millis()),
            integer(job.anchor_at.millis()),
            integer(job.expires_at.millis()),
            text(&job.request_id),
            text(&job.model),
            integer(job.json_mode),
            text(&job.upstream),
            integer(claim.now.millis()),
            text(&claim.credit_day),
            integer(claim.credits),
            integer(claim.latest_anchor.millis()),
            integer(job.continues),
        ],
    )
}

/// The statements that keep a request's body, in parts below D1's row limit.
pub fn body_parts(id: &str, token: &str, body: &str) -> Vec<Statement> {
    parts(body, D1_TEXT_MAX_BYTES)
        .into_iter()
        .enumerate()
        .map(|(part, body)| {
            statement(
                KEEP_BODY,
                vec![text(id), text(token), count(part), text(body)],
            )
        })
        .collect()
}

fn owe(job: &Job, destination: &Destination) -> Statement {
    statement(
        OWE,
        vec![
            text(&destination.delivery_id),
            text(&job.generation_id),
            text(&destination.publisher),
            text(&destination.target),
            integer(job.created_at.millis()),
        ],
    )
}

/// Adds destinations that a duplicate named to the generation that is already there.
pub fn owe_more(
    generation_id: &str,
    destinations: &[Destination],
    now: Timestamp,
) -> Vec<Statement> {
    destinations
        .iter()
        .map(|destination| {
            statement(
                OWE,
                vec![
                    text(&destination.delivery_id),
                    text(generation_id),
                    text(&destination.publisher),
                    text(&destination.target),
                    integer(now.millis()),
                ],
            )
        })
        .collect()
}

/// Reads who holds the key now: the claim's own generation, else the one that refused it.
fn holder(claim: &Claim) -> Statement {
    statement(
        HOLDER,
        vec![
            text(&claim.job.generation_id),
            text(&claim.job.claim_key),
            integer(claim.job.anchor_at.millis()),
            integer(claim.latest_anchor.millis()),
        ],
    )
}

fn credits(account: &str, day: &str) -> Statement {
    let params: Vec<SqlValue> = vec![text(account), text(day)];
    statement(CREDITS, params)
}

const INSERT: &str = "INSERT INTO generations (id, account, site, pipeline, topic, surface, key, \
  claim_key, operation, fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, \
  request_id, model, json_mode, upstream, created_at, updated_at, credit_day, credits_reserved, \
  continues, from_queue, credits_estimate) \
SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, \
  ?21, ?21, ?22, ?23, ?25, ?12 = 'queued', ?23 \
WHERE NOT EXISTS (SELECT 1 FROM generations WHERE id = ?1) \
  AND NOT EXISTS (SELECT 1 FROM generations WHERE claim_key = ?8 \
    AND state IN ('queued', 'running', 'unknown', 'held')) \
  AND NOT EXISTS (SELECT 1 FROM generations WHERE claim_key = ?8 AND state = 'generated' \
    AND expires_at > ?15 AND anchor_at <= ?24) \
  AND NOT EXISTS (SELECT 1 FROM generations WHERE claim_key = ?8 AND state = 'generated' \
    AND purge_at IS NULL) \
  AND NOT EXISTS (SELECT 1 FROM accounts a \
    LEFT JOIN credit_days cd ON cd.account = a.account AND cd.day = ?22 \
    WHERE a.account = ?2 AND a.daily_credits IS NOT NULL \
      AND COALESCE(cd.spent, 0) + COALESCE(cd.reserved, 0) + ?23 > a.daily_credits)";

const KEEP_BODY: &str = "INSERT INTO request_bodies (generation_id, part, body) \
SELECT ?1, ?3, ?4 FROM generations \
WHERE id = ?1 AND token = ?2 AND state IN ('queued', 'running') \
ON CONFLICT DO NOTHING";

const OWE: &str = "INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, \
  target, status, next_attempt_at, created_at, due_since) \
SELECT ?1, id, account, site, pipeline, ?3, ?4, \
  CASE state WHEN 'generated' THEN 'pending' ELSE 'waiting' END, ?5, ?5, ?5 FROM generations \
WHERE id = ?2 AND state IN ('queued', 'running', 'unknown', 'held', 'generated') \
ON CONFLICT (id) DO NOTHING";

const HOLDER: &str = "SELECT g.*, \
  (SELECT json_group_array(d.publisher || '=' || d.target) FROM deliveries d \
    WHERE d.generation_id = g.id) AS destinations, \
  CASE WHEN g.output_where = 'd1' AND g.output_parts = 1 THEN \
    (SELECT o.body FROM outputs o WHERE o.output_id = g.output_id AND o.part = 0) \
  END AS stored_body \
FROM generations g WHERE g.id = COALESCE( \
  (SELECT id FROM generations WHERE id = ?1), \
  (SELECT id FROM generations WHERE claim_key = ?2 \
    AND state IN ('queued', 'running', 'unknown', 'held')), \
  (SELECT id FROM generations WHERE claim_key = ?2 AND state = 'generated' \
    AND expires_at > ?3 AND anchor_at <= ?4 ORDER BY expires_at DESC LIMIT 1), \
  (SELECT id FROM generations WHERE claim_key = ?2 AND state = 'generated' \
    AND purge_at IS NULL ORDER BY created_at DESC LIMIT 1))";

const CREDITS: &str = "SELECT a.daily_credits, COALESCE(cd.spent, 0) AS spent, \
  COALESCE(cd.reserved, 0) AS reserved FROM accounts a \
LEFT JOIN credit_days cd ON cd.account = a.account AND cd.day = ?2 WHERE a.account = ?1";
