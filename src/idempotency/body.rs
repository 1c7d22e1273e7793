//! Where the body of a request lies until its generation is settled: in the database, or, where it
//! is large, in R2 with its place in the database.
//!
//! The claim comes first, then the object, then the run. A claimant that dies in between leaves a
//! claim without a body: its run finds nothing to send, which is a definite failure.

use crate::app::App;
use crate::error::{Code, Problem};
use crate::gemini::error::{Failure, transport};
use crate::idempotency::record::{Job, Settlement};
use crate::limits::{REQUEST_D1_MAX_BYTES, REQUEST_INLINE_MAX_BYTES};
use crate::outbox::budget::Budget;
use crate::ports::{HttpError, Object};
use crate::store::settle;
use crate::time::Span;

/// Refuses a body that nothing here could keep.
pub fn check(app: &App, bytes: usize) -> Result<(), Problem> {
    if app.objects.is_some() || bytes <= REQUEST_D1_MAX_BYTES {
        return Ok(());
    }
    Err(Problem::new(
        Code::RequestTooLarge,
        format!("The body may have {REQUEST_D1_MAX_BYTES} bytes where no bucket is bound."),
    ))
}

/// What the claim keeps of a body: all of it, or where it will lie.
pub fn claimed(app: &App, body: &str, generation_id: &str) -> String {
    if app.objects.is_some() && body.len() > REQUEST_INLINE_MAX_BYTES {
        format!("{MARK}{PREFIX}{generation_id}")
    } else {
        body.to_owned()
    }
}

/// Puts a body where its claim says it lies.
pub async fn keep(app: &App, claimed: &str, body: &str) -> Result<(), Problem> {
    let (Some(name), Some(objects)) = (place(claimed), &app.objects) else {
        return Ok(());
    };
    let object = Object {
        bytes: body.as_bytes().to_vec(),
        content_type: "application/json".to_owned(),
        metadata: Vec::new(),
    };
    objects.put(name, object).await.map_err(|error| {
        app.log(
            "request_not_kept",
            serde_json::json!({"error": error.to_string()}),
        );
        Problem::new(
            Code::StoreUnavailable,
            "The request's body could not be stored.",
        )
    })
}

/// The body itself. It may still be on its way while its claimant is at it.
pub async fn load(app: &App, claimed: String) -> Result<String, Failure> {
    let Some(name) = place(&claimed) else {
        return Ok(claimed);
    };
    for _ in 0..LOOKS {
        if let Some(objects) = &app.objects
            && let Ok(Some(object)) = objects.get(name).await
        {
            return String::from_utf8(object.bytes).map_err(|_| missing());
        }
        app.clock.sleep(PAUSE).await;
    }
    Err(missing())
}

fn missing() -> Failure {
    transport(&HttpError::NotSent(
        "the request's body is not in its store".to_owned(),
    ))
}

/// Deletes the body of a generation that nothing will run again.
pub async fn forget(app: &App, job: &Job, claimed: &str, settlement: &Settlement) {
    let done = match settlement {
        Settlement::Generated { .. } => true,
        Settlement::Failed { .. } => !job.from_queue,
        Settlement::Held { .. } | Settlement::Unknown { .. } => false,
    };
    if let (true, Some(name), Some(objects)) = (done, place(claimed), &app.objects) {
        // One that is left over is found by `sweep`.
        let _ = objects.delete(name).await;
    }
}

/// Deletes bodies in R2 whose generation no longer needs them. Each call looks at one of 256 parts
/// of their names, so that the ones still needed never hide the rest.
pub async fn sweep(app: &App, budget: &Budget, part: i64) -> u32 {
    let Some(objects) = &app.objects else {
        return 0;
    };
    if !budget.take(1) {
        return 0;
    }
    let prefix = format!("{PREFIX}gen_{:02x}", part.rem_euclid(256));
    let names = objects.list(&prefix).await.unwrap_or_default();
    let mut swept = 0_u32;
    for name in names {
        let id = name.strip_prefix(PREFIX).unwrap_or_default();
        if !budget.take(3) {
            break;
        }
        let needed = match app.run(settle::load(id)).await {
            Ok(results) => settle::read_load(&results, 0).map_or(true, |found| {
                found.is_some_and(|(_, body)| !body.is_empty())
            }),
            Err(_) => true,
        };
        if !needed && objects.delete(&name).await.is_ok() {
            swept = swept.saturating_add(1);
        }
    }
    swept
}

/// The name of the object that a claim points to; a body itself begins with a brace.
fn place(claimed: &str) -> Option<&str> {
    claimed
        .strip_prefix(MARK)
        .filter(|name| name.starts_with(PREFIX))
}

const MARK: &str = "r2:";
const PREFIX: &str = "_oncepress/requests/";
/// How often a body that is not there is looked for: as long as an upload may take.
const LOOKS: usize = 15;
const PAUSE: Span = Span::from_seconds(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_never_taken_for_a_place() {
        assert_eq!(
            place("r2:_oncepress/requests/gen_1"),
            Some("_oncepress/requests/gen_1")
        );
        for body in ["{}", "", "r2:elsewhere", " r2:_oncepress/requests/x"] {
            assert_eq!(place(body), None, "{body}");
        }
    }
}
