//! No backlog starves another, no destination blocks another.

use futures::executor::block_on;
use oncepress::store::deliveries::{self, Lane};
use oncepress::store::row::rows;
use oncepress::time::Span;

use crate::world::{Answer, World};

#[test]
fn a_dead_destination_with_10_000_rows_delays_a_living_one_by_nothing() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 10_000);
    world.seed("l", "acme", "living", "pending", 100);
    world.answers("dead", Answer::Status(503));
    let mut drains = 0;
    while world.calls("living") < 100 {
        world.drain();
        world.pass(Span::from_minutes(1));
        drains += 1;
        assert!(
            drains <= 6,
            "{} of 100 after {drains} drains",
            world.calls("living")
        );
    }
    assert!(
        world.calls("dead") <= 2 + drains,
        "{} calls",
        world.calls("dead")
    );
    assert_eq!(world.status("published"), 100);
    assert_eq!(world.status("pending"), 10_000);
}

#[test]
fn a_destination_that_breaks_in_a_round_does_not_end_the_drain() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 100);
    world.seed("l", "acme", "living", "pending", 300);
    world.answers("dead", Answer::Status(503));
    let drained = block_on(world.drain_with(2_000)).unwrap();
    assert_eq!(drained.published, 300, "{drained:?}");
    assert_eq!(world.calls("dead"), 3);
}

#[test]
fn a_dead_destination_costs_three_calls_and_then_one_a_pause() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 500);
    world.answers("dead", Answer::Status(503));
    assert_eq!((world.drain().retried, world.calls("dead")), (3, 3));
    for (minutes, calls) in [
        (0, 3),
        (1, 4),
        (1, 4),
        (1, 5),
        (3, 5),
        (1, 6),
        (8, 7),
        (16, 8),
    ] {
        world.pass(Span::from_minutes(minutes));
        let drained = world.drain();
        assert_eq!(world.calls("dead"), calls, "after {minutes} minutes more");
        assert!(drained.left);
    }
    let spent = world
        .db
        .number("SELECT COUNT(*) FROM deliveries WHERE attempts > 0");
    assert_eq!(spent, 8, "the other rows are unspent");
}

#[test]
fn a_repaired_destination_gets_everything_soon() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 50);
    world.answers("dead", Answer::Status(503));
    for _ in 0..90 {
        world.drain();
        world.pass(Span::from_minutes(1));
    }
    world.answers("dead", Answer::Status(200));
    let mut minutes = 0;
    while world.status("published") < 40 {
        world.drain();
        world.pass(Span::from_minutes(1));
        minutes += 1;
        assert!(minutes < 25, "{} of 50", world.status("published"));
    }
}

#[test]
fn a_dead_destination_recovers_through_the_drains_after_commits_too() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 60);
    world.answers("dead", Answer::Status(503));
    for row in 1..=30 {
        world.drain_generation(&format!("gen_d{row}"));
        world.pass(Span::from_minutes(1));
    }
    assert!(world.calls("dead") < 12, "{} calls", world.calls("dead"));
    world.answers("dead", Answer::Status(200));
    world.pass(Span::from_minutes(16));
    assert_eq!(world.drain_generation("gen_d31").published, 1);
    assert_eq!(world.drain_generation("gen_d32").published, 1);
}

#[test]
fn expired_credentials_kill_three_rows_and_not_the_backlog() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 300);
    world.answers("dead", Answer::Status(401));
    for _ in 0..10 {
        world.drain();
    }
    assert_eq!(world.status("dead"), 3);
    assert_eq!(world.status("pending"), 297);
    let error = world.delivery("dlv_d1", "error");
    assert!(error.starts_with("credentials_refused"), "{error}");
}

#[test]
fn a_row_that_is_refused_for_itself_says_nothing_about_its_destination() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 10);
    world.answers("dead", Answer::Status(422));
    assert_eq!(world.drain().dead, 10);
}

#[test]
fn a_destination_that_asks_for_patience_gets_it_for_all_its_rows() {
    let world = World::new();
    world.seed("d", "acme", "dead", "pending", 10);
    world.answers("dead", Answer::RetryAfter(429, "600"));
    world.drain();
    assert_eq!(world.calls("dead"), 1);
    for _ in 0..9 {
        world.pass(Span::from_minutes(1));
        world.drain();
    }
    assert_eq!(world.calls("dead"), 1);
    world.answers("dead", Answer::Status(200));
    world.pass(Span::from_minutes(1));
    assert_eq!(world.drain().published, 10);
}

#[test]
fn every_lane_has_its_turn_however_many_there_are() {
    let world = World::new();
    for account in ["acme", "globex", "initech"] {
        for publisher in 1..=6 {
            let prefix = format!("{account}{publisher}x");
            world.seed(&prefix, account, &format!("p{publisher}"), "pending", 40);
        }
    }
    for _ in 0..2 {
        world.drain();
    }
    let served = world.db.number(
        "SELECT COUNT(*) FROM (SELECT DISTINCT publisher, account FROM deliveries \
         WHERE status = 'published')",
    );
    assert_eq!(served, 18, "of 18 lanes after two drains of about 20 rows");
}

#[test]
fn lanes_beyond_what_one_drain_looks_at_are_reached() {
    let world = World::new();
    world.seed("x", "acme", "living", "pending", 200);
    // 200 accounts, of which the last one alone has something due.
    world.db.execute(
        "UPDATE deliveries SET account = 'a' || printf('%03d', CAST(substr(id, 6) AS INTEGER)), \
           next_attempt_at = 1896000000000",
    );
    world
        .db
        .execute("UPDATE deliveries SET next_attempt_at = 0, account = 'z' WHERE id = 'dlv_x200'");
    let mut drains = 0;
    while world.delivery("dlv_x200", "attempts") == "0" {
        world.drain();
        drains += 1;
        assert!(drains <= 5);
    }
}

#[test]
fn the_walk_over_the_lanes_starts_behind_the_cursor_and_ends_where_it_started() {
    let world = World::new();
    for (account, publisher) in [
        ("acme", "p1"),
        ("globex", "p1"),
        ("acme", "p3"),
        ("acme", "p5"),
    ] {
        world.seed(
            &format!("{account}{publisher}x"),
            account,
            publisher,
            "pending",
            30,
        );
    }
    let walk = |cursor: Option<(&str, &str)>, limit| {
        world
            .db
            .execute("DELETE FROM meta WHERE name = 'drain_cursor'");
        if let Some((publisher, account)) = cursor {
            let lane = Lane {
                publisher: publisher.to_owned(),
                account: account.to_owned(),
                due_at: world.now(),
            };
            world.db.run(&[deliveries::keep_cursor(&lane)]).unwrap();
        }
        let results = world.db.run(&[deliveries::lanes(limit)]).unwrap();
        let lanes = rows(&results, 0).unwrap().map(|row| {
            let lane = deliveries::read_lane(row).unwrap();
            assert_eq!(lane.due_at.millis(), crate::world::MADE_MS + 1);
            format!("{}{}", lane.publisher, &lane.account[..1])
        });
        lanes.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(walk(None, 32), "p1a p1g p3a p5a");
    assert_eq!(walk(None, 2), "p1a p1g");
    assert_eq!(walk(Some(("p1", "acme")), 32), "p1g p3a p5a p1a");
    assert_eq!(
        walk(Some(("p2", "acme")), 32),
        "p3a p5a p1a p1g",
        "a lane that is empty now"
    );
    assert_eq!(walk(Some(("p5", "acme")), 32), "p1a p1g p3a p5a");
    assert_eq!(walk(Some(("p9", "z")), 32), "p1a p1g p3a p5a");
    assert_eq!(walk(Some(("p3", "acme")), 3), "p5a p1a p1g");
    world
        .db
        .execute("UPDATE deliveries SET status = 'cancelled' WHERE publisher <> 'p3'");
    assert_eq!(walk(Some(("p3", "acme")), 32), "p3a");
    world
        .db
        .execute("UPDATE deliveries SET status = 'cancelled'");
    assert_eq!(walk(Some(("p3", "acme")), 32), "");
    assert_eq!(walk(None, 32), "");
}

#[test]
fn a_slow_destination_takes_its_own_time_only() {
    let world = World::new();
    world.seed("s", "acme", "slow", "pending", 20);
    world.seed("l", "acme", "living", "pending", 10);
    world.answers("slow", Answer::Silence);
    let drained = world.drain();
    assert!(world.calls("slow") <= 3);
    assert_eq!(drained.published, 10);
}

#[test]
fn the_budget_that_one_lane_leaves_is_anothers() {
    let world = World::new();
    world.seed("a", "acme", "p1", "pending", 1);
    world.seed("b", "acme", "p2", "pending", 100);
    let drained = world.drain();
    assert!(drained.published >= 18, "{drained:?}");
}
