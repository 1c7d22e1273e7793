//! The lifecycle table, row by row.

use std::rc::Rc;

use serde_json::json;

use crate::calm;
use crate::util::{Act, Call, Owned, Rest, Setup, assert_sound, at_rest, every_step};

const MINUTE: i64 = 60_000;

/// A world whose database is checked after every change.
fn watched(setup: Setup) -> Owned {
    let world = setup.build();
    *world.watch.borrow_mut() = Some(Rc::new(every_step));
    world
}

#[test]
fn a_fresh_request_is_generated_published_and_replayed() {
    let world = watched(Setup::default());
    let isolate = world.isolate(1);
    let call = Call::of("article 1");
    let first = world.ask(&isolate, &call);
    assert_eq!(first.status, 201, "{}", first.body);
    let second = world.ask(&isolate, &call);
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert!(second.is_replay());
    assert_eq!(second.header("x-request-id"), first.header("x-request-id"));
    assert_eq!(
        second.header("server-timing"),
        first.header("server-timing")
    );
    assert_eq!(second.header("x-oncepress-credits"), Some("0"));
    let elsewhere = world.ask(&world.isolate(2), &call);
    assert_eq!((elsewhere.status, &elsewhere.body), (200, &first.body));
    world.pass_minutes(2);
    assert_eq!(world.gemini.billed(), 1);
    assert_eq!(world.r2.list("articles/").len(), 1);
    calm(&world);
}

#[test]
fn the_caller_cannot_tell_which_store_a_replay_came_from() {
    let world = watched(Setup::default().var("KV_FAILURE_POLICY", "arbiter"));
    let warm = world.isolate(1);
    let call = Call::of("article 1");
    let first = world.ask(&warm, &call);
    world.pass_ms(2_000);
    let from_isolate = world.ask(&warm, &call);
    let from_kv = world.ask(&world.isolate(2), &call);
    // An isolate under the policy `arbiter` that can't read KV asks the database.
    world.kv.down.set(true);
    let from_database = world.ask(&world.isolate(3), &call);
    world.kv.down.set(false);
    assert_eq!(from_isolate, from_kv);
    assert_eq!(from_isolate, from_database);
    assert_eq!(from_isolate.body, first.body);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_window_is_counted_from_the_first_request_to_the_millisecond() {
    let ages = [
        (0, false),
        (1_000, false),
        (4 * MINUTE + 59_000, false),
        (5 * MINUTE + 1_000, false),
        (20 * MINUTE, false),
        (30 * MINUTE - 1, false),
        (30 * MINUTE, true),
    ];
    for (age, fresh) in ages {
        let world = watched(Setup::default());
        let call = Call::of("none window").with("publish", json!([]));
        world.gemini.latency_ms.set(0);
        let first = world.ask(&world.isolate(1), &call);
        assert_eq!(first.status, 201);
        world.exec.run_to(crate::util::world::START_MS + age);
        let second = world.ask(&world.isolate(2), &call);
        assert_eq!(
            second.status,
            if fresh { 201 } else { 200 },
            "after {age} ms"
        );
        assert_eq!(world.gemini.billed(), 1 + usize::from(fresh));
        world.pass_minutes(2);
        calm(&world);
    }
}

#[test]
fn duplicates_do_not_extend_a_window() {
    let world = watched(Setup::default());
    let call = Call::of("none window").with("publish", json!([]));
    world.gemini.latency_ms.set(0);
    let isolate = world.isolate(1);
    for _ in 0..3 {
        world.ask(&isolate, &call);
        world.pass_ms(10 * MINUTE);
    }
    assert_eq!(world.gemini.billed(), 1);
    assert_eq!(world.ask(&isolate, &call).status, 201);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn what_is_owed_is_replayed_at_any_age() {
    let world = watched(Setup::default());
    world
        .hooks
        .habit("hook.test", crate::util::HookAct::Later(3_600));
    let call = Call::of("article 1").to(&[("hook", "in")]);
    assert_eq!(world.ask(&world.isolate(1), &call).status, 201);
    for hours in [1, 5, 20] {
        world.pass_ms(hours * 60 * MINUTE);
        let again = world.ask(&world.isolate(2), &call);
        assert_eq!(again.status, 200, "after {hours} more hours");
    }
    assert_eq!(world.gemini.billed(), 1);
    world.hooks.habit("hook.test", crate::util::HookAct::Take);
    world.pass_minutes(24 * 60);
    assert_eq!(
        world.ask(&world.isolate(3), &call).status,
        201,
        "published, and out of its window"
    );
    world.pass_minutes(2);
    calm(&world);
}

#[test]
fn a_definite_failure_frees_its_key() {
    let refusals = [
        (
            Act::Refuse(429, "RESOURCE_EXHAUSTED"),
            503,
            "gemini_rate_limited",
        ),
        (Act::DayQuota, 503, "gemini_quota_exhausted"),
        (Act::Refuse(503, "UNAVAILABLE"), 503, "gemini_unavailable"),
        (Act::Refuse(500, "INTERNAL"), 503, "gemini_unavailable"),
        (Act::Refuse(400, "INVALID_ARGUMENT"), 502, "gemini_rejected"),
        (Act::Refuse(404, "NOT_FOUND"), 502, "gemini_rejected"),
        (Act::Refuse(403, "PERMISSION_DENIED"), 502, "gemini_auth"),
        (Act::NotSent, 503, "gemini_unavailable"),
        (Act::ErrorBefore, 503, "gemini_unavailable"),
    ];
    for (act, status, code) in refusals {
        let world = watched(Setup::default().account("poor", Some(200_000)));
        let isolate = world.isolate(1);
        // The mark of the failed try stays in sight everywhere for a minute.
        world.kv.sight.set(crate::util::Sight::Cached);
        world.gemini.then(&[act]);
        let call = Call::of("article 1");
        let refused = world.ask(&isolate, &call);
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (status, code),
            "{act:?}"
        );
        assert_eq!(
            world
                .db
                .integers("SELECT SUM(reserved + spent) FROM credit_days"),
            [0]
        );
        let again = world.ask(&isolate, &call);
        assert_eq!(again.status, 201, "{act:?}: {}", again.body);
        world.pass_minutes(2);
        calm(&world);
    }
}

#[test]
fn an_unknown_outcome_binds_a_derived_key_until_the_policy_frees_it() {
    let cuts = [
        Act::Deadline,
        Act::Page(502),
        Act::LostHead,
        Act::CutMiddle,
        Act::ErrorAfterOutput,
    ];
    for act in cuts {
        let world = watched(Setup::default());
        let isolate = world.isolate(1);
        world.gemini.then(&[act]);
        let call = Call::of("article 1");
        let first = world.ask(&isolate, &call);
        assert_eq!(
            (first.status, first.code().as_str()),
            (503, PENDING),
            "{act:?}"
        );
        world.pass_minutes(13);
        let still = world.ask(&isolate, &call);
        assert_eq!(
            (still.status, still.code().as_str()),
            (503, PENDING),
            "{act:?}"
        );
        assert_eq!(world.gemini.asked(), 1);
        world.pass_minutes(4);
        assert_eq!(world.ask(&isolate, &call).status, 201, "{act:?}");
        world.pass_minutes(2);
        calm(&world);
    }
}

#[test]
fn a_cut_after_the_last_byte_loses_nothing() {
    let world = watched(Setup::default());
    world.gemini.then(&[Act::CutAfter]);
    assert_eq!(
        world.ask(&world.isolate(1), &Call::of("article 1")).status,
        201
    );
    world.pass_minutes(2);
    calm(&world);
}

#[test]
fn an_unknown_outcome_binds_an_operation_key_until_a_person_decides() {
    let world = watched(Setup::default());
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::LostHead]);
    let call = Call::of("article 1").key("order-1");
    let first = world.ask(&isolate, &call);
    assert_eq!(first.code(), PENDING);
    world.pass_minutes(60);
    assert_eq!(world.ask(&isolate, &call).code(), PENDING);
    at_rest(
        &world,
        Rest {
            owed: false,
            unknown: true,
        },
    );
    world.allowed.borrow_mut().push("article 1".to_owned());
    assert_eq!(
        world.resolve(&isolate, &first.id(), "regenerate").status,
        202
    );
    world.pass_minutes(1);
    let done = world.ask(&isolate, &call);
    assert_eq!(
        (done.status, done.is_replay()),
        (200, true),
        "{}",
        done.body
    );
    world.pass_minutes(2);
    calm(&world);
}

#[test]
fn under_the_policy_hold_a_person_decides_over_derived_keys_too() {
    let world = watched(Setup::default().var("ON_UNKNOWN", "hold"));
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::CutMiddle]);
    let call = Call::of("article 1");
    let first = world.ask(&isolate, &call);
    world.pass_minutes(60);
    assert_eq!(world.ask(&isolate, &call).code(), PENDING);
    assert_eq!(world.resolve(&isolate, &first.id(), "abandon").status, 200);
    assert_eq!(world.gemini.asked(), 1);
    world.allowed.borrow_mut().push("article 1".to_owned());
    assert_eq!(world.ask(&isolate, &call).status, 201);
    world.pass_minutes(2);
    calm(&world);
}

#[test]
fn a_duplicate_of_a_running_request_waits_and_gets_the_same_answer() {
    for durable in [true, false] {
        let world = watched(Setup {
            durable,
            ..Setup::default()
        });
        world.gemini.latency_ms.set(10_000);
        let isolate = world.isolate(1);
        let callers: Vec<_> = (0..50)
            .map(|n| {
                let isolate = if n % 2 == 0 {
                    Rc::clone(&isolate)
                } else {
                    world.isolate(n)
                };
                world.begin(&isolate, &Call::of("article 1").named(&format!("c{n}")))
            })
            .collect();
        world.pass_ms(40_000);
        let answers: Vec<_> = callers
            .iter()
            .map(|c| c.take().expect("an answer"))
            .collect();
        let made = answers.iter().filter(|answer| answer.status == 201).count();
        assert_eq!(made, 1, "durable: {durable}");
        assert!(answers.iter().all(|answer| answer.body == answers[0].body));
        assert_eq!(world.gemini.billed(), 1);
        world.pass_minutes(1);
        calm(&world);
    }
}

#[test]
fn a_wait_that_is_too_short_ends_and_the_generation_goes_on() {
    let world = watched(Setup::default());
    world.gemini.latency_ms.set(40_000);
    let first = world.begin(&world.isolate(1), &Call::of("article 1"));
    world.pass_ms(1_000);
    let duplicate = world.ask(&world.isolate(2), &Call::of("article 1"));
    assert_eq!(
        (duplicate.status, duplicate.code().as_str()),
        (409, "generation_in_progress")
    );
    let answer = world.exec.finish(&first).unwrap();
    assert_eq!(answer.status, 202);
    assert!(answer.header("location").unwrap().ends_with(&answer.id()));
    world.pass_ms(30_000);
    assert_eq!(
        world.ask(&world.isolate(3), &Call::of("article 1")).status,
        200
    );
    world.pass_minutes(1);
    assert_eq!(world.gemini.billed(), 1);
    calm(&world);
}

#[test]
fn a_caller_that_goes_away_neither_stops_nor_loses_anything() {
    let world = watched(Setup::default());
    world.gemini.latency_ms.set(10 * MINUTE);
    let isolate = world.isolate(1);
    let gone = world.begin(&isolate, &Call::of("article 1"));
    world.pass_ms(3_000);
    world.exec.cancel(gone.id);
    world.kill(isolate.home);
    world.pass_minutes(11);
    let again = world.ask(&world.isolate(2), &Call::of("article 1"));
    assert_eq!(
        (again.status, again.is_replay()),
        (200, true),
        "{}",
        again.body
    );
    assert_eq!(world.gemini.billed(), 1);
    calm(&world);
}

#[test]
fn an_operation_key_is_bound_to_its_request_for_24_hours() {
    let world = watched(Setup::default());
    world.gemini.latency_ms.set(0);
    let isolate = world.isolate(1);
    let call = Call::of("article 1").key("order-1");
    let first = world.ask(&isolate, &call);
    assert_eq!(first.status, 201);
    let quoted = Call::of("article 1").header("idempotency-key", "\"order-1\"");
    assert_eq!(world.ask(&isolate, &quoted).body, first.body);
    let other = Call::of("article 2").key("order-1");
    let conflict = world.ask(&isolate, &other);
    assert_eq!(
        (conflict.status, conflict.code().as_str()),
        (409, "idempotency_conflict")
    );
    assert!(conflict.body.contains("/userPrompt"), "{}", conflict.body);
    assert!(!conflict.body.contains("article 2"), "{}", conflict.body);
    assert_eq!(conflict.header("x-should-retry"), Some("false"));
    world.pass_minutes(2);
    let day = crate::util::world::START_MS + 24 * 60 * MINUTE;
    world.exec.run_to(day - 1);
    assert_eq!(world.ask(&isolate, &call).status, 200);
    assert_eq!(world.ask(&isolate, &other).status, 409);
    world.exec.run_to(day);
    assert_eq!(world.ask(&isolate, &other).status, 201);
    world.pass_minutes(2);
    calm(&world);
}

#[test]
fn an_output_that_is_not_fit_is_held_until_a_person_decides() {
    for reason in ["MAX_TOKENS", "SAFETY", "RECITATION"] {
        let world = watched(Setup::default());
        let isolate = world.isolate(1);
        world.gemini.then(&[Act::Ends(reason)]);
        let call = Call::of("article 1");
        let held = world.ask(&isolate, &call);
        assert_eq!(
            (held.status, held.code().as_str()),
            (422, "output_held"),
            "{reason}"
        );
        world.pass_minutes(60);
        world.pass_ms(40 * 24 * 60 * MINUTE);
        world.pass_minutes(11);
        assert_eq!(world.ask(&isolate, &call).code(), "output_held");
        assert_eq!(world.gemini.billed(), 1);
        assert_eq!(world.r2.list("articles/").len(), 0);
        assert_eq!(world.resolve(&isolate, &held.id(), "publish").status, 200);
        world.pass_minutes(2);
        assert_eq!(world.r2.list("articles/").len(), 1);
        calm(&world);
    }
}

#[test]
fn a_duplicate_that_names_more_destinations_buys_nothing() {
    let world = watched(Setup::default());
    let isolate = world.isolate(1);
    let one = Call::of("article 1").to(&[("archive", "a.md")]);
    let two = Call::of("article 1").to(&[("archive", "a.md"), ("hook", "in")]);
    let first = world.ask(&isolate, &one);
    let second = world.ask(&isolate, &two);
    assert_eq!((second.status, &second.body), (200, &first.body));
    world.pass_minutes(2);
    assert_eq!(world.hooks.effects().len(), 1);
    assert_eq!(world.r2.list("articles/").len(), 1);
    assert_eq!(world.gemini.billed(), 1);
    calm(&world);
}

#[test]
fn a_given_slot_anchors_the_window() {
    let world = watched(Setup::default());
    world.gemini.latency_ms.set(0);
    let isolate = world.isolate(1);
    let slot = |text: &str| {
        Call::of("none slot")
            .with("publish", json!([]))
            .with("requestedAt", json!(text))
    };
    assert_eq!(
        world.ask(&isolate, &slot("2026-11-30T08:50:00Z")).status,
        201
    );
    assert_eq!(
        world
            .ask(&isolate, &slot("2026-11-30T09:19:59.999Z"))
            .status,
        400,
        "too far ahead"
    );
    world
        .exec
        .run_to(crate::util::world::START_MS + 20 * MINUTE - 1);
    assert_eq!(
        world
            .ask(&isolate, &slot("2026-11-30T09:19:59.999Z"))
            .status,
        200
    );
    assert_eq!(
        world.ask(&isolate, &slot("2026-11-30T09:20:00Z")).status,
        201
    );
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn an_operation_key_of_unknown_outcome_waits_for_a_person_24_hours_or_not() {
    let world = watched(Setup::default());
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::LostHead]);
    let call = Call::of("article 1").key("order-1");
    world.ask(&isolate, &call);
    world.pass_ms(48 * 60 * MINUTE);
    world.pass_minutes(3);
    assert_eq!(world.ask(&isolate, &call).code(), PENDING);
    assert_eq!(world.gemini.asked(), 1);
    at_rest(
        &world,
        Rest {
            owed: false,
            unknown: true,
        },
    );
    assert_sound(&world);
}

const PENDING: &str = "request_reconciliation_pending";

#[test]
fn the_watch_sees_a_credit_that_leaks() {
    let world = watched(Setup::default());
    world.ask(&world.isolate(1), &Call::of("article 1"));
    world.db.query("UPDATE credit_days SET spent = spent + 1");
    every_step(&world);
    assert_eq!(world.violations.borrow().len(), 1);
    world.violations.borrow_mut().clear();
    assert_sound(&world);
}
