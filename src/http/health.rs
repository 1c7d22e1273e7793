//! `/healthz` for machines, without details, and `/admin/health` for people, with all of them.

use serde_json::{Value, json};

use crate::app::App;
use crate::guard::Verdict;
use crate::http::message::Response;
use crate::ports::DbError;
use crate::store::figures;
use crate::store::row::first;
use crate::store::statement;
use crate::time::{Span, Timestamp};

/// `GET /healthz`: 200 or 503, no details.
pub fn liveness(app: &App, verdict: &Verdict) -> Response {
    let well = app.settings.faults.is_empty() && *verdict == Verdict::Own;
    let (status, word) = if well {
        (200, "ok")
    } else {
        (503, "unavailable")
    };
    Response::json(status, json!({"status": word}).to_string()).with("cache-control", "no-store")
}

/// `GET /admin/health`: every fault of the configuration by name, the stores, the last tick, what
/// is stuck.
pub async fn details(app: &App, verdict: &Verdict) -> Response {
    let faults: Vec<Value> = app
        .settings
        .faults
        .iter()
        .map(|fault| json!({"name": fault.name, "problem": fault.problem}))
        .collect();
    let guard = match verdict {
        Verdict::Own => Value::Null,
        Verdict::Foreign(why) | Verdict::Unreachable(why) => why.as_str().into(),
    };
    let figures = figures(app)
        .await
        .unwrap_or_else(|error| json!({"error": error.to_string()}));
    let checked = crate::http::self_check::self_check(app)
        .await
        .unwrap_or_else(|error| json!({"error": error.to_string()}));
    let well = faults.is_empty() && guard.is_null() && figures.get("error").is_none();
    let publishers: Vec<Value> = app
        .config()
        .publishers
        .values()
        .map(|settings| {
            json!({
                "name": settings.name(),
                "kind": settings.kind(),
                "idempotency": format!("{:?}", settings.class()).to_ascii_lowercase(),
                "residualRisk": settings.residual_risk(),
            })
        })
        .collect();
    let document = json!({
        "status": if well { "ok" } else { "unavailable" },
        "environment": app.config().environment,
        "faults": faults,
        "environmentFault": guard,
        "publishers": publishers,
        "staleMinutes": app.config().stale_after.millis() / 60_000,
        "lastTickAt": figures.get("lastTickAt"),
        "kvErrorRate": {"week": figures.get("kvErrorRateWeek")},
        "selfCheck": checked,
        "figures": figures,
    });
    Response::json(if well { 200 } else { 503 }, document.to_string())
        .with("cache-control", "no-store")
}

/// Counts of what is owed and stuck, the last tick, and what KV did in a week.
async fn figures(app: &App) -> Result<Value, DbError> {
    let now = app.now();
    let week = now.minus(Span::from_days(7)).to_date_string();
    let batch = vec![
        figures::backlog(None, now.minus(app.config().stale_after), figures::ROWS_MAX),
        figures::key_value(&week),
        statement(TICKS, Vec::new()),
    ];
    let results = app.run(batch).await?;
    let missing = || DbError::Fatal("no figures".to_owned());
    let backlog = figures::read_backlog(first(&results, 0)?.ok_or_else(missing)?)?;
    let kv = first(&results, 1)?.ok_or_else(missing)?;
    let (asked, failed) = figures::read_key_value(kv)?;
    let last_tick = match first(&results, 2)? {
        Some(tick) => tick.optional_time("finished_at")?,
        None => None,
    };
    Ok(json!({
        "pending": backlog.pending,
        "stale": backlog.stale,
        "oldestPendingAt": backlog.oldest_at.map(Timestamp::to_rfc3339),
        "dead": backlog.dead,
        "outcomeUnknown": backlog.outcome_unknown,
        "running": backlog.running,
        "queued": backlog.queued,
        "unknown": backlog.unknown,
        "held": backlog.held,
        "lastTickAt": last_tick.map(Timestamp::to_rfc3339),
        "kvOperationsWeek": asked,
        "kvErrorsWeek": failed,
        "kvErrorRateWeek": figures::share(failed, asked),
    }))
}

// The newest tick that came to its end: one that is at work has not.
const TICKS: &str = "SELECT finished_at FROM ticks WHERE finished_at IS NOT NULL \
ORDER BY scheduled_at DESC LIMIT 1";
