//! Evidence: how a run ended, kept outside the database while that refuses the commit.

use serde_json::{Value, json};

use crate::idempotency::record::Job;
use crate::json_form::{JsonForm, member, object};
use crate::store::settle::Purchase;

/// What a runner knew when the database would not take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// An output that was paid for.
    Bought {
        /// The runner's claim.
        job: Box<Job>,
        /// The output.
        purchase: Box<Purchase>,
    },
    /// A definite failure.
    Failed {
        /// The runner's claim.
        job: Box<Job>,
        /// The error's code.
        reason: String,
        /// The same in words.
        detail: String,
        /// A queued job comes again after so long; `None` where it is failed for good.
        again_ms: Option<i64>,
    },
}

impl Evidence {
    /// The runner's claim.
    pub fn job(&self) -> &Job {
        match self {
            Self::Bought { job, .. } | Self::Failed { job, .. } => job,
        }
    }

    /// The name under which the fallback store keeps it.
    pub fn name(&self) -> String {
        let job = self.job();
        format!("{PREFIX}{}.{}", job.generation_id, job.token)
    }
}

impl JsonForm for Evidence {
    fn to_json(&self) -> Value {
        let (kind, members) = match self {
            Self::Bought { job, purchase } => {
                ("bought", object(&[("job", job), ("purchase", purchase)]))
            }
            Self::Failed {
                job,
                reason,
                detail,
                again_ms,
            } => (
                "failed",
                object(&[
                    ("job", job),
                    ("reason", reason),
                    ("detail", detail),
                    ("again_ms", again_ms),
                ]),
            ),
        };
        json!({ kind: members })
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        let kind = |kind: &str| value.and_then(|value| value.get(kind));
        if let Some(bought) = kind("bought") {
            return Self::Bought {
                job: member(Some(bought), "job", sound),
                purchase: member(Some(bought), "purchase", sound),
            };
        }
        let failed = kind("failed");
        Self::Failed {
            job: member(failed, "job", sound),
            reason: member(failed, "reason", sound),
            detail: member(failed, "detail", sound),
            again_ms: member(failed, "again_ms", sound),
        }
    }
}

/// What every name of evidence starts with.
pub const PREFIX: &str = "_oncepress/evidence/";
