//! What is said to callers, judged by what Gemini billed and the database holds.

use oncepress::error::Code;
use oncepress::time::Timestamp;

use crate::chaos::{Chaos, Who};
use crate::util::Answer;
use crate::util::gemini::number_in;

const WINDOW_MS: i64 = 30 * 60_000;

impl Chaos {
    /// Looks at the answers that came.
    pub fn hear(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for one in waiting {
            match (one.handle.take(), &one.who) {
                (Some(answer), Who::Person) => self.judge_person(&answer),
                (Some(answer), Who::Stranger(what)) => self.judge_stranger(what, &answer),
                (Some(answer), Who::Caller(prompt)) => self.judge(prompt, one.asked_at, &answer),
                (None, _) if self.world.exec.is_alive(one.handle.id) => self.waiting.push(one),
                (None, _) => {}
            }
        }
    }

    fn judge_person(&self, answer: &Answer) {
        if ![200, 202, 404, 409, 503].contains(&answer.status) {
            self.world
                .violate(format!("a person was answered {answer:?}"));
        }
    }

    /// P9: what is another account's is not there.
    fn judge_stranger(&self, what: &str, answer: &Answer) {
        if ![404, 503].contains(&answer.status) {
            self.world
                .violate(format!("a stranger was answered about {what}: {answer:?}"));
        }
        let tried_again = self.world.db.texts(&format!(
            "SELECT status FROM deliveries WHERE id = '{what}' AND status <> 'dead' \
               AND attempts = 0 AND json_array_length(attempt_log) > 0"
        ));
        let allowed = self.world.hooks.requeued.borrow().contains_key(what);
        if !tried_again.is_empty() && !allowed {
            self.world.violate(format!(
                "a stranger had {what} tried again: {tried_again:?}"
            ));
        }
    }

    pub fn judge(&mut self, prompt: &str, asked_at: i64, answer: &Answer) {
        let world = &self.world;
        world.note(format!("{prompt:?} <- {} {}", answer.status, answer.code()));
        let given = (answer.status == 200 || answer.status == 201)
            .then(|| number_in(&answer.body))
            .flatten();
        match (answer.status, given) {
            (200 | 201, Some(number)) => self.judge_output(prompt, asked_at, number, answer),
            // A stream that began well and ended in an error.
            (200, None) if prompt.starts_with("chat") => self.totals.borrow_mut().refused += 1,
            // Gemini's own refusal, passed on.
            (400, _) if answer.header("x-oncepress-error-source") == Some("gemini") => {
                self.totals.borrow_mut().refused += 1;
            }
            (202 | 402 | 409 | 422 | 429 | 502 | 503 | 504, _) => {
                self.totals.borrow_mut().refused += 1;
            }
            _ => world.violate(format!("{prompt:?} was answered {answer:?}")),
        }
        if answer.status >= 400 && answer.header("x-oncepress-error-code").is_none() {
            self.world
                .violate(format!("an error without a code: {answer:?}"));
        }
        self.says_when_to_come_back(answer);
    }

    /// P6: a refusal that time mends says how much of it.
    pub fn says_when_to_come_back(&self, answer: &Answer) {
        let code = answer
            .header("x-oncepress-error-code")
            .and_then(Code::parse);
        let seconds = answer
            .header("retry-after")
            .and_then(|text| text.parse().ok());
        if code.is_some_and(|code| code.retry_after().is_some())
            && seconds.is_none_or(|seconds: u32| seconds == 0)
        {
            self.world
                .violate(format!("it does not say when to come back: {answer:?}"));
        }
    }

    fn judge_output(&mut self, prompt: &str, asked_at: i64, number: usize, answer: &Answer) {
        let world = &self.world;
        let replay = answer.is_replay();
        let mut totals = self.totals.borrow_mut();
        totals.made += u64::from(!replay);
        totals.replays += u64::from(replay);
        drop(totals);
        let ledger = world.gemini.ledger.borrow();
        if ledger
            .get(number)
            .is_none_or(|entry| entry.prompt != prompt)
        {
            world.violate(format!("{prompt:?} got another's answer: {}", answer.body));
        }
        drop(ledger);
        if prompt.starts_with("chat") {
            return;
        }
        if (answer.status == 200) != replay {
            world.violate("a replay is marked as one".to_owned());
        }
        self.judge_window(prompt, asked_at, answer);
        let first = self.bodies.entry(answer.id());
        let known = first.or_insert_with(|| answer.body.clone());
        // A run that a person replaced is another purchase under the same id.
        if number_in(known) == Some(number) && *known != answer.body {
            self.world
                .violate(format!("{prompt:?} got another body than the first caller"));
        }
    }

    /// A duplicate does not extend the window: past its end, only what is owed is replayed.
    fn judge_window(&self, prompt: &str, asked_at: i64, answer: &Answer) {
        if !answer.is_replay() || prompt.starts_with("order") {
            return;
        }
        let at = |name: &str| {
            let text = answer.text(name);
            Timestamp::parse_rfc3339(&text).map_or(i64::MAX, Timestamp::millis)
        };
        let (created, completed) = (at("/createdAt"), at("/completedAt"));
        if completed > asked_at || asked_at < created.saturating_add(WINDOW_MS) {
            return;
        }
        let id = answer.id();
        let open = self.world.db.integers(&format!(
            "SELECT (SELECT COUNT(*) FROM deliveries WHERE generation_id = '{id}' \
               AND (final_at IS NULL OR final_at > {asked_at} OR status = 'outcome_unknown')) \
             + (SELECT COUNT(*) FROM audit WHERE subject = '{id}') \
             + (SELECT COUNT(*) FROM audit a JOIN deliveries d ON d.id = a.subject \
                WHERE d.generation_id = '{id}')"
        ));
        if open[0] == 0 {
            self.world.violate(format!(
                "{prompt:?} was answered from a window that is over: {}",
                answer.body
            ));
        }
    }
}
