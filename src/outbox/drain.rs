//! The drain: one bounded pass that publishes due deliveries and says what it left.
//!
//! Deliveries are leased lane by lane (a lane is one account at one publisher), so that no backlog
//! starves another; publishers are worked on side by side, each one's rows in turn. A publisher
//! that keeps failing is left alone for a while, its rows unspent. A row is tried once a drain.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use serde_json::json;

use crate::app::App;
use crate::idempotency::record::Generation;
use crate::idempotency::recovery::output_body;
use crate::outbox::attempt::{carry_out, output_text, parcel};
use crate::outbox::budget::Budget;
use crate::outbox::decide::{Attempt, Tally, decide, waits_for_a_person};
use crate::ports::{DbError, Rows};
use crate::publish::settings::PublisherSettings;
use crate::publish::{Failure, IdempotencyClass, Outcome, failure};
use crate::store::deliveries::{self, Leased};
use crate::store::row::{first, rows};
use crate::time::{Span, Timestamp};

/// What a drain did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The destination has them.
    pub published: u32,
    /// To be tried again later.
    pub retried: u32,
    /// Not tried again without a person.
    pub dead: u32,
    /// Nobody can tell; a person decides.
    pub outcome_unknown: u32,
    /// Given back unspent: the publisher is left alone, or time or budget were short.
    pub given_back: u32,
    /// Whose lease had passed to another drain.
    pub lost: u32,
    /// Whether due deliveries were left for the next drain.
    pub left: bool,
}

impl Drained {
    /// The counts as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        json!({
            "published": self.published,
            "retried": self.retried,
            "dead": self.dead,
            "outcomeUnknown": self.outcome_unknown,
            "givenBack": self.given_back,
            "lost": self.lost,
            "left": self.left,
        })
    }

    fn add(&mut self, tally: Tally) {
        let count = match tally {
            Tally::Published => &mut self.published,
            Tally::Retried => &mut self.retried,
            Tally::Dead => &mut self.dead,
            Tally::OutcomeUnknown => &mut self.outcome_unknown,
        };
        *count = count.saturating_add(1);
    }

    fn merge(&mut self, other: &Self) {
        self.published = self.published.saturating_add(other.published);
        self.retried = self.retried.saturating_add(other.retried);
        self.dead = self.dead.saturating_add(other.dead);
        self.outcome_unknown = self.outcome_unknown.saturating_add(other.outcome_unknown);
        self.given_back = self.given_back.saturating_add(other.given_back);
        self.lost = self.lost.saturating_add(other.lost);
        self.left |= other.left;
    }
}

/// A publisher's record of failures.
#[derive(Clone, Copy, Debug)]
struct Circuit {
    failures: i64,
    open_until: Timestamp,
}

/// One drain at work.
struct Pass<'a> {
    app: &'a App,
    budget: &'a Budget,
    token: String,
    lease_until: Timestamp,
    circuits: BTreeMap<String, Circuit>,
}

/// Publishes what is due, within the budget.
pub async fn drain(app: &App, budget: &Budget) -> Result<Drained, DbError> {
    let now = app.now();
    budget.force(3);
    let mut batch = deliveries::lanes(LANES_MAX);
    batch.push(deliveries::circuits());
    let results = app.run(batch).await?;
    let pass = Pass::new(app, budget, read_circuits(&results)?, now);
    let (lanes, more) = read_lanes(&results, &pass, now)?;
    let (leased, full) = pass.lease(&lanes).await?;
    let mut drained = pass.publish(leased).await;
    drained.left |= more || full;
    pass.keep_cursor(&lanes, more).await;
    Ok(drained)
}

/// Publishes what one generation owes now: the drain right after its commit.
pub async fn drain_generation(app: &App, generation_id: &str) -> Drained {
    let now = app.now();
    let budget = Budget::new(app.config().subrequest_budget / 2, now.plus(START_WITHIN));
    let mut pass = Pass::new(app, &budget, BTreeMap::new(), now);
    budget.force(2);
    let batch = vec![
        deliveries::lease_generation(generation_id, &pass.token, pass.lease_until, now),
        deliveries::circuits(),
    ];
    let found = app.run(batch).await.and_then(|results| {
        let leased = rows(&results, 0)?
            .map(Leased::read)
            .collect::<Result<Vec<_>, _>>()?;
        Ok((leased, circuits_at(&results, 1)?))
    });
    match found {
        Ok((leased, circuits)) => {
            pass.circuits = circuits;
            pass.publish(leased).await
        }
        Err(error) => {
            app.log(
                "drain_failed",
                json!({"generationId": generation_id,
                "error": error.to_string()}),
            );
            Drained::default()
        }
    }
}

impl<'a> Pass<'a> {
    fn new(
        app: &'a App,
        budget: &'a Budget,
        circuits: BTreeMap<String, Circuit>,
        now: Timestamp,
    ) -> Self {
        Self {
            app,
            budget,
            token: app.id("lease_"),
            lease_until: now.plus(LEASE),
            circuits,
        }
    }

    /// How many rows of a publisher may be tried: one where it was failing until now.
    fn quota(&self, publisher: &str, share: usize, now: Timestamp) -> usize {
        match self.circuits.get(publisher) {
            Some(circuit) if circuit.open_until > now => 0,
            Some(circuit) if circuit.failures >= OPEN_AFTER => share.min(1),
            _ => share,
        }
    }

    /// Leases due rows of the lanes in turn, each lane's share of what the budget allows.
    async fn lease(&self, lanes: &[(String, String)]) -> Result<(Vec<Leased>, bool), DbError> {
        let now = self.app.now();
        let left = usize::try_from(self.budget.left())
            .unwrap_or(0)
            .saturating_sub(RESERVE);
        let lane_count = lanes
            .len()
            .min(left / (COST_OF_ROW + 1))
            .max(usize::from(!lanes.is_empty()));
        let rows_max = left.saturating_sub(lane_count) / COST_OF_ROW;
        if lane_count == 0 || rows_max == 0 {
            return Ok((Vec::new(), !lanes.is_empty()));
        }
        let share = rows_max
            .checked_div(lane_count)
            .unwrap_or(0)
            .clamp(1, BATCH_MAX);
        let mut quotas = Vec::new();
        let mut batch = Vec::new();
        for (publisher, account) in lanes.iter().take(lane_count) {
            let quota = self.quota(publisher, share, now);
            if quota > 0 {
                let lane = (publisher.as_str(), account.as_str());
                let until = self.lease_until;
                batch.push(deliveries::lease(lane, quota, &self.token, until, now));
                quotas.push(quota);
            }
        }
        if batch.is_empty() {
            return Ok((Vec::new(), lanes.len() > lane_count));
        }
        self.budget
            .force(u32::try_from(batch.len()).unwrap_or(u32::MAX));
        let results = self.app.run(batch).await?;
        let mut leased = Vec::new();
        let mut full = lanes.len() > lane_count;
        for (index, quota) in quotas.into_iter().enumerate() {
            let found = rows(&results, index)?
                .map(Leased::read)
                .collect::<Result<Vec<_>, _>>()?;
            full |= found.len() >= quota;
            leased.extend(found);
        }
        Ok((leased, full))
    }

    /// Publishes leased rows, publishers side by side, each one's rows in turn.
    async fn publish(&self, leased: Vec<Leased>) -> Drained {
        let mut drained = Drained::default();
        if leased.is_empty() {
            return drained;
        }
        self.budget.force(1);
        let generations = match self.load(&leased).await {
            Ok(generations) => generations,
            Err(error) => {
                self.app
                    .log("drain_failed", json!({"error": error.to_string()}));
                self.give_back(&leased).await;
                drained.given_back = u32::try_from(leased.len()).unwrap_or(u32::MAX);
                drained.left = true;
                return drained;
            }
        };
        let mut by_publisher: BTreeMap<String, Vec<Leased>> = BTreeMap::new();
        for delivery in leased {
            by_publisher
                .entry(delivery.publisher.clone())
                .or_default()
                .push(delivery);
        }
        let groups: Vec<(String, Vec<Leased>)> = by_publisher.into_iter().collect();
        for side_by_side in groups.chunks(CONNECTIONS) {
            let passes = side_by_side
                .iter()
                .map(|(name, rows)| self.publish_to(name, rows, &generations));
            for part in join_all(passes).await {
                drained.merge(&part);
            }
        }
        drained
    }

    async fn load(&self, leased: &[Leased]) -> Result<BTreeMap<String, Loaded>, DbError> {
        let ids: BTreeSet<&str> = leased.iter().map(|d| d.generation_id.as_str()).collect();
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let results = self.app.run(vec![deliveries::load(&ids)]).await?;
        rows(&results, 0)?
            .map(|row| {
                let generation = Generation::read(row)?;
                let body = row.optional_text("stored_body")?;
                Ok((generation.id.clone(), Loaded { generation, body }))
            })
            .collect()
    }

    /// One publisher's rows, in turn, until it has failed too often.
    async fn publish_to(
        &self,
        publisher: &str,
        rows: &[Leased],
        generations: &BTreeMap<String, Loaded>,
    ) -> Drained {
        let mut drained = Drained::default();
        let before = self
            .circuits
            .get(publisher)
            .map_or(0, |circuit| circuit.failures);
        let mut failures = before;
        for (index, delivery) in rows.iter().enumerate() {
            let now = self.app.now();
            let short = now.plus(ATTEMPT_MIN) >= self.lease_until
                || self.budget.is_late(now)
                || (index > 0 && self.budget.left() < COST_OF_ROW_U32);
            // A publisher that was failing until now gets one row as a trial.
            let trial = index == 0 && before >= OPEN_AFTER;
            if short || (failures >= OPEN_AFTER && !trial) {
                let rest = rows.get(index..).unwrap_or_default();
                self.give_back(rest).await;
                drained.given_back = u32::try_from(rest.len()).unwrap_or(u32::MAX);
                drained.left = true;
                break;
            }
            let (tally, own) = self.attempt(delivery, generations).await;
            if own {
                drained.add(tally);
            } else {
                drained.lost = drained.lost.saturating_add(1);
            }
            failures = if tally == Tally::Retried {
                failures.saturating_add(1)
            } else {
                0
            };
        }
        self.keep_circuit(publisher, before, failures).await;
        drained
    }

    /// One attempt, recorded under the lease's token; `false` where the lease had passed on.
    async fn attempt(
        &self,
        delivery: &Leased,
        generations: &BTreeMap<String, Loaded>,
    ) -> (Tally, bool) {
        let started_at = self.app.now();
        let settings = self.app.config().publishers.get(&delivery.publisher);
        let ((outcome, progress), class, policy) = if let Some(settings) = settings {
            let (class, policy) = (settings.class(), settings.ambiguous());
            let ended = if delivery.abandoned && waits_for_a_person(class, policy) {
                let lost = Failure::new(
                    failure::CONNECTION_LOST,
                    "an attempt was begun and never ended",
                );
                (Outcome::Ambiguous(lost), delivery.progress.clone())
            } else {
                self.try_once(settings, delivery, generations).await
            };
            (ended, class, policy)
        } else {
            let gone = Failure::new(
                "publisher_missing",
                "no publisher of this name is configured",
            );
            let ended = (Outcome::Permanent(gone), delivery.progress.clone());
            (
                ended,
                IdempotencyClass::None,
                crate::publish::settings::Ambiguous::AtLeastOnce,
            )
        };
        let random = u64::from_be_bytes(
            self.app
                .random
                .bytes16()
                .first_chunk::<8>()
                .copied()
                .unwrap_or_default(),
        );
        let attempt = Attempt {
            started_at,
            ended_at: self.app.now(),
            progress,
            random,
        };
        let (tally, finish) = decide(delivery, &outcome, class, policy, &attempt);
        self.log(delivery, tally, &outcome, &attempt);
        self.budget.force(1);
        let batch = vec![deliveries::finish(
            &delivery.id,
            &self.token,
            &finish,
            attempt.ended_at,
        )];
        match self
            .app
            .run(batch)
            .await
            .and_then(|results| Ok(first(&results, 0)?.is_some()))
        {
            Ok(own) => (tally, own),
            Err(error) => {
                // The lease runs out and the row is looked at again, as one that may have arrived.
                self.app.log(
                    "delivery_not_recorded",
                    json!({"deliveryId": delivery.id,
                    "error": error.to_string()}),
                );
                (tally, false)
            }
        }
    }

    async fn try_once(
        &self,
        settings: &PublisherSettings,
        delivery: &Leased,
        generations: &BTreeMap<String, Loaded>,
    ) -> (Outcome, Option<String>) {
        let progress = delivery.progress.clone();
        let Some(loaded) = generations.get(&delivery.generation_id) else {
            let gone = Failure::new(failure::STORE_FAILED, "the generation is gone");
            return (Outcome::Permanent(gone), progress);
        };
        let text = match self.text_of(loaded).await {
            Ok(text) => text,
            Err(failure) => return (failure, progress),
        };
        let generation = &loaded.generation;
        let pipeline =
            self.app
                .config()
                .pipeline(&generation.account, &generation.site, &generation.pipeline);
        let template = pipeline.and_then(|pipeline| pipeline.template.as_ref());
        let parcel = parcel(settings, template, delivery, generation, text);
        let publication = settings.begin(parcel);
        carry_out(
            self.app,
            publication,
            delivery,
            &self.token,
            self.lease_until,
            self.budget,
        )
        .await
    }

    async fn text_of(&self, loaded: &Loaded) -> Result<String, Outcome> {
        let body = if let Some(body) = &loaded.body {
            body.clone()
        } else {
            self.budget.force(1);
            output_body(self.app, &loaded.generation)
                .await
                .map_err(|error| {
                    Outcome::Transient(Failure::new(failure::STORE_FAILED, error.to_string()))
                })?
        };
        output_text(loaded.generation.surface, &body, self.app.now()).ok_or_else(|| {
            Outcome::Permanent(Failure::new(
                failure::STORE_FAILED,
                "the output can't be read",
            ))
        })
    }

    async fn give_back(&self, rows: &[Leased]) {
        let ids: Vec<&str> = rows.iter().map(|delivery| delivery.id.as_str()).collect();
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        self.budget.force(1);
        let at = self.app.now().plus(GIVEN_BACK);
        if let Err(error) = self
            .app
            .run(vec![deliveries::give_back(&ids, &self.token, at)])
            .await
        {
            self.app
                .log("lease_not_returned", json!({"error": error.to_string()}));
        }
    }

    async fn keep_circuit(&self, publisher: &str, before: i64, failures: i64) {
        let statement = if failures >= OPEN_AFTER {
            let doublings = u32::try_from(failures.saturating_sub(OPEN_AFTER))
                .unwrap_or(0)
                .min(4);
            let pause = OPEN_FOR.saturating_mul(1_i64 << doublings);
            deliveries::open_circuit(publisher, failures, self.app.now().plus(pause))
        } else if before > 0 && failures == 0 {
            deliveries::close_circuit(publisher)
        } else {
            return;
        };
        self.budget.force(1);
        if let Err(error) = self.app.run(vec![statement]).await {
            self.app
                .log("circuit_not_recorded", json!({"error": error.to_string()}));
        }
    }

    async fn keep_cursor(&self, lanes: &[(String, String)], more: bool) {
        let Some((publisher, account)) = lanes.last().filter(|_| more) else {
            return;
        };
        let cursor = json!([publisher, account]).to_string();
        self.budget.force(1);
        let _ = self.app.run(vec![deliveries::keep_cursor(&cursor)]).await;
    }

    fn log(&self, delivery: &Leased, tally: Tally, outcome: &Outcome, attempt: &Attempt) {
        let code = match outcome {
            Outcome::Published { .. } => None,
            Outcome::Transient(f) | Outcome::Ambiguous(f) | Outcome::Permanent(f) => Some(f.code),
        };
        let latency = attempt.ended_at.since(attempt.started_at).millis();
        self.app.log(
            "delivery_attempt",
            json!({"deliveryId": delivery.id,
            "generationId": delivery.generation_id, "publisher": delivery.publisher,
            "tally": format!("{tally:?}"), "code": code, "latencyMs": latency}),
        );
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of one attempt")]
        self.app.telemetry.point(
            &delivery.account,
            &[
                "delivery",
                &delivery.account,
                &delivery.site,
                &delivery.pipeline,
                &delivery.publisher,
                &format!("{tally:?}"),
                code.unwrap_or_default(),
            ],
            &[1.0, latency as f64],
        );
    }
}

/// A generation, and its answer where that is one row.
struct Loaded {
    generation: Generation,
    body: Option<String>,
}

/// The lanes that have something due, those behind the cursor first, and whether there are more.
fn read_lanes(
    results: &[Rows],
    pass: &Pass<'_>,
    now: Timestamp,
) -> Result<(Vec<(String, String)>, bool), DbError> {
    let mut lanes: Vec<(String, String)> = Vec::new();
    let mut more = false;
    for index in [0, 1] {
        let mut seen = 0_usize;
        for row in rows(results, index)? {
            seen = seen.saturating_add(1);
            let lane = (row.text("publisher")?, row.text("account")?);
            let due = row.optional_time("due_at")?.is_some_and(|at| at <= now);
            let open = pass.quota(&lane.0, 1, now) > 0;
            if due && open && !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        more |= seen >= LANES_MAX;
    }
    Ok((lanes, more))
}

fn read_circuits(results: &[Rows]) -> Result<BTreeMap<String, Circuit>, DbError> {
    circuits_at(results, 2)
}

fn circuits_at(results: &[Rows], index: usize) -> Result<BTreeMap<String, Circuit>, DbError> {
    rows(results, index)?
        .map(|row| {
            let circuit = Circuit {
                failures: row.integer("failures")?,
                open_until: row.time("open_until")?,
            };
            Ok((row.text("publisher")?, circuit))
        })
        .collect()
}

/// How long a drain holds its rows: a few time-outs of a slow destination.
const LEASE: Span = Span::from_seconds(120);
/// No attempt begins with less of its lease left than one time-out and a margin.
const ATTEMPT_MIN: Span = Span::from_seconds(25);
/// A drain right after a commit has the rest of an invocation only.
const START_WITHIN: Span = Span::from_seconds(20);
/// Rows that were given back are due again with the next tick.
const GIVEN_BACK: Span = Span::from_seconds(30);
/// Failures in a row after which a publisher is left alone.
const OPEN_AFTER: i64 = 3;
/// For how long, at first; doubled with each further failure, to 16 minutes.
const OPEN_FOR: Span = Span::from_minutes(1);
/// Publishers worked on side by side: the platform gives six connections, and one is the database's.
const CONNECTIONS: usize = 5;
/// Most lanes that one drain looks at from one place.
const LANES_MAX: usize = 32;
/// Most rows of one lane in one drain, whatever the budget.
const BATCH_MAX: usize = 100;
/// What a row costs at the least: its effect, and recording its outcome.
const COST_OF_ROW: usize = 2;
const COST_OF_ROW_U32: u32 = 2;
/// Kept for loading, the circuit, the cursor.
const RESERVE: usize = 4;
