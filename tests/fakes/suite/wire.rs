//! Faults below HTTP: resets, cuts, silence, slowness.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{End, control, events, fakes, generate, script, send, send_within};

const STREAM: &str = "streamGenerateContent?alt=sse";
/// How long silence must last to be one; what comes before it has as long, on a busy machine too.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// What has not come by then does not come.
const AT_LAST: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_reset_before_the_headers_sends_not_a_byte_and_bills_nothing() {
    let fakes = fakes().await;
    let answer = generate(&fakes, STREAM, "[[fault:reset-before]]").await;
    assert_eq!(
        (answer.status, answer.body.len(), answer.end),
        (0, 0, End::Reset)
    );
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!(
        (&ledger["billed"], &ledger["refused"]),
        (&json!(0), &json!(1))
    );
}

#[tokio::test]
async fn a_generation_that_is_reset_or_denied_after_the_commit_is_billed() {
    let fakes = fakes().await;
    let answer = generate(&fakes, "generateContent", "[[fault:commit-then-reset]]").await;
    assert_eq!((answer.status, answer.end), (0, End::Reset));
    let answer = generate(&fakes, "generateContent", "[[fault:commit-then-502]]").await;
    assert_eq!((answer.status, answer.whole), (502, true));
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!((&ledger["billed"], &ledger["cut"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn a_reset_in_mid_stream_comes_after_the_chunks_it_names() {
    let fakes = fakes().await;
    let answer = generate(&fakes, STREAM, "[[fault:reset-mid:2]]").await;
    assert_eq!(
        (events(&answer).len(), answer.whole, answer.end),
        (2, false, End::Reset)
    );
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!((&ledger["billed"], &ledger["cut"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn a_cut_at_a_byte_sends_exactly_so_many_bytes_of_the_body() {
    let fakes = fakes().await;
    for (fault, end) in [("reset-at:137", End::Reset), ("close-at:137", End::Closed)] {
        let answer = generate(&fakes, STREAM, &format!("[[fault:{fault}]]")).await;
        assert_eq!(
            (answer.body.len(), answer.whole, answer.end),
            (137, false, end),
            "{fault}"
        );
    }
}

#[tokio::test]
async fn a_reset_at_the_end_lets_all_of_the_body_through_without_saying_so() {
    let fakes = fakes().await;
    let answer = generate(&fakes, STREAM, "[[fault:reset-end]]").await;
    assert_eq!((answer.whole, answer.end), (false, End::Reset));
    let last = events(&answer).pop().expect("a chunk");
    assert_eq!(last["candidates"][0]["finishReason"], "STOP");
    let unary = generate(&fakes, "generateContent", "[[fault:reset-end]]").await;
    assert_eq!(unary.json()["candidates"][0]["finishReason"], "STOP");
    assert_eq!((unary.whole, unary.end), (false, End::Reset));
}

#[tokio::test]
async fn a_hang_is_silence_before_any_byte_or_in_the_middle() {
    let fakes = fakes().await;
    for (fault, status) in [(json!("hang"), 0), (json!({"hang-mid": 1}), 200)] {
        script(&fakes, "slack", fault).await;
        let body = br#"{"text":"hello"}"#;
        let answer = send_within(&fakes, "POST", "/slack/x", &[], body, PATIENCE).await;
        assert_eq!(
            (answer.status, answer.end, answer.whole),
            (status, End::Silent, false)
        );
    }
}

#[tokio::test]
async fn a_delay_and_a_drip_take_their_time() {
    let fakes = fakes().await;
    let begun = Instant::now();
    let answer = generate(&fakes, STREAM, "[[fault:delay:120]] [[fault:drip:40]]").await;
    assert!(answer.whole && begun.elapsed() >= Duration::from_millis(120 + 4 * 40));
}

#[tokio::test]
async fn single_bytes_cut_characters_in_two() {
    let fakes = fakes().await;
    script(&fakes, "gemini", json!({"one-byte": true})).await;
    let mut stream = TcpStream::connect(("127.0.0.1", fakes.port()))
        .await
        .unwrap();
    let body = r#"{"contents":[{"parts":[{"text":"hi"}]}]}"#;
    let request = format!(
        "POST /v1/models/gemini-3.8-flash:{STREAM}&key=k HTTP/1.1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut reads, mut broken) = (0, 0);
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut bytes).await.unwrap();
        reads += 1;
        broken += usize::from(std::str::from_utf8(&bytes[..count]).is_err());
        if count == 0 {
            break;
        }
    }
    assert!(
        reads > 200 && broken > 0,
        "{reads} reads, {broken} of them broken"
    );
}

#[tokio::test]
async fn a_gate_holds_a_billed_answer_until_it_is_opened() {
    let fakes = fakes().await;
    let waiting = generate(&fakes, "generateContent", "[[fault:gate:one]]");
    let opening = async {
        loop {
            let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
            if ledger["billed"] == 1 {
                break;
            }
        }
        control(&fakes, "POST", "/release/one", Value::Null).await;
    };
    let (answer, ()) = tokio::join!(waiting, opening);
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_gate_in_the_middle_lets_the_first_piece_through() {
    let fakes = fakes().await;
    script(&fakes, "gemini", json!({"gate-mid": "half"})).await;
    let body = json!({"contents": [{"parts": [{"text": "hi"}]}]}).to_string();
    let path = "/v1/models/gemini-3.8-flash:streamGenerateContent?alt=sse&key=k";
    let held = send_within(&fakes, "POST", path, &[], body.as_bytes(), PATIENCE).await;
    assert_eq!((events(&held).len(), held.end), (1, End::Silent));
    script(&fakes, "gemini", json!({"gate-mid": "half"})).await;
    control(&fakes, "POST", "/release/half", Value::Null).await;
    let freed = send(&fakes, "POST", path, &[], body.as_bytes()).await;
    assert!(freed.whole && events(&freed).len() > 3);
}

#[tokio::test]
async fn a_late_effect_comes_after_the_caller_has_left() {
    let fakes = fakes().await;
    script(&fakes, "webhook", json!({"late-commit": 2_000})).await;
    let patience = Duration::from_millis(20);
    let answer = send_within(&fakes, "POST", "/webhook/blog", &[], b"{}", patience).await;
    assert_eq!(answer.end, End::Silent);
    let count =
        async || control(&fakes, "GET", "/webhook/blog", Value::Null).await["count"].clone();
    assert_eq!(count().await, 0);
    let begun = Instant::now();
    while count().await == 0 {
        assert!(begun.elapsed() < AT_LAST);
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_a_cut_in_the_ledger() {
    let fakes = fakes().await;
    let body = json!({"contents": [{"parts": [{"text": "[[fault:delay:60000]]"}]}]}).to_string();
    let path = "/v1/models/gemini-3.8-flash:generateContent?key=k";
    let patience = Duration::from_millis(50);
    let answer = send_within(&fakes, "POST", path, &[], body.as_bytes(), patience).await;
    assert_eq!(answer.end, End::Silent);
    let begun = Instant::now();
    loop {
        let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
        if ledger["cut"] == 1 {
            break;
        }
        assert!(begun.elapsed() < AT_LAST, "{ledger}");
    }
}

#[tokio::test]
async fn a_truncated_body_is_announced_as_whole() {
    let fakes = fakes().await;
    let answer = generate(&fakes, "generateContent", "[[fault:truncated-json]]").await;
    assert!(answer.whole && serde_json::from_slice::<Value>(&answer.body).is_err());
}

#[tokio::test]
async fn a_connection_is_kept_and_a_chunked_request_is_read() {
    let fakes = fakes().await;
    let mut stream = TcpStream::connect(("127.0.0.1", fakes.port()))
        .await
        .unwrap();
    for _ in 0..3 {
        let request = "POST /slack/x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
                       8\r\n{\"text\":\r\n5\r\n\"hi\"}\r\n0\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\nok") {
            assert!(
                stream.read_buf(&mut bytes).await.unwrap() > 0,
                "closed too early"
            );
        }
    }
    let slack = control(&fakes, "GET", "/slack", Value::Null).await;
    assert_eq!(slack["messages"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_redirect_a_page_and_a_status_keep_the_request_from_the_service() {
    let fakes = fakes().await;
    let body = br#"{"text":"hello"}"#;
    for (fault, status) in [
        (
            json!({"redirect-to": "http://169.254.169.254/", "status": 307}),
            307,
        ),
        (json!("html-200"), 200),
        (json!("html-524"), 524),
        (json!({"status": 410, "body": "channel_is_archived"}), 410),
        (json!({"body": "not what you hoped for"}), 200),
        (json!(503), 503),
    ] {
        script(&fakes, "slack", fault).await;
        let answer = send(&fakes, "POST", "/slack/x", &[], body).await;
        assert_eq!(answer.status, status);
    }
    assert_eq!(
        control(&fakes, "GET", "/slack", Value::Null).await,
        json!({})
    );
}
