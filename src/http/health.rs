//! `/healthz` for machines, without details, and `/admin/health` for people, with all of them.

use serde_json::{Value, json};

use crate::app::App;
use crate::guard::Verdict;
use crate::http::message::Response;
use crate::ports::DbError;
use crate::store::row::{Row, first};
use crate::store::{integer, statement, text};
use crate::time::Span;

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
        "figures": figures,
    });
    Response::json(if well { 200 } else { 503 }, document.to_string())
        .with("cache-control", "no-store")
}

/// Counts of what is owed and stuck; each reads only what it counts, through an index.
async fn figures(app: &App) -> Result<Value, DbError> {
    let now = app.now();
    let week = now.minus(Span::from_days(7)).to_date_string();
    let batch = vec![
        statement(
            STUCK,
            vec![integer(now.minus(app.config().stale_after).millis())],
        ),
        statement(UNSETTLED, Vec::new()),
        statement(TICKS, Vec::new()),
        statement(KV, vec![text(week)]),
    ];
    let results = app.run(batch).await?;
    let of = |index: usize| -> Result<Row<'_>, DbError> {
        first(&results, index)?.ok_or_else(|| DbError::Fatal("no figures".to_owned()))
    };
    let (stuck, unsettled) = (of(0)?, of(1)?);
    let tick = first(&results, 2)?;
    let kv = of(3)?;
    let (asked, failed) = (kv.count("asked")?, kv.count("failed")?);
    Ok(json!({
        "pending": stuck.count("pending")?,
        "stale": stuck.count("stale")?,
        "oldestPendingAt": stuck.optional_time("oldest")?.map(super::super::time::Timestamp::to_rfc3339),
        "dead": stuck.count("dead")?,
        "outcomeUnknown": stuck.count("outcome_unknown")?,
        "running": unsettled.count("running")?,
        "unknown": unsettled.count("unknown")?,
        "held": unsettled.count("held")?,
        "lastTickAt": match tick {
            Some(tick) => tick.optional_time("finished_at")?.map(super::super::time::Timestamp::to_rfc3339),
            None => None,
        },
        "kvOperationsWeek": asked,
        "kvErrorsWeek": failed,
    }))
}

const STUCK: &str = "SELECT \
  (SELECT COUNT(*) FROM deliveries WHERE status = 'pending') AS pending, \
  (SELECT COUNT(*) FROM deliveries WHERE status = 'pending' AND due_since <= ?1) AS stale, \
  (SELECT MIN(due_since) FROM deliveries WHERE status = 'pending') AS oldest, \
  COALESCE(SUM(status = 'dead'), 0) AS dead, \
  COALESCE(SUM(status = 'outcome_unknown'), 0) AS outcome_unknown \
FROM deliveries INDEXED BY deliveries_unwell WHERE status IN ('dead', 'outcome_unknown')";

const UNSETTLED: &str = "SELECT COALESCE(SUM(state = 'running' OR state = 'queued'), 0) AS running, \
  COALESCE(SUM(state = 'unknown'), 0) AS unknown, COALESCE(SUM(state = 'held'), 0) AS held \
FROM generations INDEXED BY generations_unsettled \
WHERE state IN ('queued', 'running', 'unknown', 'held')";

const TICKS: &str = "SELECT finished_at FROM ticks ORDER BY scheduled_at DESC LIMIT 1";

const KV: &str = "SELECT \
  COALESCE(SUM(CASE WHEN name IN ('kv_read', 'kv_write') THEN count END), 0) AS asked, \
  COALESCE(SUM(CASE WHEN name IN ('kv_read_error', 'kv_write_error') THEN count END), 0) AS failed \
FROM counters WHERE day >= ?1";
