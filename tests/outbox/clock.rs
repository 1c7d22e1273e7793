//! A clock that jumps, and comes back, delays a delivery by no more than its ordinary waits.

use std::cell::RefCell;
use std::rc::Rc;

use futures::executor::block_on;
use oncepress::limits::DELIVERY_LEASE;
use oncepress::store::leases::{self, Lease};
use oncepress::time::Span;

use crate::world::{Answer, World};

fn tick(world: &World) {
    let memory = Rc::new(RefCell::new(true));
    block_on(oncepress::cron::tick(&world.app, &memory, world.now()));
}

fn die_holding(world: &World, id: &str) {
    let lease = Lease::new(format!("lease_{id}"), world.now());
    let statement = leases::lease(&[id], &lease, world.now());
    assert_eq!(world.db.run(&[statement]).unwrap()[0].changes, 1);
}

#[test]
fn a_clock_that_jumps_by_eight_hours_and_back_costs_the_ordinary_waits() {
    for hours in [8, -8] {
        let world = World::new();
        world.seed("a", "acme", "living", "pending", 20);
        world.answers("living", Answer::Status(503));
        world.drain();
        die_holding(&world, "dlv_a9");
        world.pass(Span::from_hours(hours));
        world.drain();
        die_holding(&world, "dlv_a10");
        world.pass(Span::from_hours(-hours));
        world.answers("living", Answer::Status(200));
        for _ in 0..20 {
            world.pass(Span::from_minutes(1));
            tick(&world);
        }
        assert_eq!(world.status("published"), 20, "{hours} h");
        let calls = world.outside.calls.borrow();
        let distinct: std::collections::BTreeSet<_> = calls.iter().map(|call| &call.1).collect();
        assert_eq!(distinct.len(), 20);
    }
}

#[test]
fn a_wait_that_began_in_the_future_is_as_long_as_it_was_meant_to_be_from_now_on() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    world.answers("living", Answer::RetryAfter(429, "7200"));
    world.pass(Span::from_hours(8));
    assert_eq!(world.drain().retried, 1);
    world.pass(Span::from_hours(-8));
    world.answers("living", Answer::Status(200));
    tick(&world);
    let next_ms: i64 = world.delivery("dlv_a1", "next_attempt_at").parse().unwrap();
    let waits = next_ms - world.now().millis();
    assert_eq!(Span::from_millis(waits), Span::from_hours(2));
    for (minutes, published) in [(119, 0), (1, 1)] {
        world.pass(Span::from_minutes(minutes));
        tick(&world);
        assert_eq!(world.status("published"), published);
    }
}

#[test]
fn what_was_committed_in_the_future_is_due_and_stale_by_the_clock_as_it_is() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    let ahead = world.now().plus(Span::from_hours(8)).millis();
    world.db.execute(&format!(
        "UPDATE deliveries SET next_attempt_at = {ahead}, due_since = {ahead}"
    ));
    tick(&world);
    let due_since = world.delivery("dlv_a1", "due_since");
    assert_eq!(due_since, world.now().millis().to_string());
    assert_eq!(world.status("published"), 1);
}

#[test]
fn waits_of_an_ordinary_clock_are_left_as_they_are() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 3);
    world.answers("living", Answer::RetryAfter(429, "7200"));
    world.drain();
    let before = world.delivery("dlv_a1", "next_attempt_at");
    for _ in 0..3 {
        world.pass(Span::from_minutes(1));
        tick(&world);
    }
    assert_eq!(world.delivery("dlv_a1", "next_attempt_at"), before);
}

#[test]
fn a_drain_whose_clock_is_set_back_gives_the_rest_of_its_rows_back() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 10);
    world.outside.took.set(Span::from_hours(-8));
    let drained = world.drain();
    assert_eq!(world.calls("living"), 1);
    assert_eq!(
        (drained.published, drained.given_back),
        (1, 9),
        "{drained:?}"
    );
    world.outside.took.set(Span::default());
    tick(&world);
    assert_eq!(world.status("published"), 10);
}

#[test]
fn a_lease_a_little_longer_than_its_length_is_another_clocks_and_holds() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    world.pass(Span::from_minutes(1));
    die_holding(&world, "dlv_a1");
    world.pass(Span::from_minutes(-1));
    assert_eq!((world.drain().retried, world.calls("living")), (0, 0));
    world.pass(DELIVERY_LEASE);
    world.pass(Span::from_minutes(1));
    assert_eq!(world.drain().retried, 1, "counted as interrupted");
}
