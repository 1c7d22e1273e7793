//! The drain: one bounded pass that publishes due deliveries and says what it left.
//!
//! Deliveries are taken lane by lane (a lane is what one account owes at one publisher), so that no
//! backlog starves another; publishers are worked on side by side, each one's rows in turn. A
//! publisher that keeps failing is left alone for a while, its rows unspent. A row is tried once a
//! drain. Whatever becomes of one row, the others go on.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use serde_json::json;

use crate::app::App;
use crate::outbox::budget::Budget;
use crate::outbox::circuit::Circuits;
use crate::outbox::decide::Tally;
use crate::ports::{DbError, Statement};
use crate::publish::settings::PublisherSettings;
use crate::sorted::SortedMap;
use crate::store::deliveries::{self, Candidate, Lane, SLOTS};
use crate::store::row::rows;
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
    /// Whose lease had passed to another drain, or whose outcome could not be recorded.
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

    pub(super) fn add(&mut self, tally: Tally) {
        let count = match tally {
            Tally::Published => &mut self.published,
            Tally::Retried => &mut self.retried,
            Tally::Dead => &mut self.dead,
            Tally::OutcomeUnknown => &mut self.outcome_unknown,
            Tally::BrokenOff => {
                self.left = true;
                &mut self.given_back
            }
        };
        *count = count.saturating_add(1);
    }
}

/// Publishes what is due, within the budget.
pub async fn drain(app: &App, budget: &Budget) -> Result<Drained, DbError> {
    let pass = Pass::new(app, budget);
    let kept = budget.set_aside(COST_OF_END);
    let looked = pass.look().await;
    let cursor = match &looked {
        Ok((due, more)) => pass.rounds(due, more.as_ref()).await,
        Err(_) => None,
    };
    budget.put_back(kept);
    looked?;
    pass.end(cursor).await;
    Ok(pass.drained.into_inner())
}

/// Publishes what one generation owes now: the drain right after its commit.
pub async fn drain_generation(app: &App, generation_id: &str) -> Drained {
    let until = app.now().plus(START_WITHIN);
    let budget = Budget::new(app.config().subrequest_budget / 2, until);
    let pass = Pass::new(app, &budget);
    let kept = budget.set_aside(COST_OF_END);
    let statement = deliveries::candidates_of(generation_id, pass.started_at);
    let found = match pass.find(vec![statement]).await {
        Ok(found) => pass.round(pass.allowed(found)).await,
        Err(error) => Err(error),
    };
    if let Err(error) = found {
        let error = error.to_string();
        app.log(
            "drain_failed",
            json!({"generationId": generation_id, "error": error}),
        );
    }
    budget.put_back(kept);
    pass.end(None).await;
    pass.drained.into_inner()
}

/// One drain at work.
pub(super) struct Pass<'a> {
    pub(super) app: &'a App,
    pub(super) budget: &'a Budget,
    pub(super) circuits: Circuits,
    pub(super) drained: RefCell<Drained>,
    pub(super) started_at: Timestamp,
    /// Attempts begun so far.
    pub(super) begun: Cell<u32>,
}

impl<'a> Pass<'a> {
    fn new(app: &'a App, budget: &'a Budget) -> Self {
        Self {
            app,
            budget,
            circuits: Circuits::default(),
            drained: RefCell::default(),
            started_at: app.now(),
            begun: Cell::new(0),
        }
    }

    /// The lanes with something due whose publisher is not left alone, and the last lane that was
    /// looked at where there may be more.
    async fn look(&self) -> Result<(Vec<Lane>, Option<Lane>), DbError> {
        let limit = usize::try_from(self.budget.left())
            .unwrap_or(LANES_MAX)
            .clamp(LANES_MIN, LANES_MAX);
        let batch = vec![deliveries::lanes(limit)];
        let results = self.app.run_within(self.budget, batch).await?;
        let mut seen = 0_usize;
        let mut last = None;
        let mut due = Vec::new();
        for row in rows(&results, 0)? {
            let lane = deliveries::read_lane(row)?;
            if let Some((failures, until)) = deliveries::read_circuit(row)? {
                self.circuits.learn(&lane.publisher, failures, until);
            }
            seen = seen.saturating_add(1);
            last = Some(lane.clone());
            if lane.due_at <= self.started_at {
                due.push(lane);
            }
        }
        Ok((due, last.filter(|_| seen >= limit)))
    }

    /// Works on the lanes in turn, each with a fair part of what the budget allows, as long as
    /// something is due and can be paid for; says behind which lane the next drain starts.
    async fn rounds(&self, due: &[Lane], last_seen: Option<&Lane>) -> Option<Lane> {
        let mut untouched = due.len();
        let mut last_taken = None;
        let mut waiting: VecDeque<&Lane> = due.iter().collect();
        while !waiting.is_empty() && !self.budget.is_late(self.app.now()) {
            let picks = self.pick(&mut waiting);
            if picks.is_empty() {
                break;
            }
            let fresh = picks.len().min(untouched);
            untouched = untouched.saturating_sub(fresh);
            if let Some((lane, _)) = picks.get(..fresh).and_then(<[_]>::last) {
                last_taken = Some((*lane).clone());
            }
            let before = self.begun.get();
            let (full, ended) = self.work(&picks).await;
            if ended {
                break;
            }
            // What gave nothing is other drains'; the lanes behind it have their turn all the same.
            if self.begun.get() > before {
                waiting.extend(full);
            }
        }
        if !waiting.is_empty() || last_seen.is_some() {
            self.drained.borrow_mut().left = true;
        }
        if untouched > 0 {
            last_taken
        } else {
            last_seen.cloned()
        }
    }

    /// Takes as many lanes from the front as can be paid for, each with its quota of rows. Those
    /// whose publisher is left alone are dropped.
    fn pick<'l>(&self, waiting: &mut VecDeque<&'l Lane>) -> Vec<(&'l Lane, usize)> {
        let now = self.app.now();
        let before = waiting.len();
        waiting.retain(|lane| self.circuits.quota(&lane.publisher, 1, now) > 0);
        if waiting.len() < before {
            self.drained.borrow_mut().left = true;
        }
        let left = usize::try_from(self.budget.left()).unwrap_or(usize::MAX);
        // Finding and leasing them, and giving some back.
        let lanes_max = left.saturating_sub(3) / COST_OF_ROW;
        let count = waiting.len().min(lanes_max);
        // Of two lanes one may be leased apart, with a look at the branches that are written to.
        let leasing = count.min(2).saturating_add(1);
        let overhead = count
            .div_ceil(SLOTS)
            .saturating_add(1)
            .saturating_add(leasing);
        let part = left
            .saturating_sub(overhead)
            .checked_div(count)
            .unwrap_or(0);
        let lanes = waiting.drain(..count);
        lanes
            .map(|lane| {
                let share = part.checked_div(self.expected_cost(&lane.publisher));
                let share = share.unwrap_or(0).clamp(1, BATCH_MAX);
                (lane, self.circuits.quota(&lane.publisher, share, now))
            })
            .collect()
    }

    /// What a row of a publisher comes to, most of the time.
    fn expected_cost(&self, publisher: &str) -> usize {
        let settings = self.app.config().publishers.get(publisher);
        match settings.map(PublisherSettings::kind) {
            Some("wordpress" | "ghost") => 6,
            Some(_) | None => COST_OF_ROW,
        }
    }

    /// One round over some lanes: those that gave all they were asked for, and whether the drain
    /// must end.
    async fn work<'l>(&self, picks: &[(&'l Lane, usize)]) -> (Vec<&'l Lane>, bool) {
        let batch = picks
            .chunks(SLOTS)
            .map(|lanes| deliveries::candidates(lanes, self.started_at))
            .collect();
        let mut full = Vec::new();
        let worked = match self.find(batch).await {
            Ok(found) => {
                for (lane, quota) in picks {
                    let is_its = |candidate: &&Candidate| {
                        candidate.delivery.publisher == lane.publisher
                            && candidate.delivery.account == lane.account
                    };
                    if found.iter().filter(is_its).count() >= *quota {
                        full.push(*lane);
                    }
                }
                self.round(found).await
            }
            Err(error) => Err(error),
        };
        match worked {
            Ok(ended) => (full, ended),
            Err(error) => {
                self.app
                    .log("drain_failed", json!({"error": error.to_string()}));
                self.drained.borrow_mut().left = true;
                (full, true)
            }
        }
    }

    async fn find(&self, batch: Vec<Statement>) -> Result<Vec<Candidate>, DbError> {
        let results = self.app.run_within(self.budget, batch).await?;
        let mut found = Vec::new();
        for index in 0..results.len() {
            for row in rows(&results, index)? {
                if row.value("failures").is_ok()
                    && let Some((failures, until)) = deliveries::read_circuit(row)?
                {
                    let publisher = row.text("d_publisher")?;
                    self.circuits.learn(&publisher, failures, until);
                }
                found.push(Candidate::read(row)?);
            }
        }
        Ok(found)
    }

    /// Without those whose publisher is left alone; of one that is tried again, a single one.
    fn allowed(&self, found: Vec<Candidate>) -> Vec<Candidate> {
        let now = self.app.now();
        let all = found.len();
        let mut taken: SortedMap<String, usize> = SortedMap::new();
        let mut allowed = found;
        allowed.retain(|candidate| {
            let publisher = &candidate.delivery.publisher;
            let count = taken.get(publisher).copied().unwrap_or(0).saturating_add(1);
            taken.insert(publisher.clone(), count);
            count <= self.circuits.quota(publisher, all, now)
        });
        allowed
    }

    /// Records how the publishers fared, and where the next drain starts.
    async fn end(&self, cursor: Option<Lane>) {
        let mut batch = Vec::new();
        let changed = self.circuits.changed();
        if !changed.is_empty() {
            batch.push(deliveries::keep_circuits(&changed));
        }
        batch.extend(cursor.as_ref().map(deliveries::keep_cursor));
        if batch.is_empty() {
            return;
        }
        if let Err(error) = self.app.run_within(self.budget, batch).await {
            self.app
                .log("circuit_not_recorded", json!({"error": error.to_string()}));
        }
    }
}

/// A drain right after a commit has the rest of an invocation only.
const START_WITHIN: Span = Span::from_seconds(20);
/// Lanes that one drain looks at, whatever its budget…
const LANES_MIN: usize = 32;
/// …and at most; the next one looks at those behind them.
const LANES_MAX: usize = 1_000;
/// Most rows of one lane in one round, whatever the budget.
const BATCH_MAX: usize = 100;
/// What a row costs at the least: its effect, and recording its outcome.
const COST_OF_ROW: usize = 2;
/// Recording circuits and cursor.
const COST_OF_END: u32 = 2;
