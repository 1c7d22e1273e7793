//! Counts that an isolate gathers and adds to the database after the answers, a second at a time.
//!
//! A replay is answered without the database, so its count is not on its path. What an isolate
//! gathered in its last second is lost if it dies: figures for people, not money.

use std::collections::BTreeMap;

use crate::app::App;
use crate::idempotency::record::Stored;
use crate::store::maintenance::{Counts, Replays, flush};
use crate::time::{Span, Timestamp};

/// What was counted since the last flush.
#[derive(Debug, Default)]
pub struct Stats {
    named: BTreeMap<(String, &'static str), u64>,
    replays: BTreeMap<(String, String, String, String, String), Replays>,
    flushing_since: Option<Timestamp>,
}

impl Stats {
    fn take(&mut self) -> Counts {
        let named = std::mem::take(&mut self.named);
        let replays = std::mem::take(&mut self.replays);
        Counts {
            named: named.into_iter().map(|((day, name), count)| (day, name, count)).collect(),
            replays: replays.into_values().collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.named.is_empty() && self.replays.is_empty()
    }
}

impl App {
    /// Counts an event by name.
    pub fn count(&self, name: &'static str) {
        let day = self.now().to_date_string();
        let mut stats = self.stats.borrow_mut();
        let count = stats.named.entry((day, name)).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a duplicate that was caught, and what it saved.
    pub fn count_replay(&self, stored: &Stored) {
        let day = self.now().to_date_string();
        let key = (
            stored.account.clone(),
            day.clone(),
            stored.site.clone(),
            stored.pipeline.clone(),
            stored.model.clone(),
        );
        let mut stats = self.stats.borrow_mut();
        let entry = stats.replays.entry(key).or_insert_with(|| Replays {
            account: stored.account.clone(),
            day,
            site: stored.site.clone(),
            pipeline: stored.pipeline.clone(),
            model: stored.model.clone(),
            count: 0,
            saved_nano: 0,
            topic: None,
            original_at: stored.created_at,
        });
        entry.count = entry.count.saturating_add(1);
        entry.saved_nano = entry.saved_nano.saturating_add(stored.cost_nano);
        entry.topic.clone_from(&stored.topic);
        entry.original_at = stored.created_at;
    }

    /// Has the counts added to the database after the answer; one flush an isolate at a time.
    pub fn flush_later(&self) {
        {
            let mut stats = self.stats.borrow_mut();
            let now = self.now();
            let under_way =
                stats.flushing_since.is_some_and(|since| now < since.plus(FLUSH_STUCK_AFTER));
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

    /// Adds the counts to the database now.
    pub async fn flush_now(&self) {
        let counts = {
            let mut stats = self.stats.borrow_mut();
            stats.flushing_since = None;
            stats.take()
        };
        if counts.named.is_empty() && counts.replays.is_empty() {
            return;
        }
        let batch = flush(&counts, &self.id("flush_"), self.now());
        if let Err(error) = self.run(batch).await {
            self.log("stats_lost", serde_json::json!({"error": error.to_string()}));
        }
    }
}

/// How long counts gather. `waitUntil` gives 30 s, so this stays far below.
const FLUSH_AFTER: Span = Span::from_seconds(1);
/// A flush that has not come back by then was cancelled with its request.
const FLUSH_STUCK_AFTER: Span = Span::from_seconds(30);
