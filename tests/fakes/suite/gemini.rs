//! Gemini: its shapes, its refusals, its unfit answers, and what each of them costs.

use serde_json::{Value, json};

use super::client::{control, events, fakes, generate, generate_with, script, send};

const STREAM: &str = "streamGenerateContent?alt=sse";

#[tokio::test]
async fn a_second_purchase_of_one_prompt_shows_in_text_and_ledger() {
    let fakes = fakes().await;
    let first = generate(&fakes, "generateContent", "hello").await.json();
    let second = generate(&fakes, "generateContent", "hello").await.json();
    let text = |answer: &Value| answer["candidates"][0]["content"]["parts"][0]["text"].clone();
    assert_ne!(text(&first), text(&second));
    assert!(text(&second).as_str().unwrap().contains("purchase 2"));
    generate(&fakes, "generateContent", "another").await;
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!(
        (&ledger["billed"], &ledger["duplicates"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(ledger["entries"][1]["purchase"], 2);
    control(&fakes, "DELETE", "/ledger", Value::Null).await;
    assert_eq!(
        control(&fakes, "GET", "/ledger", Value::Null).await["total"],
        0
    );
}

#[tokio::test]
async fn a_stream_says_the_same_as_one_object_and_counts_up() {
    let (one, other) = (fakes().await, fakes().await);
    let whole = generate(&one, "generateContent", "hello").await.json();
    let chunks = events(&generate(&other, STREAM, "hello").await);
    let texts = chunks.iter().flat_map(|chunk| {
        chunk["candidates"][0]["content"]["parts"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    });
    let text: String = texts
        .filter_map(|part| Some(part["text"].as_str()?.to_owned()))
        .collect();
    assert_eq!(
        whole["candidates"][0]["content"]["parts"][0]["text"],
        text.as_str()
    );
    assert_eq!(
        chunks.last().unwrap()["usageMetadata"],
        whole["usageMetadata"]
    );
    let totals: Vec<_> = chunks
        .iter()
        .map(|chunk| chunk["usageMetadata"]["totalTokenCount"].as_u64())
        .collect();
    assert!(totals.is_sorted() && totals.len() > 3, "{totals:?}");
    let array = generate(&other, "streamGenerateContent", "hello").await;
    assert_eq!(array.json().as_array().map(Vec::len), Some(chunks.len()));
}

#[tokio::test]
async fn refusals_have_googles_shape_and_cost_nothing() {
    let fakes = fakes().await;
    for (fault, code, status) in [
        ("400", 400, "INVALID_ARGUMENT"),
        ("region", 400, "FAILED_PRECONDITION"),
        ("bad-key", 400, "INVALID_ARGUMENT"),
        ("401", 401, "UNAUTHENTICATED"),
        ("403", 403, "PERMISSION_DENIED"),
        ("404", 404, "NOT_FOUND"),
        ("429", 429, "RESOURCE_EXHAUSTED"),
        ("per-day", 429, "RESOURCE_EXHAUSTED"),
        ("500", 500, "INTERNAL"),
        ("503", 503, "UNAVAILABLE"),
        ("504", 504, "DEADLINE_EXCEEDED"),
    ] {
        for method in ["generateContent", STREAM] {
            let answer = generate(&fakes, method, &format!("[[fault:{fault}]]")).await;
            assert_eq!(answer.status, code, "{fault}");
            assert_eq!(answer.json()["error"]["status"], status, "{fault}");
            assert!(
                answer
                    .text()
                    .starts_with("{\n  \"error\": {\n    \"code\":"),
                "{fault}"
            );
            assert!(answer.header("retry-after").is_none());
        }
    }
    let array = generate(&fakes, "streamGenerateContent", "[[fault:429]]")
        .await
        .json();
    assert_eq!(array[0]["error"]["code"], 429);
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!(
        (&ledger["billed"], &ledger["refused"]),
        (&json!(0), &json!(23))
    );
}

#[tokio::test]
async fn quotas_of_a_minute_and_of_a_day_differ_in_their_id_only() {
    let fakes = fakes().await;
    for (fault, period) in [("429", "PerMinute"), ("per-day", "PerDay")] {
        let error = generate(&fakes, "generateContent", &format!("[[fault:{fault}]]"))
            .await
            .json();
        let details = error["error"]["details"].as_array().unwrap();
        let quota = details[0]["violations"][0]["quotaId"].as_str().unwrap();
        assert!(quota.contains(period), "{quota}");
        assert_eq!(details[2]["retryDelay"], "58.823s");
    }
}

#[tokio::test]
async fn mistakes_in_a_request_are_refused() {
    let fakes = fakes().await;
    let path = "/v1beta/models/gemini-3.8-flash:generateContent";
    let contents = json!([{"parts": [{"text": "hi"}]}]);
    for (path, key, body, code) in [
        (path, "bad-key", json!({"contents": contents}), 400),
        (path, "", json!({"contents": contents}), 403),
        (path, "k", json!({"contents": []}), 400),
        (path, "k", json!({"contents": contents, "promptt": 1}), 400),
        (
            path,
            "k",
            json!({"contents": contents, "generationConfig": {"temp": 1}}),
            400,
        ),
        (
            "/v1/models/gemini-0-none:generateContent",
            "k",
            json!({"contents": contents}),
            404,
        ),
        (
            path,
            "k",
            json!({"contents": contents, "continuationToken": "x"}),
            400,
        ),
    ] {
        let headers = [("x-goog-api-key", key)];
        let answer = send(&fakes, "POST", path, &headers, body.to_string().as_bytes()).await;
        assert_eq!(answer.status, code, "{body}");
        assert_eq!(answer.json()["error"]["code"], code);
    }
    let config = json!({"thinking_config": {"thinking_level": "LOW"}});
    let body = json!({"contents": contents, "generation_config": config});
    assert_eq!(
        generate_with(&fakes, "generateContent", &body).await.status,
        200
    );
}

#[tokio::test]
async fn unfit_answers_are_billed() {
    let fakes = fakes().await;
    let faults = [
        ("empty", "STOP"),
        ("max-tokens", "MAX_TOKENS"),
        ("max-tokens-thinking", "MAX_TOKENS"),
        ("safety", "SAFETY"),
        ("recitation", "RECITATION"),
        ("malformed-function-call", "MALFORMED_FUNCTION_CALL"),
        ("finish:SPII", "SPII"),
        ("function-call", "STOP"),
        ("image", "STOP"),
    ];
    for (fault, reason) in faults {
        for method in ["generateContent", STREAM] {
            let answer = generate(&fakes, method, &format!("[[fault:{fault}]]")).await;
            let last = match method {
                STREAM => events(&answer).pop().expect("a chunk"),
                _ => answer.json(),
            };
            assert_eq!(
                last["candidates"][0]["finishReason"], reason,
                "{fault} {last}"
            );
        }
    }
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!(ledger["billed"], json!(2 * faults.len()));
}

#[tokio::test]
async fn thinking_that_ate_the_budget_leaves_no_text_and_no_zero() {
    let fakes = fakes().await;
    let answer = generate(&fakes, "generateContent", "[[fault:max-tokens-thinking]]")
        .await
        .json();
    assert_eq!(answer["candidates"][0]["content"], json!({"role": "model"}));
    assert_eq!(answer["usageMetadata"]["thoughtsTokenCount"], 2999);
    assert!(
        answer["usageMetadata"]
            .get("candidatesTokenCount")
            .is_none()
    );
}

#[tokio::test]
async fn a_blocked_prompt_has_no_candidates() {
    let fakes = fakes().await;
    let answer = generate(&fakes, "generateContent", "[[fault:block]]")
        .await
        .json();
    assert_eq!(
        answer["promptFeedback"]["blockReason"],
        "PROHIBITED_CONTENT"
    );
    assert!(answer.get("candidates").is_none());
    assert!(
        answer["usageMetadata"]
            .get("candidatesTokenCount")
            .is_none()
    );
}

#[tokio::test]
async fn a_stream_may_end_without_a_reason_or_with_an_error_in_either_form() {
    let fakes = fakes().await;
    let answer = generate(&fakes, STREAM, "[[fault:no-finish]]").await;
    let reasons = events(&answer);
    assert!(answer.whole);
    assert!(
        reasons
            .iter()
            .all(|chunk| chunk["candidates"][0]["finishReason"].is_null())
    );
    script(
        &fakes,
        "gemini",
        json!({"data-error-mid": 1, "status": 429}),
    )
    .await;
    let answer = generate(&fakes, STREAM, "hello").await;
    assert_eq!(events(&answer)[1]["error"]["code"], 429);
    let answer = generate(&fakes, STREAM, "[[fault:raw-error-mid:1]]").await;
    let text = answer.text();
    let (_, raw) = text
        .split_once("\r\n\r\n")
        .expect("one event, then the error");
    assert_eq!(
        serde_json::from_str::<Value>(raw).unwrap()["error"]["code"],
        503
    );
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!(ledger["billed"], 3);
}

#[tokio::test]
async fn oddities_of_framing_show_on_the_wire() {
    let fakes = fakes().await;
    let text = generate(&fakes, STREAM, "[[fault:lf]]").await.text();
    assert!(text.contains("}\n\ndata: ") && !text.contains('\r'));
    let text = generate(&fakes, STREAM, "[[fault:two-objects]]")
        .await
        .text();
    assert!(text.contains("}{\"candidates\""));
    let array = generate(&fakes, STREAM, "[[fault:array-body]]").await;
    assert!(array.json().is_array());
    assert_eq!(array.header("content-type"), Some("text/event-stream"));
    let chunks = events(&generate(&fakes, STREAM, "[[fault:stop-each-chunk]]").await);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["candidates"][0]["finishReason"] == "STOP")
    );
    let chunks = events(&generate(&fakes, STREAM, "[[fault:finish-alone]]").await);
    let last = &chunks.last().unwrap()["candidates"][0];
    assert_eq!(
        (&last["finishReason"], last.get("content")),
        (&json!("STOP"), None)
    );
    let chunks = events(&generate(&fakes, STREAM, "[[fault:no-usage]]").await);
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk.get("usageMetadata").is_none())
    );
}

#[tokio::test]
async fn texts_have_the_length_and_the_characters_asked_for() {
    let fakes = fakes().await;
    let text = async |prompt: &str| {
        let answer = generate(&fakes, "generateContent", prompt).await.json();
        answer["candidates"][0]["content"]["parts"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(text("[[fault:size:2000001]]").await.len(), 2_000_001);
    assert_eq!(text("[[say:こんにちは🗼]]").await, "こんにちは🗼");
    assert!(text("[[fault:nul]]").await.contains('\0'));
    assert!(text("[[fault:line-separators]]").await.contains('\u{2028}'));
}

#[tokio::test]
async fn json_is_given_by_the_schema_or_broken_where_asked() {
    let fakes = fakes().await;
    let schema = json!({"type": "OBJECT", "properties": {"title": {"type": "STRING"},
        "tags": {"type": "ARRAY", "items": {"type": "STRING"}}, "year": {"type": "INTEGER"}}});
    let ask = async |prompt: &str| {
        let config = json!({"responseMimeType": "application/json", "responseSchema": schema});
        let body = json!({"contents": [{"parts": [{"text": prompt}]}], "generationConfig": config});
        let answer = generate_with(&fakes, "generateContent", &body).await.json();
        answer["candidates"][0]["content"]["parts"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let value: Value = serde_json::from_str(&ask("hi").await).unwrap();
    assert!(value["title"].is_string() && value["tags"].is_array() && value["year"] == 1);
    assert!(serde_json::from_str::<Value>(&ask("[[fault:invalid-json]]").await).is_err());
}

#[tokio::test]
async fn a_long_answer_takes_hops_that_are_billed_one_by_one() {
    let fakes = fakes().await;
    let mut body = json!({"contents": [{"parts": [{"text": "[[fault:continuation:3]]"}]}]});
    let mut prompts = Vec::new();
    for hop in 1..=3 {
        let answer = generate_with(&fakes, "generateContent", &body).await.json();
        let candidate = &answer["candidates"][0];
        prompts.push(
            answer["usageMetadata"]["promptTokenCount"]
                .as_u64()
                .unwrap(),
        );
        let reason = if hop < 3 { "CONTINUATION" } else { "STOP" };
        assert_eq!(candidate["finishReason"], reason);
        assert_eq!(candidate["continuationToken"].is_string(), hop < 3);
        body["continuationToken"] = candidate["continuationToken"].clone();
    }
    assert!(
        prompts.is_sorted_by(|one, other| one < other),
        "{prompts:?}"
    );
    let ledger = control(&fakes, "GET", "/ledger", Value::Null).await;
    assert_eq!(
        (&ledger["billed"], &ledger["duplicates"]),
        (&json!(3), &json!(0))
    );
}

#[tokio::test]
async fn counting_tokens_and_reading_models_is_free() {
    let fakes = fakes().await;
    let counted = generate(&fakes, "countTokens", "0123456789ab").await.json();
    assert_eq!(counted["totalTokens"], 3);
    let key = [("x-goog-api-key", "k")];
    let models = send(&fakes, "GET", "/v1/models", &key, b"").await.json();
    assert!(models["models"].as_array().unwrap().len() > 10);
    let one = send(&fakes, "GET", "/v1/models/gemini-3.8-flash", &key, b"")
        .await
        .json();
    assert_eq!(one["name"], "models/gemini-3.8-flash");
    assert_eq!(
        control(&fakes, "GET", "/ledger", Value::Null).await["total"],
        0
    );
}
