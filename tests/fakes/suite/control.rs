//! Scripts, configuration, reset, and the state file.

use serde_json::{Value, json};

use super::client::{control, fakes, generate, script, send};
use crate::fakes;

#[tokio::test]
async fn scripted_faults_are_used_up_in_order_and_only_where_they_match() {
    let fakes = fakes().await;
    let entries = json!([
        {"for": "gemini", "match": "tokyo", "times": 2, "fault": 429},
        {"for": "gemini", "match": "tokyo", "fault": {"status": 503}},
    ]);
    control(&fakes, "POST", "/script", entries).await;
    let mut statuses = Vec::new();
    for prompt in ["tokyo", "kyoto", "tokyo", "tokyo", "tokyo"] {
        statuses.push(generate(&fakes, "generateContent", prompt).await.status);
    }
    assert_eq!(statuses, [429, 200, 429, 503, 200]);
}

#[tokio::test]
async fn a_script_for_ever_ends_when_it_is_cleared() {
    let fakes = fakes().await;
    control(
        &fakes,
        "POST",
        "/script",
        json!({"for": "slack", "times": -1, "fault": 500}),
    )
    .await;
    for _ in 0..3 {
        assert_eq!(
            send(&fakes, "POST", "/slack/x", &[], b"{\"text\":\"a\"}")
                .await
                .status,
            500
        );
    }
    control(&fakes, "DELETE", "/script", Value::Null).await;
    assert_eq!(
        send(&fakes, "POST", "/slack/x", &[], b"{\"text\":\"a\"}")
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_marker_works_always_or_once() {
    let fakes = fakes().await;
    let mut statuses = Vec::new();
    for prompt in [
        "a [[fault:503]]",
        "a [[fault:503]]",
        "b [[fault-once:503]]",
        "b [[fault-once:503]]",
    ] {
        statuses.push(generate(&fakes, "generateContent", prompt).await.status);
    }
    assert_eq!(statuses, [503, 503, 503, 200]);
}

#[tokio::test]
async fn a_fault_that_does_not_exist_is_refused_by_name() {
    let fakes = fakes().await;
    for entry in [
        json!({"for": "gemini", "fault": "reset-midd"}),
        json!({"for": "gemini", "fault": {"commit-then-999": true}}),
        json!({"for": "gemni", "fault": "hang"}),
        json!({"for": "gemini", "fault": "hang", "time": 3}),
    ] {
        let body = entry.to_string();
        let answer = send(&fakes, "POST", "/__fakes/script", &[], body.as_bytes()).await;
        assert_eq!(answer.status, 400, "{entry}");
    }
    let answer = generate(&fakes, "generateContent", "[[fault:nonsense]]").await;
    assert!(answer.status == 400 && answer.text().contains("unknown fault: nonsense"));
}

#[tokio::test]
async fn a_reset_forgets_everything() {
    let fakes = fakes().await;
    generate(&fakes, "generateContent", "hello").await;
    send(&fakes, "POST", "/webhook/blog", &[], b"x").await;
    script(&fakes, "gemini", json!(500)).await;
    control(&fakes, "POST", "/reset", Value::Null).await;
    assert_eq!(
        control(&fakes, "GET", "/ledger", Value::Null).await["total"],
        0
    );
    assert_eq!(
        control(&fakes, "GET", "/webhook/blog", Value::Null).await["count"],
        0
    );
    assert_eq!(
        generate(&fakes, "generateContent", "hello").await.status,
        200
    );
    assert_eq!(
        control(&fakes, "GET", "/health", Value::Null).await["ok"],
        true
    );
}

#[tokio::test]
async fn a_state_file_survives_a_stop_and_a_half_written_line() {
    let path = std::env::temp_dir().join(format!("fakes-{}.jsonl", std::process::id()));
    let _absent = std::fs::remove_file(&path);
    let first = fakes::start(0, Some(&path)).await.unwrap();
    generate(&first, "generateContent", "hello").await;
    send(&first, "POST", "/webhook/blog", &[], b"one").await;
    generate(&first, "generateContent", "[[fault:commit-then-reset]]").await;
    let before = control(&first, "GET", "/ledger", Value::Null).await;
    drop(first);
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("{\"kind\":\"ledger\",\"key\":\"0000");
    std::fs::write(&path, text).unwrap();

    let second = fakes::start(0, Some(&path)).await.unwrap();
    assert_eq!(
        control(&second, "GET", "/ledger", Value::Null).await,
        before
    );
    send(&second, "POST", "/webhook/blog", &[], b"two").await;
    generate(&second, "generateContent", "hello").await;
    drop(second);

    let third = fakes::start(0, Some(&path)).await.unwrap();
    assert_eq!(
        control(&third, "GET", "/webhook/blog", Value::Null).await["count"],
        2
    );
    let ledger = control(&third, "GET", "/ledger", Value::Null).await;
    assert_eq!(
        (&ledger["billed"], &ledger["duplicates"]),
        (&json!(3), &json!(1))
    );
    std::fs::remove_file(&path).unwrap();
}
