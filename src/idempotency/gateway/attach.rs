//! Somebody else runs it: waits for its end, and starts what its claimant left.

use super::cache::remember;
use super::claim::{missing, owe_missing};
use super::fresh::{log_unreachable, run};
use super::refuse::{failure, in_progress, pending};
use super::replay::{held_again, replay};
use super::{Asked, Keys, Reply, store_problem};
use crate::app::{App, RunnerError};
use crate::error::Problem;
use crate::idempotency::follow::Lasting;
use crate::idempotency::live::{Feed, Step};
use crate::idempotency::record::{Generation, Job, Settlement, Surface};
use crate::idempotency::recovery::{look_up, settlement_of};
use crate::idempotency::state::State;
use crate::limits::WAIT_MAX;
use crate::metrics::Cause;
use crate::ports::DbError;
use crate::time::Span;

/// Waits for a running generation; one whose runner never started is started here.
pub(super) async fn attach(
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
    let found = look_up(app, id).await;
    match found.map_err(|error| store_problem(app, &error))? {
        Some((holder, _)) if holder.state == State::Held => held_again(app, &holder).await,
        Some((holder, _)) => replay(app, asked, keys, &holder, None).await,
        None => Err(pending(id)),
    }
}

/// Whether a duplicate wants to have published what was bought to be passed on only, and so was
/// never asked whether it is fit for that.
pub(super) fn was_passed_on(asked: &Asked, holder: &Generation) -> bool {
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

/// No runner knows the generation: it was settled meanwhile, or its claimant died before it could
/// start one. The same job under the same token can only be started once, whoever asks.
async fn start_or_read(app: &App, id: &str, wait: Span) -> Result<Option<Settlement>, Problem> {
    let failed = |error: DbError| store_problem(app, &error);
    let until = app.now().plus(wait);
    loop {
        let Some((generation, body)) = look_up(app, id).await.map_err(failed)? else {
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
        let found = look_up(app, id).await;
        let found = found.map_err(|error| store_problem(app, &error))?;
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
