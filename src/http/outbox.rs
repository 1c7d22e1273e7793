//! The outbox: deliveries with their attempts, requeue and cancel.

use serde_json::{Value, json};

use crate::app::App;
use crate::error::{Code, Fault, Problem};
use crate::http::auth::Principal;
use crate::http::message::{Request, Response};
use crate::http::page::{Page, account_of, parameters};
use crate::idempotency::gateway::store_problem;
use crate::ports::DbError;
use crate::store::audit::{self, Act};
use crate::store::deliveries::{self, DeliveryQuery};
use crate::store::row::{Row, first, rows};
use crate::time::Timestamp;

/// `GET /api/v1/outbox`.
pub async fn index(
    app: &App,
    principal: &Principal,
    request: &Request,
) -> Result<Response, Problem> {
    let known = ["status", "publisher", "cursor", "limit", "account"];
    let parameters = parameters(&request.query, &known)?;
    let account = account_of(principal, &parameters)?;
    let status = parameters.get("status").map(String::as_str);
    if status.is_some_and(|word| !STATUSES.contains(&word)) {
        return Err(Problem::invalid(vec![Fault::new(
            "/status",
            "is not a status",
        )]));
    }
    let page = Page::read(&parameters)?;
    let query = DeliveryQuery {
        account: account.as_deref(),
        status,
        publisher: parameters.get("publisher").map(String::as_str),
        before: (page.before, &page.before_id),
        limit: page.limit.saturating_add(1),
    };
    let failed = |error: DbError| store_problem(app, &error);
    let results = app
        .run(vec![deliveries::list(&query)])
        .await
        .map_err(failed)?;
    let items: Result<Vec<(Timestamp, String, Value)>, DbError> = rows(&results, 0)
        .map_err(failed)?
        .map(|row| Ok((row.time("created_at")?, row.text("id")?, delivery(row)?)))
        .collect();
    let items = items.map_err(failed)?;
    Ok(page.answer(
        &items,
        |item| (item.0, item.1.clone()),
        |item| item.2.clone(),
    ))
}

/// A delivery as the API shows it.
pub fn delivery(row: Row<'_>) -> Result<Value, DbError> {
    let time = |column| Ok::<_, DbError>(row.optional_time(column)?.map(Timestamp::to_rfc3339));
    let attempts: Value = serde_json::from_str(&row.text("attempt_log")?)
        .map_err(|_| DbError::Fatal("column attempt_log is not JSON".to_owned()))?;
    let status = row.text("status")?;
    let pending = status == "pending";
    Ok(json!({
        "id": row.text("id")?,
        "generationId": row.text("generation_id")?,
        "account": row.text("account")?,
        "site": row.text("site")?,
        "pipeline": row.text("pipeline")?,
        "publisher": row.text("publisher")?,
        "target": row.text("target")?,
        "status": status,
        "attempts": attempts,
        "nextAttemptAt": if pending { time("next_attempt_at")? } else { None },
        "reference": row.optional_text("reference")?,
        "error": row.optional_text("error")?,
        "createdAt": time("created_at")?,
        "publishedAt": time("published_at")?,
    }))
}

/// What a person does to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Due again now, under the same idempotency key.
    Requeue,
    /// Not sent any more.
    Cancel,
}

/// `POST /api/v1/outbox/{id}/requeue` and `…/cancel`.
pub async fn act(
    app: &App,
    principal: &Principal,
    id: &str,
    action: Action,
) -> Result<Response, Problem> {
    let now = app.now();
    let failed = |error: DbError| store_problem(app, &error);
    let before = app
        .run(vec![deliveries::find(id, principal.account())])
        .await
        .map_err(failed)?;
    let Some(row) = first(&before, 0).map_err(failed)? else {
        return Err(Problem::new(
            Code::NotFound,
            "There is no delivery with this id.",
        ));
    };
    let (account, generation_id) = (
        row.text("account").map_err(failed)?,
        row.text("generation_id").map_err(failed)?,
    );
    let (word, wanted, mut batch) = match action {
        Action::Requeue => (
            "requeue",
            "pending",
            deliveries::requeue(id, principal.account(), now),
        ),
        Action::Cancel => (
            "cancel",
            "cancelled",
            deliveries::cancel(id, principal.account(), now),
        ),
    };
    let token = app.id("act_");
    let act = Act {
        actor: principal.actor(),
        account: &account,
        action: word,
        subject: id,
        reason: None,
        token: &token,
    };
    batch.push(audit::record(&act, now));
    let results = app.run(batch).await.map_err(failed)?;
    let Some(row) = first(&results, 1).map_err(failed)? else {
        return Err(Problem::new(
            Code::NotFound,
            "There is no delivery with this id.",
        ));
    };
    let status = row.text("status").map_err(failed)?;
    if status != wanted {
        let detail = format!("A delivery that is {status} can't be changed so.");
        return Err(Problem::new(Code::InvalidState, detail));
    }
    if action == Action::Requeue {
        let handle = app.clone();
        app.background.spawn(Box::pin(async move {
            crate::outbox::drain::drain_generation(&handle, &generation_id).await;
            handle.flush_now().await;
        }));
    }
    let document = delivery(row).map_err(failed)?;
    Ok(Response::json(200, document.to_string()).with("cache-control", "no-store"))
}

const STATUSES: [&str; 5] = [
    "pending",
    "published",
    "dead",
    "cancelled",
    "outcome_unknown",
];
