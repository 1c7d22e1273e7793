//! Faults end; what is left must be done by retries, cron and people.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::chaos::{Chaos, MINUTE};
use crate::destination::Destination;
use crate::util::people::{
    is_digest_sent, is_slack_told, is_slack_told_once, is_stale_told, repeated,
};
use crate::util::{Call, Fate, HookAct, Kind, Rest, at_rest};

impl Chaos {
    pub fn rest(&mut self) {
        self.world.note("REST: no more faults".to_owned());
        self.world.plan_nothing();
        self.calm();
        self.world.gemini.habit.take();
        self.world.hooks.whim.take();
        self.world.gemini.latency_ms.set(1_000);
        self.pass_whole(35);
        self.wait_for_the_queue();
        self.hear();
        self.decide_all();
        self.pass_whole(18);
        let told = repeated(&self.world);
        self.leave_alone_who_is_down();
        self.drills();
        self.drain_all();
        self.ask_all();
        self.pass_whole(3);
        self.drain_all();
        self.pass_whole(25);
        at_rest(
            &self.world,
            Rest {
                owed: true,
                unknown: false,
            },
        );
        self.sites_agree();
        is_slack_told(&self.world);
        is_slack_told_once(&self.world, told);
        self.every_row_has_a_handler();
        self.tally();
        self.purge();
        self.nothing_grows();
    }

    pub fn pass_whole(&self, minutes: i64) {
        for _ in 0..minutes {
            let next = (self.world.exec.now_ms() / MINUTE + 1) * MINUTE;
            self.world.exec.run_to(next);
            self.world.tick(next);
        }
        self.world.pass_ms(30_000);
    }

    /// P7, P8: who is down for an hour is asked a few times only, the others get theirs meanwhile,
    /// and a person hears of what is owed too long.
    fn leave_alone_who_is_down(&mut self) {
        let targets: Vec<String> = (0..12).map(|number| format!("in-{number}")).collect();
        let owed: Vec<(&str, &str)> = targets.iter().map(|t| ("down", t.as_str())).collect();
        let call = Call::shared("much for one who is down", "default").to(&owed);
        let isolate = self.isolate();
        let asked = |world: &crate::util::World| {
            let receipts = world.hooks.receipts.borrow();
            receipts.iter().filter(|r| r.host == "down.test").count()
        };
        self.pass_whole(17);
        let before = asked(&self.world);
        let answer = self.world.ask(&isolate, &call);
        let made = answer.status == 201;
        self.pass_whole(31);
        let tries = asked(&self.world) - before;
        self.world.hooks.habit("hook.test", HookAct::Refuse(503));
        let other = Call::shared("something for one who is up", "default").to(&[("hook", "in")]);
        let other = self.world.ask(&isolate, &other);
        self.world.pass_ms(5_000);
        self.world.hooks.habits.borrow_mut().remove("hook.test");
        self.pass_whole(34);
        if tries > 12 {
            self.world.violate(format!(
                "one who is down was asked {tries} times in half an hour"
            ));
        }
        let late = self.world.db.show(&format!(
            "SELECT id, status FROM deliveries WHERE generation_id = '{}' AND status = 'pending'",
            other.id()
        ));
        if other.status == 201 && !late.is_empty() {
            self.world
                .violate(format!("one who is down holds up the others: {late}"));
        }
        if made {
            is_stale_told(&self.world);
        }
        self.world.hooks.habits.borrow_mut().remove("down.test");
    }

    /// Jumps to each time when a message comes back: a quota of the day keeps it for hours.
    fn wait_for_the_queue(&self) {
        for _ in 0..10 {
            let queued = "SELECT MIN(lease_until) FROM generations WHERE state = 'queued' \
                          HAVING COUNT(*) > 0";
            let next = self.world.db.integers(queued);
            let Some(next) = next.first() else { return };
            let next = next.max(&self.world.exec.now_ms()) + MINUTE;
            self.world.exec.run_to(next);
            self.pass_whole(3);
        }
    }

    /// Jumps to each time when something is owed, until nothing is.
    fn drain_all(&self) {
        for _ in 0..80 {
            let next = self.world.db.integers(
                "SELECT MIN(MAX(d.next_attempt_at, COALESCE(c.open_until, 0))) FROM deliveries d \
                 LEFT JOIN circuits c ON c.publisher = d.publisher AND c.failures >= 3 \
                 WHERE d.status = 'pending' HAVING COUNT(*) > 0",
            );
            let Some(next) = next.first() else { return };
            let minute = next.max(&self.world.exec.now_ms()) / MINUTE * MINUTE + MINUTE;
            self.world.exec.run_to(minute);
            self.world.tick(minute);
            self.world.pass_ms(25_000);
        }
        let owed = self
            .world
            .db
            .show("SELECT * FROM deliveries WHERE status = 'pending'");
        self.world
            .violate(format!("a delivery is never done: {owed}"));
    }

    /// P5: whatever failed, its own retry is not swallowed. P10: it costs a handful of calls,
    /// however much there is.
    fn ask_all(&mut self) {
        let costs: Rc<RefCell<BTreeMap<String, u32>>> = Rc::default();
        let counted = Rc::clone(&costs);
        self.world.plan_by(move |call| {
            if [Kind::Db, Kind::KvGet, Kind::KvPut, Kind::R2].contains(&call.kind) {
                *counted
                    .borrow_mut()
                    .entry(call.task.to_string())
                    .or_default() += 1;
            }
            Fate::Fine
        });
        for (number, (prompt, call)) in self.prompts.clone().into_iter().enumerate() {
            let isolate = self.isolate();
            let name = format!("last{number}");
            let asked_at = self.world.exec.now_ms();
            let answer = self.world.ask(&isolate, &call.patient().named(&name));
            self.judge(&prompt, asked_at, &answer);
            let answered = match answer.status {
                200 | 201 => crate::util::gemini::number_in(&answer.body).is_some(),
                402 => true,
                429 => prompt.starts_with("chat"),
                409 => answer.code() == "idempotency_conflict",
                _ => false,
            };
            if !answered {
                self.world
                    .violate(format!("{prompt:?} is not answered in the end: {answer:?}"));
            }
            let cost = costs.borrow().get(&name).copied().unwrap_or_default();
            if cost > COST_MAX {
                self.world
                    .violate(format!("{prompt:?} cost {cost} calls of the stores"));
            }
        }
        self.world.plan_nothing();
    }

    /// P4: what a site is said to have, it shows once; nothing is shown twice.
    fn sites_agree(&self) {
        let sites: [(&str, &dyn Fn(&str) -> usize); 3] = [
            ("wp", &|text| self.sites.wordpress.borrow().shown(text)),
            ("news", &|text| self.sites.ghost.borrow().shown(text)),
            ("site", &|text| self.sites.github.borrow().shown(text)),
        ];
        for entry in self.world.gemini.ledger.borrow().iter() {
            for (name, shown) in sites {
                if shown(&entry.text) > 1 {
                    self.world
                        .violate(format!("{name} shows {:?} twice", entry.text));
                }
            }
        }
        for (name, shown) in sites {
            let published = self.world.db.texts(&format!(
                "SELECT o.body FROM deliveries d JOIN generations g ON g.id = d.generation_id \
                 JOIN outputs o ON o.output_id = g.output_id \
                 WHERE d.publisher = '{name}' AND d.status = 'published'"
            ));
            for body in published {
                let number = crate::util::gemini::number_in(&body).unwrap();
                let text = self.world.gemini.ledger.borrow()[number].text.clone();
                if shown(&text) != 1 {
                    self.world
                        .violate(format!("{name} is said to show {text:?} and does not"));
                }
            }
        }
        let strangers = self
            .world
            .db
            .show("SELECT id, publisher, error FROM deliveries WHERE error LIKE '%target_taken%'");
        if !strangers.is_empty() {
            self.world.violate(format!(
                "what is ours was taken for a stranger's: {strangers}"
            ));
        }
        let sent = self.world.hooks.messages.borrow().len();
        let said = self.world.db.integers(
            "SELECT COUNT(*) FROM deliveries WHERE publisher = 'mine' AND status = 'published'",
        );
        if i64::try_from(sent).unwrap() < said[0] {
            self.world.violate(format!(
                "{} messages are said to be sent, {sent} were",
                said[0]
            ));
        }
    }

    /// P8: the service's own look at rows that nobody would come for.
    fn every_row_has_a_handler(&mut self) {
        let isolate = self.isolate();
        let health = self.world.api(&isolate, "admin", "GET", "/admin/health");
        let lost = health.json()["selfCheck"]["unreachable"].clone();
        if lost != serde_json::json!([]) {
            self.world
                .violate(format!("rows that no handler reaches: {}", health.body));
        }
    }

    fn tally(&self) {
        let count = |sql: &str| u64::try_from(self.world.db.integers(sql)[0]).unwrap();
        let mut totals = self.totals.borrow_mut();
        totals.published = count("SELECT COUNT(*) FROM deliveries WHERE status = 'published'");
        totals.held = count("SELECT COALESCE(SUM(count), 0) FROM alerts WHERE kind = 'held'");
        totals.unknown = count("SELECT COALESCE(SUM(count), 0) FROM alerts WHERE kind = 'unknown'");
        totals.told = self.world.told.borrow().len() as u64;
        totals.superseded = count("SELECT COUNT(*) FROM generations WHERE state = 'superseded'");
        let ledger = self.world.gemini.ledger.borrow();
        totals.purchases = ledger.iter().filter(|entry| entry.act.bills()).count() as u64;
        totals.excused = ledger.iter().filter(|entry| entry.excuse.is_some()).count() as u64;
        totals.steps = self.world.exec.steps();
    }

    /// After their retention all rows go, and nothing that hangs on them stays; what is owed stays.
    fn purge(&mut self) {
        let owed = "SELECT generation_id FROM deliveries WHERE status = 'outcome_unknown' \
                    GROUP BY generation_id ORDER BY generation_id";
        let kept = self.world.db.texts(owed);
        let all = self.world.db.integers("SELECT COUNT(*) FROM generations")[0];
        self.purge_for_a_month();
        if self.world.db.texts(owed) != kept {
            self.world
                .violate(format!("what is owed was purged, of {kept:?}"));
        }
        let unknown = self
            .world
            .db
            .texts("SELECT id FROM deliveries WHERE status = 'outcome_unknown' ORDER BY id");
        for id in &unknown {
            let path = format!("/api/v1/outbox/{id}/cancel");
            let isolate = self.isolate();
            self.world.api(&isolate, "admin", "POST", &path);
        }
        if !unknown.is_empty() {
            self.purge_for_a_month();
        }
        is_digest_sent(&self.world);
        for table in ["generations", "outputs", "deliveries", "request_bodies"] {
            let left = self
                .world
                .db
                .show(&format!("SELECT * FROM {table} LIMIT 3"));
            if !left.is_empty() {
                self.world.violate(format!("{table} is not purged: {left}"));
            }
        }
        let graves = self.world.db.integers("SELECT COUNT(*) FROM tombstones")[0];
        if graves < all {
            self.world
                .violate(format!("{all} generations and {graves} tombstones"));
        }
    }

    fn purge_for_a_month(&self) {
        self.world
            .exec
            .run_to(self.world.exec.now_ms() + 31 * 24 * 60 * MINUTE);
        for _ in 0..8 {
            let ten = 10 * MINUTE;
            let next = (self.world.exec.now_ms() / ten + 1) * ten;
            self.world.exec.run_to(next);
            self.world.tick(next);
            self.world.pass_ms(20_000);
        }
    }
}

/// Calls of the stores by one request and its wait, fresh or not.
const COST_MAX: u32 = 8;
