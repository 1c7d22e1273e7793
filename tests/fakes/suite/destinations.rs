//! The destinations but GitHub: what they tell, and what they don't.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::client::{Answer, End, control, fakes, script, send};
use crate::fakes::Fakes;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[tokio::test]
async fn a_webhook_checks_its_signature_and_tells_repeats() {
    let fakes = fakes().await;
    let config = json!({"webhook": {"blog": {"secrets": [SECRET], "dedupe": true}}});
    control(&fakes, "POST", "/config", config).await;
    let key = STANDARD
        .decode(SECRET.trim_start_matches("whsec_"))
        .unwrap();
    let post = async |timestamp: u64, signed_body: &str, body: &str| {
        let timestamp = timestamp.to_string();
        let signed = format!("dlv_1.{timestamp}.{signed_body}");
        let signature = format!("v1,AAAA v1,{}", STANDARD.encode(hmac(&key, &signed)));
        let headers = [
            ("webhook-id", "dlv_1"),
            ("webhook-timestamp", timestamp.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        send(&fakes, "POST", "/webhook/blog", &headers, body.as_bytes()).await
    };
    assert_eq!(post(now(), "{}", "{ }").await.status, 401);
    assert_eq!(post(now() - 301, "{}", "{}").await.status, 401);
    assert_eq!(post(now(), "{}", "{}").await.json(), json!({"ok": true}));
    assert_eq!(post(now(), "{}", "{}").await.json()["duplicate"], true);
    let dump = control(&fakes, "GET", "/webhook/blog", Value::Null).await;
    let counts = ["count", "effects", "distinct"].map(|name| dump[name].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 1]);
}

#[tokio::test]
async fn an_effect_stands_though_the_answer_denies_it() {
    let fakes = fakes().await;
    for fault in [
        "commit-then-502",
        "commit-then-reset",
        "commit-then-close",
        "close-mid",
    ] {
        script(&fakes, "webhook", json!(fault)).await;
        let answer = send(&fakes, "POST", "/webhook/blog", &[], b"{}").await;
        assert!(answer.status == 502 || !answer.whole, "{fault}");
    }
    for fault in ["502", "reset-before", "close-before"] {
        script(&fakes, "webhook", json!(fault)).await;
        let answer = send(&fakes, "POST", "/webhook/blog", &[], b"{}").await;
        assert!(answer.status == 502 || answer.end != End::Silent, "{fault}");
    }
    let dump = control(&fakes, "GET", "/webhook/blog", Value::Null).await;
    assert_eq!(dump["effects"], 4);
}

#[tokio::test]
async fn slack_takes_repeats_as_new_and_calls_one_failure_ok() {
    let fakes = fakes().await;
    let body = br#"{"text":"hello"}"#;
    for _ in 0..2 {
        assert_eq!(
            send(&fakes, "POST", "/slack/services/T/B/x", &[], body)
                .await
                .text(),
            "ok"
        );
    }
    let long = json!({"blocks": [{"type": "section", "text": {"type": "mrkdwn",
        "text": "x".repeat(3001)}}]});
    let refused = [
        (b"{}".to_vec(), "no_text"),
        (b"x".to_vec(), "invalid_payload"),
        (long.to_string().into_bytes(), "invalid_blocks"),
    ];
    for (body, problem) in refused {
        let answer = send(&fakes, "POST", "/slack/x", &[], &body).await;
        assert_eq!((answer.status, answer.text().as_str()), (400, problem));
    }
    script(&fakes, "slack", json!("no-service")).await;
    let answer = send(&fakes, "POST", "/slack/x", &[], body).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "no_service"));
    let slack = control(&fakes, "GET", "/slack", Value::Null).await;
    assert_eq!(slack["messages"].as_array().map(Vec::len), Some(2));
}

async fn wordpress(fakes: &Fakes, method: &str, path: &str, body: Value) -> Answer {
    let basic = format!("Basic {}", STANDARD.encode("editor:abcd efgh"));
    let path = format!("/wordpress/wp-json/wp/v2/posts{path}");
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send(
        fakes,
        method,
        &path,
        &[("authorization", &basic)],
        body.as_bytes(),
    )
    .await
}

#[tokio::test]
async fn wordpress_suffixes_a_taken_slug_in_silence_and_trash_frees_it() {
    let fakes = fakes().await;
    let body = json!({"title": "Title", "content": "text <!-- key:1 -->", "slug": "title-1",
        "status": "draft"});
    let first = wordpress(&fakes, "POST", "", body.clone()).await;
    assert_eq!(
        (first.status, &first.json()["slug"]),
        (201, &json!("title-1"))
    );
    let second = wordpress(&fakes, "POST", "", body.clone()).await.json();
    assert_eq!(second["slug"], "title-1-2");
    let trashed = wordpress(&fakes, "DELETE", &format!("/{}", second["id"]), Value::Null).await;
    assert_eq!(trashed.json()["status"], "trash");
    let again = wordpress(&fakes, "DELETE", &format!("/{}", second["id"]), Value::Null).await;
    assert_eq!(
        (again.status, &again.json()["code"]),
        (410, &json!("rest_already_trashed"))
    );
    let published = wordpress(&fakes, "POST", "/1", json!({"status": "publish"}))
        .await
        .json();
    assert_eq!(
        (&published["status"], &published["slug"]),
        (&json!("publish"), &json!("title-1"))
    );
    let statuses = "publish,future,draft,pending,private";
    let path = format!("?slug=title-1&status={statuses}&context=edit");
    let found = wordpress(&fakes, "GET", &path, Value::Null).await;
    assert_eq!(found.header("x-wp-total"), Some("1"));
    assert_eq!(found.json()[0]["content"]["raw"], "text <!-- key:1 -->");
    let found = wordpress(&fakes, "GET", "?search=key:1&status=any", Value::Null)
        .await
        .json();
    assert_eq!(found.as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn wordpress_lets_someone_else_take_the_slug_between_look_and_write() {
    let fakes = fakes().await;
    script(&fakes, "wordpress", json!({"duplicate-suffix": true})).await;
    let body = json!({"title": "Title", "content": "text", "slug": "title", "status": "draft"});
    assert_eq!(
        wordpress(&fakes, "POST", "", body).await.json()["slug"],
        "title-2"
    );
    let posts = control(&fakes, "GET", "/wordpress", Value::Null).await;
    assert_eq!(posts["posts"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_slug_may_be_taken_by_a_twin_that_carries_our_content() {
    let fakes = fakes().await;
    script(&fakes, "wordpress", json!({"duplicate-suffix": "same"})).await;
    let body = json!({"title": "Title", "content": "key:1", "slug": "title", "status": "draft"});
    wordpress(&fakes, "POST", "", body).await;
    let found = wordpress(&fakes, "GET", "?search=key:1&status=any", Value::Null)
        .await
        .json();
    assert_eq!(found.as_array().map(Vec::len), Some(2));
    script(&fakes, "ghost", json!("duplicate-suffix")).await;
    let post = json!({"posts": [{"title": "Title"}]});
    let ours = ghost(&fakes, "POST", "", post, 300).await.json()["posts"][0].clone();
    assert_eq!(ours["slug"], "title-2");
    script(&fakes, "ghost", json!("update-collision")).await;
    let change = json!({"posts": [{"updated_at": ours["updated_at"]}]});
    let path = format!("{}/", ours["id"].as_str().unwrap());
    assert_eq!(ghost(&fakes, "PUT", &path, change, 300).await.status, 409);
}

#[tokio::test]
async fn wordpress_refuses_strangers() {
    let fakes = fakes().await;
    let config = json!({"wordpress": {"user": "editor", "password": "xxxx"}});
    let path = "/wordpress/wp-json/wp/v2/posts";
    assert_eq!(
        send(&fakes, "POST", path, &[], b"{}").await.json()["code"],
        "rest_cannot_create"
    );
    assert_eq!(
        send(&fakes, "GET", &format!("{path}?status=draft"), &[], b"")
            .await
            .status,
        400
    );
    control(&fakes, "POST", "/config", config).await;
    assert_eq!(
        wordpress(&fakes, "GET", "", Value::Null).await.json()["code"],
        "incorrect_password"
    );
}

async fn ghost(fakes: &Fakes, method: &str, path: &str, body: Value, life: u64) -> Answer {
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let head = encode(json!({"alg": "HS256", "typ": "JWT", "kid": "key1"}));
    let issued = now() - 5;
    let claims = encode(json!({"iat": issued, "exp": issued + life, "aud": "/admin/"}));
    let signature = hmac(&hex::decode("c0ffee").unwrap(), &format!("{head}.{claims}"));
    let token = format!(
        "Ghost {head}.{claims}.{}",
        URL_SAFE_NO_PAD.encode(signature)
    );
    let path = format!("/ghost/ghost/api/admin/posts/{path}");
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send(
        fakes,
        method,
        &path,
        &[("authorization", &token)],
        body.as_bytes(),
    )
    .await
}

#[tokio::test]
async fn ghost_suffixes_a_taken_slug_and_guards_updates() {
    let fakes = fakes().await;
    control(
        &fakes,
        "POST",
        "/config",
        json!({"ghost": {"key": "key1:c0ffee"}}),
    )
    .await;
    let post = json!({"posts": [{"title": "Title", "slug": "title", "html":
        "<p>a<!-- lost --></p><!--kg-card-begin: html--><!-- kept --><!--kg-card-end: html-->"}]});
    let first = ghost(
        &fakes,
        "POST",
        "?source=html&formats=html",
        post.clone(),
        300,
    )
    .await;
    assert_eq!(first.status, 201, "{}", first.text());
    let first = first.json()["posts"][0].clone();
    assert!(!first["html"].as_str().unwrap().contains("lost"));
    assert!(first["html"].as_str().unwrap().contains("<!-- kept -->"));
    let second = ghost(&fakes, "POST", "?source=html", post, 300)
        .await
        .json();
    assert_eq!(second["posts"][0]["slug"], "title-2");
    let id = first["id"].as_str().unwrap();
    let change =
        |updated_at: &Value| json!({"posts": [{"status": "published", "updated_at": updated_at}]});
    let stale = change(&json!("2020-01-01T00:00:00.000Z"));
    let refused = ghost(&fakes, "PUT", &format!("{id}/"), stale, 300).await;
    assert_eq!(
        (refused.status, &refused.json()["errors"][0]["code"]),
        (409, &json!("UPDATE_COLLISION"))
    );
    let fresh = change(&first["updated_at"]);
    let done = ghost(&fakes, "PUT", &format!("{id}/"), fresh.clone(), 300)
        .await
        .json();
    assert_eq!(done["posts"][0]["status"], "published");
    assert_eq!(
        ghost(&fakes, "PUT", &format!("{id}/"), fresh, 300)
            .await
            .status,
        409
    );
    let found = ghost(&fakes, "GET", "?filter=slug:title", Value::Null, 300)
        .await
        .json();
    assert_eq!(found["posts"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        ghost(&fakes, "GET", "slug/none/", Value::Null, 300)
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn ghost_refuses_tokens_that_live_too_long_or_are_signed_otherwise() {
    let fakes = fakes().await;
    assert_eq!(ghost(&fakes, "GET", "", Value::Null, 300).await.status, 200);
    assert_eq!(ghost(&fakes, "GET", "", Value::Null, 301).await.status, 401);
    assert_eq!(ghost(&fakes, "GET", "", Value::Null, 3).await.status, 401);
    control(
        &fakes,
        "POST",
        "/config",
        json!({"ghost": {"key": "key1:beef"}}),
    )
    .await;
    assert_eq!(ghost(&fakes, "GET", "", Value::Null, 300).await.status, 401);
}
