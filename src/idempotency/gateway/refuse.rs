//! The refusals, each with what its caller should know.

use super::Asked;
use crate::app::App;
use crate::error::{Code, Problem, Source};
use crate::idempotency::record::{Generation, Settlement};
use crate::store::claims::Claim;
use crate::time::Span;

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

pub(super) fn in_progress(generation_id: &str) -> Problem {
    Problem::new(
        Code::GenerationInProgress,
        "The same request is being worked on; ask again with the same key.",
    )
    .generation(generation_id)
}

pub(super) fn conflict(asked: &Asked, holder: &Generation) -> Problem {
    let pointers = crate::key::leaves::Leaves::from_json(&holder.leaves)
        .map(|leaves| leaves.diff(&asked.identity.leaves))
        .unwrap_or_default();
    Problem::conflict(pointers).generation(&holder.id)
}

/// The account's credits of the day do not suffice for this request's upper estimate.
pub(super) fn no_credits(
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
