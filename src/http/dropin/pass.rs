//! What is not served here passes through to Gemini, with the gateway's key and nothing of the
//! caller's: its body and the answer's are streamed, and both heads are filtered.
//!
//! What generates all the same, in a way that is not guarded, says so in `X-Oncepress-Warning:
//! not-idempotent`: it is bought again each time it is sent, and no credits count it, so it is
//! closed to accounts with a limit. What one project of Gemini holds for all who use its key
//! (files, caches, batches) is open to the account `default` only, as publishers are where nothing
//! else is configured: any other account would see its neighbours' things.

use crate::app::App;
use crate::error::{Code, Problem, Source};
use crate::http::dropin::path::{Kind, Passing};
use crate::http::message::{Body, Request, Response};
use crate::http::query;
use crate::limits::GEMINI_DEADLINE;
use crate::ports::{HttpAnswer, HttpError, HttpRequest};
use crate::store::accounts::Access;

/// Whether a request's body is a file, which is streamed and never read here.
pub fn is_upload(path: &str) -> bool {
    path.starts_with("/upload/")
}

/// Passes a call on.
pub(super) async fn through(
    app: &App,
    access: &Access,
    request: &Request,
    passing: &Passing,
) -> Result<Response, Problem> {
    permit(access, passing.kind)?;
    match app.outbound.send(upstream(app, request, passing)).await {
        Ok(answer) => Ok(answered(app, request, passing, answer)),
        Err(error) => Err(unanswered(passing, &error)),
    }
}

fn permit(access: &Access, kind: Kind) -> Result<(), Problem> {
    let refusal = match kind {
        Kind::Shared if access.account != SHARING_ACCOUNT => {
            "Files, caches and batches belong to all who share the gateway's key, so this call is \
             open to the account `default` only."
        }
        Kind::Unguarded if access.daily_credits.is_some() => {
            "This call is not counted against credits, so it is closed to accounts with a limit."
        }
        Kind::Open | Kind::Shared | Kind::Unguarded => return Ok(()),
    };
    Err(Problem::new(Code::Forbidden, refusal))
}

fn upstream(app: &App, request: &Request, passing: &Passing) -> HttpRequest {
    let config = app.config();
    let mut headers: Vec<(String, String)> = request
        .headers
        .iter()
        .filter(|(name, _)| goes_up(name))
        .cloned()
        .collect();
    let key = config.gemini_api_key.expose().to_owned();
    headers.push(("x-goog-api-key".to_owned(), key));
    HttpRequest {
        method: passing.method,
        url: format!(
            "{}{}{}",
            config.gemini_base_url,
            passing.path,
            query_up(&request.query)
        ),
        headers,
        body: request.body.clone(),
        timeout: GEMINI_DEADLINE,
    }
}

fn goes_up(name: &str) -> bool {
    UP.contains(&name) || name.starts_with("x-goog-upload-")
}

/// The query without credentials, and without the parameters by which Google's front end takes
/// header fields, methods or whole requests.
fn query_up(query: &str) -> String {
    let kept: Vec<&str> = query
        .split('&')
        .filter(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            let name = query::decode(name).unwrap_or_default().to_ascii_lowercase();
            !name.is_empty() && !name.starts_with('$') && !KEPT_BACK.contains(&name.as_str())
        })
        .collect();
    if kept.is_empty() {
        String::new()
    } else {
        format!("?{}", kept.join("&"))
    }
}

fn answered(app: &App, request: &Request, passing: &Passing, answer: HttpAnswer) -> Response {
    let mut response = Response {
        status: answer.status,
        headers: answer
            .headers
            .into_iter()
            .filter(|(name, _)| comes_down(name))
            .collect(),
        body: Body::Stream(answer.body),
    };
    for (name, value) in &mut response.headers {
        if name == UPLOAD_URL {
            *value = own_url(app, request, value);
        }
    }
    response = response.with("cache-control", "no-store");
    if response.status >= 400 {
        response = response.with("x-oncepress-error-source", Source::Gemini.as_str());
    }
    warned(response, passing.kind)
}

fn warned(response: Response, kind: Kind) -> Response {
    match kind {
        Kind::Unguarded => response.with(WARNING, NOT_IDEMPOTENT),
        Kind::Open | Kind::Shared => response,
    }
}

fn comes_down(name: &str) -> bool {
    DOWN.contains(&name) || name.starts_with("x-goog-upload-")
}

/// Where a resumable upload goes on: here, so that its bytes come with our key to us and not to
/// Google.
fn own_url(app: &App, request: &Request, url: &str) -> String {
    let path = url.strip_prefix(app.config().gemini_base_url.as_str());
    match (path, request.header("host")) {
        (Some(path), Some(host)) => {
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            let local = matches!(name, "127.0.0.1" | "localhost" | "[::1]");
            let scheme = if local { "http" } else { "https" };
            format!("{scheme}://{host}{path}")
        }
        _ => url.to_owned(),
    }
}

fn unanswered(passing: &Passing, error: &HttpError) -> Problem {
    let problem = Problem::new(
        Code::GeminiUnavailable,
        format!("Gemini did not answer: {error}."),
    );
    match (passing.kind, error) {
        (Kind::Open | Kind::Shared, _) | (Kind::Unguarded, HttpError::NotSent(_)) => problem,
        // It may have been paid for, and would be once more.
        (Kind::Unguarded, _) => problem
            .header("x-should-retry", "false")
            .header(WARNING, NOT_IDEMPOTENT),
    }
}

/// Who may use what all share.
const SHARING_ACCOUNT: &str = "default";
const WARNING: &str = "x-oncepress-warning";
const NOT_IDEMPOTENT: &str = "not-idempotent";
const UPLOAD_URL: &str = "x-goog-upload-url";
/// Header fields that go to Gemini.
const UP: [&str; 10] = [
    "accept",
    "accept-language",
    "api-revision",
    "content-type",
    "if-match",
    "if-none-match",
    "last-event-id",
    "range",
    "x-goog-api-client",
    "x-server-timeout",
];
/// Header fields that come from it.
const DOWN: [&str; 11] = [
    "accept-ranges",
    "content-disposition",
    "content-range",
    "content-type",
    "etag",
    "last-modified",
    "retry-after",
    "server-timing",
    "x-cloud-trace-context",
    "x-gemini-service-tier",
    "x-goog-request-id",
];
/// Query parameters, in lower case, that stay here.
const KEPT_BACK: [&str; 8] = [
    "access_token",
    "bearer_token",
    "callback",
    "key",
    "oauth_token",
    "quotauser",
    "userip",
    "userproject",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_and_no_override_goes_up() {
        assert_eq!(
            query_up(
                "alt=sse&key=opk_1&%6bey=2&KEY=3&access_token=t&$httpHeaders=x&%24ct=y&pageSize=5"
            ),
            "?alt=sse&pageSize=5"
        );
        assert_eq!(query_up("key=opk_1"), "");
        for name in [
            "x-goog-api-key",
            "authorization",
            "cookie",
            "x-http-method-override",
            "host",
        ] {
            assert!(!goes_up(name), "{name}");
        }
        assert!(goes_up("x-goog-upload-command"));
    }

    #[test]
    fn cookies_and_encodings_do_not_come_down() {
        for name in [
            "set-cookie",
            "content-encoding",
            "transfer-encoding",
            "content-length",
            "alt-svc",
        ] {
            assert!(!comes_down(name), "{name}");
        }
        assert!(comes_down("x-goog-upload-status"));
    }

    #[test]
    fn what_all_share_is_open_to_the_default_account_only() {
        let access = |account: &str, daily_credits| Access {
            key_id: "key_1".to_owned(),
            hash: String::new(),
            account: account.to_owned(),
            daily_credits,
            timezone: "UTC".to_owned(),
            defaults: "{}".to_owned(),
        };
        assert!(permit(&access("default", None), Kind::Shared).is_ok());
        assert!(permit(&access("acme", None), Kind::Shared).is_err());
        assert!(permit(&access("acme", None), Kind::Unguarded).is_ok());
        assert!(permit(&access("acme", Some(5)), Kind::Unguarded).is_err());
        assert!(permit(&access("acme", Some(5)), Kind::Open).is_ok());
    }

    #[test]
    fn a_call_that_may_have_been_paid_for_is_not_to_be_retried() {
        let passing = |kind| Passing {
            method: "POST",
            path: "/v1/x".to_owned(),
            kind,
        };
        let lost = HttpError::Lost("reset".to_owned());
        let problem = unanswered(&passing(Kind::Unguarded), &lost);
        assert!(
            problem
                .headers
                .contains(&("x-should-retry", "false".to_owned()))
        );
        assert!(unanswered(&passing(Kind::Open), &lost).headers.is_empty());
    }
}
