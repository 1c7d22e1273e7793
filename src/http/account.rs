//! `GET /api/v1/account`: limits, and what is left of the day's credits.

use serde_json::{Value, json};

use crate::app::App;
use crate::calendar;
use crate::error::{Code, Fault, Problem};
use crate::http::auth::Principal;
use crate::http::message::{Request, Response};
use crate::http::page::{account_of, parameters};
use crate::idempotency::gateway::store_problem;
use crate::limits;
use crate::ports::DbError;
use crate::store::accounts::{self, Account};
use crate::store::row::first;

/// The caller's account; the administrator names one.
pub async fn get(app: &App, principal: &Principal, request: &Request) -> Result<Response, Problem> {
    let parameters = parameters(&request.query, &["account"])?;
    let Some(name) = account_of(principal, &parameters)? else {
        return Err(Problem::invalid(vec![Fault::new(
            "/account",
            "must name an account",
        )]));
    };
    let document = document(app, &name)
        .await
        .map_err(|error| store_problem(app, &error))?;
    let Some(document) = document else {
        return Err(no_account());
    };
    Ok(Response::json(200, document.to_string()).with("cache-control", "no-store"))
}

/// The refusal of an account that does not exist.
pub fn no_account() -> Problem {
    Problem::new(Code::NotFound, "There is no account of this name.")
}

async fn document(app: &App, name: &str) -> Result<Option<Value>, DbError> {
    let now = app.now();
    let results = app.run(vec![accounts::find(name)]).await?;
    let Some(account) = first(&results, 0)?.map(accounts::read).transpose()? else {
        return Ok(None);
    };
    let today = app.local_date(&account.timezone, now);
    let results = app.run(vec![accounts::credit_day(name, &today)]).await?;
    let (spent, reserved) = match first(&results, 0)? {
        Some(row) => (row.integer("spent")?, row.integer("reserved")?),
        None => (0, 0),
    };
    Ok(Some(shown(app, &account, spent, reserved)))
}

fn shown(app: &App, account: &Account, spent: i64, reserved: i64) -> Value {
    let used = spent.saturating_add(reserved);
    let left = account
        .daily_credits
        .map(|limit| limit.saturating_sub(used).max(0));
    let resets_at = calendar::next_day(&*app.zones, &account.timezone, app.now());
    json!({
        "account": account.account,
        "dailyCredits": account.daily_credits,
        "creditsUsed": spent,
        "creditsReserved": reserved,
        "creditsLeft": left,
        "timezone": account.timezone,
        "resetsAt": resets_at.to_rfc3339(),
        "limits": {
            "bodyMaxBytes": limits::BODY_MAX_BYTES,
            "dropInBodyMaxBytes": limits::DROP_IN_BODY_MAX_BYTES,
            "destinationsMax": limits::DESTINATIONS_MAX,
            "waitMaxSeconds": limits::WAIT_MAX.seconds_up(),
            "windowMinutesMax": limits::WINDOW_MINUTES.end(),
            "staleMinutes": app.config().stale_after.millis() / 60_000,
        },
    })
}
