use futures::executor::block_on;

use super::*;
use crate::testing::World;

const AT: &str = "2026-11-30T08:00:00Z";

fn world() -> World {
    World::new(AT, &[])
}

/// A running generation that owes one delivery to `target`.
fn running(world: &World, id: &str, account: &str, target: &str) {
    let now = world.app.now().millis();
    world.sql(&format!(
        "INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, operation,
           fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, request_id, model,
           upstream, created_at, updated_at, credit_day)
         VALUES ('{id}', '{account}', 's', 'p', 'api', 'k', 'k{id}', 0, 'f', '[]', 'running', 't', 0,
           0, 0, 'req', 'm', 'u', {now}, {now}, '2026-11-30');
         INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target,
           status, next_attempt_at, created_at, due_since)
         VALUES ('d{id}', '{id}', '{account}', 's', 'p', 'wp', '{target}', 'waiting', 0, {now}, {now})"
    ));
}

/// Commits it, twice as after a lost reply, and says why it is held.
fn committed(world: &World, id: &str, holds: bool) -> Option<String> {
    let results = block_on(world.app.run(load(id))).unwrap();
    let (generation, _) = read_load(&results, 0).unwrap().unwrap();
    let job = Job::of(&generation);
    let purchase = Purchase {
        output_id: format!("out_{id}"),
        held: None,
        detail: None,
        holds_near_duplicates: holds,
        parts: vec!["text".to_owned()],
        in_r2: false,
        content_type: "text/plain".to_owned(),
        headers: "[]".to_owned(),
        model_version: None,
        finish_reason: Some("STOP".to_owned()),
        tokens: Tokens::default(),
        cost_nano: 5_000_000,
        credits: 5_000,
        completed_at: world.app.now(),
    };
    let mut held = None;
    for _ in 0..2 {
        let results = block_on(world.app.run(commit(&job, &purchase))).unwrap();
        assert_eq!(read_commit(&results, &purchase.output_id), Ok(Settled::Yes));
        held = read_held(&results).unwrap();
    }
    held
}

fn status(world: &World, id: &str) -> String {
    world.one(&format!("SELECT status FROM deliveries WHERE id = 'd{id}'"))
}

#[test]
fn the_second_generation_for_a_target_within_a_day_is_held_and_told() {
    let world = world();
    running(&world, "g1", "default", "post");
    running(&world, "g2", "default", "post");
    assert_eq!(committed(&world, "g1", true), None);
    assert_eq!(
        committed(&world, "g2", true),
        Some("near_duplicate".to_owned())
    );
    assert_eq!(
        (status(&world, "g1"), status(&world, "g2")),
        ("pending".into(), "waiting".into())
    );
    assert_eq!(
        world.one("SELECT kind || count || detail FROM alerts"),
        "held1near_duplicate"
    );
    assert_eq!(
        world.one("SELECT COUNT(*) FROM generations WHERE purge_at IS NOT NULL"),
        "0"
    );
}

#[test]
fn another_target_another_account_another_day_and_a_pipeline_without_the_rule_go_out() {
    let world = world();
    running(&world, "g1", "default", "post");
    committed(&world, "g1", true);
    running(&world, "g2", "default", "other");
    running(&world, "g3", "acme", "post");
    running(&world, "g4", "default", "post");
    assert_eq!(committed(&world, "g2", true), None);
    assert_eq!(committed(&world, "g3", true), None);
    assert_eq!(committed(&world, "g4", false), None);
    world.pass(crate::time::Span::from_millis(86_400_001));
    running(&world, "g5", "default", "post");
    assert_eq!(committed(&world, "g5", true), None);
}

#[test]
fn a_cancelled_forerunner_holds_nobody() {
    let world = world();
    running(&world, "g1", "default", "post");
    committed(&world, "g1", true);
    world.sql("UPDATE deliveries SET status = 'cancelled', final_at = 0");
    running(&world, "g2", "default", "post");
    assert_eq!(committed(&world, "g2", true), None);
}

#[test]
fn the_look_for_a_forerunner_goes_through_its_index() {
    let world = world();
    let plan = world.plan(&statement(HOLD_NEAR, vec![text("g"), text("o"), text("r")]));
    assert!(
        plan.contains("deliveries_by_target (publisher=? AND target=? AND created_at>?"),
        "{plan}"
    );
    assert!(!plan.contains("SCAN"), "{plan}");
}

fn reserve(world: &World, id: &str, credits: i64) {
    running(world, id, "default", id);
    let now = world.app.now().millis();
    world.sql(&format!(
        "UPDATE generations SET credits_reserved = {credits}, updated_at = {now} WHERE id = '{id}'"
    ));
}

#[test]
fn credits_over_four_fifths_are_told_once_an_account_and_day() {
    let world = world();
    world.sql("UPDATE accounts SET daily_credits = 100000");
    reserve(&world, "g1", 79_999);
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "0");
    reserve(&world, "g2", 1);
    assert_eq!(
        world.one("SELECT detail FROM alerts"),
        r#"{"day":"2026-11-30","spent":0,"reserved":80000,"limit":100000}"#
    );
    reserve(&world, "g3", 10_000);
    world.sql("UPDATE generations SET credits_reserved = 0");
    reserve(&world, "g4", 90_000);
    assert_eq!(world.one("SELECT COUNT(*) || SUM(count) FROM alerts"), "11");
    world.sql(
        "INSERT INTO generations SELECT 'g9', account, site, pipeline, topic, surface, key, 'k9',
           operation, fingerprint, leaves, state, reason, detail, token, lease_until, anchor_at,
           expires_at, request_id, model, model_version, json_mode, continues, from_queue, upstream,
           created_at + 86400000, completed_at, updated_at + 86400000, '2026-12-01', 95000, 0, 0,
           output_id, output_where, output_parts, output_type, output_headers, finish_reason,
           prompt_tokens, cached_tokens, output_tokens, thought_tokens, total_tokens, cost_nano,
           evidence_of, owed, purge_at FROM generations WHERE id = 'g1'",
    );
    assert_eq!(
        world.one("SELECT COUNT(*) FROM alerts"),
        "2",
        "the next day"
    );
}

#[test]
fn an_account_without_a_limit_is_never_warned() {
    let world = world();
    reserve(&world, "g1", 9_000_000_000);
    assert_eq!(world.one("SELECT COUNT(*) FROM alerts"), "0");
}

#[test]
fn a_transition_that_is_written_late_makes_no_alert_older() {
    let world = world();
    let now = world.app.now();
    let late = now.minus(crate::time::Span::from_minutes(17));
    for (id, at) in [("g1", now), ("g2", late)] {
        running(&world, id, "default", id);
        let results = block_on(world.app.run(load(id))).unwrap();
        let (generation, _) = read_load(&results, 0).unwrap().unwrap();
        let batch = unknown(&Job::of(&generation), "cut", "nobody knows", at);
        block_on(world.app.run(batch)).unwrap();
    }
    assert_eq!(
        world.one("SELECT kind || ' ' || count || ' ' || newest_at FROM alerts"),
        format!("unknown 2 {}", now.millis())
    );
}
