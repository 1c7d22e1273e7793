//! What a drain and a tick spend.

use std::cell::RefCell;
use std::rc::Rc;

use futures::executor::block_on;
use oncepress::time::Span;
use proptest::prelude::*;

use crate::sqlite::{Fault, When};
use crate::world::{Answer, World};

#[test]
fn a_drain_of_20_due_rows_takes_fewer_than_50_subrequests() {
    for publisher in ["files", "living"] {
        let world = World::new();
        world.seed("a", "acme", publisher, "pending", 20);
        assert_eq!(world.drain().published, 20);
        let spent = world.subrequests();
        println!("a drain of 20 rows due at {publisher}: {spent} subrequests");
        assert!(spent <= 45, "{spent}");
    }
}

#[test]
fn a_tick_stays_within_the_budget_whatever_it_has_to_do() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 90);
    world.seed("b", "globex", "files", "pending", 200);
    world.seed("d", "acme", "dead", "pending", 200);
    world.answers("dead", Answer::Status(503));
    world.seed("o", "acme", "other", "published", 30);
    // 30 outputs in R2 that are past their retention, and 15 overdue generations.
    world
        .db
        .execute("UPDATE generations SET output_where = 'r2', purge_at = 1 WHERE id LIKE 'gen_o%'");
    world.seed("u", "acme", "other", "cancelled", 15);
    world.db.execute(
        "UPDATE generations SET state = 'running', lease_until = 1, purge_at = NULL, output_id = NULL \
         WHERE id LIKE 'gen_u%'",
    );
    let memory = Rc::new(RefCell::new(false));
    for minute in 0..40 {
        let before = world.subrequests();
        world.app.count("kv_read");
        let tick = oncepress::cron::tick(&world.app, &memory, world.now());
        block_on(tick);
        let spent = world.subrequests() - before;
        assert!(spent <= 50, "{spent} in minute {minute}");
        world.pass(Span::from_minutes(1));
    }
    assert_eq!(world.calls("living"), 90);
    assert_eq!(
        world
            .db
            .number("SELECT COUNT(*) FROM generations WHERE id LIKE 'gen_o%'"),
        0
    );
    assert_eq!(
        world
            .db
            .number("SELECT COUNT(*) FROM generations WHERE state = 'running'"),
        0
    );
}

#[test]
fn a_publication_that_the_budget_breaks_off_goes_on_with_the_next_drain() {
    let table = serde_json::json!({"repo": {"kind": "github", "repository": "acme/blog",
        "api_base": "http://127.0.0.1:9", "token": "GITHUB_TOKEN", "accounts": ["acme"]}});
    let world = World::with(&table, 10);
    world.seed("a", "acme", "repo", "pending", 1);
    // The branch moves at each put, so that a second one is wanted at once.
    world.answers("a1.md", Answer::Status(409));
    let drained = block_on(world.drain_with(9)).unwrap();
    assert_eq!((drained.given_back, drained.left), (1, true), "{drained:?}");
    assert_eq!(world.calls("a1.md"), 1);
    assert!(world.subrequests() <= 9);
    assert_eq!(
        world.delivery("dlv_a1", "attempts || maybe_sent || status"),
        "01pending"
    );
    world.pass(Span::from_minutes(1));
    assert_eq!(world.drain().retried, 1);
    assert_eq!(world.delivery("dlv_a1", "attempts"), "1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_mix_of_rows_answers_and_faults_makes_a_drain_overspend(
        rows in proptest::collection::vec((0_usize..8, 0_usize..3, 1_u32..40), 1..8),
        answers in proptest::collection::vec(0_usize..5, 8),
        budget in 10_u32..120,
        fault in proptest::option::of((0_usize..4, any::<bool>())),
    ) {
        let world = World::new();
        let publishers = ["p1", "p2", "p3", "p4", "p5", "p6", "files", "nowhere"];
        for (index, (publisher, account, count)) in rows.iter().enumerate() {
            let account = crate::world::ACCOUNTS[*account];
            let prefix = format!("x{index}y");
            world.seed(&prefix, account, publishers[*publisher], "pending", *count);
        }
        for (publisher, answer) in publishers.iter().zip(answers) {
            world.answers(publisher, [
                Answer::Status(200), Answer::Status(503), Answer::Lost, Answer::Status(422),
                Answer::RetryAfter(429, "60"),
            ][answer]);
        }
        if let Some((sql, after)) = fault {
            let sql = ["done_token", "lease_until = ?52", "circuits (", "d_lease_token"][sql];
            let when = if after { When::After } else { When::Before };
            world.db.faults.borrow_mut().push_back(Fault { sql, when, times: 1 });
        }
        let total = world.db.number("SELECT COUNT(*) FROM deliveries");
        let drained = block_on(world.drain_with(budget)).unwrap();
        // A repeated statement may come on top of the last row's.
        let slack = if fault.is_some() { 3 } else { 0 };
        prop_assert!(world.subrequests() <= budget + slack, "{} of {budget}", world.subrequests());
        let done = drained.published + drained.retried + drained.dead + drained.outcome_unknown;
        prop_assert!(i64::from(done + drained.lost) <= total);
        let held = world.db.number("SELECT COUNT(*) FROM deliveries WHERE lease_token IS NOT NULL");
        prop_assert!(held == 0, "{held} rows held after the drain");
        if world.db.number("SELECT COUNT(*) FROM deliveries WHERE status = 'pending' \
            AND attempts = 0") > 0 {
            prop_assert!(drained.left);
        }
    }
}
