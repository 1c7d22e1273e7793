//! Bounded exhaustive interleavings: a few callers of one key in every order of their port calls,
//! with crash points and clocks that jump.
//!
//! A run follows a sequence of choices: which task goes on, and how its call goes. States that were
//! met before (every store, and what every task has seen) are not entered twice, so that orders
//! which come to the same are walked once.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use crate::util::exec::{Handle, Step};
use crate::util::fate::hash;
use crate::util::world::{Owned, START_MS};
use crate::util::{
    Answer, Call, Fate, Kind, Rest, Setup, World, assert_sound, at_rest, every_step,
};

/// What is walked.
struct Question {
    name: &'static str,
    setup: fn() -> Setup,
    prepare: fn(&World),
    callers: fn() -> Vec<Call>,
    /// Port calls that may go wrong in one run.
    faults: u8,
    /// Times that a clock may jump in one run.
    jumps: u8,
    /// At most so many states; 0 walks them all.
    states_max: usize,
}

#[derive(Default)]
struct Search {
    visited: HashSet<u64>,
    open: Vec<Vec<u8>>,
    runs: u64,
    whole: u64,
}

/// The choices of one run.
struct Path {
    prefix: Vec<u8>,
    taken: Vec<u8>,
    faults: u8,
    jumps: u8,
    /// It came to a state that was met before.
    known: bool,
}

type Shared<T> = Rc<RefCell<T>>;

impl Question {
    /// Walks every order, and says how many states there were.
    fn walk(&self) -> (usize, u64, u64) {
        let search: Shared<Search> = Rc::default();
        search.borrow_mut().open.push(Vec::new());
        let seconds = std::env::var("SECONDS_MAX").ok();
        let seconds: Option<u64> = seconds.and_then(|text| text.parse().ok());
        #[allow(clippy::disallowed_methods, reason = "a bound for people's patience")]
        let begun = std::time::Instant::now();
        loop {
            let Some(prefix) = search.borrow_mut().open.pop() else {
                break;
            };
            self.run(prefix, &search);
            let limit = std::env::var("STATES")
                .ok()
                .and_then(|text| text.parse().ok());
            let limit = limit.unwrap_or(self.states_max);
            if seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds) {
                break;
            }
            if limit > 0 && search.borrow().visited.len() >= limit {
                break;
            }
        }
        let search = search.borrow();
        let (states, runs, whole) = (search.visited.len(), search.runs, search.whole);
        let left = search.open.len();
        println!(
            "{}: {states} states, {runs} runs, {whole} whole, {left} left",
            self.name
        );
        (states, runs, whole)
    }

    fn run(&self, prefix: Vec<u8>, search: &Shared<Search>) {
        search.borrow_mut().runs += 1;
        let world: Owned = (self.setup)().build();
        world.gemini.latency_ms.set(0);
        (self.prepare)(&world);
        watch_losers(&world);
        let callers = (self.callers)();
        let handles: Vec<(Call, Handle<Answer>)> = callers
            .into_iter()
            .enumerate()
            .map(|(number, call)| {
                let isolate = world.isolate(number as u64);
                world.know_key(&isolate, "default", None);
                let call = call.named(&format!("c{number}"));
                let handle = world.begin(&isolate, &call);
                (call, handle)
            })
            .collect();
        let path = Rc::new(RefCell::new(Path {
            prefix,
            taken: Vec::new(),
            faults: self.faults,
            jumps: self.jumps,
            known: false,
        }));
        steer(&world, &path, search);
        // Until a minute later, so that waits end and alarms ring again.
        let until = world.exec.now_ms() + 60_000;
        while !path.borrow().known && world.exec.step(until) != Step::Idle {}
        world.plan_nothing();
        world.exec.choose_by(Box::new(|_| 0));
        if !path.borrow().known {
            search.borrow_mut().whole += 1;
            self.judge(&world, &handles, &path.borrow());
        }
        if !world.violations.borrow().is_empty() {
            println!("{}: the choices {:?}", self.name, path.borrow().taken);
        }
        assert_sound(&world);
    }

    /// What must hold at the end, whatever the order was.
    fn judge(&self, world: &World, handles: &[(Call, Handle<Answer>)], path: &Path) {
        let faults = usize::from(self.faults - path.faults);
        let jumps = usize::from(self.jumps - path.jumps);
        let mut bodies = HashSet::new();
        for (call, handle) in handles {
            let Some(answer) = handle.take() else {
                continue;
            };
            world.note(format!(
                "{} <- {} {}",
                call.name,
                answer.status,
                answer.code()
            ));
            let fine = [200, 201, 202, 409, 503].contains(&answer.status);
            if !fine {
                world.violate(format!("{} was answered {answer:?}", call.name));
            }
            if [200, 201].contains(&answer.status) {
                let prompt = call.body["userPrompt"].as_str().unwrap();
                let text = answer.text("/output/text");
                let ledger = world.gemini.ledger.borrow();
                if !ledger
                    .iter()
                    .any(|entry| entry.text == text && entry.prompt == prompt)
                {
                    world.violate(format!("{} got another's answer", call.name));
                }
                drop(ledger);
                bodies.insert(answer.body);
            }
        }
        if faults + jumps == 0 && bodies.len() > 1 && world.gemini.billed() == 1 {
            world.violate(format!("{} bodies of one purchase", bodies.len()));
        }
        let before = world
            .db
            .integers("SELECT COUNT(*) FROM generations WHERE topic = 'none old'")[0];
        let bought = world.gemini.billed() - usize::try_from(before).unwrap();
        let winners = 1 + faults + jumps;
        if bought > winners {
            world.violate(format!("{bought} purchases"));
        }
        for minute in [1, 2, 14, 15, 16, 17, 18] {
            world.exec.run_to(START_MS + minute * 60_000);
            world.tick(START_MS + minute * 60_000);
            world.pass_ms(1_000);
        }
        world.pass_ms(40_000);
        at_rest(
            world,
            Rest {
                owed: false,
                unknown: true,
            },
        );
    }
}

/// Has the search choose what happens next.
fn steer(world: &World, path: &Shared<Path>, search: &Shared<Search>) {
    let (chosen, found, here) = (Rc::clone(path), Rc::clone(search), world.clone());
    world.exec.choose_by(Box::new(move |ready| {
        let names: Vec<&str> = ready.iter().map(|(_, name)| &**name).collect();
        let point = names.join(" ");
        // A clock jumps only where callers still run: it changes what they decide.
        let can_jump = chosen.borrow().jumps > 0;
        let options = ready.len() + if can_jump { JUMPS } else { 0 };
        let choice = decide(&here, &chosen, &found, options, &point);
        if choice < ready.len() {
            return choice;
        }
        chosen.borrow_mut().jumps -= 1;
        jump(&here, choice - ready.len());
        0
    }));
    let (chosen, found, here) = (Rc::clone(path), Rc::clone(search), world.clone());
    world.plan_by(move |call| {
        let wrong: &[Fate] = match call.kind {
            Kind::Db | Kind::Runner | Kind::Gemini => &[Fate::LostReply, Fate::DieAfter],
            Kind::Storage => &[Fate::DieAfter],
            _ => &[],
        };
        if wrong.is_empty() || chosen.borrow().faults == 0 {
            return Fate::Fine;
        }
        let point = format!("{} {}", call.task, call.label);
        let choice = decide(&here, &chosen, &found, wrong.len() + 1, &point);
        if choice == 0 {
            return Fate::Fine;
        }
        chosen.borrow_mut().faults -= 1;
        wrong[choice - 1]
    });
}

const JUMPS: usize = 3;

/// One isolate's clock is off by eight hours, or a lease's time passes at once.
fn jump(world: &World, which: usize) {
    let eight_hours = 8 * 3_600_000;
    let isolates = world.isolates.borrow();
    let first = isolates.values().next();
    match (which, first) {
        (0, Some(isolate)) => isolate.skew_ms.set(eight_hours),
        (1, Some(isolate)) => isolate.skew_ms.set(-eight_hours),
        _ => world.exec.jump_ms(14 * 60_000),
    }
    world.note(format!("a clock jumps: {which}"));
}

/// The next choice: the path's own, or the first of those that were never taken from here.
fn decide(
    world: &World,
    path: &Shared<Path>,
    search: &Shared<Search>,
    options: usize,
    point: &str,
) -> usize {
    if options == 1 {
        return 0;
    }
    let mut path = path.borrow_mut();
    let at = path.taken.len();
    let choice = if let Some(choice) = path.prefix.get(at) {
        *choice
    } else {
        let state = format!(
            "{point}\n{} {}\n{}",
            path.faults,
            path.jumps,
            state_of(world)
        );
        let mut search = search.borrow_mut();
        if path.known || !search.visited.insert(hash(&state)) {
            path.known = true;
            return 0;
        }
        for other in 1..options {
            let mut open = path.taken.clone();
            open.push(u8::try_from(other).unwrap());
            search.open.push(open);
        }
        0
    };
    path.taken.push(choice);
    usize::from(choice)
}

/// Everything that decides what happens from here on.
fn state_of(world: &World) -> String {
    let tables = [
        ("generations", "id"),
        ("deliveries", "id"),
        ("outputs", "output_id, part"),
        ("credit_days", "account, day"),
    ];
    let isolates = world.isolates.borrow();
    let memories: Vec<String> = isolates
        .values()
        .map(|i| format!("{} {}", i.skew_ms.get(), i.memory.dump()))
        .collect();
    format!(
        "{} {:?} {:?} {:?} {:?} {memories:?} {}",
        world.exec.now_ms(),
        world.seen.borrow(),
        world.kv.values(world.exec.now_ms()),
        world.actors.records(),
        world.r2.list(""),
        world.db.dump(&tables),
    )
}

/// Checks every change of the database, and that callers change nothing that is not their own.
fn watch_losers(world: &World) {
    let rows = |world: &World| {
        world
            .db
            .texts("SELECT id || ' ' || token || ' ' || state FROM generations ORDER BY id")
    };
    let last = RefCell::new(rows(world));
    let changes = Cell::new(0_u32);
    *world.watch.borrow_mut() = Some(Rc::new(move |world: &World| {
        every_step(world);
        changes.set(changes.get() + 1);
        let now = rows(world);
        let before = last.replace(now.clone());
        let task = world.exec.current();
        let is_caller = task.starts_with('c') && !task.contains('/') && world.durable;
        if is_caller && before.iter().any(|row| !now.contains(row)) {
            world.violate(format!(
                "{task} changed what is not its own: {before:?} -> {now:?}"
            ));
        }
    }));
}

fn article() -> Call {
    Call::of("none of them").with("publish", serde_json::json!([]))
}

fn three_of_one() -> Vec<Call> {
    vec![article(), article(), article()]
}

fn two_and_another() -> Vec<Call> {
    let other = Call::of("none other").with("publish", serde_json::json!([]));
    vec![article().key("k"), article().key("k"), other.key("k")]
}

/// A generation whose window is over and that nobody has purged.
fn expired(world: &World) {
    let mut old = article().named("old");
    old.body["topic"] = "none old".into();
    let isolate = world.isolate(5);
    world.know_key(&isolate, "default", None);
    world.ask(&isolate, &old);
    world.pass_ms(31 * 60_000);
}

const fn question(name: &'static str, callers: fn() -> Vec<Call>) -> Question {
    Question {
        name,
        setup: Setup::default,
        prepare: |_| {},
        callers,
        faults: 0,
        jumps: 0,
        states_max: 800,
    }
}

#[test]
fn three_callers_of_one_key_in_every_order() {
    question("three callers", three_of_one).walk();
}

#[test]
fn two_callers_and_a_conflict_in_every_order() {
    question("two callers and a conflict", two_and_another).walk();
}

#[test]
fn three_callers_of_one_key_with_a_crash_anywhere() {
    Question {
        faults: 1,
        states_max: 800,
        ..question("three callers, one fault", three_of_one)
    }
    .walk();
}

#[test]
fn two_callers_and_a_conflict_with_a_crash_and_a_jump_of_a_clock() {
    Question {
        faults: 1,
        jumps: 1,
        states_max: 800,
        ..question(
            "two callers and a conflict, one fault, one jump",
            two_and_another,
        )
    }
    .walk();
}

#[test]
fn callers_of_an_expired_key_start_anew_in_every_order() {
    Question {
        prepare: expired,
        callers: || vec![article(), article()],
        ..question("an expired key", three_of_one)
    }
    .walk();
}

#[test]
fn callers_whose_runs_are_in_the_handler_with_a_crash_anywhere() {
    Question {
        setup: || Setup::default().inline(),
        faults: 1,
        states_max: 800,
        callers: || vec![article(), article()],
        ..question("two callers in the handler, one fault", three_of_one)
    }
    .walk();
}
