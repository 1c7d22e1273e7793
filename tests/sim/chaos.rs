//! One seeded run: callers, operators, faults and time, then rest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::json;

use crate::destination::Destination;
use crate::ghost::Ghost;
use crate::github::Github;
use crate::util::every_step;
use crate::util::exec::Handle;
use crate::util::mutant::Mutant;
use crate::util::world::{Isolate, Owned};
use crate::util::{Act, Answer, Call, Dice, Fate, HookAct, Kind, Setup, Sight, World};
use crate::wordpress::Wordpress;

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
    pub superseded: u64,
    pub told: u64,
    pub steps: u64,
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
        self.superseded += other.superseded;
        self.told += other.told;
        self.steps += other.steps;
    }
}

/// Steps of a run, before it comes to rest.
const STEPS: u64 = 120;
pub const MINUTE: i64 = 60_000;

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

pub struct Waiting {
    pub handle: Handle<Answer>,
    pub who: Who,
    pub asked_at: i64,
}

/// Whose answer is waited for.
#[derive(Clone, Debug)]
pub enum Who {
    /// A caller's, by what it asks for.
    Caller(String),
    /// A person's.
    Person,
    /// That of somebody who may not touch this.
    Stranger(String),
}

/// A site, held by the world and looked at by the checks.
pub type Shared<T> = Rc<RefCell<T>>;

/// The sites that are published to.
#[derive(Clone, Default)]
pub struct Sites {
    pub wordpress: Shared<Wordpress>,
    pub ghost: Shared<Ghost>,
    pub github: Shared<Github>,
}

pub struct Chaos {
    pub world: Owned,
    pub dice: Dice,
    pub isolates: Vec<Rc<Isolate>>,
    pub waiting: Vec<Waiting>,
    pub bodies: BTreeMap<String, String>,
    pub prompts: BTreeMap<String, Call>,
    pub sites: Sites,
    pub totals: Rc<RefCell<Totals>>,
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
        let sites = Sites::default();
        let world = with_everybody(setup, &sites).build();
        attend(&world, &sites);
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
            sites,
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
            // A commit that comes long after its lease is what the fencing tokens are for.
            let settles = call.label.starts_with("UPDATE generations SET state");
            if settles && per_mille > 0 && dice.chance(25) {
                totals.faults += 1;
                return Fate::Slow;
            }
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
            match call.kind {
                Kind::HookBody if fate == Fate::FailBefore => Fate::Fine,
                // What was sent long ago may arrive long after.
                Kind::Db if dice.chance(150) => Fate::Slow,
                Kind::Runner if dice.chance(300) => Fate::Late,
                _ => fate,
            }
        });
        self.world.queue.twice.set(self.dice.chance(500));
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
        // Somebody who is never there: what is owed to them piles up.
        self.world.hooks.habit("down.test", HookAct::Refuse(503));
    }

    fn step(&mut self) {
        match self.dice.below(100) {
            0..42 => self.ask(),
            42..54 => self.pass(),
            54..62 => self.travel(),
            62..70 => self.churn(),
            70..75 => self.leave(),
            75..83 => self.operate(),
            83..88 => self.deliveries(),
            88..91 => self.trespass(),
            91..96 => self.outage(),
            _ => self
                .world
                .gemini
                .latency_ms
                .set(*self.dice.pick(&[0, 2_000, 20_000, 300_000])),
        }
        self.hear();
    }

    pub fn isolate(&mut self) -> Rc<Isolate> {
        let slot = usize::try_from(self.dice.below(3)).unwrap();
        let dead = self.isolates[slot].app.borrow().is_none();
        if dead {
            self.isolates[slot] = self.world.isolate(self.isolates[slot].location);
        }
        Rc::clone(&self.isolates[slot])
    }

    /// A caller asks for one of a few articles, so that duplicates are many, in both accounts.
    fn ask(&mut self) {
        let account = *self.dice.pick(&["default", "other"]);
        let call = match self.dice.below(100) {
            0..25 => self.order(account),
            25..45 => self.chat(account),
            _ => self.article(account),
        };
        let prompt = call.prompt();
        self.prompts
            .entry(prompt.clone())
            .or_insert_with(|| call.clone());
        self.totals.borrow_mut().asked += 1;
        let name = format!("c{}", self.totals.borrow().asked);
        let isolate = self.isolate();
        let handle = self.world.begin(&isolate, &call.named(&name));
        self.waiting.push(Waiting {
            handle,
            who: Who::Caller(prompt),
            asked_at: self.world.exec.now_ms(),
        });
        if self.dice.chance(500) {
            self.world
                .pass_ms(i64::try_from(self.dice.below(3_000)).unwrap());
        }
    }

    fn article(&mut self, account: &str) -> Call {
        let number = self.dice.below(9);
        let call = Call::shared(&format!("article {number}"), account);
        let call = match number {
            0 => call,
            1 => call.to(&[("hook", "in"), ("wp", "post-{id}")]),
            2 => call.to(&[("news", "post-{id}"), ("site", "posts/{id}.md")]),
            3 => call.to(&[("hook", "in"), ("archive", "{account}/{id}.md")]),
            4 if account == "default" => call.to(&[("once", "in")]),
            5 => call.to(&[("down", "in")]),
            6 => call.to(&[("mine", "in"), ("site", "posts/{id}.md")]),
            _ => call.to(&[("archive", "{account}/{id}.md")]),
        };
        self.patient(call)
    }

    /// The caller's own key; now and then the same one for something else.
    fn order(&mut self, account: &str) -> Call {
        let number = self.dice.below(4);
        let other = if self.dice.chance(150) { " anew" } else { "" };
        let call = Call::shared(&format!("order {number}{other}"), account)
            .key(&format!("order-{number}"))
            .to(&[("hook", "in")]);
        self.patient(call)
    }

    /// In the form of Gemini's own API, most of it streamed.
    fn chat(&mut self, account: &str) -> Call {
        let number = self.dice.below(4);
        let method = *self.dice.pick(&[
            "streamGenerateContent?alt=sse",
            "streamGenerateContent?alt=sse",
            "streamGenerateContent",
            "generateContent",
        ]);
        let call = Call::shared(&format!("chat {number}"), account).in_gemini_form(method);
        if number < 2 {
            call.header("x-oncepress-publish", "hook=in")
        } else {
            call
        }
    }

    fn patient(&mut self, call: Call) -> Call {
        if self.dice.chance(200) {
            call.header("prefer", "respond-async")
        } else if self.dice.chance(200) {
            call.header("prefer", "wait=2")
        } else {
            call
        }
    }

    fn pass(&mut self) {
        let most = *self.dice.pick(&[500, 5_000, 60_000]);
        let ms = i64::try_from(self.dice.below(most)).unwrap();
        self.pass_ticking(ms);
    }

    fn travel(&mut self) {
        let minutes = *self.dice.pick(&[2, 5, 14, 16, 19, 31, 90]);
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
                .note(format!("whoever waits for {:?} goes away", waiting.who));
            self.world.exec.cancel(waiting.handle.id);
        }
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
    pub fn calm(&self) {
        self.world.kv.down.set(false);
        self.world.kv.writes_down.set(false);
        self.world.r2.down.set(false);
        self.world.refuse_nothing();
    }

    fn end(self) -> End {
        End {
            violations: self.world.violations.borrow().clone(),
            story: self.world.story(),
            totals: *self.totals.borrow(),
        }
    }
}

/// Every kind of publisher, and Slack.
fn with_everybody(setup: Setup, sites: &Sites) -> Setup {
    let hook = |host: &str| {
        json!({"kind": "webhook", "url": format!("https://{host}.test/in"),
            "secrets": ["HOOK_SECRET"]})
    };
    let mut publishers = json!({
        "archive": {"kind": "r2", "prefix": "articles/"}, "hook": hook("hook"),
        "once": hook("once"), "down": hook("down"),
        "mine": {"kind": "queue", "binding": "ARTICLES"},
        "wp": sites.wordpress.borrow().table(), "news": sites.ghost.borrow().table(),
        "site": sites.github.borrow().table(),
    });
    for (name, table) in publishers.as_object_mut().unwrap() {
        table["accounts"] = if name == "once" {
            json!(["default"])
        } else {
            json!(["default", "other"])
        };
    }
    publishers["once"]["ambiguous"] = "at_most_once".into();
    let setup = setup
        .var("PUBLISHERS", &publishers.to_string())
        .var("SLACK_WEBHOOK_URL", "https://slack.test/services/T0/B0/x");
    let secrets = crate::destination::SECRETS.into_iter();
    secrets.fold(setup, |setup, (name, value)| setup.var(name, value))
}

/// Has the sites answer.
fn attend(world: &World, sites: &Sites) {
    fn site<T: Destination + 'static>(model: &Shared<T>) -> crate::util::world::Site {
        let model = Rc::clone(model);
        Box::new(move |request, now| {
            let answer = model.borrow_mut().http(request, now);
            (answer.status, answer.headers, answer.body)
        })
    }
    let mut all = world.sites.borrow_mut();
    all.insert("blog.example.com".to_owned(), site(&sites.wordpress));
    all.insert("news.example.com".to_owned(), site(&sites.ghost));
    all.insert("api.github.com".to_owned(), site(&sites.github));
}
