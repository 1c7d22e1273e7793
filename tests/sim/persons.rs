//! People: those who decide, those who look after deliveries, and those who have no business here.

use oncepress::ports::SqlValue;
use serde_json::{Value, json};

use crate::chaos::{Chaos, Waiting, Who};
use crate::util::client::api_request;

/// A cell as text; nothing where it is NULL.
fn cell(row: &[(String, SqlValue)], index: usize) -> String {
    match &row[index].1 {
        SqlValue::Text(text) => text.clone(),
        SqlValue::Null => String::new(),
        SqlValue::Integer(number) => number.to_string(),
    }
}

impl Chaos {
    /// A person decides about something held or unknown.
    pub fn operate(&mut self) {
        let open = self.world.db.query(
            "SELECT id, account, state FROM generations \
             WHERE state IN ('held', 'unknown') ORDER BY id LIMIT 5",
        );
        if open.is_empty() {
            return;
        }
        let row = self.dice.pick(&open).clone();
        let (id, account) = (cell(&row, 0), cell(&row, 1));
        let actions: &[&str] = if cell(&row, 2) == "held" {
            &["publish", "abandon", "regenerate"]
        } else {
            &["abandon", "regenerate"]
        };
        let action = *self.dice.pick(actions);
        if action != "publish" {
            self.allow(&id);
        }
        let path = format!("/api/v1/generations/{id}/resolve");
        let body = json!({"action": action, "reason": "a person looked"});
        self.call_api(&account, "POST", &path, &body, Who::Person);
    }

    /// What this generation is may be bought again: a person said so.
    pub fn allow(&self, id: &str) {
        let ledger = self.world.gemini.ledger.borrow();
        let mut prompts: Vec<String> = ledger
            .iter()
            .filter(|entry| entry.generation == id)
            .map(|entry| entry.prompt.clone())
            .collect();
        prompts.extend(self.world.db.texts(&format!(
            "SELECT topic FROM generations WHERE id = '{id}' AND topic IS NOT NULL"
        )));
        self.world.allowed.borrow_mut().extend(prompts);
    }

    pub fn call_api(&mut self, who: &str, method: &str, path: &str, body: &Value, judged: Who) {
        let isolate = self.isolate();
        let handle = self
            .world
            .send(&isolate, "person", api_request(who, method, path, body));
        self.waiting.push(Waiting {
            handle,
            who: judged,
            asked_at: self.world.exec.now_ms(),
        });
    }

    /// A person requeues or cancels a delivery that is dead or unclear.
    pub fn deliveries(&mut self) {
        let stuck = self.world.db.texts(
            "SELECT id FROM deliveries WHERE status IN ('dead', 'outcome_unknown') \
               AND publisher <> 'once' ORDER BY id LIMIT 5",
        );
        if stuck.is_empty() {
            return;
        }
        let id = self.dice.pick(&stuck).clone();
        let action = *self.dice.pick(&["requeue", "requeue", "cancel"]);
        if action == "requeue" {
            let now = self.world.exec.now_ms();
            let mut requeued = self.world.hooks.requeued.borrow_mut();
            requeued.insert(id.clone(), now);
        }
        let path = format!("/api/v1/outbox/{id}/{action}");
        self.call_api("admin", "POST", &path, &Value::Null, Who::Person);
    }

    /// P9: somebody of another account tries what is not theirs.
    pub fn trespass(&mut self) {
        let rows = self.world.db.query(
            "SELECT g.id, g.account, (SELECT d.id FROM deliveries d \
               WHERE d.generation_id = g.id AND d.status <> 'waiting' \
               ORDER BY d.status = 'dead' DESC, d.id LIMIT 1) FROM generations g \
             ORDER BY g.id LIMIT 40",
        );
        if rows.is_empty() {
            return;
        }
        let row = self.dice.pick(&rows).clone();
        let (id, owner, delivery) = (cell(&row, 0), cell(&row, 1), cell(&row, 2));
        let stranger = if owner == "default" {
            "other"
        } else {
            "default"
        };
        let resolve = json!({"action": "abandon", "reason": "it is not mine"});
        let (method, path, body) = match self.dice.below(3) {
            0 => ("GET", format!("/api/v1/generations/{id}"), Value::Null),
            1 => ("POST", format!("/api/v1/generations/{id}/resolve"), resolve),
            _ if delivery.is_empty() => return,
            _ => (
                "POST",
                format!("/api/v1/outbox/{delivery}/requeue"),
                Value::Null,
            ),
        };
        let target = if path.contains("/outbox/") {
            delivery
        } else {
            id
        };
        self.call_api(stranger, method, &path, &body, Who::Stranger(target));
    }

    /// A person gives up what is held or unknown.
    pub fn decide_all(&mut self) {
        let open = self.world.db.query(
            "SELECT id, account FROM generations \
             WHERE state IN ('held', 'unknown') ORDER BY id",
        );
        for row in open {
            let (id, account) = (cell(&row, 0), cell(&row, 1));
            self.allow(&id);
            let body = json!({"action": "abandon", "reason": "the run is over"});
            let path = format!("/api/v1/generations/{id}/resolve");
            let isolate = self.isolate();
            let answer = self
                .world
                .api_with(&isolate, &account, "POST", &path, &body);
            if answer.status != 200 {
                self.world
                    .violate(format!("{id} can't be given up: {answer:?}"));
            }
        }
    }
}
