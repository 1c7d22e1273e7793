//! Usage, account, digest and health, as callers get them.

use std::rc::Rc;

use futures::executor::block_on;
use insta::assert_snapshot;
use serde_json::Value;

use crate::http::message::{Body, Request};
use crate::http::routes::handle;
use crate::outbox::budget::Budget;
use crate::testing::World;
use crate::time::Span;

const ADMIN: &str = "admin-secret-0123";

fn key(digit: char) -> String {
    format!("opk_{}", digit.to_string().repeat(48))
}

/// Two accounts with a key each, and their days.
fn world() -> World {
    let world = World::new(
        "2026-11-30T08:00:10Z",
        &[("CURRENCY", "JPY"), ("CURRENCY_PER_USD", "150.5")],
    );
    for (account, digit) in [("default", 'a'), ("acme", 'b')] {
        let hash = crate::app::sha256_hex(&key(digit));
        world.sql(&format!(
            "INSERT OR IGNORE INTO accounts VALUES ('{account}', 1000000, 'America/Los_Angeles', 0);
             INSERT INTO api_keys (id, hash, account, created_at)
               VALUES ('key_{digit}', '{hash}', '{account}', 0)"
        ));
    }
    world.sql(
        "INSERT INTO usage_days (account, day, site, pipeline, model, generations, prompt_tokens,
           cost_nano, replays, saved_nano) VALUES
           ('default', '2026-11-30', 'a', 'p', 'm', 2, 10, 1500, 1, 700),
           ('default', '2026-11-30', 'b', 'p', 'm', 3, 20, 1500, 0, 0),
           ('default', '2026-11-01', 'a', 'q', 'm', 4, 30, 2000, 0, 0),
           ('default', '2026-10-31', 'a', 'q', 'm', 5, 40, 9000, 0, 0),
           ('acme', '2026-11-29', 'c', 'p', 'm', 7, 70, 7000, 0, 0);
         INSERT INTO credit_days (account, day, reserved, spent)
         VALUES ('acme', '2026-11-30', 400000, 250000)",
    );
    world
}

fn get(world: &World, token: &str, path: &str) -> (u16, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let request = Request {
        method: "GET".to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: vec![("authorization".to_owned(), format!("Bearer {token}"))],
        body: Vec::new(),
    };
    let memory = Rc::default();
    let response = block_on(handle(&world.app, &memory, &request));
    world.afterwards();
    let Body::Bytes(body) = response.body else {
        panic!("a whole body");
    };
    (response.status, serde_json::from_slice(&body).unwrap())
}

fn body(world: &World, token: &str, path: &str) -> Value {
    let (status, body) = get(world, token, path);
    assert_eq!(status, 200, "{body}");
    body
}

#[test]
fn usage_is_summed_by_what_was_asked_for_and_rounded_up_once() {
    let world = world();
    let report = body(
        &world,
        &key('a'),
        "/api/v1/usage?from=2026-11-01&to=2026-11-30&group_by=site",
    );
    let of = |path: &str| report.pointer(path).unwrap().clone();
    assert_eq!(report["groupBy"], serde_json::json!(["site"]));
    assert_eq!(
        (of("/items/0/site"), of("/items/0/generations")),
        ("a".into(), 6.into())
    );
    assert_eq!(
        (of("/items/0/costMicroUsd"), of("/items/1/costMicroUsd")),
        (4.into(), 2.into())
    );
    assert_eq!(of("/totals/costMicroUsd"), 5);
    assert_eq!(
        (of("/totals/savedMicroUsd"), of("/totals/replays")),
        (1.into(), 1.into())
    );
    assert_eq!(
        report["currency"],
        serde_json::json!({"code": "JPY", "perUsd": "150.5"})
    );
    assert_eq!(of("/items").as_array().unwrap().len(), 2);
}

#[test]
fn without_groups_there_are_totals_alone() {
    let world = world();
    let report = body(
        &world,
        &key('a'),
        "/api/v1/usage?from=2026-10-31&to=2026-10-31",
    );
    assert_eq!(report["items"], serde_json::json!([]));
    assert_eq!(report["totals"]["generations"], 5);
    let nothing = body(
        &world,
        &key('a'),
        "/api/v1/usage?from=2020-01-01&to=2020-01-02&group_by=day",
    );
    assert_eq!(nothing["totals"]["generations"], 0);
}

#[test]
fn an_account_sees_its_own_and_the_administrator_all_or_one() {
    let world = world();
    let sum = |token: &str, query: &str| {
        let path = format!("/api/v1/usage?from=2026-11-29&to=2026-11-30{query}");
        body(&world, token, &path)["totals"]["generations"].clone()
    };
    assert_eq!(sum(&key('a'), ""), 5);
    assert_eq!(sum(&key('b'), ""), 7);
    assert_eq!(sum(ADMIN, ""), 12);
    assert_eq!(sum(ADMIN, "&account=acme"), 7);
    assert_eq!(get(&world, &key('a'), "/api/v1/usage?account=acme").0, 403);
    assert_eq!(get(&world, ADMIN, "/api/v1/usage?account=nobody").0, 404);
}

#[test]
fn todays_credits_are_those_of_the_accounts_own_day() {
    let world = world();
    // In Los Angeles it is midnight and ten seconds of the 30th.
    let account = body(&world, &key('b'), "/api/v1/account");
    assert_snapshot!(serde_json::to_string_pretty(&account).unwrap(), @r#"
    {
      "account": "acme",
      "dailyCredits": 1000000,
      "creditsUsed": 250000,
      "creditsReserved": 400000,
      "creditsLeft": 350000,
      "timezone": "America/Los_Angeles",
      "resetsAt": "2026-12-01T08:00:00.000Z",
      "limits": {
        "bodyMaxBytes": 1048576,
        "dropInBodyMaxBytes": 20971520,
        "destinationsMax": 20,
        "waitMaxSeconds": 25,
        "windowMinutesMax": 43200,
        "staleMinutes": 60
      }
    }
    "#);
    assert_eq!(get(&world, ADMIN, "/api/v1/account").0, 400);
    assert_eq!(
        body(&world, ADMIN, "/api/v1/account?account=default")["creditsLeft"],
        Value::Null
    );
    assert_eq!(get(&world, ADMIN, "/api/v1/account?account=nobody").0, 404);
}

#[test]
fn the_digest_is_the_services_for_the_administrator_and_an_accounts_own_for_its_key() {
    let world = world();
    assert_eq!(get(&world, ADMIN, "/api/v1/digest").0, 404);
    let budget = Budget::new(50, world.app.now().plus(Span::from_minutes(1)));
    block_on(crate::notify::send::tick(
        &world.app,
        &budget,
        world.app.now(),
    ));
    let all = body(&world, ADMIN, "/api/v1/digest");
    assert_eq!(
        (&all["date"], &all["figures"]["generated"]),
        (&"2026-11-30".into(), &7.into())
    );
    let own = body(&world, &key('a'), "/api/v1/digest");
    assert_eq!(
        (&own["date"], &own["figures"]["generated"]),
        (&"2026-11-30".into(), &0.into())
    );
    let acme = body(&world, &key('b'), "/api/v1/digest");
    assert_eq!(acme["figures"]["generated"], 7);
    assert_eq!(acme["figures"]["sites"][0]["site"], "c");
}

#[test]
fn health_says_what_the_dashboard_shows() {
    let world = world();
    world.sql(
        "INSERT INTO ticks (scheduled_at, token, started_at, finished_at)
           VALUES (1, 't', 1, 1000), (2, 'u', 2, NULL);
         INSERT INTO counters VALUES ('2026-11-29', 'kv_read', 3000), ('2026-11-29', 'kv_write_error', 3)",
    );
    let health = body(&world, ADMIN, "/admin/health");
    assert_eq!(health["kvErrorRate"]["week"], 0.001);
    assert_eq!(health["lastTickAt"], "1970-01-01T00:00:01.000Z");
    assert_eq!(health["staleMinutes"], 60);
    assert_eq!(health["figures"]["queued"], 0);
}

#[test]
fn reports_take_get_alone() {
    let world = world();
    for path in ["usage", "account", "digest"] {
        let request = Request {
            method: "POST".to_owned(),
            path: format!("/api/v1/{path}"),
            headers: vec![("authorization".to_owned(), format!("Bearer {ADMIN}"))],
            ..Request::default()
        };
        let response = block_on(handle(&world.app, &Rc::default(), &request));
        assert_eq!(response.status, 405);
    }
}
