//! Decisions of people, retention and purge.

use crate::calm;
use crate::util::{Act, Call, HookAct, Rest, Setup, assert_sound, at_rest};

const DAY: i64 = 24 * 60;

#[test]
fn a_held_output_is_published_given_up_or_run_again() {
    for (action, status) in [("publish", 200), ("abandon", 200), ("regenerate", 202)] {
        for durable in [true, false] {
            let world = Setup {
                durable,
                ..Setup::default()
            }
            .build();
            let isolate = world.isolate(1);
            world.gemini.then(&[Act::Ends("MAX_TOKENS")]);
            let call = Call::of("article 1");
            let held = world.ask(&isolate, &call);
            assert_eq!(held.code(), "output_held");
            world.allowed.borrow_mut().push("article 1".to_owned());
            assert_eq!(
                world.resolve(&isolate, &held.id(), action).status,
                status,
                "{action}"
            );
            world.pass_minutes(2);
            let again = world.ask(&isolate, &call);
            let expected = if action == "abandon" { 201 } else { 200 };
            assert_eq!(again.status, expected, "{action}: {}", again.body);
            let late = world.resolve(&isolate, &held.id(), action);
            assert_eq!((late.status, late.code().as_str()), (409, "invalid_state"));
            assert_eq!(world.db.texts("SELECT action FROM audit"), [action]);
            world.pass_minutes(2);
            assert_eq!(world.r2.list("articles/").len(), 1);
            calm(&world);
        }
    }
}

#[test]
fn a_repeat_that_fails_leaves_a_generation_that_can_be_looked_up() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.gemini.then(&[
        Act::Ends("MAX_TOKENS"),
        Act::Refuse(400, "INVALID_ARGUMENT"),
    ]);
    let held = world.ask(&isolate, &Call::of("article 1"));
    world.allowed.borrow_mut().push("article 1".to_owned());
    assert_eq!(
        world.resolve(&isolate, &held.id(), "regenerate").status,
        202
    );
    world.pass_minutes(1);
    let path = format!("/api/v1/generations/{}", held.id());
    let found = world.api(&isolate, "default", "GET", &path);
    assert_eq!(
        (found.status, found.text("/state").as_str()),
        (200, "failed"),
        "{}",
        found.body
    );
    calm(&world);
}

#[test]
fn a_decision_whose_reply_is_lost_is_made_once() {
    for action in ["publish", "abandon", "regenerate"] {
        for lost in 0..6 {
            let world = Setup::default().build();
            let isolate = world.isolate(1);
            world.gemini.then(&[Act::Ends("MAX_TOKENS")]);
            let held = world.ask(&isolate, &Call::of("article 1"));
            world.pass_ms(3_000);
            world.allowed.borrow_mut().push("article 1".to_owned());
            let first = world.calls.get();
            world.plan_by(move |call| {
                if call.index == first + lost {
                    crate::util::Fate::LostReply
                } else {
                    crate::util::Fate::Fine
                }
            });
            let answer = world.resolve(&isolate, &held.id(), action);
            assert!(
                [200, 202].contains(&answer.status),
                "{action} {lost}: {}",
                answer.body
            );
            world.pass_minutes(3);
            assert_eq!(world.db.texts("SELECT action FROM audit"), [action]);
            let bought = if action == "regenerate" { 2 } else { 1 };
            assert_eq!(world.gemini.billed(), bought);
            calm(&world);
        }
    }
}

#[test]
fn a_runner_whose_generation_was_run_again_does_not_commit_over_its_successor() {
    let world = Setup::default()
        .var("RUNNER_MODE", "inline")
        .inline()
        .build();
    world.gemini.latency_ms.set(12 * 60_000);
    let isolate = world.isolate(1);
    let late = world.begin(&isolate, &Call::of("article 1"));
    world.pass_ms(2_000);
    // The database stalls the late runner's commit past its lease.
    let stall = world.exec.now_ms() + 20 * 60_000;
    let clock = world.exec.clone();
    world.refuse(move |batch| {
        let commit = batch
            .first()
            .is_some_and(|s| s.sql.contains("output_where = ?7"));
        let refused = commit && clock.now_ms() < stall;
        refused.then(|| oncepress::ports::DbError::Transient("stalled".to_owned()))
    });
    world.r2.down.set(true);
    world.kv.writes_down.set(true);
    world.pass_minutes(15);
    world.allowed.borrow_mut().push("article 1".to_owned());
    world.refuse_nothing();
    world.r2.down.set(false);
    world.kv.writes_down.set(false);
    world.gemini.latency_ms.set(1_000);
    let second = world.ask(&world.isolate(2), &Call::of("article 1"));
    world.pass_minutes(20);
    let third = world.ask(&world.isolate(2), &Call::of("article 1"));
    assert!(late.is_done());
    assert!(
        [200, 201].contains(&third.status),
        "{} {}",
        second.body,
        third.body
    );
    let generated = world
        .db
        .integers("SELECT COUNT(*) FROM generations WHERE state = 'generated'");
    assert_eq!(generated, [1]);
    world.pass_minutes(2);
    at_rest(
        &world,
        Rest {
            owed: false,
            unknown: false,
        },
    );
    assert_sound(&world);
}

#[test]
fn thirty_days_after_its_last_delivery_a_generation_is_gone_and_its_figures_stay() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.hooks.then(&[HookAct::Later(3_600)]);
    let first = world.ask(&isolate, &Call::of("article 1").to(&[("hook", "in")]));
    world.pass_minutes(3 * 60);
    assert_eq!(
        world.db.texts("SELECT status FROM deliveries"),
        ["published"]
    );
    let published = || world.db.integers("SELECT SUM(published) FROM usage_days");
    assert_eq!(published(), [1]);
    let path = format!("/api/v1/generations/{}", first.id());
    world.pass_ms(29 * DAY * 60_000 + 20 * 60 * 60_000);
    world.pass_minutes(11);
    assert_eq!(world.api(&isolate, "default", "GET", &path).status, 200);
    world.pass_ms(DAY * 60_000);
    world.pass_minutes(11);
    let gone = world.api(&world.isolate(2), "default", "GET", &path);
    assert_eq!((gone.status, gone.code().as_str()), (410, "gone"));
    assert_eq!(world.api(&isolate, "other", "GET", &path).status, 404);
    for table in ["generations", "outputs", "deliveries", "request_bodies"] {
        let left = world.db.integers(&format!("SELECT COUNT(*) FROM {table}"));
        assert_eq!(left, [0], "{table}");
    }
    assert_eq!(
        world.db.integers("SELECT SUM(generations) FROM usage_days"),
        [1]
    );
    assert_eq!(published(), [1]);
    assert_eq!(
        world
            .ask(&isolate, &Call::of("article 1").to(&[("hook", "in")]))
            .status,
        201
    );
    world.pass_minutes(2);
    assert_sound(&world);
}

#[test]
fn what_is_unknown_is_never_purged_by_age() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::LostHead]);
    let first = world.ask(&isolate, &Call::of("article 1").key("order-1"));
    world.pass_ms(400 * DAY * 60_000);
    world.pass_minutes(21);
    let path = format!("/api/v1/generations/{}", first.id());
    let found = world.api(&isolate, "default", "GET", &path);
    assert_eq!(
        (found.status, found.text("/state").as_str()),
        (200, "unknown")
    );
    at_rest(
        &world,
        Rest {
            owed: false,
            unknown: true,
        },
    );
    assert_sound(&world);
}

#[test]
fn the_self_check_finds_no_row_in_a_sound_world_and_each_that_falls_between_handlers() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let health = || -> serde_json::Value {
        let answer = world.api(&isolate, "admin", "GET", "/admin/health");
        serde_json::from_str(&answer.body).unwrap()
    };
    world.hooks.then(&[HookAct::Later(600)]);
    let owed = world.ask(&isolate, &Call::of("article 1").to(&[("hook", "in")]));
    assert_eq!(owed.status, 201);
    assert_eq!(health()["selfCheck"]["unreachable"], serde_json::json!([]));
    world.db.query("UPDATE generations SET state = 'failed'");
    world
        .db
        .query("UPDATE generations SET lease_until = 9000000000000000");
    let found = health()["selfCheck"]["unreachable"].clone();
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{found}");
    world.db.query("UPDATE generations SET state = 'generated'");
    world.db.query("DELETE FROM deliveries");
    let found = health()["selfCheck"]["unreachable"].clone();
    assert_eq!(found[0]["id"], owed.id(), "{found}");
    world.db.query("UPDATE generations SET state = 'running'");
    let found = health()["selfCheck"]["unreachable"].clone();
    assert_eq!(found[0]["id"], owed.id(), "{found}");
}
