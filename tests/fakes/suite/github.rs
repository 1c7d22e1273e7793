//! GitHub: real object names, the order of its refusals, and heads that move.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::{Answer, control, fakes, script, send};
use crate::fakes::Fakes;

async fn github(fakes: &Fakes, method: &str, path: &str, body: Value) -> Answer {
    let headers = [
        ("authorization", "Bearer t"),
        ("user-agent", "suite"),
        ("accept", "application/json"),
    ];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send(
        fakes,
        method,
        &format!("/github/repos/o/r/{path}"),
        &headers,
        body.as_bytes(),
    )
    .await
}

fn file(text: &str) -> Value {
    json!({"message": "Add\n\nIdempotency-Key: dlv_1", "content": STANDARD.encode(text)})
}

#[tokio::test]
async fn a_file_is_created_once_and_its_blob_has_gits_name() {
    let fakes = fakes().await;
    let made = github(&fakes, "PUT", "contents/a/b.md", file("hello\n")).await;
    assert_eq!(made.status, 201);
    // git hash-object on "hello\n".
    let blob = "ce013625030ba8dba906f756967f9e9ca394464a";
    assert_eq!(made.json()["content"]["sha"], blob);
    let again = github(&fakes, "PUT", "contents/a/b.md", file("hello\n")).await;
    assert_eq!(again.status, 422);
    assert_eq!(
        again.json()["message"],
        "Invalid request.\n\n\"sha\" wasn't supplied."
    );
    assert_eq!(again.json()["status"], "422");
    let mut update = file("new\n");
    update["sha"] = json!("0000000000000000000000000000000000000000");
    let refused = github(&fakes, "PUT", "contents/a/b.md", update.clone()).await;
    let message = format!("a/b.md does not match {}", update["sha"].as_str().unwrap());
    assert_eq!(
        (refused.status, &refused.json()["message"]),
        (409, &json!(message))
    );
    assert_eq!(
        github(&fakes, "PUT", "contents/new.md", update.clone())
            .await
            .status,
        201
    );
    update["branch"] = json!("nowhere");
    assert_eq!(
        github(&fakes, "PUT", "contents/a/b.md", update.clone())
            .await
            .status,
        404
    );
    update["branch"] = json!("main");
    update["sha"] = json!(blob);
    assert_eq!(
        github(&fakes, "PUT", "contents/a/b.md", update)
            .await
            .status,
        200
    );
    let read = github(&fakes, "GET", "contents/a/b.md", Value::Null)
        .await
        .json();
    assert_eq!(read["content"], format!("{}\n", STANDARD.encode("new\n")));
    let log = github(&fakes, "GET", "commits?path=a/b.md", Value::Null)
        .await
        .json();
    assert_eq!(log.as_array().map(Vec::len), Some(2));
    assert_eq!(log[1]["commit"]["message"], "Add\n\nIdempotency-Key: dlv_1");
}

#[tokio::test]
async fn the_empty_tree_and_a_known_commit_have_gits_names() {
    let fakes = fakes().await;
    let tree = github(&fakes, "POST", "git/trees", json!({"tree": []}))
        .await
        .json();
    assert_eq!(tree["sha"], "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    let who = json!({"name": "A", "email": "a@example.com", "date": "2026-11-30T08:00:00Z"});
    let commit = json!({"message": "m", "tree": tree["sha"], "parents": [], "author": who});
    let one = github(&fakes, "POST", "git/commits", commit.clone())
        .await
        .json();
    let other = github(&fakes, "POST", "git/commits", commit).await.json();
    assert_eq!(one["sha"], other["sha"]);
    // `git hash-object -t commit` gives the same words this name.
    assert_eq!(one["sha"], COMMIT);
}

#[tokio::test]
async fn a_head_that_moves_refuses_the_file_and_the_ref() {
    let fakes = fakes().await;
    script(&fakes, "github", json!("head-moves")).await;
    let refused = github(&fakes, "PUT", "contents/a.md", file("a")).await;
    assert_eq!(refused.status, 409);
    assert!(
        refused.json()["message"]
            .as_str()
            .unwrap()
            .contains("but expected")
    );
    assert_eq!(
        github(&fakes, "PUT", "contents/a.md", file("a"))
            .await
            .status,
        201
    );
    let head = github(&fakes, "GET", "git/ref/heads/main", Value::Null)
        .await
        .json();
    let head = head["object"]["sha"].as_str().unwrap().to_owned();
    let tree = github(&fakes, "GET", &format!("git/commits/{head}"), Value::Null)
        .await
        .json();
    let commit = json!({"message": "m", "tree": tree["tree"]["sha"], "parents": [head]});
    let ours = github(&fakes, "POST", "git/commits", commit).await.json()["sha"].clone();
    script(&fakes, "github", json!("head-moves")).await;
    let moved = github(&fakes, "PATCH", "git/refs/heads/main", json!({"sha": ours})).await;
    assert_eq!(
        (moved.status, &moved.json()["message"]),
        (422, &json!("Update is not a fast forward"))
    );
    let range = format!("compare/{}...main", ours.as_str().unwrap());
    let compared = github(&fakes, "GET", &range, Value::Null).await.json();
    assert_eq!(compared["status"], "diverged");
}

#[tokio::test]
async fn a_commit_that_was_denied_is_in_the_history_once() {
    let fakes = fakes().await;
    script(&fakes, "github", json!("commit-then-502")).await;
    assert_eq!(
        github(&fakes, "PUT", "contents/a.md", file("a"))
            .await
            .status,
        502
    );
    assert_eq!(
        github(&fakes, "PUT", "contents/a.md", file("a"))
            .await
            .status,
        422
    );
    let dump = control(&fakes, "GET", "/github", Value::Null).await;
    assert_eq!(dump["repos"]["o/r"]["main"]["files"]["a.md"]["text"], "a");
    assert_eq!(
        dump["repos"]["o/r"]["main"]["commits"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
}

#[tokio::test]
async fn limits_and_rules_are_announced_as_github_does() {
    let fakes = fakes().await;
    script(&fakes, "github", json!({"rate-limited": 90})).await;
    let limited = github(&fakes, "GET", "contents/a.md", Value::Null).await;
    assert_eq!(
        (limited.status, limited.header("x-ratelimit-remaining")),
        (403, Some("0"))
    );
    script(
        &fakes,
        "github",
        json!({"secondary-limit": 61, "status": 429}),
    )
    .await;
    let limited = github(&fakes, "PUT", "contents/a.md", file("a")).await;
    assert_eq!(
        (limited.status, limited.header("retry-after")),
        (429, Some("61"))
    );
    script(&fakes, "github", json!("ruleset")).await;
    let refused = github(&fakes, "PUT", "contents/a.md", file("a")).await;
    assert!(
        refused.json()["message"]
            .as_str()
            .unwrap()
            .starts_with("Repository rule violations")
    );
    let bare = send(&fakes, "GET", "/github/repos/o/r", &[], b"").await;
    assert_eq!(bare.status, 403);
    let stranger = send(
        &fakes,
        "GET",
        "/github/repos/o/r",
        &[("user-agent", "x")],
        b"",
    )
    .await;
    assert_eq!(stranger.status, 401);
    let headers = [("user-agent", "x"), ("authorization", "Bearer t")];
    let missing = send(&fakes, "GET", "/github/repos/o/missing", &headers, b"").await;
    assert_eq!(missing.status, 404);
    let empty = send(
        &fakes,
        "GET",
        "/github/repos/o/empty/commits",
        &headers,
        b"",
    )
    .await;
    assert_eq!(empty.json()["message"], "Git Repository is empty.");
}

const COMMIT: &str = "c17957548c0f05bb1ceae9101b5e15c886736d11";
