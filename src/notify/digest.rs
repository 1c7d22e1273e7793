//! The digest: each morning, what the day before came to and what is stuck now.
//!
//! It is due once the wall clock of its zone shows its time, and is made for that local date. The
//! clock is compared, not computed: a time that is skipped in spring is past when the clocks have
//! moved, and one that comes twice in autumn finds its digest already made.

use serde_json::{Value, json};

use crate::app::App;
use crate::calendar;
use crate::config::Config;
use crate::idempotency::output::credits;
use crate::notify::money::{percent, show};
use crate::ports::{DbError, Rows, Statement};
use crate::sorted::SortedSet;
use crate::store::digests::{self, StoredDigest};
use crate::store::figures::{self, AtRisk};
use crate::store::row::{Row, first, rows};
use crate::time::{Span, Timestamp};

/// The figures of a digest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The day that the first figures are of: the one before the digest's.
    pub day: String,
    /// Generations that were paid for.
    pub generated: u64,
    /// Deliveries of them that were published.
    pub published: u64,
    /// Duplicates that were caught.
    pub replays: u64,
    /// What they would have cost.
    pub saved_micro_usd: i64,
    /// What was spent.
    pub cost_micro_usd: i64,
    /// Spend by site, the dearest first.
    pub sites: Vec<SiteFigures>,
    /// Deliveries that are owed now.
    pub pending: u64,
    /// Those of them owed for longer than the threshold.
    pub stale: u64,
    /// The threshold.
    pub stale_minutes: i64,
    /// How long the oldest has been owed.
    pub oldest_minutes: Option<i64>,
    /// Deliveries that wait for a person.
    pub dead: u64,
    /// Deliveries whose outcome nobody knows.
    pub outcome_unknown: u64,
    /// Held outputs.
    pub held: u64,
    /// Generations of unknown outcome.
    pub unknown: u64,
    /// Generations in the queue; `None` where no index tells.
    pub queued: Option<u64>,
    /// What was spent on all that.
    pub at_risk: AtRisk,
    /// The share of KV's calls that failed in the last seven days.
    pub kv_error_rate: Option<f64>,
}

/// The day of one site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words of the API")]
pub struct SiteFigures {
    pub account: String,
    pub site: String,
    pub generated: u64,
    pub cost_micro_usd: i64,
}

impl Figures {
    /// As the API shows them.
    pub fn to_json(&self) -> Value {
        let sites: Vec<Value> = self
            .sites
            .iter()
            .map(|site| {
                json!({"account": site.account, "site": site.site, "generated": site.generated,
                    "costMicroUsd": site.cost_micro_usd})
            })
            .collect();
        json!({
            "day": self.day,
            "generated": self.generated,
            "published": self.published,
            "replays": self.replays,
            "savedMicroUsd": self.saved_micro_usd,
            "costMicroUsd": self.cost_micro_usd,
            "sites": sites,
            "pending": self.pending,
            "stale": self.stale,
            "staleMinutes": self.stale_minutes,
            "oldestMinutes": self.oldest_minutes,
            "dead": self.dead,
            "outcomeUnknown": self.outcome_unknown,
            "held": self.held,
            "unknown": self.unknown,
            "queued": self.queued,
            "atRisk": self.at_risk.to_json(),
            "kvErrorRate": self.kv_error_rate,
        })
    }
}

/// The date for which a digest is due by the clock.
pub fn due(app: &App, now: Timestamp) -> Option<String> {
    let (zones, zone) = (&*app.zones, &app.config().digest_timezone);
    let reached = calendar::time_of_day(zones, zone, now) >= app.config().digest_time;
    reached.then(|| calendar::local_date(zones, zone, now))
}

/// Makes the digest of the service for `day` and stores it, unless there is one.
pub async fn make(app: &App, day: &str, now: Timestamp) -> Result<(), DbError> {
    let before = day_before(day);
    let zones = app.run(vec![figures::zones()]).await?;
    let days = rows(&zones, 0)?
        .map(|row| {
            let zone = row.text("timezone")?;
            // Each account's last whole day; that is the day before in most zones.
            let local = calendar::wall_clock(&*app.zones, &zone, now);
            Ok((
                zone,
                local.minus(Span::from_days(1)).to_date_string().into(),
            ))
        })
        .collect::<Result<serde_json::Map<String, Value>, DbError>>()?;
    let days = Value::Object(days).to_string();
    let figures = gather(app, None, &before, figures::days(&days, SITES_MAX), now).await?;
    let digest = StoredDigest {
        day: day.to_owned(),
        made_at: now,
        figures: figures.to_json().to_string(),
        body: text(&figures, app.config()),
        attempts: 0,
    };
    app.run(vec![digests::store(&digest)]).await.map(|_| ())
}

/// The figures of one account for the digest of `day`, with what is stuck now.
pub async fn of_account(
    app: &App,
    account: &str,
    day: &str,
    now: Timestamp,
) -> Result<Figures, DbError> {
    let before = day_before(day);
    let statements = figures::day_of(account, &before, SITES_MAX);
    gather(app, Some(account), &before, statements, now).await
}

fn day_before(day: &str) -> String {
    let date = calendar::parse_date(day).unwrap_or_default();
    date.minus(Span::from_days(1)).to_date_string()
}

async fn gather(
    app: &App,
    account: Option<&str>,
    day: &str,
    mut batch: Vec<Statement>,
    now: Timestamp,
) -> Result<Figures, DbError> {
    let stale_after = app.config().stale_after;
    let week = now.minus(Span::from_days(7)).to_date_string();
    batch.push(figures::backlog(
        account,
        now.minus(stale_after),
        figures::ROWS_MAX,
    ));
    batch.extend(figures::at_risk(account, figures::ROWS_MAX));
    batch.push(figures::key_value(&week));
    let results = app.run(batch).await?;
    let backlog = figures::read_backlog(only(&results, 2)?)?;
    let (asked, failed) = figures::read_key_value(only(&results, 5)?)?;
    let total = only(&results, 0)?;
    let sites = rows(&results, 1)?.map(site).collect::<Result<_, _>>()?;
    let oldest = backlog.oldest_at.map(|at| now.since(at).millis() / 60_000);
    Ok(Figures {
        day: day.to_owned(),
        generated: total.count("generations")?,
        published: total.count("published")?,
        replays: total.count("replays")?,
        saved_micro_usd: credits(total.integer("saved_nano")?),
        cost_micro_usd: credits(total.integer("cost_nano")?),
        sites,
        pending: backlog.pending,
        stale: backlog.stale,
        stale_minutes: stale_after.millis() / 60_000,
        oldest_minutes: oldest,
        dead: backlog.dead,
        outcome_unknown: backlog.outcome_unknown,
        held: backlog.held,
        unknown: backlog.unknown,
        queued: backlog.queued,
        at_risk: figures::read_at_risk(only(&results, 3)?, only(&results, 4)?)?,
        kv_error_rate: figures::share(failed, asked),
    })
}

fn only(results: &[Rows], index: usize) -> Result<Row<'_>, DbError> {
    first(results, index)?.ok_or_else(|| DbError::Fatal("no figures".to_owned()))
}

fn site(row: Row<'_>) -> Result<SiteFigures, DbError> {
    Ok(SiteFigures {
        account: row.text("account")?,
        site: row.text("site")?,
        generated: row.count("generations")?,
        cost_micro_usd: credits(row.integer("cost_nano")?),
    })
}

/// The digest as people read it.
pub fn text(figures: &Figures, config: &Config) -> String {
    let money = |micro_usd: i64| show(&config.currency, micro_usd);
    let mut lines = vec![
        format!(
            "{}: generated {}, published {}, spent {}",
            figures.day,
            figures.generated,
            figures.published,
            money(figures.cost_micro_usd)
        ),
        format!(
            "Duplicates caught: {}, saved {}",
            figures.replays,
            money(figures.saved_micro_usd)
        ),
        owed(figures),
        format!(
            "Dead {}, outcome unknown {}, held {}, unknown {}",
            figures.dead, figures.outcome_unknown, figures.held, figures.unknown
        ),
        format!("Money at risk: {}", money(figures.at_risk.micro_usd)),
    ];
    if let Some(queued) = figures.queued {
        lines.push(format!("In the queue: {}", count(queued)));
    }
    lines.push(match figures.kv_error_rate {
        Some(rate) => format!("KV errors in 7 days: {}", percent(rate, 3)),
        None => "KV errors in 7 days: nothing was asked".to_owned(),
    });
    if !figures.sites.is_empty() {
        lines.push("Spend by site".to_owned());
        lines.extend(site_lines(figures, config));
    }
    lines.join("\n")
}

fn owed(figures: &Figures) -> String {
    let oldest = match figures.oldest_minutes {
        Some(minutes) if minutes >= 120 => format!(", the oldest for {} h", minutes / 60),
        Some(minutes) => format!(", the oldest for {minutes} min"),
        None => String::new(),
    };
    format!(
        "Owed: {}, over {} min: {}{oldest}",
        count(figures.pending),
        figures.stale_minutes,
        count(figures.stale)
    )
}

/// A count that stopped at its bound says so.
fn count(value: u64) -> String {
    let bound = u64::try_from(figures::ROWS_MAX).unwrap_or(u64::MAX);
    if value >= bound {
        format!("{bound} or more")
    } else {
        value.to_string()
    }
}

fn site_lines(figures: &Figures, config: &Config) -> Vec<String> {
    let accounts: SortedSet<&str> = figures.sites.iter().map(|s| s.account.as_str()).collect();
    let name = |site: &SiteFigures| {
        if accounts.len() > 1 {
            format!("{}/{}", site.account, site.site)
        } else {
            site.site.clone()
        }
    };
    let shown = figures.sites.get(..SITES_SHOWN).unwrap_or(&figures.sites);
    let width = shown
        .iter()
        .map(|s| name(s).chars().count())
        .max()
        .unwrap_or(0);
    let mut lines: Vec<String> = shown
        .iter()
        .map(|site| {
            let amount = show(&config.currency, site.cost_micro_usd);
            format!("  {:width$}  {amount} ({})", name(site), site.generated)
        })
        .collect();
    let rest = figures.sites.len().saturating_sub(shown.len());
    if rest > 0 {
        lines.push(format!("  and {rest} more"));
    }
    lines
}

/// Statements that making a digest costs.
pub const COST: u32 = 8;
/// Sites that are kept…
const SITES_MAX: usize = 200;
/// …and shown.
const SITES_SHOWN: usize = 12;

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
#[path = "digest_tests.rs"]
mod tests;
