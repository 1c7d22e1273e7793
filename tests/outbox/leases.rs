//! Who holds a row, and what becomes of it when its holder does not come back.

use futures::executor::block_on;
use futures::future::join;
use oncepress::limits::DELIVERY_LEASE as LEASE;
use oncepress::store::deliveries;
use oncepress::store::leases::{self, Finish, Lease};
use oncepress::time::Span;

use crate::sqlite::{Fault, When};
use crate::world::{Answer, MADE_MS, World};

/// Leases every row, as a drain that then dies.
fn die_holding(world: &World, ids: &[&str]) {
    let lease = Lease::new("lease_of_the_dead".to_owned(), world.now());
    let statement = leases::lease(ids, &lease, world.now());
    assert_eq!(
        world.db.run(&[statement]).unwrap()[0].changes,
        ids.len() as u64
    );
}

#[test]
fn two_drains_at_once_send_each_row_once() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 30);
    world.seed("b", "acme", "files", "pending", 10);
    let (one, other) = block_on(join(world.drain_with(200), world.drain_with(200)));
    assert_eq!(one.unwrap().published + other.unwrap().published, 40);
    assert_eq!(world.calls("living"), 30);
    assert_eq!(world.bucket.objects.borrow().len(), 10);
}

#[test]
fn a_drain_of_one_generation_and_the_ticks_drain_share_no_row() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 5);
    let after_commit = oncepress::outbox::drain::drain_generation(&world.app, "gen_a3");
    let (one, other) = block_on(join(world.drain_with(200), after_commit));
    assert_eq!(one.unwrap().published + other.published, 5);
    assert_eq!(world.calls("living"), 5);
}

#[test]
fn a_drain_that_began_long_ago_takes_nothing_that_another_holds() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    // It began, and then its database stalled for longer than a lease.
    let began = world.now();
    world.pass(Span::from_seconds(121));
    die_holding(&world, &["dlv_a1"]);
    world.pass(Span::from_seconds(9));
    let late = Lease::new("lease_of_the_late".to_owned(), world.now());
    let taken = leases::lease(&["dlv_a1"], &late, began);
    assert_eq!(world.db.run(&[taken]).unwrap()[0].changes, 0);
}

#[test]
fn a_drain_that_outlived_its_lease_finishes_nothing_over_its_successor() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    die_holding(&world, &["dlv_a1"]);
    world.pass(LEASE);
    let heir = Lease::new("lease_of_the_heir".to_owned(), world.now());
    let taken = leases::lease(&["dlv_a1"], &heir, world.now());
    assert_eq!(world.db.run(&[taken]).unwrap()[0].changes, 1);
    let finish = Finish {
        status: "dead",
        next_attempt_at: world.now(),
        attempts: 1,
        maybe_sent: false,
        progress: None,
        reference: None,
        error: Some("late".to_owned()),
        attempt: Some("{}".to_owned()),
    };
    let late = leases::finish("dlv_a1", "lease_of_the_dead", &finish, world.now());
    let remembered = leases::remember("dlv_a1", "lease_of_the_dead", "x");
    let given_back = leases::give_back("[\"dlv_a1\"]", "lease_of_the_dead");
    for result in world.db.run(&[late, remembered, given_back]).unwrap() {
        assert_eq!(result.changes, 0);
    }
    let published = Finish {
        status: "published",
        ..finish
    };
    let own = leases::finish("dlv_a1", "lease_of_the_heir", &published, world.now());
    assert!(world.db.run(&[own]).unwrap()[0].changes > 0);
    assert_eq!(world.status("published"), 1);
}

#[test]
fn a_leased_row_is_nobody_elses_until_its_lease_is_over() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 2);
    die_holding(&world, &["dlv_a1"]);
    assert_eq!(world.drain().published, 1);
    assert_eq!(world.drain_generation("gen_a1").published, 0);
    assert_eq!(world.calls("living"), 1);
}

#[test]
fn an_attempt_that_never_came_back_is_counted_waited_for_and_looked_for() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    die_holding(&world, &["dlv_a1"]);
    world.pass(LEASE);
    let drained = world.drain();
    assert_eq!((drained.retried, world.calls("living")), (1, 0));
    assert_eq!(world.delivery("dlv_a1", "attempts"), "1");
    assert_eq!(world.delivery("dlv_a1", "maybe_sent"), "1");
    assert!(
        world
            .delivery("dlv_a1", "attempt_log")
            .contains("interrupted")
    );
    world.pass(Span::from_minutes(2));
    assert_eq!(world.drain().published, 1);
}

#[test]
fn a_row_that_kills_every_drain_dies_in_the_end_and_takes_no_other_along() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 12);
    let mut drains = 0;
    while world.delivery("dlv_a1", "status") == "pending" {
        let due = world.db.number(&format!(
            "SELECT COUNT(*) FROM deliveries WHERE id = 'dlv_a1' AND lease_token IS NULL \
             AND next_attempt_at <= {}",
            world.now().millis()
        ));
        if due == 1 {
            // The drain that has it dies before it records anything.
            let ids: Vec<String> = (1..=12)
                .map(|row| format!("dlv_a{row}"))
                .filter(|id| {
                    world.db.number(&format!(
                        "SELECT COUNT(*) FROM deliveries WHERE id = '{id}' \
                         AND status = 'pending' AND lease_token IS NULL AND next_attempt_at <= {}",
                        world.now().millis()
                    )) == 1
                })
                .collect();
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            die_holding(&world, &ids);
        } else {
            world.drain();
        }
        world.pass(Span::from_minutes(10));
        drains += 1;
        assert!(drains < 2_000);
    }
    assert_eq!(world.delivery("dlv_a1", "status"), "dead");
    assert_eq!(world.delivery("dlv_a1", "attempts"), "10");
    assert_eq!(world.status("published"), 11);
}

#[test]
fn where_a_person_decides_an_attempt_that_never_came_back_is_not_repeated() {
    let world = World::new();
    world.seed("a", "acme", "once", "pending", 1);
    die_holding(&world, &["dlv_a1"]);
    world.pass(LEASE);
    assert_eq!(world.drain().outcome_unknown, 1);
    assert_eq!(world.calls("once"), 0);
    let requeued = deliveries::requeue("dlv_a1", None, world.now());
    world.db.run(&requeued).unwrap();
    assert_eq!(world.drain().published, 1, "a person said so");
}

#[test]
fn a_lost_answer_goes_to_a_person_where_once_at_most_is_the_rule() {
    let world = World::new();
    world.seed("a", "acme", "once", "pending", 1);
    world.answers("once", Answer::Lost);
    assert_eq!(world.drain().outcome_unknown, 1);
    world.pass(Span::from_days(2));
    world.drain();
    assert_eq!(world.calls("once"), 1);
}

#[test]
fn a_lease_whose_reply_is_lost_is_the_same_lease_again() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 30);
    let sql = "lease_until = ?52";
    world.db.faults.borrow_mut().push_back(Fault {
        sql,
        when: When::After,
        times: 1,
    });
    let drained = world.drain();
    assert!(drained.published >= 18, "{drained:?}");
    let held = world
        .db
        .number("SELECT COUNT(*) FROM deliveries WHERE lease_token IS NOT NULL");
    assert_eq!(held, 0);
    assert_eq!(world.db.number("SELECT SUM(maybe_sent) FROM deliveries"), 0);
}

#[test]
fn an_outcome_whose_reply_is_lost_is_recorded_once_and_counted_as_ours() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    world.answers("living", Answer::Status(503));
    let sql = "done_token";
    world.db.faults.borrow_mut().push_back(Fault {
        sql,
        when: When::After,
        times: 2,
    });
    let drained = world.drain();
    assert_eq!((drained.retried, drained.lost), (1, 0));
    assert_eq!(world.delivery("dlv_a1", "attempts"), "1");
    assert_eq!(
        world.delivery("dlv_a1", "json_array_length(attempt_log)"),
        "1"
    );
}

#[test]
fn an_outcome_that_could_not_be_recorded_is_looked_for_later() {
    let world = World::new();
    world.seed("a", "acme", "files", "pending", 2);
    let sql = "done_token";
    world.db.faults.borrow_mut().push_back(Fault {
        sql,
        when: When::Before,
        times: 4,
    });
    let drained = world.drain();
    assert_eq!((drained.published, drained.lost), (1, 1));
    world.pass(LEASE);
    world.drain();
    world.pass(Span::from_minutes(3));
    assert_eq!(world.drain().published, 1);
    assert!(
        world
            .delivery("dlv_a1", "attempt_log")
            .contains("already_there")
    );
    assert_eq!(world.bucket.objects.borrow().len(), 2);
}

#[test]
fn a_delivery_without_a_time_for_its_next_attempt_cannot_exist() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    let connection = world.db.connection.borrow();
    for column in ["next_attempt_at", "lease_until", "due_since"] {
        let sql = format!("UPDATE deliveries SET {column} = NULL");
        let error = connection.execute(&sql, []).unwrap_err().to_string();
        assert!(error.contains("NOT NULL"), "{error}");
    }
}

#[test]
fn a_row_is_tried_once_a_drain_however_long_the_drain_takes() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 2);
    world.answers("living", Answer::Status(503));
    world.outside.took.set(Span::from_seconds(20));
    block_on(world.drain_with(1_000)).unwrap();
    assert_eq!(world.calls("living"), 2);
    assert!(world.now().millis() > MADE_MS);
}
