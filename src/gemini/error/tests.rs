use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    Timestamp::parse_rfc3339("2026-11-30T06:00:00Z").unwrap()
}

fn body(code: u16, status: &str, message: &str, details: &Value) -> String {
    json!({"error": {"code": code, "status": status, "message": message, "details": details}})
        .to_string()
}

/// Code, delay in seconds, and the message.
fn told(status: u16, body: &str) -> String {
    let failure = classify(status, &[], body.as_bytes(), now());
    assert_eq!(failure.class(), failure.code.class());
    assert_eq!(failure.status, Some(status));
    let delay = failure
        .retry_after
        .map_or("-".to_owned(), |span| span.seconds_up().to_string());
    format!("{} {delay} {}", failure.code.code(), failure.message)
}

fn detail(name: &str, members: &Value) -> Value {
    let mut detail = json!({"@type": format!("type.googleapis.com/google.rpc.{name}")});
    let object = detail.as_object_mut().unwrap();
    object.extend(members.as_object().unwrap().clone());
    detail
}

#[test]
fn every_error_of_google_is_told_in_our_words_and_its() {
    let key = json!([detail("ErrorInfo", &json!({"reason": "API_KEY_INVALID"}))]);
    let told = [
        told(
            400,
            &body(
                400,
                "INVALID_ARGUMENT",
                "Unknown name \"x\" at 'y'.",
                &json!([]),
            ),
        ),
        told(400, &body(400, "INVALID_ARGUMENT", "Bad key.", &key)),
        told(
            400,
            &body(
                400,
                "INVALID_ARGUMENT",
                "API key not valid. Please pass one.",
                &json!([]),
            ),
        ),
        told(
            400,
            &body(
                400,
                "FAILED_PRECONDITION",
                "User location is not supported for the API use.",
                &json!([]),
            ),
        ),
        told(401, &body(401, "UNAUTHENTICATED", "Bad token.", &json!([]))),
        told(402, &body(402, "", "Prepaid credit.", &json!([]))),
        told(
            403,
            &body(403, "PERMISSION_DENIED", "Leaked key.", &json!([])),
        ),
        told(
            404,
            &body(404, "NOT_FOUND", "models/x is not found.", &json!([])),
        ),
        told(409, &body(409, "ABORTED", "Conflict.", &json!([]))),
        told(413, "<html>413</html>"),
        told(
            429,
            &body(429, "RESOURCE_EXHAUSTED", "Slow down.", &json!([])),
        ),
        told(499, &body(499, "CANCELLED", "Cancelled.", &json!([]))),
        told(
            500,
            &body(
                500,
                "INTERNAL",
                "An internal error has occurred.",
                &json!([]),
            ),
        ),
        told(
            503,
            &body(503, "UNAVAILABLE", "The model is overloaded.", &json!([])),
        ),
        told(
            504,
            &body(504, "DEADLINE_EXCEEDED", "Deadline.", &json!([])),
        ),
    ];
    insta::assert_snapshot!(told.join("\n"), @r#"
    gemini_rejected - Gemini refused the request. Google says: INVALID_ARGUMENT: Unknown name "x" at 'y'.
    gemini_auth - Gemini refused this service's API key; check GEMINI_API_KEY. Google says: INVALID_ARGUMENT: Bad key.
    gemini_auth - Gemini refused this service's API key; check GEMINI_API_KEY. Google says: INVALID_ARGUMENT: API key not valid. Please pass one.
    gemini_rejected - Gemini does not serve the region that this request left Cloudflare from. Google says: FAILED_PRECONDITION: User location is not supported for the API use.
    gemini_auth - Gemini refused this service's API key; check GEMINI_API_KEY. Google says: UNAUTHENTICATED: Bad token.
    gemini_quota_exhausted 3600 Gemini's prepaid credit is used up. Google says: Prepaid credit.
    gemini_auth - Gemini refused this service's API key; check GEMINI_API_KEY. Google says: PERMISSION_DENIED: Leaked key.
    gemini_rejected - Gemini does not know this model, or something that the request refers to. Google says: NOT_FOUND: models/x is not found.
    gemini_unavailable - Gemini is unavailable or overloaded. Google says: ABORTED: Conflict.
    gemini_rejected - The request is too large for Gemini.
    gemini_rate_limited 60 Gemini's limit of requests or tokens a minute is reached. Google says: RESOURCE_EXHAUSTED: Slow down.
    request_reconciliation_pending - Something between here and Gemini broke the call off. Google says: CANCELLED: Cancelled.
    gemini_unavailable - Gemini is unavailable or overloaded. Google says: INTERNAL: An internal error has occurred.
    gemini_unavailable - Gemini is unavailable or overloaded. Google says: UNAVAILABLE: The model is overloaded.
    request_reconciliation_pending - Gemini did not finish its answer in time. Google says: DEADLINE_EXCEEDED: Deadline.
    "#);
}

#[test]
fn a_quota_of_the_day_waits_for_the_day_and_not_for_the_delay_it_names() {
    let exhausted = |quota: &str| {
        let violations = json!({"violations": [{"quotaId": "x"}, {"quotaId": quota}]});
        let details = json!([
            detail("QuotaFailure", &violations),
            detail("RetryInfo", &json!({"retryDelay": "58.2s"})),
        ]);
        let body = body(
            429,
            "RESOURCE_EXHAUSTED",
            "Quota. Please retry in 58.2s.",
            &details,
        );
        let failure = classify(429, &[], body.as_bytes(), now());
        (failure.code, failure.retry_after.unwrap().seconds_up())
    };
    let per_day = exhausted("GenerateRequestsPerDayPerProjectPerModel-FreeTier");
    assert_eq!(per_day, (FailureCode::QuotaExhausted, 7_200));
    let per_minute = exhausted("GenerateRequestsPerMinutePerProjectPerModel");
    assert_eq!(per_minute, (FailureCode::RateLimited, 59));
}

#[test]
fn whoever_stands_between_leaves_the_outcome_unknown() {
    let google = |code| body(code, "INTERNAL", "m", &json!([]));
    for (status, body) in [
        (500, "<html>".to_owned()),
        (500, "{\"message\": \"no upstream\"}".to_owned()),
        (500, "{\"error\": \"no upstream\"}".to_owned()),
        (
            503,
            "upstream connect error or disconnect/reset before headers".to_owned(),
        ),
        (503, google(503).replace('}', "")),
        (502, google(502)),
        (502, String::new()),
        (504, String::new()),
        (503, google(504)),
        (500, google(499)),
        (408, String::new()),
        (520, "error code: 520".to_owned()),
        (524, "<html>".to_owned()),
        (530, String::new()),
        (599, google(503)),
        (100, String::new()),
    ] {
        let failure = classify(status, &[], body.as_bytes(), now());
        assert_eq!(failure.class(), Class::Unknown, "{status} {body}");
        assert_eq!(failure.retry_after, None);
    }
}

#[test]
fn what_is_refused_by_its_status_needs_no_body() {
    let code = |status| classify(status, &[], b"", now()).code;
    for status in [300, 302, 399, 400, 404, 405, 413, 416, 422, 451, 501] {
        assert_eq!(code(status), FailureCode::Rejected, "{status}");
    }
    assert_eq!([401, 403].map(code), [FailureCode::Auth; 2]);
    assert_eq!([409, 500, 503].map(code), [FailureCode::Unavailable; 3]);
    assert_eq!(code(429), FailureCode::RateLimited);
}

#[test]
fn an_error_is_read_in_a_list_and_as_an_event() {
    let plain = body(503, "UNAVAILABLE", "m", &json!([]));
    for body in [
        format!("[{plain}]\n"),
        format!("data: {plain}\r\n\r\n"),
        format!("\u{feff}{plain}"),
    ] {
        let failure = classify(503, &[], body.as_bytes(), now());
        assert_eq!(failure.code, FailureCode::Unavailable, "{body}");
        assert_eq!(
            failure.google.unwrap().status.as_deref(),
            Some("UNAVAILABLE")
        );
    }
}

#[test]
fn a_delay_in_the_header_is_honoured() {
    let header = [("retry-after".to_owned(), "7".to_owned())];
    let delay = |status| {
        classify(status, &header, b"", now())
            .retry_after
            .map(Span::seconds_up)
    };
    assert_eq!(
        (delay(503), delay(429), delay(400), delay(504)),
        (Some(7), Some(7), None, None)
    );
}

#[test]
fn a_broken_transport_is_definite_only_where_nothing_was_sent() {
    let told = [
        HttpError::NotSent("secret".to_owned()),
        HttpError::Lost("secret".to_owned()),
        HttpError::TimedOut,
    ]
    .map(|error| {
        let failure = transport(&error);
        format!("{} {}", failure.code.code(), failure.message)
    });
    insta::assert_snapshot!(told.join("\n"), @r#"
    gemini_unavailable The request to Gemini could not be sent.
    request_reconciliation_pending The connection to Gemini was lost before its answer was whole.
    request_reconciliation_pending Gemini did not finish its answer in time.
    "#);
}

#[test]
fn no_message_shows_a_key_or_a_prompt() {
    let key = "AIzaSyA1234567890abcdefghijklmnopqrstuv";
    let prompt = "tell nobody ".repeat(2_000);
    let message = format!("Key {key}, value \"{prompt}\"\nmore");
    let told = told(400, &body(400, "INVALID_ARGUMENT", &message, &json!([])));
    insta::assert_snapshot!(told, @r#"
    gemini_rejected - Gemini refused the request. Google says: INVALID_ARGUMENT: Key [redacted], value "…" more
    "#);
}

proptest! {
    #[test]
    fn any_answer_is_classified_and_its_message_is_short(
        status: u16,
        message in ".*",
        junk in prop::collection::vec(any::<u8>(), 0..64),
        delay in ".*",
    ) {
        let details = json!([detail("RetryInfo", &json!({"retryDelay": delay}))]);
        let google = body(status, &message, &message, &details);
        for body in [google.as_bytes(), &junk] {
            let failure = classify(status, &[("retry-after".into(), delay.clone())], body, now());
            prop_assert!(failure.message.chars().count() <= MESSAGE_CHARS_MAX);
            prop_assert!(!failure.message.contains('\n'));
        }
    }
}
