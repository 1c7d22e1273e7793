use futures::executor::block_on;

use super::*;
use crate::idempotency::record::Stored;
use crate::metrics::Cause;
use crate::ports::HttpError;
use crate::testing::World;

const AT: &str = "2026-11-30T03:00:30Z";
const SLACK: (&str, &str) = (
    "SLACK_WEBHOOK_URL",
    "https://hooks.slack.com/services/T/B/x",
);

fn world() -> World {
    World::new(AT, &[SLACK])
}

fn stored(site: &str, topic: &str, created_at: Timestamp) -> Stored {
    Stored {
        generation_id: "gen_1".to_owned(),
        request_id: "req_1".to_owned(),
        account: "default".to_owned(),
        site: site.to_owned(),
        pipeline: "daily".to_owned(),
        topic: Some(topic.to_owned()),
        model: "gemini-3.8-flash".to_owned(),
        claim_key: "d:k".to_owned(),
        fingerprint: "f".to_owned(),
        created_at,
        anchor_at: created_at,
        expires_at: created_at.plus(Span::from_hours(1)),
        destinations: Vec::new(),
        cost_nano: 231_000_000,
        content_type: "application/json".to_owned(),
        headers: Vec::new(),
        object: None,
        body: String::new(),
    }
}

/// A duplicate of `site` that is counted and flushed at once.
fn duplicate(world: &World, site: &str, topic: &str) {
    let original = world.app.now().minus(Span::from_minutes(18));
    world
        .app
        .count_replay(&stored(site, topic, original), "UTC", Cause::Repeat);
    block_on(world.app.flush_now());
}

fn dead(world: &World, pipeline: &str) {
    let event = alerts::Event {
        kind: "dead",
        account: "default",
        site: "s",
        pipeline,
        count: 1,
        topic: None,
        detail: None,
        original_at: None,
    };
    let added = alerts::add(&event, world.app.now());
    block_on(world.app.run(vec![added])).unwrap();
}

fn told(world: &World) -> Notified {
    let budget = Budget::new(SUBREQUESTS, world.app.now().plus(Span::from_seconds(50)));
    block_on(tick(&world.app, &budget, world.app.now()))
}

/// Ticks each minute for so long.
fn minutes(world: &World, count: u32) {
    for _ in 0..count {
        world.pass(Span::from_minutes(1));
        told(world);
    }
}

fn titles(world: &World) -> Vec<String> {
    let sent = world.web.sent.borrow();
    let title = |payload: &Value| payload["text"].as_str().unwrap().to_owned();
    let mut titles: Vec<String> = sent.iter().map(title).collect();
    titles.sort();
    titles
}

#[test]
fn twenty_eight_duplicates_in_three_pipelines_are_three_messages_with_their_counts() {
    let world = world();
    for (site, count) in [("a", 11), ("b", 9), ("c", 8)] {
        for at in 0..count {
            duplicate(&world, site, &format!("topic {at}"));
            world.pass(Span::from_seconds(9));
        }
    }
    minutes(&world, 6);
    assert_eq!(
        titles(&world),
        [
            "11 duplicates caught (default/a/daily)",
            "8 duplicates caught (default/c/daily)",
            "9 duplicates caught (default/b/daily)",
        ]
    );
    let sent = world.web.sent.borrow();
    let fields = sent[0]["blocks"][1]["fields"].to_string();
    assert!(
        fields.contains("topic 10") && fields.contains("18 min 0 s"),
        "{fields}"
    );
}

#[test]
fn what_comes_after_five_minutes_is_the_next_message_even_if_no_tick_came_between() {
    let world = world();
    duplicate(&world, "a", "first");
    world.pass(Span::from_minutes(5));
    duplicate(&world, "a", "second");
    duplicate(&world, "a", "third");
    told(&world);
    assert_eq!(titles(&world), ["1 duplicate caught (default/a/daily)"]);
    minutes(&world, 5);
    assert_eq!(titles(&world).len(), 2);
    assert!(titles(&world)[1].starts_with("2 duplicates"));
}

#[test]
fn nothing_is_said_before_a_bundle_closes_and_nothing_twice() {
    let world = world();
    dead(&world, "p");
    minutes(&world, 4);
    assert_eq!(titles(&world), Vec::<String>::new());
    minutes(&world, 10);
    assert_eq!(titles(&world).len(), 1);
}

#[test]
fn what_was_opened_under_a_clock_hours_ahead_is_told_once_the_clock_is_right() {
    let world = world();
    let hours = Span::from_hours(8);
    world.pass(hours);
    dead(&world, "p");
    world.pass(Span::from_millis(-hours.millis()));
    dead(&world, "q");
    told(&world);
    assert_eq!(titles(&world), ["1 delivery is not tried again (default/s/p)"]);
    told(&world);
    assert_eq!(titles(&world).len(), 1, "once; what is opened now gathers");
    minutes(&world, 6);
    assert_eq!(titles(&world).len(), 2);
}

#[test]
fn slack_down_for_an_hour_loses_nothing_and_is_asked_rarely() {
    let world = world();
    for pipeline in ["p", "q", "r", "s", "t", "u"] {
        dead(&world, pipeline);
    }
    let down = std::iter::repeat_n(Ok((500, "rollup_error", None)), 1_000);
    world.web.next.borrow_mut().extend(down);
    minutes(&world, 60);
    let tries = world.web.sent.borrow().len();
    assert!((3..=12).contains(&tries), "{tries} tries");
    assert_eq!(
        world.one("SELECT COUNT(*) FROM alerts WHERE state = 'sent'"),
        "0"
    );
    world.web.next.borrow_mut().clear();
    world.web.sent.borrow_mut().clear();
    minutes(&world, 20);
    assert_eq!(titles(&world).len(), 6);
    assert_eq!(
        world.one("SELECT COUNT(*) FROM alerts WHERE state = 'sent'"),
        "6"
    );
}

#[test]
fn slacks_retry_after_is_honoured_for_every_message() {
    let world = world();
    dead(&world, "p");
    dead(&world, "q");
    world
        .web
        .next
        .borrow_mut()
        .push_back(Ok((429, "", Some("600"))));
    minutes(&world, 6);
    assert_eq!(world.web.sent.borrow().len(), 1);
    minutes(&world, 7);
    assert_eq!(world.web.sent.borrow().len(), 1, "still asked to wait");
    minutes(&world, 3);
    assert_eq!(world.web.sent.borrow().len(), 3);
}

#[test]
fn a_message_that_is_refused_does_not_keep_the_others() {
    let world = world();
    dead(&world, "p");
    dead(&world, "q");
    world
        .web
        .next
        .borrow_mut()
        .push_back(Ok((400, "invalid_blocks", None)));
    minutes(&world, 5);
    assert_eq!(world.web.sent.borrow().len(), 2);
    assert_eq!(
        world.one("SELECT COUNT(*) FROM alerts WHERE state = 'sent'"),
        "1"
    );
}

#[test]
fn a_200_that_says_no_service_and_a_lost_connection_are_tried_again() {
    let world = world();
    dead(&world, "p");
    let faults = [
        Ok((200, "no_service", None)),
        Err(HttpError::Lost("cut".to_owned())),
        Err(HttpError::TimedOut),
    ];
    world.web.next.borrow_mut().extend(faults);
    minutes(&world, 30);
    assert_eq!(world.web.sent.borrow().len(), 4);
    assert_eq!(world.one("SELECT state FROM alerts"), "sent");
}

#[test]
fn without_a_channel_alerts_are_logged_and_kept_for_the_dashboard() {
    let world = World::new(AT, &[]);
    dead(&world, "p");
    minutes(&world, 6);
    assert_eq!(world.web.sent.borrow().len(), 0);
    assert_eq!(world.one("SELECT state FROM alerts"), "sent");
    let lines = world.host.lines.borrow();
    assert!(
        lines
            .iter()
            .any(|line| line.contains(r#""event":"alert","kind":"dead""#))
    );
}

#[test]
fn a_tick_keeps_inside_its_share_of_subrequests() {
    let world = world();
    for at in 0..20 {
        dead(&world, &format!("p{at}"));
    }
    world.set("2026-11-30T04:00:00Z");
    let budget = Budget::new(100, world.app.now().plus(Span::from_seconds(50)));
    block_on(tick(&world.app, &budget, world.app.now()));
    assert!(100 - budget.left() <= SUBREQUESTS, "{} left", budget.left());
    assert_eq!(world.web.sent.borrow().len(), SENT_MAX);
}

#[test]
fn kv_errors_of_a_week_are_told_once_a_week_and_only_of_a_fair_sample() {
    let world = world();
    world.sql(
        "INSERT INTO counters VALUES ('2026-11-29', 'kv_read', 900), \
        ('2026-11-29', 'kv_read_error', 90), ('2026-11-20', 'kv_write', 100000)",
    );
    let hour = |world: &World, at: &str| {
        world.set(at);
        told(world);
    };
    hour(&world, "2026-11-30T04:00:00Z");
    assert_eq!(
        world.one("SELECT COUNT(*) FROM alerts"),
        "0",
        "a small sample"
    );
    world.sql("INSERT INTO counters VALUES ('2026-11-30', 'kv_write', 100)");
    hour(&world, "2026-11-30T05:00:00Z");
    hour(&world, "2026-11-30T06:00:00Z");
    minutes(&world, 6);
    hour(&world, "2026-11-30T07:00:00Z");
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "1");
    assert_eq!(
        world.one("SELECT detail FROM alerts"),
        r#"{"operations":1000,"errors":90}"#
    );
    world.sql(
        "DELETE FROM counters; INSERT INTO counters VALUES ('2026-12-06', 'kv_read', 1000), \
        ('2026-12-06', 'kv_read_error', 2)",
    );
    hour(&world, "2026-12-07T04:00:00Z");
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "1");
    hour(&world, "2026-12-07T06:00:00Z");
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "2");
}

#[test]
fn a_share_of_exactly_one_in_a_thousand_is_no_alert() {
    let world = world();
    world.sql(
        "INSERT INTO counters VALUES ('2026-11-29', 'kv_read', 5000), \
        ('2026-11-29', 'kv_read_error', 5)",
    );
    world.set("2026-11-30T04:00:00Z");
    told(&world);
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "0");
}

#[test]
fn the_backlog_gauge_is_written_each_tick() {
    let world = world();
    told(&world);
    let points = world.host.points.borrow();
    assert_eq!(points[0].0, ["backlog"]);
}

#[test]
fn a_flush_whose_reply_was_lost_counts_once() {
    let world = world();
    world.db.1.set(5);
    duplicate(&world, "a", "t");
    // Every try was applied and its reply lost; the batch is kept and sent again.
    duplicate(&world, "a", "t");
    assert_eq!(world.one("SELECT SUM(replays) FROM usage_days"), "2");
    assert_eq!(
        world.one("SELECT SUM(saved_nano) FROM usage_days"),
        "462000000"
    );
    assert_eq!(world.one("SELECT SUM(count) FROM alerts"), "2");
    assert_eq!(world.one("SELECT COUNT(*) FROM flushes"), "2");
}

#[test]
fn a_replay_counts_for_the_day_of_its_account() {
    let world = World::new("2026-11-30T15:30:00Z", &[]);
    let original = stored("a", "t", world.app.now());
    world
        .app
        .count_replay(&original, "Asia/Tokyo", Cause::Overlap);
    world
        .app
        .count_replay(&original, "America/Los_Angeles", Cause::Overlap);
    block_on(world.app.flush_now());
    assert_eq!(
        world.one("SELECT group_concat(day) FROM (SELECT day FROM usage_days ORDER BY day)"),
        "2026-11-30,2026-12-01"
    );
}

#[test]
fn every_call_of_kv_and_every_fault_is_counted() {
    let world = World::new(AT, &[]);
    let app = &world.app;
    block_on(async {
        app.kv_put("k", "v".to_owned(), None).await.unwrap();
        app.kv_get("k").await.unwrap();
        app.kv_list("k").await.unwrap();
        app.kv_delete("k").await.unwrap();
        world.kv.broken.set(true);
        app.kv_get("k").await.unwrap_err();
        app.kv_put("k", "v".to_owned(), None).await.unwrap_err();
        app.flush_now().await;
    });
    let count =
        |name: &str| world.one(&format!("SELECT count FROM counters WHERE name = '{name}'"));
    assert_eq!([count("kv_read"), count("kv_write")], ["3", "3"]);
    assert_eq!(
        [count("kv_read_error"), count("kv_write_error")],
        ["1", "1"]
    );
}

#[test]
fn what_is_owed_for_too_long_is_told_once_with_its_newest_topic() {
    let world = world();
    let now = world.app.now().millis();
    for (at, pipeline, topic) in [(1, "p", "older"), (2, "p", "newer"), (3, "q", "other")] {
        world.sql(&format!(
            "INSERT INTO generations (id, account, site, pipeline, topic, surface, key, claim_key,
               operation, fingerprint, leaves, state, token, lease_until, anchor_at, expires_at,
               request_id, model, upstream, created_at, updated_at, credit_day)
             VALUES ('g{at}', 'default', 's', '{pipeline}', '{topic}', 'api', 'k', 'k{at}', 0, 'f',
               '[]', 'generated', 't', 0, 0, 0, 'req', 'm', 'u', 0, 0, '2026-11-30');
             INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target,
               status, next_attempt_at, created_at, due_since)
             VALUES ('d{at}', 'g{at}', 'default', 's', '{pipeline}', 'r', 't', 'pending', 0, 0,
               {now} - 3600000 + {at})"
        ));
    }
    let look = |world: &World| {
        let (now, hour) = (world.app.now(), Span::from_hours(1));
        let batch = crate::store::maintenance::alert_stale(now.minus(hour), now, 500);
        block_on(world.app.run(batch)).unwrap();
    };
    look(&world);
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "0");
    world.pass(Span::from_seconds(1));
    look(&world);
    look(&world);
    let told = "SELECT group_concat(pipeline || count || topic) FROM alerts";
    assert_eq!(world.one(told), "p2newer,q1other");
}
