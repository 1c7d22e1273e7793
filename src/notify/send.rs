//! Sending what people must hear: a few messages a tick, within its own small budget.
//!
//! A bundle that is due is closed and leased; one message is sent; then it is marked as sent, or
//! put off. A channel that is down pauses all of it, so an outage costs one try a pause and loses
//! nothing.

use serde_json::{Value, json};

use crate::app::App;
use crate::metrics::Point;
use crate::notify::{Channel, Message, Told, channel, digest};
use crate::outbox::budget::Budget;
use crate::ports::{DbError, Statement};
use crate::sorted::sort_by;
use crate::store::alerts::{self, Bundle};
use crate::store::digests::{self, StoredDigest};
use crate::store::figures;
use crate::store::row::{first, rows};
use crate::time::{Span, Timestamp};

/// What a tick told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notified {
    /// Messages that were taken.
    pub sent: u32,
    /// Messages that are sent again later.
    pub retried: u32,
}

impl Notified {
    /// The counts as JSON.
    pub fn to_json(self) -> Value {
        json!({"sent": self.sent, "retried": self.retried})
    }
}

/// One tick's share of telling: the gauge, the morning's digest, then what is due to be sent.
pub async fn tick(app: &App, budget: &Budget, scheduled_at: Timestamp) -> Notified {
    let made = morning(app, budget, scheduled_at)
        .await
        .unwrap_or_else(|error| {
            app.log("digest_failed", json!({"error": error.to_string()}));
            false
        });
    if made || !budget.take(COST_OF_LEASE) {
        // Making the digest was this tick's share; it is sent with the next.
        return Notified::default();
    }
    send(app, budget).await.unwrap_or_else(|error| {
        app.log("alerts_failed", json!({"error": error.to_string()}));
        Notified::default()
    })
}

/// The backlog gauge; once an hour a look at KV's week; and the digest where it is due.
async fn morning(app: &App, budget: &Budget, scheduled_at: Timestamp) -> Result<bool, DbError> {
    let now = app.now();
    let mut batch = vec![
        figures::backlog(None, now.minus(app.config().stale_after), GAUGE_MAX),
        digests::latest_day(),
    ];
    if scheduled_at.seconds().div_euclid(60).rem_euclid(60) == 0 {
        let week = now.minus(Span::from_days(7)).to_date_string();
        batch.extend(alerts::kv_errors(&week, now));
    }
    budget.force(u32::try_from(batch.len()).unwrap_or(u32::MAX));
    let results = app.run(batch).await?;
    if let Some(row) = first(&results, 0)? {
        gauge(app, &figures::read_backlog(row)?, now);
    }
    let latest = match first(&results, 1)? {
        Some(row) => row.optional_text("day")?,
        None => None,
    };
    let Some(day) = digest::due(app, now).filter(|day| latest.as_ref() < Some(day)) else {
        return Ok(false);
    };
    budget.force(digest::COST);
    digest::make(app, &day, now).await?;
    app.log("digest_made", json!({"day": day}));
    Ok(true)
}

fn gauge(app: &App, backlog: &figures::Backlog, now: Timestamp) {
    let oldest = backlog.oldest_at.map_or(0, |at| now.since(at).millis());
    Point::Backlog {
        pending: backlog.pending,
        stale: backlog.stale,
        dead: backlog.dead,
        outcome_unknown: backlog.outcome_unknown,
        held: backlog.held,
        unknown: backlog.unknown,
        queued: backlog.queued.unwrap_or_default(),
        oldest_ms: oldest,
    }
    .write(&*app.telemetry);
}

/// Leases what is due and sends it.
async fn send(app: &App, budget: &Budget) -> Result<Notified, DbError> {
    let channel = channel(app);
    let now = app.now();
    let token = app.id("alert_");
    let limit = if channel.is_some() {
        SENT_MAX
    } else {
        MARKED_MAX
    };
    let results = app
        .run(vec![digests::lease(now), alerts::lease(&token, limit, now)])
        .await?;
    let digest = first(&results, 0)?.map(StoredDigest::read).transpose()?;
    let mut bundles = rows(&results, 1)?
        .map(Bundle::read)
        .collect::<Result<Vec<_>, _>>()?;
    sort_by(&mut bundles, |a, b| a.id.cmp(&b.id));
    if digest.is_none() && bundles.is_empty() {
        return Ok(Notified::default());
    }
    log_alerts(app, &bundles);
    let mut round = Round::new(app, token);
    match channel {
        Some(channel) => {
            round
                .tell_all(&*channel, digest.as_ref(), &bundles, budget)
                .await;
        }
        None => round.mark(digest.as_ref(), &bundles),
    }
    budget.force(u32::try_from(round.batch.len()).unwrap_or(u32::MAX));
    round.settle().await
}

/// Every alert is a log line too, once: without text from outside.
fn log_alerts(app: &App, bundles: &[Bundle]) {
    for bundle in bundles.iter().filter(|bundle| bundle.attempts == 1) {
        app.log(
            "alert",
            json!({"kind": bundle.kind, "account": bundle.account, "site": bundle.site,
            "pipeline": bundle.pipeline, "count": bundle.count}),
        );
    }
}

/// One round of telling, and the statements that record it.
struct Round<'a> {
    app: &'a App,
    token: String,
    sent: Vec<i64>,
    off: Vec<i64>,
    off_until: Timestamp,
    batch: Vec<Statement>,
    notified: Notified,
}

impl<'a> Round<'a> {
    fn new(app: &'a App, token: String) -> Self {
        Self {
            app,
            token,
            sent: Vec::new(),
            off: Vec::new(),
            off_until: app.now(),
            batch: Vec::new(),
            notified: Notified::default(),
        }
    }

    /// Without a channel, nothing is left to do: the rows stay for the dashboard and the digest.
    fn mark(&mut self, digest: Option<&StoredDigest>, bundles: &[Bundle]) {
        self.sent = bundles.iter().map(|bundle| bundle.id).collect();
        if let Some(digest) = digest {
            self.batch.push(digests::sent(&digest.day, self.app.now()));
        }
    }

    async fn tell_all(
        &mut self,
        channel: &dyn Channel,
        digest: Option<&StoredDigest>,
        bundles: &[Bundle],
        budget: &Budget,
    ) {
        let mut up = true;
        if let Some(digest) = digest {
            budget.force(1);
            let answer = channel.tell(self.app, Message::Digest(digest)).await;
            up = self.take_digest(digest, &answer);
        }
        for bundle in bundles {
            if !up || !budget.take(1) {
                self.off.push(bundle.id);
                continue;
            }
            let answer = channel.tell(self.app, Message::Alert(bundle)).await;
            up = self.take_alert(bundle, &answer);
        }
    }

    /// Whether the channel is up.
    fn take_digest(&mut self, digest: &StoredDigest, answer: &Told) -> bool {
        let now = self.app.now();
        let up = self.heard("digest", 1, digest.attempts, answer);
        let statement = match answer {
            Told::Taken => digests::sent(&digest.day, now),
            Told::Refused { .. } | Told::Down { .. } => {
                digests::retry(&digest.day, now.plus(pause(digest.attempts)))
            }
        };
        self.batch.push(statement);
        up
    }

    /// Whether the channel is up.
    fn take_alert(&mut self, bundle: &Bundle, answer: &Told) -> bool {
        let now = self.app.now();
        let up = self.heard(&bundle.kind, bundle.count, bundle.attempts, answer);
        match answer {
            Told::Taken => self.sent.push(bundle.id),
            Told::Refused { .. } | Told::Down { .. } if is_hopeless(bundle, now) => {
                self.app.log(
                    "alert_given_up",
                    json!({"kind": bundle.kind, "attempts": bundle.attempts}),
                );
                self.sent.push(bundle.id);
            }
            Told::Refused { .. } => {
                let id = json!([bundle.id]).to_string();
                let at = now.plus(pause(bundle.attempts));
                self.batch.push(alerts::retry(&id, &self.token, at));
            }
            Told::Down { .. } => self.off.push(bundle.id),
        }
        up
    }

    /// Counts and logs an answer, and pauses a channel that is down.
    fn heard(&mut self, kind: &str, events: u64, attempts: u32, answer: &Told) -> bool {
        let taken = *answer == Told::Taken;
        let outcome = if taken { "sent" } else { "retried" };
        Point::Alert {
            kind,
            outcome,
            events,
        }
        .write(&*self.app.telemetry);
        if taken {
            self.notified.sent = self.notified.sent.saturating_add(1);
            return true;
        }
        self.notified.retried = self.notified.retried.saturating_add(1);
        let wait = pause(attempts);
        let (status, wait, up) = match answer {
            Told::Down { status, pause } => (*status, wait.max(pause.unwrap_or_default()), false),
            Told::Refused { status } => (Some(*status), wait, true),
            Told::Taken => (None, wait, true),
        };
        self.app.log(
            "alert_retried",
            json!({"kind": kind, "status": status, "pauseMs": wait.millis()}),
        );
        if !up {
            self.off_until = self.app.now().plus(wait);
            self.batch.push(alerts::pause(self.off_until));
        }
        up
    }

    /// Records the round, in one batch.
    async fn settle(mut self) -> Result<Notified, DbError> {
        let now = self.app.now();
        if !self.sent.is_empty() {
            let ids = json!(self.sent).to_string();
            self.batch.push(alerts::sent(&ids, &self.token, now));
        }
        if !self.off.is_empty() {
            let ids = json!(self.off).to_string();
            let at = self.off_until.max(now);
            self.batch.push(alerts::retry(&ids, &self.token, at));
        }
        self.app.run(self.batch).await?;
        Ok(self.notified)
    }
}

/// One minute at first, doubled with each try, at most a quarter of an hour: a channel that comes
/// back is heard from soon.
fn pause(attempts: u32) -> Span {
    let doublings = attempts.saturating_sub(1).min(4);
    PAUSE.saturating_mul(1_i64 << doublings).min(PAUSE_MAX)
}

/// An alert that nobody took for as long as anything is kept says nothing any more.
fn is_hopeless(bundle: &Bundle, now: Timestamp) -> bool {
    now >= bundle.opened_at.plus(crate::limits::RETENTION)
}

/// The subrequests that a tick keeps for telling: the gauge and the day (2), KV's week (2, once an
/// hour), the leases (2), a digest (1), some messages, and their record (3). Making a digest takes
/// a tick of its own, and fits as well.
pub const SUBREQUESTS: u32 = 14;
/// Longest wait for a channel.
pub const TIMEOUT: Span = Span::from_seconds(5);
const COST_OF_LEASE: u32 = 2;
/// Messages a tick: Slack asks for about one a second, and the budget for no more.
pub const SENT_MAX: usize = 4;
/// Bundles a tick that are only marked, where there is no channel.
const MARKED_MAX: usize = 100;
/// The gauge counts so far.
const GAUGE_MAX: usize = 1_000;
/// First wait for a channel that is down…
pub const PAUSE: Span = Span::from_minutes(1);
/// …which is doubled up to this.
pub const PAUSE_MAX: Span = Span::from_minutes(15);

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
#[path = "send_tests.rs"]
mod tests;
