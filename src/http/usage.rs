//! `GET /api/v1/usage`: tokens, cost, savings and money at risk, by site, pipeline, model and day.

use serde_json::{Map, Value, json};

use crate::app::App;
use crate::calendar::{local_date, parse_date};
use crate::error::{Fault, Problem};
use crate::http::account::no_account;
use crate::http::auth::Principal;
use crate::http::message::{Request, Response};
use crate::http::page::{account_of, parameters};
use crate::idempotency::gateway::store_problem;
use crate::idempotency::output::credits;
use crate::notify::money::per_usd;
use crate::ports::DbError;
use crate::sorted::SortedMap;
use crate::store::accounts;
use crate::store::figures::{self, ROWS_MAX};
use crate::store::row::{Row, first, rows};
use crate::store::usage::{self, Grouping};
use crate::time::{Span, Timestamp};

/// What is asked for.
struct Query {
    from: String,
    to: String,
    groups: Vec<&'static str>,
}

/// The report of the caller's account; of one account, or of all, for the administrator.
pub async fn get(app: &App, principal: &Principal, request: &Request) -> Result<Response, Problem> {
    let known = ["from", "to", "group_by", "account"];
    let parameters = parameters(&request.query, &known)?;
    let account = account_of(principal, &parameters)?;
    let zone = zone_of(app, account.as_deref()).await?;
    let query = read(&parameters, &local_date(&*app.zones, &zone, app.now()))?;
    let report = report(app, account.as_deref(), &query)
        .await
        .map_err(|error| store_problem(app, &error))?;
    let Some(report) = report else {
        return Err(Problem::invalid(vec![Fault::new(
            "/group_by",
            format!("gives more than {ROWS_MAX} groups; ask for fewer days or coarser ones"),
        )]));
    };
    Ok(Response::json(200, report.to_string()).with("cache-control", "no-store"))
}

/// The zone in which today is meant: the account's, or the digest's for all accounts together.
async fn zone_of(app: &App, account: Option<&str>) -> Result<String, Problem> {
    let Some(name) = account else {
        return Ok(app.config().digest_timezone.clone());
    };
    let found = app.run(vec![accounts::find(name)]).await.and_then(|rows| {
        let row = first(&rows, 0)?;
        row.map(accounts::read).transpose()
    });
    match found {
        Ok(Some(account)) => Ok(account.timezone),
        Ok(None) => Err(no_account()),
        Err(error) => Err(store_problem(app, &error)),
    }
}

/// Reads the query; the days from `from` to `to`, both included, are the last 30 unless it says so.
fn read(parameters: &SortedMap<String, String>, today: &str) -> Result<Query, Problem> {
    let mut faults = Vec::new();
    let mut date = |name: &str, default: Timestamp| -> Timestamp {
        let Some(text) = parameters.get(name) else {
            return default;
        };
        parse_date(text).unwrap_or_else(|| {
            faults.push(Fault::new(format!("/{name}"), "must be a date, YYYY-MM-DD"));
            default
        })
    };
    let to = date("to", parse_date(today).unwrap_or_default());
    let from = date("from", to.minus(Span::from_days(DAYS_DEFAULT - 1)));
    let range = Span::default()..Span::from_days(DAYS_MAX);
    if faults.is_empty() && !range.contains(&to.since(from)) {
        let range = format!("must be a day up to `to`, at most {DAYS_MAX} days before it");
        faults.push(Fault::new("/from", range));
    }
    let groups = groups(parameters.get("group_by").map(String::as_str), &mut faults);
    if !faults.is_empty() {
        return Err(Problem::invalid(faults));
    }
    Ok(Query {
        from: from.to_date_string(),
        to: to.to_date_string(),
        groups,
    })
}

fn groups(text: Option<&str>, faults: &mut Vec<Fault>) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for word in text.into_iter().flat_map(|text| text.split(',')) {
        match GROUPS.into_iter().find(|group| *group == word) {
            Some(group) if !groups.contains(&group) => groups.push(group),
            _ => {
                let fault = "must be different ones of site, pipeline, model, day, with commas";
                faults.push(Fault::new("/group_by", fault));
                break;
            }
        }
    }
    groups
}

/// The report; `None` where it has too many groups.
async fn report(app: &App, account: Option<&str>, query: &Query) -> Result<Option<Value>, DbError> {
    let by = |group: &str| query.groups.contains(&group);
    let grouping = Grouping {
        site: by("site"),
        pipeline: by("pipeline"),
        model: by("model"),
        day: by("day"),
    };
    let range = (query.from.as_str(), query.to.as_str());
    let mut batch = usage::report(account, range, grouping, ROWS_MAX.saturating_add(1));
    batch.extend(figures::at_risk(account, ROWS_MAX));
    let results = app.run(batch).await?;
    let items = rows(&results, 0)?
        .map(|row| item(row, &query.groups))
        .collect::<Result<Vec<_>, _>>()?;
    if items.len() > ROWS_MAX {
        return Ok(None);
    }
    let missing = || DbError::Fatal("no figures".to_owned());
    let totals = sums(first(&results, 1)?.ok_or_else(missing)?)?;
    let at_risk = figures::read_at_risk(
        first(&results, 2)?.ok_or_else(missing)?,
        first(&results, 3)?.ok_or_else(missing)?,
    )?;
    let currency = &app.config().currency;
    Ok(Some(json!({
        "from": query.from,
        "to": query.to,
        "groupBy": query.groups,
        "items": items,
        "totals": totals,
        "atRisk": at_risk.to_json(),
        "currency": {"code": currency.code, "perUsd": per_usd(currency)},
    })))
}

fn item(row: Row<'_>, groups: &[&'static str]) -> Result<Value, DbError> {
    let mut item = Map::new();
    for group in groups {
        item.insert((*group).to_owned(), row.text(group)?.into());
    }
    item.extend(sums(row)?);
    Ok(Value::Object(item))
}

/// The figures of a group; sums of money are rounded up once.
fn sums(row: Row<'_>) -> Result<Map<String, Value>, DbError> {
    let mut sums = Map::new();
    for (name, column) in [
        ("generations", "generations"),
        ("published", "published"),
        ("replays", "replays"),
        ("promptTokens", "prompt_tokens"),
        ("cachedTokens", "cached_tokens"),
        ("outputTokens", "output_tokens"),
        ("thoughtTokens", "thought_tokens"),
    ] {
        sums.insert(name.to_owned(), row.integer(column)?.into());
    }
    for (name, column) in [
        ("costMicroUsd", "cost_nano"),
        ("savedMicroUsd", "saved_nano"),
    ] {
        sums.insert(name.to_owned(), credits(row.integer(column)?).into());
    }
    Ok(sums)
}

const GROUPS: [&str; 4] = ["site", "pipeline", "model", "day"];
const DAYS_DEFAULT: i64 = 30;
/// A leap year.
const DAYS_MAX: i64 = 366;

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)]) -> Result<(String, String, Vec<&'static str>), Vec<String>> {
        let parameters = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        match read(&parameters, "2026-11-30") {
            Ok(query) => Ok((query.from, query.to, query.groups)),
            Err(problem) => Err(problem.faults.iter().map(|f| f.pointer.clone()).collect()),
        }
    }

    #[test]
    fn without_dates_the_last_thirty_days_are_meant() {
        let (from, to, groups) = asked(&[]).unwrap();
        assert_eq!((from.as_str(), to.as_str()), ("2026-11-01", "2026-11-30"));
        assert!(groups.is_empty());
    }

    #[test]
    fn days_are_included_on_both_sides_and_bounded() {
        assert!(asked(&[("from", "2026-11-30"), ("to", "2026-11-30")]).is_ok());
        assert!(asked(&[("from", "2025-11-30")]).is_ok());
        assert_eq!(
            asked(&[("from", "2025-11-29")]),
            Err(vec!["/from".to_owned()])
        );
        assert_eq!(
            asked(&[("from", "2026-12-01")]),
            Err(vec!["/from".to_owned()])
        );
        assert_eq!(asked(&[("to", "2026-02-30")]), Err(vec!["/to".to_owned()]));
    }

    #[test]
    fn groups_are_known_and_different() {
        let (_, _, groups) = asked(&[("group_by", "day,site")]).unwrap();
        assert_eq!(groups, ["day", "site"]);
        for wrong in ["", "site,site", "site,", "Site", "key"] {
            let faults = asked(&[("group_by", wrong)]);
            assert_eq!(faults, Err(vec!["/group_by".to_owned()]), "{wrong:?}");
        }
    }
}
