//! What takes one writer at a time has one, however many drains there are.

use futures::executor::block_on;
use futures::future::{join, join3};
use oncepress::limits::DELIVERY_LEASE;
use oncepress::outbox::drain::drain_generation;
use oncepress::store::leases::{self, Lease};
use oncepress::time::Span;
use serde_json::{Value, json};

use crate::sqlite::{Fault, When};
use crate::world::{ACCOUNTS, World, yield_once};

fn github(repository: &str) -> Value {
    json!({"kind": "github", "repository": repository, "api_base": "http://127.0.0.1:9",
        "token": "GITHUB_TOKEN", "accounts": ACCOUNTS})
}

/// Two names of one branch, another branch, and a webhook.
fn world() -> World {
    let hook = json!({"kind": "webhook", "url": "http://127.0.0.1:9/living", "accounts": ACCOUNTS,
        "secrets": ["HOOK_SECRET"]});
    let table = json!({"one": github("acme/blog"), "two": github("Acme/Blog"),
        "other": github("acme/docs"), "living": hook});
    World::with(&table, 50)
}

/// Leases a row as a drain does that then dies.
fn die_writing(world: &World, id: &str, publisher: &str) {
    let settings = world.app.config().publishers.get(publisher).unwrap();
    let lane = settings.serial_lane("x").unwrap();
    let lease = Lease::new("lease_of_the_dead".to_owned(), world.now());
    let statement = leases::lease_serial(&[(id, &lane)], &lease, world.now());
    assert_eq!(world.db.run(&[statement]).unwrap()[0].changes, 1);
}

fn puts(world: &World) -> usize {
    let calls = world.outside.calls.borrow();
    calls
        .iter()
        .filter(|(name, _)| name.ends_with(".md"))
        .count()
}

#[test]
fn two_drains_at_once_never_write_to_one_branch_together() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 12);
    world.seed("b", "globex", "two", "pending", 12);
    let mut drains = 0;
    while world.status("published") < 24 {
        // The second one looks when the first has leased a few rows and is sending.
        let second = async {
            for _ in 0..8 {
                yield_once().await;
            }
            world.drain_with(60).await
        };
        let (one, two) = block_on(join(world.drain_with(16), second));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(one.published + two.published > 0, "one of them goes on");
        world.pass(Span::from_minutes(1));
        drains += 1;
        assert!(drains < 20);
    }
    assert_eq!(world.outside.most_at_once.get(), 1);
    assert_eq!(puts(&world), 24);
}

#[test]
fn drains_after_commits_wait_for_each_other_at_one_branch_and_lose_nothing() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 3);
    let after = |id: &'static str| drain_generation(&world.app, id);
    let (a, b, tick) = block_on(join3(
        after("gen_a1"),
        after("gen_a2"),
        world.drain_with(60),
    ));
    let published = a.published + b.published + tick.unwrap().published;
    assert!(published >= 1);
    assert_eq!(world.outside.most_at_once.get(), 1);
    world.drain();
    assert_eq!((world.status("published"), puts(&world)), (3, 3));
    assert_eq!(world.db.number("SELECT SUM(attempts) FROM deliveries"), 3);
}

#[test]
fn two_branches_are_written_to_side_by_side() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 1);
    world.seed("b", "acme", "other", "pending", 1);
    die_writing(&world, "dlv_a1", "one");
    assert_eq!(world.drain().published, 1);
    assert_eq!(world.delivery("dlv_b1", "status"), "published");
}

#[test]
fn a_drain_that_dies_writing_to_a_branch_frees_it_as_its_lease_ends() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 2);
    world.seed("b", "globex", "two", "pending", 1);
    die_writing(&world, "dlv_a1", "one");
    for _ in 0..2 {
        let drained = world.drain();
        assert_eq!((drained.published, drained.left), (0, true), "{drained:?}");
        world.pass(Span::from_seconds(59));
    }
    assert_eq!(puts(&world), 0);
    assert_eq!(world.delivery("dlv_a2", "attempts"), "0", "unspent");
    world.pass(DELIVERY_LEASE);
    let drained = world.drain();
    assert_eq!((drained.published, drained.retried), (2, 1), "{drained:?}");
}

#[test]
fn a_branch_that_is_written_to_holds_up_no_other_lane() {
    let mut table = json!({"living": {"kind": "webhook", "url": "http://127.0.0.1:9/living",
        "accounts": ACCOUNTS, "secrets": ["HOOK_SECRET"]}});
    for number in 1..=7 {
        table[format!("g{number}")] = github("acme/blog");
    }
    let world = World::with(&table, 50);
    for number in 1..=7 {
        for account in ACCOUNTS {
            let prefix = format!("{account}{number}x");
            world.seed(&prefix, account, &format!("g{number}"), "pending", 2);
        }
    }
    world.seed("l", "acme", "living", "pending", 2);
    die_writing(&world, "dlv_acme1x1", "g1");
    // More lanes than one round pays for, and each of them waits for the branch.
    let drained = block_on(world.drain_with(30)).unwrap();
    assert_eq!((drained.published, drained.left), (2, true), "{drained:?}");
    assert!(world.subrequests() <= 30, "{}", world.subrequests());
}

#[test]
fn a_lease_of_a_branch_whose_reply_is_lost_is_the_same_lease_again() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 5);
    let sql = "deliveries_in_serial_lane";
    let when = When::After;
    world.db.faults.borrow_mut().push_back(Fault {
        sql,
        when,
        times: 1,
    });
    let drained = world.drain();
    assert_eq!(drained.published, 5, "{drained:?}");
    assert_eq!(world.db.number("SELECT SUM(maybe_sent) FROM deliveries"), 0);
}

#[test]
fn a_row_that_was_given_back_or_is_final_holds_no_branch() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 2);
    die_writing(&world, "dlv_a1", "one");
    let given_back = leases::give_back("[\"dlv_a1\"]", "lease_of_the_dead");
    world.db.run(&[given_back]).unwrap();
    assert_eq!(world.drain().published, 2);
    world.seed("b", "acme", "one", "pending", 1);
    assert_eq!(world.drain().published, 1);
}

#[test]
fn a_drain_that_began_long_ago_sees_that_a_branch_is_being_written_to() {
    let world = world();
    world.seed("a", "acme", "one", "pending", 2);
    let began = world.now();
    world.pass(Span::from_seconds(121));
    die_writing(&world, "dlv_a1", "one");
    world.pass(Span::from_seconds(9));
    let settings = world.app.config().publishers.get("one").unwrap();
    let lane = settings.serial_lane("x").unwrap();
    let lease = Lease::new("lease_of_the_late".to_owned(), world.now());
    let busy = leases::busy_lanes(&lease, began);
    let taken = leases::lease_serial(&[("dlv_a2", &lane)], &lease, began);
    let results = world.db.run(&[busy, taken]).unwrap();
    assert_eq!(results[0].rows.len(), 1);
    assert_eq!(world.delivery("dlv_a2", "lease_token"), "");
    assert_eq!(world.delivery("dlv_a2", "lease_until"), "0");
}
