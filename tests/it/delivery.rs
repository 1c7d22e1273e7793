//! The outbox and the drain.

use crate::calm;
use crate::util::{Call, HookAct, Rest, Setup, assert_sound, at_rest};

#[test]
fn a_receiver_that_takes_and_resets_gets_the_same_key_again() {
    for act in [
        HookAct::TakeThenReset,
        HookAct::TakeThenGateway,
        HookAct::TakeThenHang,
    ] {
        let world = Setup::default().build();
        world.hooks.then(&[act]);
        world.ask(
            &world.isolate(1),
            &Call::of("article 1").to(&[("hook", "in")]),
        );
        world.pass_minutes(5);
        let receipts = world.hooks.receipts.borrow().clone();
        assert_eq!(receipts.len(), 2, "{act:?}");
        assert_eq!(receipts[0].id, receipts[1].id);
        assert_eq!(receipts[0].body, receipts[1].body);
        calm(&world);
    }
}

#[test]
fn at_most_once_leaves_an_ambiguous_attempt_to_a_person() {
    let world = Setup::default().build();
    world.hooks.then(&[HookAct::TakeThenReset]);
    world.ask(
        &world.isolate(1),
        &Call::of("article 1").to(&[("once", "in")]),
    );
    world.pass_minutes(10);
    let status = world.db.texts("SELECT status FROM deliveries");
    assert_eq!(status, ["outcome_unknown"]);
    assert_eq!(world.hooks.receipts.borrow().len(), 1);
    at_rest(
        &world,
        Rest {
            owed: true,
            unknown: false,
        },
    );
    assert_sound(&world);
}

#[test]
fn at_most_once_leaves_an_attempt_that_died_to_a_person() {
    let world = Setup::default().build();
    world.hooks.then(&[HookAct::TakeThenHang]);
    let isolate = world.isolate(1);
    world.ask(&isolate, &Call::of("article 1").to(&[("once", "in")]));
    for (_, home) in world.actors.homes() {
        world.kill(home);
    }
    world.pass_minutes(10);
    assert_eq!(
        world.db.texts("SELECT status FROM deliveries"),
        ["outcome_unknown"]
    );
    assert_eq!(world.hooks.receipts.borrow().len(), 1);
    let id = world.db.texts("SELECT id FROM deliveries")[0].clone();
    let path = format!("/api/v1/outbox/{id}/requeue");
    assert_eq!(world.api(&isolate, "default", "POST", &path).status, 200);
    world.pass_minutes(2);
    assert_eq!(
        world.db.texts("SELECT status FROM deliveries"),
        ["published"]
    );
    assert_eq!(world.hooks.receipts.borrow().len(), 2);
}

#[test]
fn a_destination_that_was_down_for_long_gets_everything_once_it_is_back() {
    let world = Setup::default().build();
    world.hooks.habit("hook.test", HookAct::Refuse(500));
    let isolate = world.isolate(1);
    for n in 0..8 {
        let call = Call::of(&format!("article {n}")).to(&[("hook", "in")]);
        assert_eq!(world.ask(&isolate, &call).status, 201);
    }
    world.pass_minutes(45);
    world.hooks.habit("hook.test", HookAct::Take);
    world.pass_minutes(10 * 60);
    let statuses = world.db.texts("SELECT DISTINCT status FROM deliveries");
    assert_eq!(
        statuses,
        ["published"],
        "{}",
        world.db.show("SELECT * FROM circuits")
    );
    calm(&world);
}

#[test]
fn a_broken_destination_blocks_no_other() {
    let world = Setup::default().build();
    world.hooks.habit("hook.test", HookAct::TakeThenHang);
    let isolate = world.isolate(1);
    for n in 0..30 {
        let call = Call::of(&format!("article {n}"));
        world.ask(
            &isolate,
            &call.to(&[("hook", "in"), ("archive", &format!("{n}.md"))]),
        );
    }
    world.pass_minutes(5);
    assert_eq!(world.r2.list("articles/").len(), 30);
    assert_sound(&world);
}

#[test]
fn a_permanent_refusal_is_dead_and_comes_back_by_hand_under_the_same_key() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.hooks.then(&[HookAct::Refuse(400)]);
    world.ask(&isolate, &Call::of("article 1").to(&[("hook", "in")]));
    world.pass_minutes(3);
    let dead = world.api(&isolate, "default", "GET", "/api/v1/outbox?status=dead");
    let id = dead.text("/items/0/id");
    assert!(id.starts_with("dlv_"), "{}", dead.body);
    let path = format!("/api/v1/outbox/{id}/requeue");
    assert_eq!(world.api(&isolate, "default", "POST", &path).status, 200);
    world.pass_minutes(1);
    let receipts = world.hooks.receipts.borrow().clone();
    assert_eq!(receipts.len(), 2);
    assert!(receipts.iter().all(|receipt| receipt.id == id));
    calm(&world);
}

#[test]
fn ten_attempts_over_72_hours_end_dead_and_a_person_hears_of_it() {
    let world = Setup::default().build();
    world.hooks.habit("hook.test", HookAct::Refuse(503));
    world.ask(
        &world.isolate(1),
        &Call::of("article 1").to(&[("hook", "in")]),
    );
    world.pass_minutes(71 * 60);
    assert_eq!(world.db.texts("SELECT status FROM deliveries"), ["pending"]);
    world.pass_minutes(40 * 60);
    assert_eq!(world.db.texts("SELECT status FROM deliveries"), ["dead"]);
    let attempts = world.hooks.receipts.borrow().len();
    assert_eq!(attempts, 10);
    let kinds = world
        .db
        .texts("SELECT DISTINCT kind FROM alerts ORDER BY kind");
    assert!(
        kinds.contains(&"dead".to_owned()) && kinds.contains(&"stale".to_owned()),
        "{kinds:?}"
    );
    calm(&world);
}

#[test]
fn a_retry_after_is_never_undercut() {
    let world = Setup::default().build();
    world.hooks.then(&[HookAct::Later(7_200)]);
    world.ask(
        &world.isolate(1),
        &Call::of("article 1").to(&[("hook", "in")]),
    );
    world.pass_minutes(150);
    let receipts = world.hooks.receipts.borrow().clone();
    assert_eq!(receipts.len(), 2);
    assert!(receipts[1].at - receipts[0].at >= 7_200_000);
    calm(&world);
}

#[test]
fn a_tick_that_fires_twice_works_once() {
    let world = Setup::default().build();
    world.ask(
        &world.isolate(1),
        &Call::of("article 1").to(&[("hook", "in")]),
    );
    let at = world.exec.now_ms();
    let ticks = [world.tick(at), world.tick(at)];
    world.pass_ms(40_000);
    assert!(ticks.iter().all(crate::util::exec::Handle::is_done));
    assert_eq!(world.db.integers("SELECT fired FROM ticks"), [2]);
    assert_eq!(world.hooks.receipts.borrow().len(), 1);
    calm(&world);
}
