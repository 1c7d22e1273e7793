//! `GET /api/v1/digest`: the latest digest.

use serde_json::{Value, json};

use crate::app::App;
use crate::error::{Code, Problem};
use crate::http::auth::Principal;
use crate::http::message::{Request, Response};
use crate::http::page::{account_of, parameters};
use crate::idempotency::gateway::store_problem;
use crate::notify::digest;
use crate::ports::DbError;
use crate::store::digests::{self, StoredDigest};
use crate::store::row::first;

/// The digest of the service as it was made; for one account, the same day's figures of its own
/// and what is stuck of it now.
pub async fn get(app: &App, principal: &Principal, request: &Request) -> Result<Response, Problem> {
    let parameters = parameters(&request.query, &["account"])?;
    let account = account_of(principal, &parameters)?;
    let document = latest(app, account.as_deref())
        .await
        .map_err(|error| store_problem(app, &error))?;
    let Some(document) = document else {
        return Err(Problem::new(
            Code::NotFound,
            "No digest has been made yet; the first is made in the morning.",
        ));
    };
    Ok(Response::json(200, document.to_string()).with("cache-control", "no-store"))
}

async fn latest(app: &App, account: Option<&str>) -> Result<Option<Value>, DbError> {
    let results = app.run(vec![digests::latest()]).await?;
    let Some(stored) = first(&results, 0)?.map(StoredDigest::read).transpose()? else {
        return Ok(None);
    };
    let (figures, text, made_at) = match account {
        None => (
            serde_json::from_str(&stored.figures).unwrap_or_default(),
            stored.body,
            stored.made_at,
        ),
        Some(account) => {
            let now = app.now();
            let figures = digest::of_account(app, account, &stored.day, now).await?;
            let text = digest::text(&figures, app.config());
            (figures.to_json(), text, now)
        }
    };
    Ok(Some(json!({
        "date": stored.day,
        "madeAt": made_at.to_rfc3339(),
        "figures": figures,
        "text": text,
    })))
}
