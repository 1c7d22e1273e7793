//! `/admin`: accounts, API keys, the drain, health. The admin token only.

use serde_json::{Value, json};

use crate::app::{App, sha256_hex};
use crate::error::{Code, Problem};
use crate::http::generations::{json_content, parse_json};
use crate::http::message::{Request, Response};
use crate::http::page::parameters;
use crate::http::validate::{AccountChange, AccountRequest, DailyCredits, KeyRequest};
use crate::idempotency::gateway::store_problem;
use crate::key::scope::Name;
use crate::outbox::budget::Budget;
use crate::outbox::drain::drain;
use crate::ports::DbError;
use crate::store::accounts::{self, Account};
use crate::store::audit::{self, Act};
use crate::store::row::{first, rows};
use crate::time::Span;

/// `POST /admin/accounts`.
pub async fn create_account(app: &App, request: &Request) -> Result<Response, Problem> {
    json_content(request)?;
    let body = parse_json(&request.body)?;
    let wanted = AccountRequest::parse(&body, &*app.zones).map_err(Problem::invalid)?;
    let account = Account {
        account: wanted.account,
        daily_credits: wanted.daily_credits,
        timezone: wanted.timezone.unwrap_or_else(|| "UTC".to_owned()),
        created_at: app.now(),
    };
    let failed = |error: DbError| store_problem(app, &error);
    let mut batch = accounts::create(&account);
    batch.push(acted(
        app,
        &account.account,
        "create_account",
        &account.account,
    ));
    let results = app.run(batch).await.map_err(failed)?;
    let row = first(&results, 1).map_err(failed)?;
    let stored = row.map(accounts::read).transpose().map_err(failed)?;
    match stored {
        Some(stored) if stored == account => Ok(answer(201, &shown(&stored, &[]))),
        Some(_) => Err(Problem::new(
            Code::InvalidState,
            "This account exists; change it with PATCH.",
        )),
        None => Err(Problem::new(
            Code::StoreUnavailable,
            "The account was not stored.",
        )),
    }
}

/// `GET /admin/accounts`.
pub async fn list_accounts(app: &App, request: &Request) -> Result<Response, Problem> {
    let parameters = parameters(&request.query, &["cursor"])?;
    let after = parameters.get("cursor").map_or("", String::as_str);
    let failed = |error: DbError| store_problem(app, &error);
    let results = app
        .run(vec![accounts::list(after, PAGE + 1)])
        .await
        .map_err(failed)?;
    let mut found: Vec<Account> = rows(&results, 0)
        .map_err(failed)?
        .map(accounts::read)
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    let more = found.len() > PAGE;
    found.truncate(PAGE);
    let names: Vec<&str> = found
        .iter()
        .map(|account| account.account.as_str())
        .collect();
    let names = Value::from(names).to_string();
    let results = app
        .run(vec![accounts::keys(&names)])
        .await
        .map_err(failed)?;
    let keys: Vec<(String, Value)> = rows(&results, 0)
        .map_err(failed)?
        .map(|row| {
            let defaults: Value =
                serde_json::from_str(&row.text("defaults")?).unwrap_or(Value::Null);
            let key = json!({
                "id": row.text("id")?,
                "label": row.optional_text("label")?,
                "defaults": defaults,
                "createdAt": row.time("created_at")?.to_rfc3339(),
                "revokedAt": row.optional_time("revoked_at")?.map(super::super::time::Timestamp::to_rfc3339),
            });
            Ok((row.text("account")?, key))
        })
        .collect::<Result<_, DbError>>()
        .map_err(failed)?;
    let next = found
        .last()
        .filter(|_| more)
        .map(|account| account.account.clone());
    let items: Vec<Value> = found.iter().map(|account| shown(account, &keys)).collect();
    Ok(answer(200, &json!({"items": items, "nextCursor": next})))
}

/// `PATCH /admin/accounts/{a}`.
pub async fn change_account(app: &App, request: &Request, name: &str) -> Result<Response, Problem> {
    json_content(request)?;
    let body = parse_json(&request.body)?;
    let change = AccountChange::parse(&body, &*app.zones).map_err(Problem::invalid)?;
    let failed = |error: DbError| store_problem(app, &error);
    let results = app.run(vec![accounts::find(name)]).await.map_err(failed)?;
    let row = first(&results, 0).map_err(failed)?;
    let Some(account) = row.map(accounts::read).transpose().map_err(failed)? else {
        return Err(no_account());
    };
    let daily_credits = match change.daily_credits {
        None => account.daily_credits,
        Some(DailyCredits::Unlimited) => None,
        Some(DailyCredits::Limit(credits)) => Some(credits),
    };
    let timezone = change.timezone.unwrap_or(account.timezone);
    let mut batch = accounts::update(name, daily_credits, &timezone);
    batch.push(acted(app, name, "change_account", name));
    let results = app.run(batch).await.map_err(failed)?;
    let row = first(&results, 1).map_err(failed)?;
    let Some(account) = row.map(accounts::read).transpose().map_err(failed)? else {
        return Err(no_account());
    };
    Ok(answer(200, &shown(&account, &[])))
}

/// `POST /admin/accounts/{a}/keys`: the key's text is in this answer and nowhere else.
pub async fn create_key(app: &App, request: &Request, account: &str) -> Result<Response, Problem> {
    json_content(request)?;
    let body = parse_json(&request.body)?;
    let wanted = KeyRequest::parse(&body).map_err(Problem::invalid)?;
    if Name::parse(account).is_none() {
        return Err(no_account());
    }
    crate::http::generations::check_destinations(
        app,
        account,
        wanted.defaults.publish.as_deref().unwrap_or_default(),
    )?;
    let id = app.id("key_").chars().take(20).collect::<String>();
    let secret = format!(
        "opk_{}{}",
        hex::encode(app.random.bytes16()),
        hex::encode(
            app.random
                .bytes16()
                .first_chunk::<8>()
                .copied()
                .unwrap_or_default()
        )
    );
    let defaults = body
        .get("defaults")
        .map_or_else(|| "{}".to_owned(), super::super::key::json::Json::write);
    let label = wanted.label.as_deref();
    let failed = |error: DbError| store_problem(app, &error);
    let mut batch = accounts::add_key(
        &id,
        &sha256_hex(&secret),
        account,
        label,
        &defaults,
        app.now(),
    );
    batch.push(acted(app, account, "create_key", &id));
    let results = app.run(batch).await.map_err(failed)?;
    if first(&results, 1).map_err(failed)?.is_none() {
        return Err(no_account());
    }
    Ok(answer(
        201,
        &json!({"id": id, "key": secret, "label": label, "account": account}),
    ))
}

/// `DELETE /admin/keys/{id}`.
pub async fn revoke_key(app: &App, id: &str) -> Result<Response, Problem> {
    let failed = |error: DbError| store_problem(app, &error);
    let mut batch = accounts::revoke(id, app.now());
    batch.push(acted(app, "", "revoke_key", id));
    let results = app.run(batch).await.map_err(failed)?;
    let Some(row) = first(&results, 1).map_err(failed)? else {
        return Err(Problem::new(
            Code::NotFound,
            "There is no key with this id.",
        ));
    };
    // Dead in this isolate at once; in others when their memory of it ends, within a minute.
    app.isolate
        .remove(&format!("auth:{}", row.text("hash").map_err(failed)?));
    Ok(Response {
        status: 204,
        headers: Vec::new(),
        body: crate::http::message::Body::Bytes(Vec::new()),
    }
    .with("cache-control", "no-store"))
}

/// `POST /admin/drain`, in an invocation that has spent so many subrequests already.
pub async fn drain_now(app: &App, spent: u32) -> Result<Response, Problem> {
    let budget = Budget::new(app.config().subrequest_budget, app.now().plus(DRAIN_TIME));
    budget.force(spent);
    let drained = drain(app, &budget)
        .await
        .map_err(|error| store_problem(app, &error))?;
    Ok(answer(200, &drained.to_json()))
}

fn acted(app: &App, account: &str, action: &str, subject: &str) -> crate::ports::Statement {
    let token = app.id("act_");
    let act = Act {
        actor: "admin",
        account,
        action,
        subject,
        reason: None,
        token: &token,
    };
    audit::record(&act, app.now())
}

fn shown(account: &Account, keys: &[(String, Value)]) -> Value {
    let own = keys.iter().filter(|(owner, _)| owner == &account.account);
    let keys: Vec<&Value> = own.map(|(_, key)| key).collect();
    json!({
        "account": account.account,
        "dailyCredits": account.daily_credits,
        "timezone": account.timezone,
        "createdAt": account.created_at.to_rfc3339(),
        "keys": keys,
    })
}

fn no_account() -> Problem {
    Problem::new(Code::NotFound, "There is no account of this name.")
}

fn answer(status: u16, document: &Value) -> Response {
    Response::json(status, document.to_string()).with("cache-control", "no-store")
}

/// Accounts a page.
const PAGE: usize = 100;
/// A drain by hand stays below the time that a caller waits.
const DRAIN_TIME: Span = Span::from_seconds(25);
