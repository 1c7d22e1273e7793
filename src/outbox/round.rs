//! One round of a drain: leases what was found, tries it, and gives back what is left over.

use std::cell::{Cell, RefCell};

use serde_json::json;

use crate::outbox::attempt::usual_cost;
use crate::outbox::budget::Share;
use crate::outbox::drain::Pass;
use crate::ports::{DbError, Statement, Task};
use crate::sorted::{SortedMap, SortedSet, sort_by};
use crate::store::deliveries::Candidate;
use crate::store::leases::{self, LEASED_AT_ONCE, Lease};
use crate::store::row::rows;
use crate::time::Span;
use crate::together;

impl<'a> Pass<'a> {
    /// Leases what was found and tries it, publishers side by side, each one's rows in turn. Says
    /// whether time or budget are over. Rows of a publisher that is left alone from now on are given
    /// back too, and end nothing: the next round picks none of its lanes.
    pub(super) async fn round(&self, found: Vec<Candidate>) -> Result<bool, DbError> {
        let lease = Lease::new(self.app.id("lease_"), self.app.now());
        let ids: Vec<String> = found.iter().map(|c| c.delivery.id.clone()).collect();
        let leased = match self.lease(found, &lease).await {
            Ok(leased) => leased,
            Err(error) => {
                // Nothing was begun: what is leased all the same was not interrupted.
                self.give_back(&ids, &lease).await;
                return Err(error);
            }
        };
        // For giving back what is left over.
        let kept = self.budget.set_aside(1);
        let mut groups: SortedMap<String, Vec<Candidate>> = SortedMap::new();
        for candidate in leased {
            let lane = self.writer_of(&candidate);
            if let Some(group) = groups.get_or_insert_with(lane, Vec::new) {
                group.push(candidate);
            }
        }
        let short = Cell::new(false);
        let unspent = RefCell::new(Vec::new());
        let groups = RefCell::new(groups.into_iter());
        let worker = || async {
            loop {
                let next = groups.borrow_mut().next();
                let Some((_, group)) = next else { break };
                self.work_through(group, &lease, &unspent, &short).await;
            }
        };
        let workers = (0..CONNECTIONS).map(|_| -> Task<'_, ()> { Box::pin(worker()) });
        together::all(workers.collect()).await;
        self.budget.put_back(kept);
        let unspent = unspent.into_inner();
        if unspent.is_empty() {
            return Ok(false);
        }
        self.give_back(&unspent, &lease).await;
        Ok(short.get())
    }

    /// Whose turn it is: one writer a publisher, and one a branch.
    fn writer_of(&self, candidate: &Candidate) -> String {
        let publisher = &candidate.delivery.publisher;
        let settings = self.app.config().publishers.get(publisher);
        settings
            .filter(|settings| settings.kind() == "github")
            .and_then(|settings| settings.serial_lane(&candidate.delivery.target))
            .unwrap_or_else(|| publisher.clone())
    }

    /// Leases the candidates, and keeps those that no other drain took in the meantime, and whose
    /// serial lane no other drain is writing to; oldest first.
    async fn lease(&self, found: Vec<Candidate>, lease: &Lease) -> Result<Vec<Candidate>, DbError> {
        if found.is_empty() {
            return Ok(found);
        }
        let results = self
            .app
            .run_within(self.budget, self.leasing(&found, lease))
            .await?;
        let changes: u64 = results.iter().map(|result| result.changes).sum();
        let none_busy = results.iter().all(|result| result.rows.is_empty());
        let all = none_busy && u64::try_from(found.len()).is_ok_and(|count| count == changes);
        let mut leased = found;
        if !all {
            let held = self.held(&leased, lease).await?;
            leased.retain(|candidate| held.contains(&candidate.delivery.id));
            self.drained.borrow_mut().left = true;
        }
        sort_by(&mut leased, |a, b| {
            let age = |c: &Candidate| (c.delivery.due_since, c.delivery.created_at);
            age(a).cmp(&age(b))
        });
        Ok(leased)
    }

    /// The statements that lease the candidates: those with a serial lane are asked for it.
    fn leasing(&self, found: &[Candidate], lease: &Lease) -> Vec<Statement> {
        let mut free: Vec<&str> = Vec::new();
        let mut serial: Vec<(&str, String)> = Vec::new();
        for Candidate { delivery, .. } in found {
            let settings = self.app.config().publishers.get(&delivery.publisher);
            match settings.and_then(|settings| settings.serial_lane(&delivery.target)) {
                Some(lane) => serial.push((&delivery.id, lane)),
                None => free.push(&delivery.id),
            }
        }
        let due_at = self.started_at;
        let mut batch = Vec::new();
        if !serial.is_empty() {
            batch.push(leases::busy_lanes(lease, due_at));
        }
        let free = free.chunks(LEASED_AT_ONCE);
        batch.extend(free.map(|ids| leases::lease(ids, lease, due_at)));
        batch.extend(serial.chunks(LEASED_AT_ONCE).map(|rows| {
            let rows: Vec<(&str, &str)> = rows.iter().map(|(id, lane)| (*id, &**lane)).collect();
            leases::lease_serial(&rows, lease, due_at)
        }));
        batch
    }

    /// The ids of those candidates that the lease holds.
    async fn held(&self, found: &[Candidate], lease: &Lease) -> Result<SortedSet<String>, DbError> {
        let ids: Vec<&str> = found.iter().map(|c| c.delivery.id.as_str()).collect();
        let parts = ids.chunks(LEASED_AT_ONCE);
        let batch = parts.map(|ids| leases::held(ids, &lease.token)).collect();
        let results = self.app.run_within(self.budget, batch).await?;
        let mut held = SortedSet::default();
        for index in 0..results.len() {
            for row in rows(&results, index)? {
                held.insert(row.text("id")?);
            }
        }
        Ok(held)
    }

    async fn work_through(
        &self,
        group: Vec<Candidate>,
        lease: &Lease,
        unspent: &RefCell<Vec<String>>,
        short: &Cell<bool>,
    ) {
        for candidate in group {
            let now = self.app.now();
            let publisher = &candidate.delivery.publisher;
            let late = self.budget.is_late(now) || !lease.is_live(now.plus(ATTEMPT_MIN));
            let left_alone = self.circuits.quota(publisher, 1, now) == 0;
            let share = if late || left_alone {
                None
            } else {
                self.share(&candidate)
            };
            if let Some(share) = share {
                self.begun.set(self.begun.get().saturating_add(1));
                self.attempt(&candidate, lease, share).await;
            } else {
                short.set(short.get() || late || !left_alone);
                unspent.borrow_mut().push(candidate.delivery.id.clone());
            }
        }
    }

    /// What an attempt may spend. The first one of a drain gets what there is: it is broken off
    /// where that is not enough, and goes on with the next drain.
    fn share(&self, candidate: &Candidate) -> Option<Share<'a>> {
        let settings = self
            .app
            .config()
            .publishers
            .get(&candidate.delivery.publisher);
        let cost = match settings {
            Some(settings) if !candidate.delivery.interrupted => {
                usual_cost(settings).saturating_add(u32::from(candidate.body.is_none()))
            }
            Some(_) | None => 1,
        };
        let cost = if self.begun.get() == 0 {
            cost.min(self.budget.left().max(2))
        } else {
            cost
        };
        Share::take(self.budget, cost)
    }

    async fn give_back(&self, ids: &[String], lease: &Lease) {
        {
            let mut drained = self.drained.borrow_mut();
            let count = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            drained.given_back = drained.given_back.saturating_add(count);
            drained.left = true;
        }
        let ids = json!(ids).to_string();
        let batch = vec![leases::give_back(&ids, &lease.token)];
        if let Err(error) = self.app.run_within(self.budget, batch).await {
            self.app
                .log("lease_not_returned", json!({"error": error.to_string()}));
        }
    }
}

/// No attempt begins with less of its lease left than one time-out and a margin.
const ATTEMPT_MIN: Span = Span::from_seconds(25);
/// Publishers worked on side by side: the platform gives six connections, and one is the database's.
const CONNECTIONS: usize = 5;
