//! How SQLite goes about each statement: by an index, never through a table that grows.

use oncepress::ports::Statement;
use oncepress::store::deliveries::{self, DeliveryQuery, Lane};
use oncepress::store::generations::{self, GenerationQuery};
use oncepress::store::leases::{self, Lease};
use oncepress::store::maintenance;
use oncepress::time::Timestamp;

use crate::world::World;

/// Steps that read a whole table or index that grows with what was ever published.
fn scans(world: &World, statement: &Statement) -> Vec<String> {
    // Small by nature: JSON of parameters, rows of a recursion, results of a bounded subquery.
    let bounded = |step: &str| {
        step.starts_with("SCAN (") || step.starts_with("SCAN lane")
            || step.contains("json_each") || step == "SCAN CONSTANT ROW"
            // The first row of a partial index over what is pending, in its order.
            || step == "SCAN e USING COVERING INDEX deliveries_due"
    };
    let plan = world.db.plan(statement);
    plan.into_iter()
        .filter(|step| step.starts_with("SCAN") && !bounded(step))
        .collect()
}

fn assert_no_scan(world: &World, statement: &Statement) {
    assert_eq!(
        scans(world, statement),
        Vec::<String>::new(),
        "{}",
        statement.sql
    );
}

#[test]
fn no_statement_of_a_drain_reads_a_whole_table() {
    let world = World::new();
    world.seed("a", "acme", "living", "pending", 30);
    world.seed("d", "acme", "dead", "pending", 30);
    world.answers("dead", crate::world::Answer::Status(503));
    world.drain();
    world.drain_generation("gen_a30");
    let seen = world.db.seen.borrow().clone();
    assert!(seen.len() >= 7, "{}", seen.len());
    for statement in &seen {
        assert_no_scan(&world, statement);
    }
}

#[test]
fn lanes_are_found_by_seeking_both_columns() {
    let plan = World::new().db.plan(&deliveries::lanes(32)).join("\n");
    assert!(
        plan.contains("deliveries_due (publisher=? AND account>?)"),
        "{plan}"
    );
    assert!(plan.contains("deliveries_due (publisher>?)"), "{plan}");
}

#[test]
fn due_rows_are_a_range_of_their_index() {
    let world = World::new();
    let lane = Lane {
        publisher: "living".to_owned(),
        account: "acme".to_owned(),
        due_at: world.now(),
    };
    let statement = deliveries::candidates(&[(&lane, 20)], world.now());
    let plan = world.db.plan(&statement).join("\n");
    let range = "INDEX deliveries_due (publisher=? AND account=? AND next_attempt_at<?)";
    assert_eq!(plan.matches(range).count(), deliveries::SLOTS, "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

#[test]
fn busy_lanes_are_read_from_the_index_of_leased_rows_and_rows_in_one_pass() {
    let world = World::new();
    let lease = Lease::new("t".to_owned(), world.now());
    let rows = "SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (id=?)";
    let lanes = "SEARCH o USING INDEX deliveries_in_serial_lane (serial_lane>?)";
    let serial = leases::lease_serial(&[("dlv_1", "lane")], &lease, world.now());
    for (statement, wanted) in [
        (leases::busy_lanes(&lease, world.now()), [lanes].as_slice()),
        (serial, &[rows, lanes, lanes]),
    ] {
        let plan = world.db.plan(&statement);
        let is_step = |step: &&str| step.contains("INDEX");
        let steps = plan.iter().map(String::as_str).filter(is_step);
        assert_eq!(steps.collect::<Vec<_>>(), wanted);
    }
}

#[test]
fn neither_ticks_nor_purges_nor_looks_at_one_row_read_a_whole_table() {
    let world = World::new();
    let now = world.now();
    let overdue = maintenance::Overdue {
        now,
        young: (now, now),
        decided: Some(now),
        limit: 10,
    };
    let mut statements = vec![maintenance::unsettled(&overdue)];
    statements.extend(maintenance::tick(now, "t", now));
    statements.push(maintenance::finish_tick(now, "{}", now));
    statements.push(maintenance::mend_waits(now, 500));
    statements.extend(maintenance::alert_stale(now, now, 500));
    statements.push(maintenance::purgeable(now, 50));
    statements.extend(maintenance::purge("[\"gen_1\"]", now));
    statements.extend(deliveries::requeue("dlv_1", Some("acme"), now));
    statements.extend(deliveries::cancel("dlv_1", None, now));
    statements.extend(generations::find("gen_1", Some("acme")));
    statements.push(oncepress::store::alerts::lease("t", 4, now));
    statements.push(leases::held(&["dlv_1"], "t"));
    statements.push(leases::remember("dlv_1", "t", "x"));
    for statement in &statements {
        assert_no_scan(&world, statement);
    }
}

#[test]
fn every_list_is_read_in_the_order_of_an_index() {
    let world = World::new();
    for account in [None, Some("acme")] {
        for status in [
            None,
            Some("pending"),
            Some("published"),
            Some("dead"),
            Some("cancelled"),
            Some("outcome_unknown"),
        ] {
            let statement = deliveries::list(&DeliveryQuery {
                account,
                status,
                publisher: Some("living"),
                before: (Timestamp::from_millis(i64::MAX), "z"),
                limit: 51,
            });
            let plan = world.db.plan(&statement).join("\n");
            // What is pending in all accounts is sorted; its index is ordered for the drain.
            let backlog = account.is_none() && status == Some("pending");
            assert_eq!(
                plan.contains("TEMP B-TREE"),
                backlog,
                "{account:?} {status:?}: {plan}"
            );
            assert!(plan.contains("INDEX deliveries_"), "{plan}");
        }
    }
}

#[test]
fn every_list_of_generations_is_read_in_the_order_of_an_index() {
    let world = World::new();
    for account in [None, Some("acme")] {
        for key in [None, Some("k")] {
            let statement = generations::list(&GenerationQuery {
                account,
                state: None,
                site: None,
                pipeline: None,
                key,
                request_id: None,
                before: (Timestamp::from_millis(i64::MAX), "z"),
                limit: 51,
            });
            let plan = world.db.plan(&statement).join("\n");
            assert!(plan.contains("INDEX generations_by_"), "{plan}");
            assert!(!plan.contains("FOR ORDER BY"), "{plan}");
        }
    }
}
