//! Drills of every run's end: rare moments brought about on purpose, each with what must come of it.

use std::cell::Cell;
use std::rc::Rc;

use crate::chaos::Chaos;
use crate::util::client::api_request;
use crate::util::{Act, Answer, Call, Fate, HookAct, Kind};
use oncepress::config::KvFailurePolicy;
use oncepress::ports::DbError;

impl Chaos {
    pub fn drills(&mut self) {
        self.world.note("DRILLS".to_owned());
        self.two_accounts_have_one_key();
        self.a_failure_frees_its_key();
        self.a_window_is_not_extended();
        self.a_late_runner_comes_after_its_successor();
        self.a_late_drain_comes_after_its_successor();
        self.an_attempt_dies_after_it_arrived();
        self.a_site_takes_and_resets();
        self.a_stranger_requeues();
        self.what_no_store_can_tell_is_refused();
        self.world.plan_nothing();
    }

    fn drill(&mut self, call: &Call) -> Answer {
        // An isolate of its own: it knows nothing but what the stores say.
        let location = self.dice.below(3);
        let isolate = self.world.isolate(location);
        self.world.ask(&isolate, &call.clone().named("drill"))
    }

    fn expect(&self, what: &str, answer: &Answer, status: u16) {
        if answer.status != status {
            self.world
                .violate(format!("{what}: {status} was due, and came {answer:?}"));
        }
    }

    /// The first call that a test describes goes wrong so, once.
    fn once_wrong(
        &self,
        fate: Fate,
        is_it: impl Fn(Kind, &str) -> bool + 'static,
    ) -> Rc<Cell<bool>> {
        let done = Rc::new(Cell::new(false));
        let seen = Rc::clone(&done);
        self.world.plan_by(move |call| {
            if !seen.get() && is_it(call.kind, &call.label) {
                seen.set(true);
                return fate;
            }
            Fate::Fine
        });
        done
    }

    /// P9: two accounts ask for the same under the same key, and each gets its own.
    fn two_accounts_have_one_key(&mut self) {
        for (operation, content) in [(true, "none with a key"), (false, "none without")] {
            let mut ids = Vec::new();
            for account in ["default", "other"] {
                let call = Call::shared(content, account).with("publish", [0; 0].into());
                let call = if operation { call.key("wall") } else { call };
                let answer = self.drill(&call);
                if ![201, 402].contains(&answer.status) {
                    self.expect("an account's own request", &answer, 201);
                }
                ids.push(answer.id());
            }
            if ids[0] == ids[1] && !ids[0].is_empty() {
                self.world
                    .violate(format!("two accounts share the generation {}", ids[0]));
            }
        }
    }

    /// P5: a failure, and at once its own retry, in another isolate and past a mark that says
    /// *running*.
    fn a_failure_frees_its_key(&mut self) {
        let call = Call::shared("none fails at first", "default").with("publish", [0; 0].into());
        self.world.gemini.then(&[Act::Refuse(503, "UNAVAILABLE")]);
        let first = self.drill(&call);
        self.expect("a refusal", &first, 503);
        self.world.pass_ms(3_000);
        let again = self.drill(&call);
        self.expect("its own retry", &again, 201);
    }

    /// P2: asked again inside its window and after it, with nothing but the database to tell.
    fn a_window_is_not_extended(&mut self) {
        let call = Call::shared("none has a window", "default").with("publish", [0; 0].into());
        self.world.kv.writes_down.set(true);
        let first = self.drill(&call);
        self.expect("a first request", &first, 201);
        self.pass_whole(20);
        let inside = self.drill(&call);
        self.expect("a duplicate", &inside, 200);
        self.pass_whole(11);
        let outside = self.drill(&call);
        self.expect("a request after the window", &outside, 201);
        self.world.kv.writes_down.set(false);
    }

    /// P3: a commit hangs until a person has had the work done again.
    fn a_late_runner_comes_after_its_successor(&mut self) {
        let call = Call::shared("none is committed late", "default")
            .key("late-commit")
            .with("publish", [0; 0].into());
        let settles = |kind, label: &str| {
            kind == Kind::Db && label.starts_with("UPDATE generations SET state")
        };
        let hung = self.once_wrong(Fate::Slow, settles);
        let isolate = self.world.isolate(1);
        let first = self.world.begin(&isolate, &call.clone().named("drill"));
        self.pass_whole(15);
        let id = self.world.db.texts(&format!(
            "SELECT id FROM generations WHERE topic = '{}'",
            call.prompt()
        ));
        let Some(id) = id.first().filter(|_| hung.get()) else {
            let _ = first.take();
            return;
        };
        self.allow(id);
        self.world.resolve(&isolate, id, "regenerate");
        self.pass_whole(22);
        let kept = self.world.db.integers(&format!(
            "SELECT COUNT(*) FROM generations WHERE evidence_of = '{id}' AND output_id IS NOT NULL"
        ));
        if kept[0] == 0 {
            self.world
                .violate(format!("what a late runner of {id} paid for is gone"));
        }
        self.decide_all();
    }

    /// P4: an outcome is recorded long after its lease, when another drain has dealt with the row.
    fn a_late_drain_comes_after_its_successor(&mut self) {
        let records =
            |kind, label: &str| kind == Kind::Db && label == "UPDATE deliveries SET status";
        self.once_wrong(Fate::Slow, records);
        // The drain after a commit is cut off after 30 s; one by the cron trigger is not.
        self.world.hooks.then(&[HookAct::Refuse(503)]);
        let call = Call::shared("what is recorded late", "default").to(&[("hook", "in")]);
        self.world.plan_nothing();
        self.drill(&call);
        self.world.pass_ms(2_000);
        self.once_wrong(Fate::Slow, records);
        self.pass_whole(25);
    }

    /// P4: the drain dies after an at_most_once receiver has taken it.
    fn an_attempt_dies_after_it_arrived(&mut self) {
        // What this receiver may have taken is a person's; an attempt that never left is not.
        self.world.hooks.then(&[HookAct::NotSent]);
        let call =
            Call::shared("what arrives and is not recorded", "default").to(&[("once", "in")]);
        self.world.plan_nothing();
        self.drill(&call);
        self.world.pass_ms(2_000);
        let arrives = |kind, label: &str| kind == Kind::Hook && label.contains("once.test");
        self.once_wrong(Fate::DieAfter, arrives);
        self.pass_whole(20);
    }

    /// P4: a site takes a post, and the connection breaks; the next attempt looks first.
    fn a_site_takes_and_resets(&mut self) {
        self.world.plan_nothing();
        for (name, last) in [("wp", 2), ("news", 2), ("site", 0)] {
            let content = format!("what {name} takes unheard");
            let call = Call::shared(&content, "default").to(&[(name, "drill-{id}")]);
            // What comes before the write that creates it is answered.
            let before = vec![HookAct::Take; usize::from(last > 0)];
            self.world.hooks.then(&before);
            self.world.hooks.then(&[HookAct::TakeThenReset]);
            let answer = self.drill(&call);
            self.pass_whole(6);
            let what = format!(
                "SELECT status || COALESCE(' ' || error, '') FROM deliveries \
                 WHERE generation_id = '{}'",
                answer.id()
            );
            let mut status = self.world.db.texts(&what);
            if status.iter().any(|status| status.starts_with("pending")) {
                // It failed before as well, and is left alone for longer.
                self.pass_whole(17);
                status = self.world.db.texts(&what);
            }
            if status != ["published"] {
                self.world
                    .violate(format!("{name} took it, and it counts as {status:?}"));
            }
        }
    }

    /// P6: KV can't be read, or the database can't be asked, or neither: nothing is bought, and the
    /// caller hears when to come back; its retry is then fresh.
    fn what_no_store_can_tell_is_refused(&mut self) {
        self.world.plan_nothing();
        let policy = self.world.settings.config.kv_failure_policy;
        for (what, kv, db) in [
            ("KV", true, false),
            ("D1", false, true),
            ("either", true, true),
        ] {
            let content = format!("none without {what}");
            let call = Call::shared(&content, "default").with("publish", [0; 0].into());
            let isolate = self.world.isolate(2);
            self.world.know_key(&isolate, "default", None);
            self.world.kv.down.set(kv);
            if db {
                self.world
                    .refuse(|_| Some(DbError::Overloaded("overloaded".to_owned())));
            }
            let refused = db || policy == KvFailurePolicy::Deny;
            let bought = self.world.gemini.ledger.borrow().len();
            let answer = self.world.ask(&isolate, &call.clone().named("unsure"));
            self.calm();
            self.expect(
                "what no store can tell",
                &answer,
                if refused { 503 } else { 201 },
            );
            self.says_when_to_come_back(&answer);
            self.world.pass_ms(5_000);
            if refused && self.world.gemini.ledger.borrow().len() > bought {
                self.world
                    .violate(format!("{content:?} was refused, and bought"));
            }
            let again = self.world.ask(&isolate, &call.named("sure"));
            self.expect("its retry", &again, if refused { 201 } else { 200 });
        }
    }

    /// P9: a delivery that is dead, and somebody else who would have it tried again.
    fn a_stranger_requeues(&mut self) {
        self.world.hooks.then(&[HookAct::Refuse(400)]);
        let call = Call::shared("what is refused", "default").to(&[("hook", "in")]);
        let answer = self.drill(&call);
        self.world.pass_ms(5_000);
        let dead = self.world.db.texts(&format!(
            "SELECT id FROM deliveries WHERE generation_id = '{}' AND status = 'dead'",
            answer.id()
        ));
        let Some(id) = dead.first() else {
            return self
                .world
                .violate(format!("what was refused for ever is not dead: {answer:?}"));
        };
        let path = format!("/api/v1/outbox/{id}/requeue");
        let isolate = self.world.isolate(1);
        let request = api_request("other", "POST", &path, &serde_json::Value::Null);
        let handle = self.world.send(&isolate, "stranger", request);
        let said = self.world.exec.finish(&handle).expect("the isolate lives");
        self.expect("a stranger", &said, 404);
        let now = self
            .world
            .db
            .texts(&format!("SELECT status FROM deliveries WHERE id = '{id}'"));
        if now != ["dead"] {
            self.world
                .violate(format!("a stranger had {id} tried again: {now:?}"));
        }
    }
}
