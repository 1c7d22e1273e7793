//! The world that the service lives in: its stores, Gemini, destinations, isolates and time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use oncepress::app::{App, Settings, sha256_hex};
use oncepress::config::{Config, Sources};
use oncepress::ports::{DbError, HttpRequest, Statement, Zones};
use oncepress::store::accounts::{Access, Account, add_key, create};
use oncepress::time::Timestamp;
use sha2::{Digest, Sha256};

use super::exec::{Exec, yield_now};
use super::fate::{Call, Fate, Kind, Plan, hash};
use super::gemini::Gemini;
use super::hooks::Hooks;
use super::mutant::Mutant;
use super::platform::{Actors, QueueStore};
use super::sqlite::Sqlite;
use super::stores::{Kv, Memory, R2};

/// Monday, 30 November 2026, 09:00 UTC.
pub const START_MS: i64 = 1_796_029_200_000;
/// How long a call hangs that is slow: past the lease of a claim, and of a delivery.
pub const SLOW_MS: i64 = 17 * 60_000;
pub const ADMIN: &str = "admin-secret-0123456789";

/// Looks at the world after each change of the database.
pub type Watch = Rc<dyn Fn(&World)>;
/// Says whether the database refuses a batch, and how.
pub type Refusal = Box<dyn Fn(&[Statement]) -> Option<DbError>>;

/// A site's model: a request at a time to status, headers and body.
pub type Site = Box<dyn FnMut(&HttpRequest, Timestamp) -> (u16, Vec<(String, String)>, Vec<u8>)>;

#[derive(Clone)]
pub struct World(pub Rc<Shared>);

impl std::ops::Deref for World {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

pub struct Shared {
    pub exec: Exec,
    pub seed: u64,
    pub db: Sqlite,
    pub refusal: RefCell<Option<Refusal>>,
    pub kv: Kv,
    pub r2: R2,
    pub gemini: Gemini,
    pub hooks: Hooks,
    pub queue: QueueStore,
    pub actors: Actors,
    pub settings: Rc<Settings>,
    /// Whether generations run in Durable Objects.
    pub durable: bool,
    pub mutant: Option<Mutant>,
    pub isolates: RefCell<BTreeMap<u64, Rc<Isolate>>>,
    pub plan: RefCell<Option<Plan>>,
    pub calls: Cell<u64>,
    pub trace: RefCell<Vec<String>>,
    pub logs: RefCell<Vec<String>>,
    pub violations: RefCell<Vec<String>>,
    pub watch: RefCell<Option<Watch>>,
    /// A hash of what each task has seen: with the stores, the whole state.
    pub seen: RefCell<BTreeMap<Rc<str>, u64>>,
    /// Sites that answer by a model of their own, by host.
    pub sites: RefCell<BTreeMap<String, Site>>,
    /// What Slack was told, one line a message that it took.
    pub told: RefCell<Vec<String>>,
    /// Tasks that met a mark which says that the work is under way.
    pub marked: RefCell<BTreeSet<Rc<str>>>,
    /// Who held which delivery, until when, and who recorded its newest attempt.
    pub leases: RefCell<BTreeMap<String, (String, i64, String)>>,
    /// Outputs whose commit was checked.
    pub checked: RefCell<BTreeSet<String>>,
    /// Prompts that an operator allowed to be bought again.
    pub allowed: RefCell<Vec<String>>,
    randoms: RefCell<BTreeMap<Rc<str>, u64>>,
    next_home: Cell<u64>,
}

/// One isolate, or one Durable Object.
pub struct Isolate {
    pub home: u64,
    pub location: u64,
    pub memory: Memory,
    pub skew_ms: Cell<i64>,
    pub app: RefCell<Option<App>>,
    pub guard: oncepress::guard::Memory,
}

/// How a world is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub seed: u64,
    pub durable: bool,
    pub vars: Vec<(&'static str, String)>,
    /// Accounts with their limit of daily credits.
    pub accounts: Vec<(&'static str, Option<i64>)>,
    /// A rule of the service that is broken on purpose.
    pub mutant: Option<Mutant>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            durable: true,
            vars: Vec::new(),
            accounts: vec![("default", None), ("other", None)],
            mutant: None,
        }
    }
}

impl Setup {
    #[must_use]
    pub fn var(mut self, name: &'static str, value: &str) -> Self {
        self.vars.push((name, value.to_owned()));
        self
    }

    #[must_use]
    pub fn inline(mut self) -> Self {
        self.durable = false;
        self
    }

    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    #[must_use]
    pub fn account(mut self, name: &'static str, credits: Option<i64>) -> Self {
        self.accounts.push((name, credits));
        self
    }

    pub fn build(self) -> Owned {
        Owned(World::new(self))
    }
}

/// The API key of an account, as its owner holds it.
pub fn key_of(account: &str) -> String {
    let digest = sha256_hex(account);
    format!("opk_{}", &digest[..48])
}

impl World {
    fn new(setup: Setup) -> Self {
        let settings = settings(&setup);
        let world = Self(Rc::new(Shared {
            exec: Exec::new(START_MS),
            seed: setup.seed,
            db: Sqlite::default(),
            refusal: RefCell::default(),
            kv: Kv::new(setup.seed),
            r2: R2::default(),
            gemini: Gemini::default(),
            hooks: Hooks::default(),
            queue: QueueStore::default(),
            actors: Actors::default(),
            settings,
            durable: setup.durable,
            mutant: setup.mutant,
            isolates: RefCell::default(),
            plan: RefCell::default(),
            calls: Cell::new(0),
            trace: RefCell::default(),
            logs: RefCell::default(),
            violations: RefCell::default(),
            watch: RefCell::default(),
            seen: RefCell::default(),
            sites: RefCell::default(),
            told: RefCell::default(),
            marked: RefCell::default(),
            leases: RefCell::default(),
            checked: RefCell::default(),
            allowed: RefCell::default(),
            randoms: RefCell::default(),
            next_home: Cell::new(1),
        }));
        match setup.mutant {
            Some(Mutant::Sql(rewrites)) => world.db.rewrite(rewrites),
            Some(Mutant::Schema(sql)) => world.db.alter(sql),
            _ => {}
        }
        for (account, daily_credits) in &setup.accounts {
            world.add_account(account, *daily_credits);
        }
        world
    }

    fn add_account(&self, name: &str, daily_credits: Option<i64>) {
        let account = Account {
            account: name.to_owned(),
            daily_credits,
            timezone: "UTC".to_owned(),
            created_at: self.now(),
        };
        let mut batch = create(&account);
        let hash = sha256_hex(&key_of(name));
        let id = format!("key_{name}");
        batch.extend(add_key(&id, &hash, name, None, "{}", self.now()));
        self.db.run(&batch).unwrap();
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.exec.now_ms())
    }

    /// A new isolate in a location, warm: it knows its environment and the accounts' keys.
    pub fn isolate(&self, location: u64) -> Rc<Isolate> {
        let isolate = self.cold_isolate(location);
        *isolate.guard.borrow_mut() = true;
        isolate
    }

    /// A new isolate that knows nothing.
    pub fn cold_isolate(&self, location: u64) -> Rc<Isolate> {
        let home = self.next_home.get();
        self.next_home.set(home + 1);
        let isolate = Rc::new(Isolate {
            home,
            location,
            memory: Memory::default(),
            skew_ms: Cell::new(0),
            app: RefCell::default(),
            guard: Rc::default(),
        });
        *isolate.app.borrow_mut() = Some(super::ports::app(self, &isolate));
        self.isolates.borrow_mut().insert(home, Rc::clone(&isolate));
        isolate
    }

    /// Lets an isolate know a key, as if it had met it within the last minute.
    pub fn know_key(&self, isolate: &Isolate, account: &str, daily_credits: Option<i64>) {
        let hash = sha256_hex(&key_of(account));
        let access = Access {
            key_id: format!("key_{account}"),
            hash: hash.clone(),
            account: account.to_owned(),
            daily_credits,
            timezone: "UTC".to_owned(),
            defaults: "{}".to_owned(),
        };
        let text = oncepress::json_form::write(&access);
        isolate.memory.put(&format!("auth:{hash}"), &text, i64::MAX);
    }

    /// Ends an isolate: every task in it is dropped, its memory is gone.
    pub fn kill(&self, home: u64) {
        self.note(format!("isolate {home} dies"));
        self.excuse_purchases_of(home, self.exec.now_ms());
        self.exec.kill_home(home);
        let isolate = self.isolates.borrow_mut().remove(&home);
        if let Some(isolate) = isolate {
            isolate.app.borrow_mut().take();
        }
        self.actors.forget(home);
    }

    /// What a dying isolate, or a task of it that is cancelled, had bought by then and no store had
    /// is inside P3's stretch.
    pub fn excuse_purchases_of(&self, home: u64, by: i64) {
        let count = self.gemini.ledger.borrow().len();
        for index in 0..count {
            let entry = self.gemini.ledger.borrow()[index].clone();
            let open =
                entry.home == home && entry.at <= by && entry.act.bills() && entry.excuse.is_none();
            if open && !self.is_kept(&entry.text) {
                self.gemini.ledger.borrow_mut()[index].excuse = Some("its runner died");
            }
        }
    }

    /// Whether a text that was bought is in a store, committed or as evidence.
    pub fn is_kept(&self, text: &str) -> bool {
        let text = super::gemini::tail_of(text);
        let found = format!(
            "SELECT COUNT(*) FROM outputs o JOIN generations g ON g.output_id = o.output_id \
             WHERE instr(o.body, '{text}') > 0"
        );
        let objects = self.r2.objects.borrow();
        let in_r2 = objects.iter().any(|(name, object)| {
            name.starts_with("_oncepress/") && contains(&object.bytes, text.as_bytes())
        });
        in_r2
            || self.db.integers(&found)[0] > 0
            || self
                .kv
                .values(self.exec.now_ms())
                .iter()
                .any(|(name, value)| name.starts_with("_oncepress/") && value.contains(text))
    }

    /// One line of the trace.
    pub fn note(&self, line: String) {
        let ms = self.exec.now_ms() - START_MS;
        let clock = format!(
            "{:>4}:{:02}.{:03}",
            ms / 60_000,
            ms / 1_000 % 60,
            ms % 1_000
        );
        self.trace.borrow_mut().push(format!("{clock} {line}"));
    }

    /// A rule was broken.
    pub fn violate(&self, what: String) {
        self.note(format!("VIOLATION: {what}"));
        self.violations.borrow_mut().push(what);
    }

    /// The readable trace of the run.
    pub fn story(&self) -> String {
        self.trace.borrow().join("\n")
    }

    /// The point before a port call's effect: others may go first, and its fate is decided.
    pub async fn gate(&self, home: u64, kind: Kind, label: &str) -> Fate {
        // A Durable Object takes no event while its storage works: nobody steps in between.
        if kind != Kind::Storage {
            self.saw(label);
            yield_now().await;
        }
        let index = self.calls.get();
        self.calls.set(index + 1);
        let call = Call {
            index,
            kind,
            label: label.to_owned(),
            home,
            task: self.exec.current(),
        };
        let fate = match self.plan.borrow_mut().as_mut() {
            Some(plan) => plan(&call),
            None => Fate::Fine,
        };
        let told = if fate == Fate::Fine {
            String::new()
        } else {
            format!(" => {fate:?}")
        };
        self.note(format!(
            "#{index} [{} @{home}] {kind:?} {label}{told}",
            call.task
        ));
        match fate {
            Fate::DieBefore => {
                self.kill(home);
                std::future::pending::<()>().await;
            }
            Fate::Slow => {
                self.exec.sleep(SLOW_MS).await;
                return Fate::Fine;
            }
            Fate::Late => {
                self.exec.sleep(90_000).await;
                return Fate::Fine;
            }
            _ => {}
        }
        fate
    }

    /// The point after a port call's effect: what the task sees is noted, unless it dies.
    pub async fn after(&self, home: u64, fate: Fate, seen: &str) {
        if fate == Fate::DieAfter {
            self.kill(home);
            std::future::pending::<()>().await;
        }
        self.saw(seen);
    }

    /// Notes what the calling task sees: with the stores, that is its whole state.
    fn saw(&self, what: &str) {
        let task = self.exec.current();
        let mut all = self.seen.borrow_mut();
        let known = all.entry(task).or_default();
        *known = known.rotate_left(7) ^ hash(what);
    }

    /// 16 bytes that depend on the seed, the calling task and how often it asked.
    pub fn random16(&self) -> [u8; 16] {
        let task = self.exec.current();
        let mut randoms = self.randoms.borrow_mut();
        let count = randoms.entry(Rc::clone(&task)).or_default();
        *count += 1;
        let text = format!("{}\n{task}\n{count}", self.seed);
        Sha256::digest(text.as_bytes())[..16].try_into().unwrap()
    }

    /// Whether the database refuses this batch.
    pub fn refused(&self, batch: &[Statement]) -> Option<DbError> {
        self.refusal
            .borrow()
            .as_ref()
            .and_then(|refusal| refusal(batch))
    }

    /// Has the database refuse what `refusal` says, until told otherwise.
    pub fn refuse(&self, refusal: impl Fn(&[Statement]) -> Option<DbError> + 'static) {
        *self.refusal.borrow_mut() = Some(Box::new(refusal));
    }

    pub fn refuse_nothing(&self) {
        *self.refusal.borrow_mut() = None;
    }

    pub fn plan_by(&self, plan: impl FnMut(&Call) -> Fate + 'static) {
        *self.plan.borrow_mut() = Some(Box::new(plan));
    }

    pub fn plan_nothing(&self) {
        *self.plan.borrow_mut() = None;
    }

    /// Lets time pass.
    pub fn pass_ms(&self, ms: i64) {
        self.exec.run_to(self.exec.now_ms() + ms);
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Time zones by a fixed table; Europe/Berlin has summer time as the EU rules it.
pub struct FixedZones;

impl Zones for FixedZones {
    fn offset_minutes(&self, zone: &str, at: Timestamp) -> Option<i32> {
        match zone {
            "UTC" => Some(0),
            "Asia/Tokyo" => Some(540),
            "Asia/Kolkata" => Some(330),
            "America/St_Johns" => Some(-210),
            "Europe/Berlin" => Some(if is_summer(at) { 120 } else { 60 }),
            _ => None,
        }
    }
}

/// From 01:00 UTC of March's last Sunday to 01:00 UTC of October's.
fn is_summer(at: Timestamp) -> bool {
    let (year, _, _) = at.date();
    let last_sunday = |month: i64, next: i64| {
        let after = Timestamp::from_date(year, next, 1).unwrap().millis() / 86_400_000;
        // 1970-01-01 was a Thursday: day 3 was a Sunday.
        let back = (after - 1 - 3).rem_euclid(7);
        let _ = month;
        (after - 1 - back) * 86_400_000 + 3_600_000
    };
    (last_sunday(3, 4)..last_sunday(10, 11)).contains(&at.millis())
}

thread_local! {
    /// Configurations that were read before: a walk makes thousands of worlds.
    static SETTINGS: RefCell<BTreeMap<String, Rc<Settings>>> = const { RefCell::new(BTreeMap::new()) };
}

fn settings(setup: &Setup) -> Rc<Settings> {
    let key = format!("{} {:?}", setup.durable, setup.vars);
    let known = SETTINGS.with(|all| all.borrow().get(&key).cloned());
    known.unwrap_or_else(|| {
        let fresh = read_settings(setup);
        SETTINGS.with(|all| all.borrow_mut().insert(key, Rc::clone(&fresh)));
        fresh
    })
}

fn read_settings(setup: &Setup) -> Rc<Settings> {
    let publishers = serde_json::json!({
        "archive": {"kind": "r2", "prefix": "articles/", "accounts": ["default", "other"]},
        "hook": {"kind": "webhook", "url": "https://hook.test/in", "secrets": ["HOOK_SECRET"],
            "accounts": ["default", "other"]},
        "once": {"kind": "webhook", "url": "https://once.test/in", "secrets": ["HOOK_SECRET"],
            "accounts": ["default"], "ambiguous": "at_most_once"},
    });
    let pipelines = serde_json::json!({
        "blog/daily": {"accounts": ["default", "other"],
            "publish": [{"publisher": "archive", "target": "{account}/{id}.md"}]},
    });
    let standard = [
        ("ENVIRONMENT", "test".to_owned()),
        ("GEMINI_API_KEY", "gemini-secret".to_owned()),
        ("GEMINI_BASE_URL", "https://gemini.test".to_owned()),
        ("ADMIN_TOKEN", ADMIN.to_owned()),
        (
            "HOOK_SECRET",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(),
        ),
        ("PUBLISHERS", publishers.to_string()),
        ("PIPELINES", pipelines.to_string()),
        (
            "RUNNER_MODE",
            if setup.durable {
                "durable_object"
            } else {
                "inline"
            }
            .to_owned(),
        ),
    ];
    let text = |name: &str| {
        let all = setup.vars.iter().rev().chain(&standard);
        all.into_iter()
            .find(|(other, _)| *other == name)
            .map(|(_, text)| text.clone())
    };
    let bound = |_: &str| true;
    let (config, faults) = Config::parse(Sources {
        text: &text,
        bound: &bound,
        zones: &FixedZones,
    });
    assert!(faults.is_empty(), "{faults:?}");
    Rc::new(Settings { config, faults })
}

/// The first words of a batch, for the trace and for plans.
pub fn label(batch: &[Statement]) -> String {
    let Some(first) = batch.first() else {
        return "nothing".to_owned();
    };
    first
        .sql
        .split_whitespace()
        .take(4)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A world and everything in it: tasks, isolates and stores end with it.
pub struct Owned(World);

impl std::ops::Deref for Owned {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl Drop for Owned {
    /// Ends every task and isolate, which hold the world themselves. A test that fails tells its
    /// story where `STORY` is set.
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("STORY").is_some() {
            println!("{}", self.story());
        }
        self.exec.clear();
        let isolates = self.isolates.take();
        for isolate in isolates.values() {
            isolate.app.borrow_mut().take();
        }
        self.actors.clear();
        self.watch.take();
        self.plan.take();
        self.refusal.take();
    }
}
