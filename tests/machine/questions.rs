//! What is searched, and the rules that are broken to see that the search notices.

use oncepress::idempotency::state::{Ask, Standing, State, Verdict, verdict};
use oncepress::time::{Span, Timestamp};

use crate::actors::{Caller, Stage, World};
use crate::model::{RULES, Row, Rules, Store};
use crate::search::{Visited, visit};

const fn caller(fingerprint: u8) -> Caller {
    Caller {
        at: Stage::Ready,
        fingerprint,
        skew: 0,
        slot: None,
    }
}

fn derived(rules: Rules, regenerates: bool, faults: u8) -> World {
    let store = Store::new(false, regenerates);
    World {
        faults,
        ..World::new(store, vec![caller(1), caller(1), caller(1)], rules)
    }
}

/// Two of one request and one of another, under the same key of the caller's own.
fn operation(rules: Rules, faults: u8, decisions: u8) -> World {
    let store = Store::new(true, true);
    World {
        faults,
        decisions,
        ..World::new(store, vec![caller(1), caller(1), caller(2)], rules)
    }
}

/// A generation whose window is over, which nobody has purged.
fn expired(rules: Rules, faults: u8) -> World {
    let mut world = derived(rules, true, faults);
    world.store.tokens = 1;
    world.store.purchases.push(crate::model::Purchase {
        row: 0,
        token: 1,
        fingerprint: 1,
        fit: true,
        whole: true,
        lost: false,
        allowed: false,
    });
    world.store.rows.push(Row {
        state: State::Generated,
        freed: false,
        token: 1,
        fingerprint: 1,
        given: false,
        created: -31 * 60_000,
        anchor: -31 * 60_000,
        expires: -60_000,
        lease: -17 * 60_000,
        output: Some(0),
        owed: false,
    });
    world
}

/// Callers whose clocks are eight hours off, each its own way.
fn skewed(rules: Rules, faults: u8) -> World {
    let mut world = derived(rules, true, faults);
    world.horizon = 600 * 60_000;
    world.callers[1].skew = 480;
    world.callers[2].skew = -480;
    world
}

/// Two slots of a scheduler and an arrival.
fn slots(rules: Rules, faults: u8) -> World {
    let mut world = derived(rules, true, faults);
    world.horizon = 600 * 60_000;
    world.callers[0].slot = Some(0);
    world.callers[1].slot = Some(-40);
    world
}

/// What Gemini gives may be unfit, and a person decides; two callers, since a person is a third.
fn held(rules: Rules, faults: u8, decisions: u8) -> World {
    let mut world = derived(rules, true, faults);
    world.callers.pop();
    World {
        unfit: true,
        decisions,
        ..world
    }
}

/// Crashes, refusals and lost replies in one history; `FAULTS` says how many more than usual.
fn faults(usual: u8) -> u8 {
    let more = std::env::var("FAULTS").ok();
    usual + more.and_then(|text| text.parse::<u8>().ok()).unwrap_or(0)
}

type Question = (&'static str, fn(Rules) -> World);

const QUESTIONS: [Question; 9] = [
    ("three callers, a fault", |rules| {
        derived(rules, true, faults(1))
    }),
    ("three callers, policy hold, two faults", |rules| {
        derived(rules, false, faults(2))
    }),
    ("an operation key and a conflict, a fault", |rules| {
        operation(rules, faults(1), 0)
    }),
    ("an operation key, a conflict and a person", |rules| {
        operation(rules, faults(0), 1)
    }),
    ("an expired key", |rules| expired(rules, faults(0))),
    ("clocks eight hours off", |rules| skewed(rules, faults(0))),
    ("slots of a scheduler", |rules| slots(rules, faults(0))),
    ("unfit outputs and a person", |rules| {
        held(rules, faults(0), 1)
    }),
    ("nothing owed", |rules| World {
        owes: false,
        ..derived(rules, true, faults(0))
    }),
];

#[test]
fn every_order_of_three_callers_with_every_crash_and_moment_keeps_the_promises() {
    let only = std::env::var("QUESTION").ok();
    let mut sum = Visited::default();
    for (name, world) in QUESTIONS {
        if only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        let visited = visit(world(RULES));
        if let Some(story) = visited.broken {
            panic!("{name}: {story}");
        }
        println!(
            "{name}: {} states, {} transitions, {} ends, 0 left",
            visited.states, visited.transitions, visited.ends
        );
        // A search of nothing proves nothing.
        assert!(visited.states > 500 && visited.ends > 1, "{name}");
        sum.states += visited.states;
        sum.transitions += visited.transitions;
        sum.ends += visited.ends;
    }
    println!(
        "in all: {} states, {} transitions, {} ends",
        sum.states, sum.transitions, sum.ends
    );
}

/// The service's verdict with one row of the table changed.
macro_rules! verdict_but {
    ($name:ident, $standing:ident, $ask:ident, $now:ident, $change:expr) => {
        fn $name(standing: Option<&Standing>, $ask: &Ask, $now: Timestamp) -> Verdict {
            let Some($standing) = standing else {
                return verdict(None, $ask, $now);
            };
            let changed: Option<Verdict> = $change;
            changed.unwrap_or_else(|| verdict(Some($standing), $ask, $now))
        }
    };
}

verdict_but!(owed_forgotten, standing, ask, now, {
    let not_owed = Standing {
        owed: false,
        ..standing.clone()
    };
    Some(verdict(Some(&not_owed), ask, now))
});
verdict_but!(unknown_is_fresh, standing, _ask, _now, {
    (standing.state == State::Unknown).then_some(Verdict::Fresh)
});
verdict_but!(late_is_fresh, standing, _ask, now, {
    (standing.state == State::Running && now >= standing.lease_until).then_some(Verdict::Fresh)
});
verdict_but!(running_is_fresh, standing, _ask, _now, {
    (standing.state == State::Running).then_some(Verdict::Fresh)
});
verdict_but!(held_is_fresh, standing, _ask, _now, {
    (standing.state == State::Held).then_some(Verdict::Fresh)
});
verdict_but!(failed_keeps_its_key, standing, _ask, _now, {
    (standing.state == State::Failed).then_some(Verdict::Pending)
});
verdict_but!(window_never_ends, standing, _ask, _now, {
    (standing.state == State::Generated).then_some(Verdict::Replay)
});
verdict_but!(window_of_no_length, standing, _ask, _now, {
    (standing.state == State::Generated && !standing.owed).then_some(Verdict::Fresh)
});
verdict_but!(window_ends_early, standing, ask, now, {
    let shorter = Standing {
        expires_at: standing.expires_at.minus(Span::from_minutes(16)),
        ..standing.clone()
    };
    Some(verdict(Some(&shorter), ask, now))
});
verdict_but!(no_conflict, standing, ask, now, {
    let same = Ask {
        fingerprint: standing.fingerprint.clone(),
        ..ask.clone()
    };
    Some(verdict(Some(standing), &same, now))
});

const A_FAULT: usize = 0;
const HOLD: usize = 1;
const CONFLICT: usize = 2;
const PERSON: usize = 3;
const EXPIRED: usize = 4;
const UNFIT: usize = 7;

/// The rules that are broken, each with the question that notices.
fn broken_rules() -> Vec<(&'static str, usize, Rules)> {
    let with = |verdict| Rules { verdict, ..RULES };
    let rules = RULES;
    vec![
        (
            "verdict: what is owed is forgotten",
            A_FAULT,
            with(owed_forgotten),
        ),
        (
            "verdict: what is unknown is fresh",
            A_FAULT,
            with(unknown_is_fresh),
        ),
        (
            "verdict: past its lease a claim is fresh",
            A_FAULT,
            with(late_is_fresh),
        ),
        (
            "verdict: what runs is fresh",
            A_FAULT,
            with(running_is_fresh),
        ),
        ("verdict: what is held is fresh", UNFIT, with(held_is_fresh)),
        (
            "verdict: a failure keeps its key",
            A_FAULT,
            with(failed_keeps_its_key),
        ),
        (
            "verdict: the window never ends",
            EXPIRED,
            with(window_never_ends),
        ),
        (
            "verdict: there is no window",
            A_FAULT,
            with(window_of_no_length),
        ),
        (
            "verdict: the window ends early",
            A_FAULT,
            with(window_ends_early),
        ),
        (
            "verdict: fingerprints are not compared",
            CONFLICT,
            with(no_conflict),
        ),
        (
            "commit: the token is not checked",
            PERSON,
            Rules {
                commit_checks_token: false,
                ..rules
            },
        ),
        (
            "commit: a successor is not looked for",
            A_FAULT,
            Rules {
                commit_checks_successor: false,
                ..rules
            },
        ),
        (
            "failure: the token is not checked",
            PERSON,
            Rules {
                failure_checks_token: false,
                ..rules
            },
        ),
        (
            "reconciler: evidence is ignored",
            A_FAULT,
            Rules {
                looks_for_evidence: false,
                ..rules
            },
        ),
        (
            "reconciler: the lease is ignored",
            A_FAULT,
            Rules {
                waits_for_the_lease: false,
                ..rules
            },
        ),
        (
            "reconciler: operation keys are freed by time",
            CONFLICT,
            Rules {
                frees_by_time: |_| true,
                ..rules
            },
        ),
        (
            "reconciler: derived keys are never freed",
            A_FAULT,
            Rules {
                frees_by_time: |_| false,
                ..rules
            },
        ),
        (
            "runner: the fallback store is skipped",
            A_FAULT,
            Rules {
                keeps_evidence: false,
                ..rules
            },
        ),
        (
            "runner: what a late one bought is dropped",
            A_FAULT,
            Rules {
                keeps_superseded: false,
                ..rules
            },
        ),
        (
            "runner: that it sent is not stored",
            HOLD,
            Rules {
                remembers_sent: false,
                ..rules
            },
        ),
        (
            "runner: a run that is over is forgotten",
            A_FAULT,
            Rules {
                remembers_runs: false,
                ..rules
            },
        ),
        (
            "runner: unknown counts as failed",
            HOLD,
            Rules {
                unknown_is_failure: true,
                ..rules
            },
        ),
        (
            "runner: the lease is not looked at before it asks",
            A_FAULT,
            Rules {
                checks_the_deadline: false,
                ..rules
            },
        ),
    ]
}

#[test]
fn every_broken_rule_of_the_machine_is_noticed() {
    let mut silent = Vec::new();
    for (name, question, rules) in broken_rules() {
        let (asked, world) = QUESTIONS[question];
        match visit(world(rules)).broken {
            Some(story) => {
                let why = story.lines().next().unwrap_or_default();
                let steps = story
                    .lines()
                    .filter(|line| line.starts_with("  ") && line.ends_with(')'));
                println!("| {name} | {asked} | {why} | {} |", steps.count());
            }
            None => silent.push(name),
        }
    }
    assert!(silent.is_empty(), "nobody noticed: {silent:#?}");
}
