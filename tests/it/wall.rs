//! The wall between accounts.

use serde_json::{Value, json};

use crate::calm;
use crate::util::{Call, HookAct, Setup};

#[test]
fn accounts_with_the_same_keys_sites_and_contents_never_meet() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    // The ledger tells them apart by what they bought, so each buys under its own topic.
    for key in [None, Some("order-1")] {
        let mut ids = Vec::new();
        let mut bodies = Vec::new();
        for account in ["default", "other"] {
            let mut call = Call::of("the same words").by(account);
            if let Some(key) = key {
                call = call.key(key);
            }
            world.allowed.borrow_mut().push("the same words".to_owned());
            let answer = world.ask(&isolate, &call);
            assert_eq!(answer.status, 201, "{account} {key:?}: {}", answer.body);
            assert_eq!(world.ask(&isolate, &call).body, answer.body);
            ids.push(answer.id());
            bodies.push(answer.body);
        }
        assert_ne!(ids[0], ids[1]);
        assert_ne!(bodies[0], bodies[1]);
    }
    assert_eq!(world.gemini.billed(), 4);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn nothing_of_another_account_can_be_seen_or_touched() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.hooks.then(&[HookAct::Refuse(400)]);
    let own = world.ask(&isolate, &Call::of("article 1").to(&[("hook", "in")]));
    world.pass_minutes(2);
    let delivery = world.db.texts("SELECT id FROM deliveries")[0].clone();
    let before = world
        .db
        .dump(&[("generations", "id"), ("deliveries", "id")]);
    let id = own.id();
    let reason = json!({"action": "abandon", "reason": "not mine"});
    let tries: [(&str, String, Value); 4] = [
        ("GET", format!("/api/v1/generations/{id}"), Value::Null),
        ("POST", format!("/api/v1/generations/{id}/resolve"), reason),
        (
            "POST",
            format!("/api/v1/outbox/{delivery}/requeue"),
            Value::Null,
        ),
        (
            "POST",
            format!("/api/v1/outbox/{delivery}/cancel"),
            Value::Null,
        ),
    ];
    for (method, path, body) in tries {
        let answer = world.api_with(&isolate, "other", method, &path, &body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (404, "not_found"),
            "{path}"
        );
        assert!(!answer.body.contains(&id), "{}", answer.body);
    }
    let lists = [
        "/api/v1/generations".to_owned(),
        format!(
            "/api/v1/generations?requestId={}",
            own.header("x-request-id").unwrap()
        ),
        "/api/v1/outbox".to_owned(),
    ];
    for path in lists {
        let answer = world.api(&isolate, "other", "GET", &path);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json()["items"], json!([]), "{path}");
        let named = format!(
            "{path}{}account=default",
            if path.contains('?') { '&' } else { '?' }
        );
        assert_eq!(world.api(&isolate, "other", "GET", &named).status, 403);
    }
    let foreign = Call::of("article 2").by("other").to(&[("once", "in")]);
    let refused = world.ask(&isolate, &foreign);
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "forbidden")
    );
    assert_eq!(
        world
            .db
            .dump(&[("generations", "id"), ("deliveries", "id")]),
        before
    );
    for path in ["/admin/accounts", "/admin/health"] {
        assert_eq!(world.api(&isolate, "other", "GET", path).status, 403);
    }
}
