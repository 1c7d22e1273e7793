//! What people do to deliveries, and what retention does.

use oncepress::limits::DELIVERY_LEASE as LEASE;
use oncepress::store::leases::{self, Lease};
use oncepress::store::{deliveries, maintenance};
use oncepress::time::{Span, Timestamp};

use crate::world::{Answer, World};

fn run(world: &World, statements: &[oncepress::ports::Statement]) -> u64 {
    world.db.run(statements).unwrap()[0].changes
}

#[test]
fn a_requeued_delivery_keeps_its_key() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    world.answers("living", Answer::Status(422));
    assert_eq!(world.drain().dead, 1);
    world.answers("living", Answer::Status(200));
    assert!(
        run(
            &world,
            &deliveries::requeue("dlv_a1", Some("acme"), world.now())
        ) > 0
    );
    assert_eq!(world.drain().published, 1);
    let calls = world.outside.calls.borrow();
    assert!(calls.iter().all(|(_, id)| id == "dlv_a1") && calls.len() == 2);
}

#[test]
fn another_account_can_neither_requeue_nor_cancel() {
    let world = World::new();
    world.seed("a", "acme", "living", "dead", 1);
    for batch in [
        deliveries::requeue("dlv_a1", Some("globex"), world.now()),
        deliveries::cancel("dlv_a1", Some("globex"), world.now()),
    ] {
        let results = world.db.run(&batch).unwrap();
        assert_eq!((results[0].changes, results[1].rows.len()), (0, 0));
    }
}

#[test]
fn what_is_being_sent_cannot_be_cancelled_and_what_nobody_holds_can() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    let lease = Lease::new("lease_1".to_owned(), world.now());
    let lease = leases::lease(&["dlv_a1"], &lease, world.now());
    run(&world, &[lease]);
    let cancel = |world: &World| run(world, &deliveries::cancel("dlv_a1", None, world.now()));
    assert_eq!(cancel(&world), 0);
    world.pass(LEASE);
    assert!(cancel(&world) > 0);
    assert_eq!(world.drain().published, 0);
    assert_eq!(world.calls("living"), 0);
}

#[test]
fn a_published_delivery_is_neither_requeued_nor_cancelled() {
    let world = World::new();
    world.seed("a", "acme", "living", "published", 1);
    assert_eq!(
        run(&world, &deliveries::requeue("dlv_a1", None, world.now())),
        0
    );
    assert_eq!(
        run(&world, &deliveries::cancel("dlv_a1", None, world.now())),
        0
    );
}

fn purge(world: &World, limit: usize) -> i64 {
    let before = world.db.number("SELECT COUNT(*) FROM generations");
    let results = world
        .db
        .run(&[maintenance::purgeable(world.now(), limit)])
        .unwrap();
    let ids: Vec<&String> = results[0]
        .rows
        .iter()
        .map(|row| match &row[0].1 {
            oncepress::ports::SqlValue::Text(id) => id,
            other => panic!("{other:?}"),
        })
        .collect();
    let ids = serde_json::to_string(&ids).unwrap();
    world
        .db
        .run(&maintenance::purge(&ids, world.now()))
        .unwrap();
    before - world.db.number("SELECT COUNT(*) FROM generations")
}

#[test]
fn a_generation_goes_30_days_after_its_last_delivery_and_not_while_one_is_owed() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 2);
    world.seed("b", "acme", "dead", "pending", 2);
    // Generation a1 owes two destinations, b1 none.
    world.db.execute(
        "UPDATE deliveries SET generation_id = 'gen_a1' WHERE id = 'dlv_b1';\n\
         UPDATE generations SET owed = 2 WHERE id = 'gen_a1';\n\
         UPDATE generations SET owed = 0 WHERE id = 'gen_b1'",
    );
    world.answers("dead", Answer::Lost);
    world.drain();
    world.pass(Span::from_days(31));
    assert_eq!(purge(&world, 50), 1, "a2 alone: the others owe something");
    world.answers("dead", Answer::Status(200));
    world.drain();
    assert_eq!(world.status("pending"), 0);
    assert_eq!(purge(&world, 50), 0);
    world.pass(Span::from_days(30));
    assert_eq!(purge(&world, 50), 2);
    assert_eq!(world.db.number("SELECT COUNT(*) FROM deliveries"), 0);
    assert_eq!(world.db.number("SELECT COUNT(*) FROM tombstones"), 3);
}

#[test]
fn purging_takes_small_batches_and_leaves_what_waits_for_a_person() {
    let world = World::new();
    world.seed("a", "acme", "living", "published", 120);
    world
        .db
        .execute("UPDATE deliveries SET status = 'outcome_unknown' WHERE rowid <= 50");
    assert_eq!(
        [purge(&world, 50), purge(&world, 50), purge(&world, 50)],
        [50, 20, 0]
    );
    assert_eq!(world.db.number("SELECT COUNT(*) FROM generations"), 50);
}

#[test]
fn a_dead_delivery_that_is_requeued_stops_the_purge() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 1);
    world.answers("living", Answer::Status(422));
    world.drain();
    world.pass(Span::from_days(31));
    run(&world, &deliveries::requeue("dlv_a1", None, world.now()));
    assert_eq!(purge(&world, 50), 0);
}

#[test]
fn what_is_owed_too_long_is_told_once() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 3);
    let threshold = world.now().minus(Span::from_hours(1));
    for told in [3, 0] {
        let batch = maintenance::alert_stale(threshold, world.now(), 500);
        let results = world.db.run(&batch).unwrap();
        assert_eq!(results[1].changes, told);
    }
    assert_eq!(world.db.number("SELECT SUM(count) FROM alerts"), 3);
    assert!(Timestamp::default() < threshold);
}
