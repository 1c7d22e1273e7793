//! Counts that an isolate gathers and adds to the database after the answers, a second at a time.
//!
//! A replay is answered without the database, so its count is not on its path. What an isolate
//! gathered in its last second is lost if it dies: figures for people, not money. A batch whose
//! fate is not known is kept with its token and sent again with the next one, so that it counts
//! once.

use crate::app::App;
use crate::idempotency::output::credits;
use crate::idempotency::record::{Generation, Stored};
use crate::metrics::{Cause, Point, Scope};
use crate::ports::{KvError, Zones};
use crate::sorted::SortedMap;
use crate::store::counts::{Counts, Scoped, flush};
use crate::time::{Span, Timestamp};

/// What was counted since the last flush.
#[derive(Debug, Default)]
pub struct Stats {
    named: SortedMap<(String, &'static str), u64>,
    replays: SortedMap<ReplayKey, Scoped>,
    published: SortedMap<(String, String, String, String, String), Scoped>,
    /// Batches that the database may have taken, with their tokens.
    kept: Vec<(String, Counts)>,
    flushing_since: Option<Timestamp>,
}

/// Whose replay, and when: to the quarter of an hour, since no zone's midnight falls inside one.
/// Its local day is found with the flush, not on the replay's path.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ReplayKey {
    account: String,
    zone: String,
    quarter: i64,
    site: String,
    pipeline: String,
    model: String,
}

impl Stats {
    fn take(&mut self, zones: &dyn Zones) -> Counts {
        let named = std::mem::take(&mut self.named);
        let replays = std::mem::take(&mut self.replays).into_iter();
        let replays = replays.map(|(key, counted)| {
            let at = Timestamp::from_millis(key.quarter.saturating_mul(QUARTER_MS));
            let day = crate::calendar::local_date(zones, &key.zone, at);
            Scoped { day, ..counted }
        });
        let published = std::mem::take(&mut self.published)
            .into_iter()
            .map(|(_, counted)| counted);
        Counts {
            named: named
                .into_iter()
                .map(|((day, name), count)| (day, name, count))
                .collect(),
            scoped: replays.chain(published).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.named.is_empty()
            && self.replays.is_empty()
            && self.published.is_empty()
            && self.kept.is_empty()
    }
}

impl App {
    /// Counts an event by name.
    pub fn count(&self, name: &'static str) {
        let day = self.now().to_date_string();
        let mut stats = self.stats.borrow_mut();
        if let Some(count) = stats.named.get_or_insert_with((day, name), u64::default) {
            *count = count.saturating_add(1);
        }
    }

    /// Counts a duplicate that was caught, and what it saved, for the day in the account's `zone`.
    pub fn count_replay(&self, stored: &Stored, zone: &str, cause: Cause) {
        let now = self.now();
        Point::Duplicate {
            scope: Scope {
                account: &stored.account,
                site: &stored.site,
                pipeline: &stored.pipeline,
                model: &stored.model,
            },
            cause,
            saved_micro: credits(stored.cost_nano),
            age_ms: now.since(stored.created_at).millis(),
        }
        .write(&*self.telemetry);
        let key = ReplayKey {
            account: stored.account.clone(),
            zone: zone.to_owned(),
            quarter: now.millis().div_euclid(QUARTER_MS),
            site: stored.site.clone(),
            pipeline: stored.pipeline.clone(),
            model: stored.model.clone(),
        };
        let mut stats = self.stats.borrow_mut();
        if stats.replays.len() >= SCOPES_MAX && !stats.replays.contains_key(&key) {
            return;
        }
        let entry = stats.replays.get_or_insert_with(key, || Scoped {
            account: stored.account.clone(),
            site: stored.site.clone(),
            pipeline: stored.pipeline.clone(),
            model: stored.model.clone(),
            ..Scoped::default()
        });
        let Some(entry) = entry else { return };
        entry.replays = entry.replays.saturating_add(1);
        entry.saved_nano = entry.saved_nano.saturating_add(stored.cost_nano);
        entry.topic.clone_from(&stored.topic);
        entry.original_at = stored.created_at;
    }

    /// Counts a delivery that was published, with the day that paid for its generation.
    pub fn count_published(&self, generation: &Generation) {
        let key = (
            generation.account.clone(),
            generation.credit_day.clone(),
            generation.site.clone(),
            generation.pipeline.clone(),
            generation.model.clone(),
        );
        let mut stats = self.stats.borrow_mut();
        if stats.published.len() >= PUBLISHED_SCOPES_MAX && !stats.published.contains_key(&key) {
            return;
        }
        let entry = stats.published.get_or_insert_with(key, || Scoped {
            account: generation.account.clone(),
            day: generation.credit_day.clone(),
            site: generation.site.clone(),
            pipeline: generation.pipeline.clone(),
            model: generation.model.clone(),
            ..Scoped::default()
        });
        if let Some(entry) = entry {
            entry.published = entry.published.saturating_add(1);
        }
    }

    /// Reads a value from KV; counted.
    pub async fn kv_get(&self, key: &str) -> Result<Option<String>, KvError> {
        let found = self.kv.get(key).await;
        self.count_kv("kv_read", "kv_read_error", found.is_err());
        found
    }

    /// Lists keys in KV; counted as a read.
    pub async fn kv_list(&self, prefix: &str) -> Result<Vec<String>, KvError> {
        let found = self.kv.list(prefix).await;
        self.count_kv("kv_read", "kv_read_error", found.is_err());
        found
    }

    /// Writes a value into KV; counted.
    pub async fn kv_put(&self, key: &str, value: String, ttl: Option<Span>) -> Result<(), KvError> {
        let put = self.kv.put(key, value, ttl).await;
        self.count_kv("kv_write", "kv_write_error", put.is_err());
        put
    }

    /// Deletes a value from KV; counted as a write.
    pub async fn kv_delete(&self, key: &str) -> Result<(), KvError> {
        let deleted = self.kv.delete(key).await;
        self.count_kv("kv_write", "kv_write_error", deleted.is_err());
        deleted
    }

    fn count_kv(&self, operation: &'static str, error: &'static str, failed: bool) {
        self.count(operation);
        if failed {
            self.count(error);
        }
    }

    /// Has the counts added to the database after the answer; one flush an isolate at a time.
    pub fn flush_later(&self) {
        {
            let mut stats = self.stats.borrow_mut();
            let now = self.now();
            let under_way = stats
                .flushing_since
                .is_some_and(|since| now < since.plus(FLUSH_STUCK_AFTER));
            if under_way || stats.is_empty() {
                return;
            }
            stats.flushing_since = Some(now);
        }
        let app = self.clone();
        self.background.spawn(Box::pin(async move {
            app.clock.sleep(FLUSH_AFTER).await;
            app.flush_now().await;
        }));
    }

    /// Adds the counts to the database now: what earlier flushes left, and what is new.
    pub async fn flush_now(&self) {
        let mut batches = {
            let mut stats = self.stats.borrow_mut();
            stats.flushing_since = None;
            let counts = stats.take(&*self.zones);
            let mut batches = std::mem::take(&mut stats.kept);
            if !counts.is_empty() {
                tell_key_value(self, &counts);
                batches.push((self.id("flush_"), counts));
            }
            batches
        };
        if batches.is_empty() {
            return;
        }
        let now = self.now();
        let statements = batches
            .iter()
            .flat_map(|(token, counts)| flush(counts, token, now));
        if let Err(error) = self.run(statements.collect()).await {
            self.log(
                "stats_kept",
                serde_json::json!({"error": error.to_string()}),
            );
            // Of too many the oldest are given up.
            let surplus = batches.len().saturating_sub(KEPT_MAX);
            self.stats
                .borrow_mut()
                .kept
                .extend(batches.drain(surplus..));
        }
    }
}

fn tell_key_value(app: &App, counts: &Counts) {
    let of = |wanted: &str| {
        let named = counts.named.iter().filter(|(_, name, _)| *name == wanted);
        named.map(|(_, _, count)| *count).sum::<u64>()
    };
    let (reads, writes) = (of("kv_read"), of("kv_write"));
    if reads.saturating_add(writes) == 0 {
        return;
    }
    Point::KeyValue {
        reads,
        writes,
        read_errors: of("kv_read_error"),
        write_errors: of("kv_write_error"),
    }
    .write(&*app.telemetry);
}

/// How long counts gather. `waitUntil` gives 30 s, so this stays far below.
const FLUSH_AFTER: Span = Span::from_seconds(1);
/// A flush that has not come back by then was cancelled with its request.
const FLUSH_STUCK_AFTER: Span = Span::from_seconds(30);
/// Scopes that one flush holds: an isolate serves fewer in a second.
const SCOPES_MAX: usize = 500;
/// The same of what is published: a tick drains for most of a minute before it flushes.
const PUBLISHED_SCOPES_MAX: usize = 5_000;
/// Batches that are kept while the database is away; they hold the counts of some minutes.
const KEPT_MAX: usize = 5;
/// A quarter of an hour.
const QUARTER_MS: i64 = 900_000;
