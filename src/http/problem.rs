//! Problems on the wire: RFC 9457 for the API, Google's error shape for the drop-in endpoints.

use serde_json::{Map, Value, json};

use crate::error::{Code, Problem, Retry};
use crate::http::message::{Body, Response};

impl Problem {
    /// The answer of Oncepress's own API: `application/problem+json`.
    ///
    /// ```
    /// use oncepress::error::{Code, Problem};
    /// let answer = Problem::new(Code::Gone, "Purged.").to_response();
    /// assert_eq!(answer.status, 410);
    /// ```
    pub fn to_response(&self) -> Response {
        let mut document = Map::new();
        let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
        put(
            "type",
            format!("urn:oncepress:problem:{}", self.code.as_str()).into(),
        );
        put("title", self.code.title().into());
        put("status", self.code.status().into());
        put("detail", self.detail.as_str().into());
        put("code", self.code.as_str().into());
        if let Some(id) = &self.generation_id {
            put("instance", format!("/api/v1/generations/{id}").into());
            put("generationId", id.as_str().into());
        }
        if !self.faults.is_empty() {
            let errors = self.faults.iter();
            put(
                "errors",
                errors
                    .map(|f| json!({"pointer": f.pointer, "detail": f.detail}))
                    .collect(),
            );
        }
        for (name, value) in &self.members {
            put(name, value.clone());
        }
        let body = Value::Object(document).to_string().into_bytes();
        self.answer(self.code.status(), "application/problem+json", body)
    }

    /// The answer of a drop-in endpoint: Gemini's own where it refused, else the same shape.
    ///
    /// Gemini's refusal of the *gateway's* key is no refusal of the caller's, so it is not passed
    /// on as a 401 or 403.
    pub fn to_google_response(&self) -> Response {
        if let Some(upstream) = self
            .upstream
            .as_ref()
            .filter(|_| self.code.is_gemini_refusal())
        {
            return self.answer(upstream.status, JSON, upstream.body.clone());
        }
        let status = self.code.status();
        let body = json!({"error": {
            "code": status,
            "message": format!("{}: {}", self.code.title(), self.detail),
            "status": google_status(status),
            "details": self.google_details(),
        }});
        self.answer(status, JSON, body.to_string().into_bytes())
    }

    /// The header fields that every error has, whatever its body.
    fn answer(&self, status: u16, content_type: &str, body: Vec<u8>) -> Response {
        let source = self.source.unwrap_or(self.code.source());
        let mut answer = Response {
            status,
            headers: Vec::new(),
            body: Body::Bytes(body),
        }
        .with("content-type", content_type)
        .with("cache-control", "no-store")
        .with("x-oncepress-error-code", self.code.as_str())
        .with("x-oncepress-error-source", source.as_str());
        if let Some(seconds) = self.retry_after_seconds() {
            answer = answer.with("retry-after", seconds.to_string());
        }
        if self.code.retry() == Retry::Pointless {
            answer = answer.with("x-should-retry", "false");
        }
        self.headers.iter().fold(answer, |answer, (name, value)| {
            answer.with(name, value.as_str())
        })
    }

    /// Whole seconds, at least one, so that nobody retries in a tight loop.
    fn retry_after_seconds(&self) -> Option<u64> {
        let span = self.retry_after.or(self.code.retry_after())?;
        Some(span.seconds_up().max(1))
    }

    fn google_details(&self) -> Vec<Value> {
        let mut metadata = Map::new();
        if let Some(id) = &self.generation_id {
            metadata.insert("generationId".to_owned(), id.as_str().into());
        }
        let mut details = vec![json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.code.as_str().to_ascii_uppercase(),
            "domain": "oncepress",
            "metadata": metadata,
        })];
        if !self.faults.is_empty() {
            let violations = self.faults.iter();
            let violations: Value = violations
                .map(|f| json!({"field": f.pointer, "description": f.detail}))
                .collect();
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": violations,
            }));
        }
        if let Some(seconds) = self.retry_after_seconds() {
            details.push(json!({
                "@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": format!("{seconds}s"),
            }));
        }
        details
    }
}

impl Code {
    /// Gemini refused for sure, and for a reason that concerns the caller's own request.
    const fn is_gemini_refusal(self) -> bool {
        matches!(
            self,
            Self::GeminiRejected
                | Self::GeminiRateLimited
                | Self::GeminiQuotaExhausted
                | Self::GeminiUnavailable
        )
    }
}

/// The name in `google.rpc.Code` that Google's own APIs give with an HTTP status.
const fn google_status(status: u16) -> &'static str {
    match status {
        400 | 413 | 415 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 | 410 => "NOT_FOUND",
        405 => "UNIMPLEMENTED",
        409 => "ABORTED",
        422 => "FAILED_PRECONDITION",
        402 | 429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        _ => "INTERNAL",
    }
}

const JSON: &str = "application/json; charset=utf-8";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Fault, Source};
    use crate::time::Span;

    #[test]
    fn an_invalid_request_names_each_fault_and_forbids_a_retry() {
        let faults = vec![
            Fault::new("/site", "is required"),
            Fault::new("/foo", "is unknown"),
        ];
        insta::assert_snapshot!(shown(&Problem::invalid(faults).to_response()), @r#"
        400
        content-type: application/problem+json
        cache-control: no-store
        x-oncepress-error-code: invalid_request
        x-oncepress-error-source: oncepress
        x-should-retry: false
        {"type":"urn:oncepress:problem:invalid_request","title":"The request is not valid","status":400,"detail":"The request has 2 faults; `errors` names each.","code":"invalid_request","errors":[{"pointer":"/site","detail":"is required"},{"pointer":"/foo","detail":"is unknown"}]}
        "#);
    }

    #[test]
    fn a_running_generation_says_when_to_come_back_and_where_to_look() {
        let problem = Problem::new(Code::GenerationInProgress, "Waited 25 s.").generation("gen_1");
        insta::assert_snapshot!(shown(&problem.to_response()), @r#"
        409
        content-type: application/problem+json
        cache-control: no-store
        x-oncepress-error-code: generation_in_progress
        x-oncepress-error-source: oncepress
        retry-after: 15
        {"type":"urn:oncepress:problem:generation_in_progress","title":"The generation is still running","status":409,"detail":"Waited 25 s.","code":"generation_in_progress","instance":"/api/v1/generations/gen_1","generationId":"gen_1"}
        "#);
    }

    #[test]
    fn a_drop_in_client_gets_googles_shape() {
        let conflict = Problem::conflict(vec!["/contents/0/parts/0/text".to_owned()]);
        insta::assert_snapshot!(shown(&conflict.generation("gen_1").to_google_response()), @r#"
        409
        content-type: application/json; charset=utf-8
        cache-control: no-store
        x-oncepress-error-code: idempotency_conflict
        x-oncepress-error-source: oncepress
        x-should-retry: false
        {"error":{"code":409,"message":"The key belongs to another request: The key was first used with another request.","status":"ABORTED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"IDEMPOTENCY_CONFLICT","domain":"oncepress","metadata":{"generationId":"gen_1"}},{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"/contents/0/parts/0/text","description":"differs from the first request"}]}]}}
        "#);
        let limited = Problem::new(Code::RateLimited, "600 a minute.").after(Span::from_millis(1));
        insta::assert_snapshot!(shown(&limited.to_google_response()), @r#"
        429
        content-type: application/json; charset=utf-8
        cache-control: no-store
        x-oncepress-error-code: rate_limited
        x-oncepress-error-source: oncepress
        retry-after: 1
        {"error":{"code":429,"message":"Too many requests: 600 a minute.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMITED","domain":"oncepress","metadata":{}},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1s"}]}}
        "#);
    }

    #[test]
    fn geminis_own_refusal_is_passed_on_but_not_its_refusal_of_our_key() {
        let body = br#"{"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}"#;
        let limited = Problem::new(Code::GeminiRateLimited, "m").upstream(429, *body);
        insta::assert_snapshot!(shown(&limited.to_google_response()), @r#"
        429
        content-type: application/json; charset=utf-8
        cache-control: no-store
        x-oncepress-error-code: gemini_rate_limited
        x-oncepress-error-source: gemini
        retry-after: 60
        {"error":{"code":429,"message":"m","status":"RESOURCE_EXHAUSTED"}}
        "#);
        let refused = Problem::new(Code::GeminiAuth, "m").upstream(403, *body);
        assert_eq!(refused.to_google_response().status, 502);
    }

    #[test]
    fn further_members_headers_and_another_source_are_shown() {
        let problem = Problem::new(Code::MethodNotAllowed, "m")
            .member("allowed", json!(["GET"]))
            .header("allow", "GET")
            .from_source(Source::Publisher);
        insta::assert_snapshot!(shown(&problem.to_response()), @r#"
        405
        content-type: application/problem+json
        cache-control: no-store
        x-oncepress-error-code: method_not_allowed
        x-oncepress-error-source: publisher
        x-should-retry: false
        allow: GET
        {"type":"urn:oncepress:problem:method_not_allowed","title":"The method is not allowed here","status":405,"detail":"m","code":"method_not_allowed","allowed":["GET"]}
        "#);
    }

    /// Status, header fields and body as on the wire.
    fn shown(answer: &Response) -> String {
        let mut lines = vec![answer.status.to_string()];
        lines.extend(
            answer
                .headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}")),
        );
        let Body::Bytes(body) = &answer.body else {
            panic!("a problem is never streamed")
        };
        lines.push(String::from_utf8(body.clone()).unwrap());
        lines.join("\n")
    }
}
