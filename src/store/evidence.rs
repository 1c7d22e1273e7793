//! Evidence: how a run ended, kept outside the database while that refuses the commit.

use crate::idempotency::record::Job;
use crate::store::settle::Purchase;

/// What a runner knew when the database would not take it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
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
        #[serde(default)]
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

/// What every name of evidence starts with.
pub const PREFIX: &str = "_oncepress/evidence/";
