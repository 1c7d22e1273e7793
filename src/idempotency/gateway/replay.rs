//! Answers from what is stored.

use super::attach::was_passed_on;
use super::cache::{mark_result, remember};
use super::claim::owe_missing;
use super::{Asked, Keys, Reply, store_problem};
use crate::app::App;
use crate::error::Problem;
use crate::idempotency::output::unfit;
use crate::idempotency::record::{Generation, Settlement, Stored};
use crate::idempotency::recovery::stored;
use crate::metrics::Cause;

pub(super) async fn replay(
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
            handle.flush_now().await;
        }
    }));
    Ok(Reply::Replayed(Box::new(result)))
}

pub(super) async fn held_again(app: &App, holder: &Generation) -> Result<Reply, Problem> {
    let result = stored(app, holder, None)
        .await
        .map_err(|error| store_problem(app, &error))?;
    Ok(Reply::Held {
        reason: holder.reason.clone().unwrap_or_default(),
        stored: Box::new(result),
        made: false,
    })
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
