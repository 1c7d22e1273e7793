//! One seeded run: callers, operators, faults and time, then rest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::json;

use crate::util::client::api_request;
use crate::util::exec::Handle;
use crate::util::mutant::Mutant;
use crate::util::world::{Isolate, Owned};
use crate::util::{Act, Answer, Call, Dice, Fate, HookAct, Kind, Rest, Setup, Sight, World};
use crate::util::{at_rest, every_step};

/// What a run came to.
pub struct End {
    pub violations: Vec<String>,
    pub story: String,
    pub totals: Totals,
}

impl End {
    /// The end of the story.
    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.story.lines().collect();
        let last = lines
            .iter()
            .rposition(|line| line.contains("VIOLATION"))
            .unwrap_or(lines.len());
        let from = last.saturating_sub(60);
        lines[from..(last + 1).min(lines.len())].join("\n")
    }
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub port_calls: u64,
    pub faults: u64,
    pub deaths: u64,
    pub asked: u64,
    pub made: u64,
    pub replays: u64,
    pub refused: u64,
    pub purchases: u64,
    pub excused: u64,
    pub published: u64,
    pub held: u64,
    pub unknown: u64,
}

impl Totals {
    pub fn add(&mut self, other: &Self) {
        self.port_calls += other.port_calls;
        self.faults += other.faults;
        self.deaths += other.deaths;
        self.asked += other.asked;
        self.made += other.made;
        self.replays += other.replays;
        self.refused += other.refused;
        self.purchases += other.purchases;
        self.excused += other.excused;
        self.published += other.published;
        self.held += other.held;
        self.unknown += other.unknown;
    }
}

/// Steps of a run, before it comes to rest.
const STEPS: u64 = 120;
const MINUTE: i64 = 60_000;

pub fn run(seed: u64) -> End {
    run_with(seed, None)
}

/// The same with a rule of the service broken on purpose.
pub fn run_with(seed: u64, mutant: Option<Mutant>) -> End {
    let mut chaos = Chaos::new(seed, mutant);
    for _ in 0..STEPS {
        chaos.step();
        if !chaos.world.violations.borrow().is_empty() {
            return chaos.end();
        }
    }
    chaos.rest();
    chaos.end()
}

struct Waiting {
    handle: Handle<Answer>,
    prompt: String,
}

struct Chaos {
    world: Owned,
    dice: Dice,
    isolates: Vec<Rc<Isolate>>,
    waiting: Vec<Waiting>,
    bodies: BTreeMap<String, String>,
    prompts: BTreeMap<String, Call>,
    totals: Rc<RefCell<Totals>>,
}

impl Chaos {
    fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut dice = Dice::new(seed);
        let mut setup = Setup::default().seed(seed);
        setup.mutant = mutant;
        setup.durable = dice.chance(750);
        if dice.chance(300) {
            setup = setup.var("ON_UNKNOWN", "hold");
        }
        if dice.chance(400) {
            setup = setup.var("KV_FAILURE_POLICY", "arbiter");
        }
        if dice.chance(500) {
            setup.accounts[1].1 = Some(500_000);
        }
        let world = setup.build();
        let sights = [Sight::Strong, Sight::Cached, Sight::Any];
        world.kv.sight.set(*dice.pick(&sights));
        let totals = Rc::new(RefCell::new(Totals::default()));
        let watch: Rc<dyn Fn(&World)> = Rc::new(every_step);
        *world.watch.borrow_mut() = Some(watch);
        let mut chaos = Self {
            isolates: (0..3).map(|location| world.isolate(location)).collect(),
            world,
            dice,
            waiting: Vec::new(),
            bodies: BTreeMap::new(),
            prompts: BTreeMap::new(),
            totals,
        };
        chaos.rage(seed);
        chaos
    }

    /// Faults, Gemini and receivers by the dice.
    fn rage(&mut self, seed: u64) {
        let per_mille = *self.dice.pick(&[0, 5, 15, 40]);
        let mut dice = Dice::new(seed ^ 0xFA7E);
        let totals = Rc::clone(&self.totals);
        self.world.plan_by(move |call| {
            let mut totals = totals.borrow_mut();
            totals.port_calls += 1;
            // What a dying storage call would do is what its isolate's death does.
            if !dice.chance(per_mille) {
                return Fate::Fine;
            }
            totals.faults += 1;
            let wrong = [
                Fate::FailBefore,
                Fate::LostReply,
                Fate::FailBefore,
                Fate::LostReply,
                Fate::DieBefore,
                Fate::DieAfter,
            ];
            let fate = *dice.pick(&wrong);
            totals.deaths += u64::from(matches!(fate, Fate::DieBefore | Fate::DieAfter));
            if call.kind == Kind::HookBody && fate == Fate::FailBefore {
                return Fate::Fine;
            }
            fate
        });
        let trouble = *self.dice.pick(&[0, 100, 300]);
        let mut dice = Dice::new(seed ^ 0x6E41);
        *self.world.gemini.habit.borrow_mut() = Some(Box::new(move || {
            if !dice.chance(trouble) {
                return Act::Answer;
            }
            *dice.pick(&[
                Act::Refuse(429, "RESOURCE_EXHAUSTED"),
                Act::Refuse(503, "UNAVAILABLE"),
                Act::Refuse(400, "INVALID_ARGUMENT"),
                Act::DayQuota,
                Act::Deadline,
                Act::Page(502),
                Act::NotSent,
                Act::LostHead,
                Act::CutMiddle,
                Act::CutAfter,
                Act::Hang,
                Act::ErrorAfterOutput,
                Act::ErrorBefore,
                Act::Ends("MAX_TOKENS"),
                Act::Ends("SAFETY"),
            ])
        }));
        let mut dice = Dice::new(seed ^ 0x400C);
        *self.world.hooks.whim.borrow_mut() = Some(Box::new(move || {
            if !dice.chance(trouble) {
                return HookAct::Take;
            }
            *dice.pick(&[
                HookAct::TakeThenReset,
                HookAct::TakeThenGateway,
                HookAct::TakeThenHang,
                HookAct::Refuse(500),
                HookAct::Refuse(400),
                HookAct::Later(300),
                HookAct::NotSent,
            ])
        }));
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..40 => self.ask(),
            40..55 => self.pass(),
            55..62 => self.travel(),
            62..70 => self.churn(),
            70..75 => self.leave(),
            75..85 => self.operate(),
            85..90 => self.deliveries(),
            90..95 => self.outage(),
            _ => self
                .world
                .gemini
                .latency_ms
                .set(*self.dice.pick(&[0, 2_000, 20_000, 300_000])),
        }
        self.hear();
    }

    fn isolate(&mut self) -> Rc<Isolate> {
        let slot = usize::try_from(self.dice.below(3)).unwrap();
        let dead = self.isolates[slot].app.borrow().is_none();
        if dead {
            self.isolates[slot] = self.world.isolate(self.isolates[slot].location);
        }
        Rc::clone(&self.isolates[slot])
    }

    /// A caller asks for one of a few articles, so that duplicates are many.
    fn ask(&mut self) {
        let account = *self.dice.pick(&["default", "other"]);
        let number = self.dice.below(6);
        let operation = self.dice.chance(250);
        let kind = if operation { "order" } else { "article" };
        let prompt = format!("{kind} {number} of {account}");
        let mut call = Call::of(&prompt).by(account);
        if operation {
            call = call.key(&format!("order-{number}"));
        }
        call = match number {
            0 => call,
            1 | 2 => call.to(&[("hook", "in")]),
            3 => call.to(&[("hook", "in"), ("archive", "{account}/{id}.md")]),
            4 if account == "default" => call.to(&[("once", "in")]),
            _ => call.to(&[("archive", "{account}/{id}.md")]),
        };
        self.prompts
            .entry(prompt.clone())
            .or_insert_with(|| call.clone());
        if self.dice.chance(200) {
            call = call.header("prefer", "respond-async");
        } else if self.dice.chance(200) {
            call = call.header("prefer", "wait=2");
        }
        self.totals.borrow_mut().asked += 1;
        let name = format!("c{}", self.totals.borrow().asked);
        let isolate = self.isolate();
        let handle = self.world.begin(&isolate, &call.named(&name));
        self.waiting.push(Waiting { handle, prompt });
        if self.dice.chance(500) {
            self.world
                .pass_ms(i64::try_from(self.dice.below(3_000)).unwrap());
        }
    }

    fn pass(&mut self) {
        let most = *self.dice.pick(&[500, 5_000, 60_000]);
        let ms = i64::try_from(self.dice.below(most)).unwrap();
        self.pass_ticking(ms);
    }

    fn travel(&mut self) {
        let minutes = *self.dice.pick(&[2, 5, 14, 16, 31, 90]);
        self.pass_ticking(minutes * MINUTE);
    }

    /// Lets time pass, the cron trigger firing each minute; now and then it misses, or fires twice.
    fn pass_ticking(&mut self, ms: i64) {
        let until = self.world.exec.now_ms() + ms;
        loop {
            let next = (self.world.exec.now_ms() / MINUTE + 1) * MINUTE;
            if next > until {
                break;
            }
            self.world.exec.run_to(next);
            if self.dice.chance(900) {
                self.world.tick(next);
            }
            if self.dice.chance(50) {
                self.world.tick(next);
            }
        }
        self.world.exec.run_to(until);
    }

    /// Isolates and Durable Objects come and go.
    fn churn(&mut self) {
        let mut homes: Vec<u64> = self
            .world
            .actors
            .homes()
            .iter()
            .map(|(_, home)| *home)
            .collect();
        let isolates = self
            .isolates
            .iter()
            .filter(|isolate| isolate.app.borrow().is_some());
        homes.extend(isolates.map(|isolate| isolate.home));
        if !homes.is_empty() {
            let home = *self.dice.pick(&homes);
            self.totals.borrow_mut().deaths += 1;
            self.world.kill(home);
        }
    }

    /// A caller goes away.
    fn leave(&mut self) {
        if let Some(waiting) = self.waiting.pop() {
            self.world
                .note(format!("the caller for {:?} goes away", waiting.prompt));
            self.world.exec.cancel(waiting.handle.id);
        }
    }

    /// A person decides about something held or unknown.
    fn operate(&mut self) {
        let open = self.world.db.query(
            "SELECT id, topic, account, state FROM generations \
             WHERE state IN ('held', 'unknown') ORDER BY id LIMIT 5",
        );
        if open.is_empty() {
            return;
        }
        let row = self.dice.pick(&open).clone();
        let cell = |index: usize| match &row[index].1 {
            oncepress::ports::SqlValue::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let actions: &[&str] = if cell(3) == "held" {
            &["publish", "abandon", "regenerate"]
        } else {
            &["abandon", "regenerate"]
        };
        let action = *self.dice.pick(actions);
        if action != "publish" {
            self.world.allowed.borrow_mut().push(cell(1));
        }
        let path = format!("/api/v1/generations/{}/resolve", cell(0));
        let body = json!({"action": action, "reason": "a person looked"});
        self.call_api(&cell(2), "POST", &path, &body);
    }

    fn call_api(&mut self, who: &str, method: &str, path: &str, body: &serde_json::Value) {
        let isolate = self.isolate();
        let handle = self
            .world
            .send(&isolate, "person", api_request(who, method, path, body));
        self.waiting.push(Waiting {
            handle,
            prompt: String::new(),
        });
    }

    /// A person requeues or cancels a delivery; cancelling is left to those that are dead.
    fn deliveries(&mut self) {
        let stuck = self.world.db.texts(
            "SELECT id FROM deliveries WHERE status IN ('dead', 'outcome_unknown') \
               AND publisher <> 'once' ORDER BY id LIMIT 5",
        );
        if stuck.is_empty() {
            return;
        }
        let id = self.dice.pick(&stuck).clone();
        let action = *self.dice.pick(&["requeue", "requeue", "cancel"]);
        let path = format!("/api/v1/outbox/{id}/{action}");
        self.call_api("admin", "POST", &path, &serde_json::Value::Null);
    }

    /// A store is out for a while, or back.
    fn outage(&mut self) {
        let world = &self.world;
        match self.dice.below(5) {
            0 => world.kv.down.set(!world.kv.down.get()),
            1 => world.kv.writes_down.set(!world.kv.writes_down.get()),
            2 => world.r2.down.set(!world.r2.down.get()),
            3 => {
                let clock = world.exec.clone();
                let until = clock.now_ms() + 90_000;
                world.refuse(move |_| {
                    let error = || oncepress::ports::DbError::Overloaded("overloaded".to_owned());
                    (clock.now_ms() < until).then(error)
                });
            }
            _ => self.calm(),
        }
    }

    /// Every store works again.
    fn calm(&self) {
        self.world.kv.down.set(false);
        self.world.kv.writes_down.set(false);
        self.world.r2.down.set(false);
        self.world.refuse_nothing();
    }

    /// Looks at the answers that came.
    fn hear(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for caller in waiting {
            match caller.handle.take() {
                Some(answer) if caller.prompt.is_empty() => self.judge_person(&answer),
                Some(answer) => self.judge(&caller.prompt, &answer),
                None if self.world.exec.is_alive(caller.handle.id) => self.waiting.push(caller),
                None => {}
            }
        }
    }

    fn judge_person(&self, answer: &Answer) {
        if ![200, 202, 404, 409, 503].contains(&answer.status) {
            self.world
                .violate(format!("a person was answered {answer:?}"));
        }
    }

    fn judge(&mut self, prompt: &str, answer: &Answer) {
        let world = &self.world;
        world.note(format!("{prompt:?} <- {} {}", answer.status, answer.code()));
        let mut totals = self.totals.borrow_mut();
        match answer.status {
            200 | 201 => {
                totals.made += u64::from(answer.status == 201);
                totals.replays += u64::from(answer.status == 200);
                let text = answer.text("/output/text");
                let ledger = world.gemini.ledger.borrow();
                let bought = ledger.iter().find(|entry| entry.text == text);
                if bought.is_none_or(|entry| entry.prompt != prompt) {
                    world.violate(format!("{prompt:?} got another's answer: {text:?}"));
                }
                drop(ledger);
                let known = self
                    .bodies
                    .entry(answer.id())
                    .or_insert_with(|| answer.body.clone());
                if *known != answer.body {
                    world.violate(format!("{prompt:?} got another body than the first caller"));
                }
                if (answer.status == 200) != answer.is_replay() {
                    world.violate("a replay is marked as one".to_owned());
                }
            }
            202 | 402 | 409 | 422 | 502 | 503 => totals.refused += 1,
            _ => world.violate(format!("{prompt:?} was answered {answer:?}")),
        }
        if answer.status >= 400 && answer.header("x-oncepress-error-code").is_none() {
            world.violate(format!("an error without a code: {answer:?}"));
        }
    }

    /// Faults end; what is left must be done by retries, cron and people.
    fn rest(&mut self) {
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
        self.drain_all();
        self.ask_all();
        self.pass_whole(3);
        self.drain_all();
        at_rest(
            &self.world,
            Rest {
                owed: true,
                unknown: false,
            },
        );
        self.tally();
        self.purge();
    }

    fn pass_whole(&self, minutes: i64) {
        for _ in 0..minutes {
            let next = (self.world.exec.now_ms() / MINUTE + 1) * MINUTE;
            self.world.exec.run_to(next);
            self.world.tick(next);
        }
        self.world.pass_ms(30_000);
    }

    /// A person gives up what is held or unknown.
    fn decide_all(&mut self) {
        let open = self.world.db.texts(
            "SELECT id || ' ' || account || ' ' || topic FROM generations \
             WHERE state IN ('held', 'unknown') ORDER BY id",
        );
        for line in open {
            let mut words = line.splitn(3, ' ');
            let (id, account) = (words.next().unwrap(), words.next().unwrap());
            self.world
                .allowed
                .borrow_mut()
                .push(words.next().unwrap().to_owned());
            let body = json!({"action": "abandon", "reason": "the run is over"});
            let path = format!("/api/v1/generations/{id}/resolve");
            let isolate = self.isolate();
            let answer = self.world.api_with(&isolate, account, "POST", &path, &body);
            if answer.status != 200 {
                self.world
                    .violate(format!("{id} can't be given up: {answer:?}"));
            }
        }
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
        for _ in 0..60 {
            let next = self.world.db.integers(
                "SELECT MIN(next_attempt_at) FROM deliveries WHERE status = 'pending' \
                 HAVING COUNT(*) > 0",
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

    /// P5: whatever failed, its own retry is not swallowed.
    fn ask_all(&mut self) {
        for (prompt, call) in self.prompts.clone() {
            let isolate = self.isolate();
            let answer = self.world.ask(&isolate, &call.named("last"));
            self.judge(&prompt, &answer);
            if ![200, 201, 402].contains(&answer.status) {
                self.world
                    .violate(format!("{prompt:?} is not answered in the end: {answer:?}"));
            }
        }
    }

    fn tally(&self) {
        let count = |sql: &str| u64::try_from(self.world.db.integers(sql)[0]).unwrap();
        let mut totals = self.totals.borrow_mut();
        totals.published = count("SELECT COUNT(*) FROM deliveries WHERE status = 'published'");
        totals.held = count("SELECT COALESCE(SUM(count), 0) FROM alerts WHERE kind = 'held'");
        totals.unknown = count("SELECT COALESCE(SUM(count), 0) FROM alerts WHERE kind = 'unknown'");
        let ledger = self.world.gemini.ledger.borrow();
        totals.purchases = ledger.iter().filter(|entry| entry.act.bills()).count() as u64;
        totals.excused = ledger.iter().filter(|entry| entry.excuse.is_some()).count() as u64;
    }

    /// After their retention all rows go, and nothing that hangs on them stays.
    fn purge(&mut self) {
        let unknown = self
            .world
            .db
            .texts("SELECT id FROM deliveries WHERE status = 'outcome_unknown' ORDER BY id");
        for id in unknown {
            let path = format!("/api/v1/outbox/{id}/cancel");
            let isolate = self.isolate();
            self.world.api(&isolate, "admin", "POST", &path);
        }
        let all = self.world.db.integers("SELECT COUNT(*) FROM generations")[0];
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

    fn end(self) -> End {
        End {
            violations: self.world.violations.borrow().clone(),
            story: self.world.story(),
            totals: *self.totals.borrow(),
        }
    }
}
