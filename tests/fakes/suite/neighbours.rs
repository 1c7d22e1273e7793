//! The APIs beside generateContent: interactions, batches, chat.

use serde_json::{Value, json};

use super::client::{Answer, control, fakes, send};
use crate::fakes::Fakes;

async fn call(fakes: &Fakes, method: &str, path: &str, body: Value) -> Answer {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send(
        fakes,
        method,
        path,
        &[("authorization", "Bearer k")],
        body.as_bytes(),
    )
    .await
}

#[tokio::test]
async fn a_background_interaction_is_found_again_by_its_id() {
    let fakes = fakes().await;
    let body = json!({"model": "gemini-3.8-flash", "input": "hello", "background": true});
    let made = call(&fakes, "POST", "/v1/interactions", body).await.json();
    assert_eq!(made["status"], "in_progress");
    let path = format!("/v1/interactions/{}", made["id"].as_str().unwrap());
    assert_eq!(
        call(&fakes, "GET", &path, Value::Null).await.json()["status"],
        "in_progress"
    );
    let done = call(&fakes, "GET", &path, Value::Null).await.json();
    assert_eq!(done["status"], "completed");
    assert!(
        done["steps"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("purchase 1")
    );
    call(&fakes, "DELETE", &path, Value::Null).await;
    assert_eq!(
        call(&fakes, "GET", &path, Value::Null).await.json()["error"]["code"],
        "not_found"
    );
    assert_eq!(
        control(&fakes, "GET", "/ledger", Value::Null).await["billed"],
        1
    );
}

#[tokio::test]
async fn an_interaction_streams_with_its_id_first_and_resumes() {
    let fakes = fakes().await;
    let body = json!({"model": "gemini-3.8-flash", "input": "hello", "stream": true});
    let text = call(&fakes, "POST", "/v1/interactions", body).await.text();
    let first = text.split("\n\n").next().unwrap();
    let (_, first) = first.split_once("\ndata: ").unwrap();
    let first: Value = serde_json::from_str(first).unwrap();
    assert_eq!(first["event_type"], "interaction.created");
    assert!(text.ends_with("data: [DONE]\n\n"));
    let id = first["interaction"]["id"].as_str().unwrap();
    let path = format!("/v1/interactions/{id}?stream=true&last_event_id=evt_2");
    let rest = call(&fakes, "GET", &path, Value::Null).await.text();
    assert!(rest.starts_with("event: step.delta") && rest.ends_with("data: [DONE]\n\n"));
    let body = json!({"model": "gemini-3.8-flash", "input": "[[fault:429]]"});
    let refused = call(&fakes, "POST", "/v1/interactions", body).await;
    assert_eq!(refused.json()["error"]["code"], "rate_limit_exceeded");
}

#[tokio::test]
async fn a_batch_made_twice_is_billed_twice() {
    let fakes = fakes().await;
    let request = json!({"contents": [{"parts": [{"text": "hello"}]}]});
    let items = json!([{"request": request, "metadata": {"key": "k1"}}]);
    let batch = json!({"displayName": "fp-1", "inputConfig": {"requests": {"requests": items}}});
    let path = "/v1beta/models/gemini-3.8-flash:batchGenerateContent";
    let made = call(&fakes, "POST", path, json!({"batch": batch}))
        .await
        .json();
    assert_eq!(made["metadata"]["batchStats"]["pendingRequestCount"], "1");
    call(&fakes, "POST", path, json!({"batch": batch})).await;
    let name = format!("/v1beta/{}", made["name"].as_str().unwrap());
    let states = ["BATCH_STATE_RUNNING", "BATCH_STATE_SUCCEEDED"];
    for state in states {
        let seen = call(&fakes, "GET", &name, Value::Null).await.json();
        assert_eq!(seen["metadata"]["state"], state);
    }
    let done = call(&fakes, "GET", &name, Value::Null).await.json();
    let result = &done["response"]["inlinedResponses"]["inlinedResponses"][0];
    assert_eq!(result["metadata"]["key"], "k1");
    assert_eq!(result["response"]["candidates"][0]["finishReason"], "STOP");
    let list = call(&fakes, "GET", "/v1beta/batches", Value::Null)
        .await
        .json();
    assert_eq!(list["operations"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        control(&fakes, "GET", "/ledger", Value::Null).await["duplicates"],
        1
    );
}

#[tokio::test]
async fn a_chat_is_answered_whole_or_streamed_to_done() {
    let fakes = fakes().await;
    let path = "/v1beta/openai/chat/completions";
    let mut body =
        json!({"model": "gemini-3.8-flash", "messages": [{"role": "user", "content": "hello"}]});
    let whole = call(&fakes, "POST", path, body.clone()).await.json();
    let content = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(content.contains("purchase 1"));
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    body["stream"] = json!(true);
    let text = call(&fakes, "POST", path, body).await.text();
    assert!(text.contains("purchase 2") && text.ends_with("data: [DONE]\n\n"));
    assert_eq!(
        control(&fakes, "GET", "/ledger", Value::Null).await["billed"],
        2
    );
}
