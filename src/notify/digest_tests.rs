use futures::executor::block_on;
use insta::assert_snapshot;

use super::*;
use crate::notify::send;
use crate::outbox::budget::Budget;
use crate::testing::World;

const SLACK: (&str, &str) = (
    "SLACK_WEBHOOK_URL",
    "https://hooks.slack.com/services/T/B/x",
);

fn tick(world: &World) {
    let budget = Budget::new(
        send::SUBREQUESTS,
        world.app.now().plus(Span::from_seconds(50)),
    );
    block_on(send::tick(&world.app, &budget, world.app.now()));
}

fn days(world: &World) -> String {
    world.one("SELECT COALESCE(group_concat(day), '') FROM (SELECT day FROM digests ORDER BY day)")
}

fn berlin(at: &str, time: &str) -> World {
    World::new(
        at,
        &[
            SLACK,
            ("DIGEST_TIME", time),
            ("DIGEST_TIMEZONE", "Europe/Berlin"),
        ],
    )
}

/// Rows of every kind, in two accounts.
fn furnish(world: &World) {
    world.sql(
        "INSERT INTO accounts VALUES ('acme', NULL, 'America/Los_Angeles', 0);
         INSERT INTO usage_days (account, day, site, pipeline, model, generations, cost_nano,
           published, replays, saved_nano) VALUES
           ('default', '2026-11-29', 'kominka-journal', 'daily', 'm', 30, 5080000000, 29, 6, 1390000000),
           ('default', '2026-11-29', 'trailnotes', 'daily', 'm', 11, 1150400000, 9, 0, 0),
           ('default', '2026-11-30', 'trailnotes', 'daily', 'm', 99, 9000000000, 9, 0, 0),
           ('acme', '2026-11-29', 'harbor', 'x', 'm', 2, 40000000, 2, 0, 0),
           ('acme', '2026-11-28', 'harbor', 'x', 'm', 7, 70000000, 7, 0, 0);
         INSERT INTO counters VALUES ('2026-11-25', 'kv_read', 9000), ('2026-11-25', 'kv_read_error', 3);",
    );
    let deliveries = [
        ("d1", "g1", "default", "pending", "2026-11-30T06:23:00Z"),
        ("d2", "g1", "default", "dead", "2026-11-30T06:00:00Z"),
        ("d3", "g2", "default", "dead", "2026-11-30T06:00:00Z"),
        ("d4", "g3", "acme", "pending", "2026-11-30T07:59:00Z"),
        ("d5", "g4", "acme", "published", "2026-11-30T01:00:00Z"),
    ];
    for (id, generation, account, status, at) in deliveries {
        let at = Timestamp::parse_rfc3339(at).unwrap().millis();
        world.sql(&format!(
            "INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target,
               status, next_attempt_at, created_at, due_since)
             VALUES ('{id}', '{generation}', '{account}', 's', 'p', 'r', 't', '{status}', 0, {at}, {at})"
        ));
    }
    let generations = [
        ("g1", "default", "generated", 200_000_000, 0),
        ("g2", "default", "generated", 100_000_500, 0),
        ("g3", "acme", "generated", 50_000_000, 0),
        ("g4", "acme", "generated", 70_000_000, 0),
        ("g5", "default", "held", 30_000_000, 0),
        ("g6", "acme", "unknown", 0, 150_000),
        ("g7", "default", "queued", 0, 10),
    ];
    for (id, account, state, cost, reserved) in generations {
        world.sql(&format!(
            "INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, operation,
               fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, request_id,
               model, upstream, created_at, updated_at, credit_day, credits_reserved, cost_nano)
             VALUES ('{id}', '{account}', 's', 'p', 'api', 'k', 'k{id}', 0, 'f', '[]', '{state}', 't',
               0, 0, 0, 'req', 'm', 'u', 0, 0, '2026-11-30', {reserved}, {cost})"
        ));
    }
}

#[test]
fn the_morning_says_what_was_spent_what_was_saved_and_what_is_stuck() {
    let world = World::new("2026-11-30T08:00:10Z", &[SLACK]);
    furnish(&world);
    tick(&world);
    assert_snapshot!(world.one("SELECT body FROM digests"), @r"
    2026-11-29: generated 43, published 40, spent $6.27
    Duplicates caught: 6, saved $1.39
    Owed: 2, over 60 min: 1, the oldest for 97 min
    Dead 2, outcome unknown 0, held 1, unknown 1
    Money at risk: $0.53
    In the queue: 1
    KV errors in 7 days: 0.033 %
    Spend by site
      default/kominka-journal  $5.08 (30)
      default/trailnotes       $1.15 (11)
      acme/harbor              $0.04 (2)
    ");
}

#[test]
fn an_accounts_digest_has_its_own_figures_only() {
    let world = World::new("2026-11-30T08:00:10Z", &[SLACK]);
    furnish(&world);
    let figures = block_on(of_account(
        &world.app,
        "acme",
        "2026-11-30",
        world.app.now(),
    ))
    .unwrap();
    assert_snapshot!(text(&figures, world.app.config()), @r"
    2026-11-29: generated 2, published 2, spent $0.04
    Duplicates caught: 0, saved $0.00
    Owed: 1, over 60 min: 0, the oldest for 1 min
    Dead 0, outcome unknown 0, held 0, unknown 1
    Money at risk: $0.20
    KV errors in 7 days: 0.033 %
    Spend by site
      harbor  $0.04 (2)
    ");
    let json = figures.to_json().to_string();
    assert!(!json.contains("kominka"), "{json}");
}

#[test]
fn an_empty_day_is_told_as_one() {
    let world = World::new("2026-11-30T08:00:10Z", &[SLACK]);
    tick(&world);
    assert_snapshot!(world.one("SELECT body FROM digests"), @r"
    2026-11-29: generated 0, published 0, spent $0.00
    Duplicates caught: 0, saved $0.00
    Owed: 0, over 60 min: 0
    Dead 0, outcome unknown 0, held 0, unknown 0
    Money at risk: $0.00
    In the queue: 0
    KV errors in 7 days: nothing was asked
    ");
}

#[test]
fn a_digest_is_made_at_its_time_once_and_sent_with_the_next_tick() {
    let world = World::new("2026-11-30T07:59:59Z", &[SLACK]);
    tick(&world);
    assert_eq!(days(&world), "");
    world.set("2026-11-30T08:00:00Z");
    tick(&world);
    tick(&world);
    world.set("2026-11-30T23:59:00Z");
    tick(&world);
    assert_eq!(days(&world), "2026-11-30");
    assert_eq!(world.web.sent.borrow().len(), 1);
    assert_eq!(
        world.web.sent.borrow()[0]["text"],
        "Oncepress, development: 2026-11-30"
    );
}

#[test]
fn two_ticks_that_make_it_at_once_make_one() {
    let world = World::new("2026-11-30T08:00:00Z", &[SLACK]);
    block_on(make(&world.app, "2026-11-30", world.app.now())).unwrap();
    block_on(make(&world.app, "2026-11-30", world.app.now())).unwrap();
    tick(&world);
    tick(&world);
    assert_eq!(world.web.sent.borrow().len(), 1);
}

#[test]
fn a_late_cron_makes_todays_and_not_those_it_missed() {
    let world = World::new("2026-11-27T08:00:00Z", &[SLACK]);
    tick(&world);
    world.set("2026-11-30T19:00:00Z");
    tick(&world);
    assert_eq!(days(&world), "2026-11-27,2026-11-30");
}

#[test]
fn a_time_that_spring_skips_is_due_when_the_clocks_have_moved() {
    // Berlin goes from 02:00 to 03:00 at 01:00 UTC.
    let world = berlin("2026-03-29T00:59:00Z", "02:30");
    tick(&world);
    assert_eq!(days(&world), "");
    world.set("2026-03-29T01:00:00Z");
    tick(&world);
    assert_eq!(days(&world), "2026-03-29");
}

#[test]
fn a_time_that_comes_twice_in_autumn_makes_one_digest() {
    // Berlin shows 02:30 at 00:30 UTC and again at 01:30 UTC.
    let world = berlin("2026-10-25T00:29:00Z", "02:30");
    for at in [
        "00:29", "00:30", "00:59", "01:00", "01:29", "01:30", "02:30",
    ] {
        world.set(&format!("2026-10-25T{at}:00Z"));
        tick(&world);
        let made = if at == "00:29" { "" } else { "2026-10-25" };
        assert_eq!(days(&world), made, "{at}");
    }
    assert_eq!(world.web.sent.borrow().len(), 1);
}

#[test]
fn eight_in_the_morning_stays_eight_in_summer_and_winter() {
    for (before, at) in [
        ("2026-07-01T05:59:00Z", "2026-07-01T06:00:00Z"),
        ("2026-12-01T06:59:00Z", "2026-12-01T07:00:00Z"),
    ] {
        let world = berlin(before, "08:00");
        tick(&world);
        assert_eq!(days(&world), "");
        world.set(at);
        tick(&world);
        assert_ne!(days(&world), "");
    }
}

#[test]
fn a_digest_that_slack_does_not_take_is_sent_again() {
    let world = World::new("2026-11-30T08:00:00Z", &[SLACK]);
    world.web.next.borrow_mut().push_back(Ok((503, "", None)));
    for _ in 0..6 {
        tick(&world);
        world.pass(Span::from_minutes(1));
    }
    assert_eq!(world.web.sent.borrow().len(), 2);
    assert_ne!(world.one("SELECT COALESCE(sent_at, 0) FROM digests"), "0");
}

#[test]
fn no_figure_reads_what_is_published() {
    let world = World::new("2026-11-30T08:00:00Z", &[]);
    let now = world.app.now();
    let mut statements = vec![
        figures::backlog(None, now, 10),
        figures::backlog(Some("default"), now, 10),
        figures::key_value("2026-11-23"),
        digests::latest_day(),
        digests::lease(now),
    ];
    for account in [None, Some("default")] {
        statements.extend(figures::at_risk(account, 10));
        let range = ("2026-11-01", "2026-11-30");
        let grouping = crate::store::usage::Grouping::default();
        statements.extend(crate::store::usage::report(account, range, grouping, 10));
    }
    statements.extend(figures::days("{}", 10));
    statements.extend(figures::day_of("default", "2026-11-29", 10));
    statements.push(crate::store::alerts::lease("t", 5, now));
    statements.extend(crate::store::maintenance::alert_stale(now, now, 5));
    statements.push(crate::store::maintenance::unsettled(
        &crate::store::maintenance::Overdue {
            now,
            young: (now, now),
            decided: Some(now),
            limit: 5,
        },
    ));
    for statement in &statements {
        let plan = world.plan(statement);
        for table in [
            "deliveries",
            "generations",
            "usage_days",
            "counters",
            "alerts",
            "digests",
        ] {
            let whole = plan
                .lines()
                .any(|line| line.trim() == format!("SCAN {table}"));
            assert!(!whole, "{}\n{plan}", statement.sql);
        }
    }
}
