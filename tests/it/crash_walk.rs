//! Every crash point of the main scenarios, exhaustively.
//!
//! A scenario is run once to count its port calls; then once for each call and each way in which a
//! call goes wrong: it fails before anything happened, its reply is lost, the isolate dies before
//! or after. Callers, operators and the cron trigger go on as they do, and when nothing moves any
//! more every promise must hold.

use std::cell::RefCell;
use std::rc::Rc;

use oncepress::ports::{DbError, Statement};
use serde_json::json;

use crate::util::check::Rest;
use crate::util::world::{Owned, START_MS};
use crate::util::{
    Act, Answer, Call, Fate, HookAct, Setup, World, assert_sound, at_rest, every_step,
};

/// One scenario.
struct Scenario {
    name: &'static str,
    setup: fn() -> Setup,
    /// Puts the world into the state that the walk begins in; nothing fails there.
    prepare: fn(&World),
    act: fn(&World) -> Outcome,
    /// Calls in these minutes are walked; the others are retries of retries, and idle ticks.
    minutes: &'static [std::ops::Range<i64>],
}

/// What the actor of a scenario has in the end.
struct Outcome {
    /// The last answer, if one came.
    answer: Option<Answer>,
    /// The most that may have been billed without a single fault.
    purchases: usize,
    rest: Rest,
}

const CALM: Rest = Rest {
    owed: false,
    unknown: false,
};

/// When the cron trigger fires, and callers that have no answer ask again.
const MINUTES: [i64; 19] = [
    1, 2, 3, 4, 5, 8, 10, 13, 14, 15, 16, 17, 18, 19, 20, 25, 31, 33, 45,
];

/// A caller that asks until it has an answer, each time at another isolate.
fn caller(world: &World, call: &Call) -> Outcome {
    let mut answer = ask(world, call, 1);
    let mut location = 1;
    for minute in MINUTES {
        world.exec.run_to(START_MS + minute * 60_000);
        world.tick(START_MS + minute * 60_000);
        world.pass_ms(20_000);
        if !answer
            .as_ref()
            .is_some_and(|answer| [200, 201].contains(&answer.status))
        {
            location += 1;
            answer = ask(world, call, location % 3);
        }
    }
    world.pass_ms(40_000);
    Outcome {
        answer,
        purchases: 1,
        rest: CALM,
    }
}

fn ask(world: &World, call: &Call, location: u64) -> Option<Answer> {
    let handle = world.begin(&world.isolate(location), call);
    let answer = world.exec.finish(&handle);
    let told = answer.as_ref().map(|answer| (answer.status, answer.code()));
    world.note(format!("{} <- {told:?}", call.name));
    answer
}

/// An operator that repeats a decision until it is made, and a caller that asks in the end.
fn operator(world: &World, action: &str, purchases: usize) -> Outcome {
    let id = world
        .db
        .texts("SELECT id FROM generations ORDER BY created_at LIMIT 1")[0]
        .clone();
    let mut decided = false;
    let start = world.exec.now_ms() / 60_000 * 60_000;
    world.allowed.borrow_mut().push("article 1".to_owned());
    for minute in MINUTES {
        if !decided {
            let path = format!("/api/v1/generations/{id}/resolve");
            let body = json!({"action": action, "reason": "a person looked"});
            let request = crate::util::client::api_request("default", "POST", &path, &body);
            let handle = world.send(&world.isolate(4), "operator", request);
            let answer = world.exec.finish(&handle);
            decided = answer.is_some_and(|a| [200, 202, 409].contains(&a.status));
        }
        world.exec.run_to(start + minute * 60_000);
        world.tick(start + minute * 60_000);
        world.pass_ms(20_000);
    }
    world.pass_ms(40_000);
    Outcome {
        answer: None,
        purchases,
        rest: Rest {
            owed: false,
            // A repeat that was cut may wait for a person again.
            unknown: action == "regenerate",
        },
    }
}

fn article() -> Call {
    Call::of("article 1").to(&[("hook", "in"), ("archive", "{id}.md")])
}

fn refuse_commits_for(world: &World, minutes: i64) {
    let clock = world.exec.clone();
    let until = clock.now_ms() + minutes * 60_000;
    world.refuse(move |batch: &[Statement]| {
        let commit = batch
            .first()
            .is_some_and(|s| s.sql.contains("output_where = ?7"));
        let refused = commit && clock.now_ms() < until;
        refused.then(|| DbError::Fatal("database or disk is full".to_owned()))
    });
}

fn hold_one(world: &World) {
    world.gemini.then(&[Act::Ends("MAX_TOKENS")]);
    ask(world, &article(), 1);
    world.pass_ms(40_000);
}

const SCENARIOS: [Scenario; 16] = [
    Scenario {
        name: "a fresh request",
        setup: Setup::default,
        prepare: |_| {},
        act: |world| caller(world, &article()),
        minutes: &[0..3],
    },
    Scenario {
        name: "a fresh request in the handler",
        setup: || Setup::default().inline(),
        prepare: |_| {},
        act: |world| caller(world, &article()),
        minutes: &[0..3],
    },
    Scenario {
        name: "a fresh request under the policy hold",
        setup: || Setup::default().var("ON_UNKNOWN", "hold"),
        prepare: |_| {},
        act: |world| Outcome {
            rest: Rest {
                owed: false,
                unknown: true,
            },
            ..caller(world, &article())
        },
        minutes: &[0..2],
    },
    Scenario {
        name: "an operation key",
        setup: Setup::default,
        prepare: |_| {},
        act: |world| Outcome {
            rest: Rest {
                owed: false,
                unknown: true,
            },
            ..caller(world, &article().key("order-1"))
        },
        minutes: &[0..2],
    },
    Scenario {
        name: "a retry after a definite failure",
        setup: Setup::default,
        prepare: |world| world.gemini.then(&[Act::Refuse(429, "RESOURCE_EXHAUSTED")]),
        act: |world| caller(world, &article()),
        minutes: &[0..3],
    },
    Scenario {
        name: "a cut",
        setup: Setup::default,
        prepare: |world| world.gemini.then(&[Act::CutMiddle]),
        act: |world| Outcome {
            purchases: 2,
            ..caller(world, &article())
        },
        minutes: &[0..2, 14..17],
    },
    Scenario {
        name: "a cut in the handler",
        setup: || Setup::default().inline(),
        prepare: |world| world.gemini.then(&[Act::CutMiddle]),
        act: |world| Outcome {
            purchases: 2,
            ..caller(world, &article())
        },
        minutes: &[0..2, 14..17],
    },
    Scenario {
        name: "a job of the queue",
        setup: Setup::default,
        prepare: |_| {},
        act: |world| caller(world, &article().header("prefer", "respond-async")),
        minutes: &[0..3],
    },
    Scenario {
        name: "a job of the queue in the handler",
        setup: || Setup::default().inline(),
        prepare: |_| {},
        act: |world| caller(world, &article().header("prefer", "respond-async")),
        minutes: &[0..3],
    },
    Scenario {
        name: "a job of the queue that is refused, then cut",
        setup: Setup::default,
        prepare: |world| {
            world
                .gemini
                .then(&[Act::Refuse(503, "UNAVAILABLE"), Act::CutMiddle]);
        },
        act: |world| Outcome {
            purchases: 2,
            ..caller(world, &article().header("prefer", "respond-async"))
        },
        minutes: &[0..2, 14..17],
    },
    Scenario {
        name: "a commit that the database refuses",
        setup: Setup::default,
        prepare: |world| refuse_commits_for(world, 2),
        act: |world| caller(world, &article()),
        minutes: &[0..3],
    },
    Scenario {
        name: "a commit in the handler that the database refuses and the bucket too",
        setup: || Setup::default().inline(),
        prepare: |world| {
            refuse_commits_for(world, 2);
            world.r2.down.set(true);
        },
        act: |world| {
            let first = ask(world, &article(), 1);
            world.r2.down.set(false);
            let rest = caller(world, &article());
            Outcome {
                answer: rest.answer.or(first),
                ..rest
            }
        },
        minutes: &[0..3],
    },
    Scenario {
        name: "a drain with a receiver that takes and resets",
        setup: Setup::default,
        prepare: |world| {
            world
                .hooks
                .then(&[HookAct::Refuse(503), HookAct::TakeThenReset]);
            ask(world, &article(), 1);
        },
        act: |world| caller(world, &article()),
        minutes: &[0..3],
    },
    Scenario {
        name: "a person publishes what is held",
        setup: Setup::default,
        prepare: hold_one,
        act: |world| operator(world, "publish", 1),
        minutes: &[0..3],
    },
    Scenario {
        name: "a person gives up what is held",
        setup: Setup::default,
        prepare: hold_one,
        act: |world| operator(world, "abandon", 1),
        minutes: &[0..3],
    },
    Scenario {
        name: "a person runs again what is unknown",
        setup: Setup::default,
        prepare: |world| {
            world.gemini.then(&[Act::LostHead]);
            ask(world, &article().key("order-1"), 1);
            world.pass_ms(40_000);
        },
        act: |world| operator(world, "regenerate", 2),
        minutes: &[0..3],
    },
];

/// Faults by the number of the call.
type Faults = Vec<(u64, Fate)>;

/// Runs a scenario with faults; gives the numbers of the calls inside the walk.
fn run(scenario: &Scenario, faults: &Faults) -> Vec<u64> {
    let world: Owned = (scenario.setup)().build();
    *world.watch.borrow_mut() = Some(Rc::new(every_step));
    (scenario.prepare)(&world);
    let first = world.calls.get();
    let inside = Rc::new(RefCell::new(Vec::new()));
    let (calls, start) = (Rc::clone(&inside), world.exec.now_ms());
    let (clock, planned, minutes) = (world.exec.clone(), faults.clone(), scenario.minutes);
    world.plan_by(move |call| {
        let number = call.index - first;
        let minute = (clock.now_ms() - start) / 60_000;
        if minutes.iter().any(|range| range.contains(&minute)) {
            calls.borrow_mut().push(number);
        }
        let fate = planned.iter().find(|(at, _)| *at == number);
        fate.map_or(Fate::Fine, |(_, fate)| *fate)
    });
    let outcome = (scenario.act)(&world);
    world.plan_nothing();
    judge(scenario, &world, &outcome, faults);
    inside.take()
}

fn judge(scenario: &Scenario, world: &World, outcome: &Outcome, faults: &Faults) {
    at_rest(world, outcome.rest);
    let unknown = world
        .db
        .integers("SELECT COUNT(*) FROM generations WHERE state = 'unknown'")[0];
    if outcome.answer.is_some() && unknown == 0 {
        let status = outcome.answer.as_ref().map_or(0, |answer| answer.status);
        if ![200, 201, 202].contains(&status) {
            world.violate(format!("the caller never got its answer: {status}"));
        }
    }
    // Each fault costs at most one purchase more, and only a lost run does.
    let billed = world.gemini.billed();
    if billed > outcome.purchases + faults.len() {
        world.violate(format!("{billed} purchases"));
    }
    let articles = world.r2.list("articles/").len();
    let generated = world
        .db
        .integers("SELECT COUNT(*) FROM generations WHERE state = 'generated'")[0];
    if articles != usize::try_from(generated).unwrap() {
        world.violate(format!("{articles} articles of {generated} generations"));
    }
    if !world.violations.borrow().is_empty() {
        println!("scenario {:?} with {faults:?}", scenario.name);
        println!(
            "replay: WALK='{}' cargo test --test it crash_walk",
            scenario.name
        );
    }
    assert_sound(world);
}

/// Every single fault of every scenario.
fn walk(scenarios: &[Scenario]) -> u64 {
    let only = std::env::var("WALK").ok();
    let mut points = 0;
    for scenario in scenarios {
        if only.as_deref().is_some_and(|only| only != scenario.name) {
            continue;
        }
        let calls = run(scenario, &Vec::new());
        let mut walked = 0;
        for &call in &calls {
            for fate in Fate::WRONG {
                run(scenario, &vec![(call, fate)]);
                walked += 1;
            }
        }
        println!("{}: {} calls, {walked} points", scenario.name, calls.len());
        points += walked;
    }
    points
}

#[test]
fn every_single_fault_of_a_request_leaves_every_promise_kept() {
    println!("{} points walked", walk(&SCENARIOS[..7]));
}

#[test]
fn every_single_fault_of_the_queue_and_the_outbox_leaves_every_promise_kept() {
    println!("{} points walked", walk(&SCENARIOS[7..]));
}
