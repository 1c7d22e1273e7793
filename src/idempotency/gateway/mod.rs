//! The path of a request from its keys to its answer.
//!
//! Isolate cache, then KV, then the arbiter in the database, then the runner. The caches only ever
//! answer with results, which never change; whether a request is *fresh* is decided by the arbiter
//! alone, and where it can't be asked the request is refused, never guessed fresh.

mod attach;
mod cache;
mod claim;
mod fresh;
mod refuse;
mod replay;

use serde_json::json;

use self::attach::attach;
use self::cache::{Cached, cached};
use self::claim::claim_of;
use self::fresh::fresh;
use self::refuse::{conflict, no_credits};
use self::replay::{held_again, replay};
use crate::app::App;
use crate::config::{self, KvFailurePolicy};
use crate::error::{Code, Problem};
use crate::idempotency::live::Live;
use crate::idempotency::record::{Generation, Stored, Surface};
use crate::idempotency::state::{Ask, Standing, Verdict, verdict};
use crate::key::identity::Identity;
use crate::metrics::Cause;
use crate::ports::DbError;
use crate::store::accounts::Access;
use crate::store::claims::{self, Claimed};
use crate::time::{Span, Timestamp};

pub use self::cache::mark_result;
pub use self::fresh::{after_commit, run};
pub(crate) use self::refuse::{failure, pending};
pub(crate) use self::replay::followed;

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

/// A store that can't be reached refuses the request before anything is spent.
pub fn store_problem(app: &App, error: &DbError) -> Problem {
    app.log("store_failed", json!({"error": error.to_string()}));
    Problem::new(Code::StoreUnavailable, "The database can't be reached.")
}
