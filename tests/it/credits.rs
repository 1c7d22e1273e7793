//! Credits: reserved, settled, given back, and never overdrawn.

use std::rc::Rc;

use crate::calm;
use crate::util::{Act, Call, Setup, every_step};

/// What a call of [`Call::of`] reserves.
fn estimate() -> i64 {
    let world = Setup::default().build();
    world.gemini.latency_ms.set(60_000);
    let handle = world.begin(&world.isolate(1), &Call::of("article 1"));
    world.pass_ms(1_000);
    let reserved = world.db.integers("SELECT reserved FROM credit_days")[0];
    assert!(!handle.is_done() && reserved > 0);
    reserved
}

#[test]
fn a_hundred_requests_racing_for_the_last_credit_never_overdraw() {
    let limit = estimate() * 3 + estimate() / 2;
    let world = Setup::default().account("poor", Some(limit)).build();
    *world.watch.borrow_mut() = Some(Rc::new(every_step));
    let callers: Vec<_> = (10..110)
        .map(|n| {
            let call = Call::of(&format!("none {n}"))
                .by("poor")
                .named(&format!("c{n}"));
            let isolate = world.isolate(n % 5);
            world.begin(&isolate, &call.with("publish", serde_json::json!([])))
        })
        .collect();
    world.pass_ms(30_000);
    let answers: Vec<_> = callers
        .iter()
        .map(|caller| caller.take().unwrap())
        .collect();
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let broke = answers
        .iter()
        .filter(|answer| answer.code() == "credits_exhausted")
        .count();
    assert_eq!((made, broke), (3, 97));
    assert!(
        answers
            .iter()
            .all(|answer| [201, 402].contains(&answer.status))
    );
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_success_settles_to_the_real_cost_and_says_so() {
    let world = Setup::default().build();
    let first = world.ask(&world.isolate(1), &Call::of("article 1"));
    let told: i64 = first
        .header("x-oncepress-credits")
        .unwrap()
        .parse()
        .unwrap();
    let spent = world.db.integers("SELECT spent FROM credit_days");
    assert_eq!(spent, [told]);
    assert_eq!(world.db.integers("SELECT reserved FROM credit_days"), [0]);
    assert_eq!(first.json()["cost"]["microUsd"], told);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn an_unknown_outcome_keeps_its_reservation_and_names_no_cost() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::LostHead]);
    let first = world.ask(&isolate, &Call::of("article 1"));
    assert_eq!(first.header("x-oncepress-credits"), None);
    let reserved = estimate();
    assert_eq!(
        world.db.integers("SELECT reserved FROM credit_days"),
        [reserved]
    );
    world.pass_minutes(17);
    assert_eq!(
        world.db.integers("SELECT reserved FROM credit_days"),
        [reserved]
    );
    assert_eq!(world.ask(&isolate, &Call::of("article 1")).status, 201);
    assert_eq!(
        world.db.integers("SELECT reserved FROM credit_days"),
        [reserved]
    );
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_repeat_by_the_queue_stays_inside_the_limit() {
    let limit = estimate() + estimate() / 2;
    let world = Setup::default().account("poor", Some(limit)).build();
    *world.watch.borrow_mut() = Some(Rc::new(every_step));
    world.gemini.then(&[Act::LostHead]);
    let call = Call::of("none 1")
        .by("poor")
        .with("publish", serde_json::json!([]));
    let accepted = world.ask(&world.isolate(1), &call.header("prefer", "respond-async"));
    assert_eq!(accepted.status, 202);
    world.pass_minutes(40);
    crate::util::assert_sound(&world);
}

#[test]
fn the_day_of_an_account_begins_in_its_own_time_zone() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let path = "/admin/accounts/other";
    let zone = serde_json::json!({"timezone": "Asia/Tokyo"});
    assert_eq!(
        world
            .api_with(&isolate, "admin", "PATCH", path, &zone)
            .status,
        200
    );
    world
        .exec
        .run_to(crate::util::world::START_MS + 6 * 3_600_000);
    world.ask(&isolate, &Call::of("article 1").by("other"));
    assert_eq!(
        world.db.texts("SELECT day FROM credit_days"),
        ["2026-12-01"]
    );
    world.pass_minutes(1);
    calm(&world);
}
