//! Every error that a caller can meet: one table from code to status, blame, retry advice and
//! words, and [`Problem`], the one type with which a handler refuses.
//!
//! ```
//! use oncepress::error::{Code, Problem};
//! let refusal = Problem::new(Code::OutputHeld, "The output was cut off.").generation("gen_1");
//! assert_eq!(refusal.code.status(), 422);
//! ```

use std::fmt::Write as _;

use crate::documentation;
use crate::time::Span;

macro_rules! codes {
    ($($variant:ident $status:literal $name:literal $title:literal
        $source:ident $retry:ident $after:expr; $means:literal; $action:literal;)*) => {
        /// A stable error code: what `code` and `X-Oncepress-Error-Code` say.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $means] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            const fn row(self) -> Row {
                match self {
                    $(Self::$variant => Row {
                        name: $name, status: $status, title: $title, source: Source::$source,
                        retry: Retry::$retry, retry_after: $after,
                        means: documentation($means), action: documentation($action),
                    },)*
                }
            }
        }
    };
}

codes! {
    InvalidRequest 400 "invalid_request" "The request is not valid" Oncepress Pointless None;
        "The body, the query or a header breaks a rule; `errors` names each fault by JSON pointer.";
        "Correct the request. Nothing was spent and no key was consumed.";
    InvalidIdempotencyKey 400 "invalid_idempotency_key" "The Idempotency-Key is not valid"
        Oncepress Pointless None;
        "`Idempotency-Key` is malformed or was sent twice.";
        "Send 1 to 128 of `A-Z a-z 0-9 . _ : -`, starting with a letter or digit, once.";
    UnknownModelPrice 400 "unknown_model_price" "The model has no price" Oncepress Pointless None;
        "The account has a credit limit and the price table does not know the model.";
        "Name a model that has a price, or have it added to `PRICES`.";
    Unauthenticated 401 "unauthenticated" "The API key is missing or not valid"
        Oncepress Pointless None;
        "No key was sent, or it is unknown or revoked.";
        "Send a valid key. This is Oncepress's key, not Gemini's.";
    CreditsExhausted 402 "credits_exhausted" "The day's credits do not suffice"
        Oncepress Pointless None;
        "The upper estimate of this call's cost might pass the account's daily limit.";
        "Wait until the account's next day begins (`Retry-After`), or have the limit raised.";
    Forbidden 403 "forbidden" "Not allowed" Oncepress Pointless None;
        "The key is valid but not for this: an API key on `/admin`, another account's publisher.";
        "Use the admin token, or a publisher that is open to the account.";
    NotFound 404 "not_found" "Not found" Oncepress Pointless None;
        "No such path, or no such thing in this account.";
        "Check the path and the id.";
    MethodNotAllowed 405 "method_not_allowed" "The method is not allowed here"
        Oncepress Pointless None;
        "The path exists; the `Allow` header lists its methods.";
        "Use one of them.";
    IdempotencyConflict 409 "idempotency_conflict" "The key belongs to another request"
        Oncepress Pointless None;
        "The key was used with other content; `errors` names the members that differ.";
        "Repeat the first request unchanged, or choose a new key.";
    GenerationInProgress 409 "generation_in_progress" "The generation is still running"
        Oncepress Worthwhile Some(IN_PROGRESS_RETRY);
        "The same request is being generated and did not finish while this call waited.";
        "Repeat the request unchanged after `Retry-After`: it attaches or replays.";
    InvalidState 409 "invalid_state" "Not possible in the present state" Oncepress Pointless None;
        "The generation or delivery is not in a state in which this can be done.";
        "Look it up and decide anew.";
    Gone 410 "gone" "No longer kept" Oncepress Pointless None;
        "The generation was purged when its retention ended.";
        "Forget the id. Its usage figures remain.";
    RequestTooLarge 413 "request_too_large" "The request is too large" Oncepress Pointless None;
        "The body is over the limit of its endpoint.";
        "Send less: 1 MiB for `/api`, 20 MiB for the drop-in endpoints.";
    UnsupportedMediaType 415 "unsupported_media_type" "The body is not JSON"
        Oncepress Pointless None;
        "`Content-Type` is not `application/json`, or the body is compressed.";
        "Send plain JSON with `Content-Type: application/json`.";
    OutputHeld 422 "output_held" "The output is held" Oncepress Pointless None;
        "Paid for and stored, but not fit to publish by itself: cut off, blocked, empty, invalid.";
        "Have a person look at it: `resolve` with `publish`, `abandon` or `regenerate`.";
    RateLimited 429 "rate_limited" "Too many requests" Oncepress Worthwhile Some(RATE_LIMIT_RETRY);
        "The account sends more requests a minute than it may; replays count.";
        "Repeat the request unchanged after `Retry-After`.";
    Internal 500 "internal" "Oncepress failed" Oncepress Worthwhile None;
        "A fault of Oncepress itself.";
        "Repeat the request unchanged: the claim makes that safe. Report it with the request id.";
    Misconfigured 500 "misconfigured" "Oncepress is misconfigured" Oncepress Pointless None;
        "The Worker's configuration has faults; `/admin/health` lists them by name.";
        "Have the operator correct it.";
    GeminiRejected 502 "gemini_rejected" "Gemini refused the request" Gemini Pointless None;
        "Gemini answered 400 or 404: it refuses this content, parameter or model.";
        "Correct the request. Credits were returned and the claim is free.";
    GeminiAuth 502 "gemini_auth" "Gemini refused the gateway's key" Gemini Pointless None;
        "Gemini refused `GEMINI_API_KEY`, not the caller's key.";
        "Have the operator correct it. Credits were returned and the claim is free.";
    GeminiRateLimited 503 "gemini_rate_limited" "Gemini's rate limit is reached"
        Gemini Worthwhile Some(GEMINI_RATE_RETRY);
        "Gemini answered 429 for a limit that renews within minutes.";
        "Repeat the request unchanged after `Retry-After`. The claim is free; the repeat is fresh.";
    GeminiQuotaExhausted 503 "gemini_quota_exhausted" "Gemini's daily quota is used up"
        Gemini Pointless Some(GEMINI_QUOTA_RETRY);
        "Gemini answered 429 for a limit that renews once a day.";
        "Leave it to a later job, not to an SDK's own retries. The claim is free.";
    GeminiUnavailable 503 "gemini_unavailable" "Gemini is unavailable"
        Gemini Worthwhile Some(GEMINI_UNAVAILABLE_RETRY);
        "Gemini answered 500 or 503, which it does not bill.";
        "Repeat the request unchanged after `Retry-After`. The claim is free; the repeat is fresh.";
    RequestReconciliationPending 503 "request_reconciliation_pending"
        "The outcome is not known yet" Oncepress Worthwhile Some(RECONCILIATION_RETRY);
        "Gemini may have generated and billed, and no answer arrived whole; it is being settled.";
        "Stop, keep the key; repeat the request unchanged after `Retry-After`. Never alter it.";
    DedupUnavailable 503 "dedup_unavailable" "Duplicates can't be told at the moment"
        Oncepress Worthwhile Some(STORE_RETRY);
        "No store can tell whether the request is fresh, so it was not sent to Gemini.";
        "Repeat the request unchanged after `Retry-After`.";
    StoreUnavailable 503 "store_unavailable" "The store is unavailable"
        Oncepress Worthwhile Some(STORE_RETRY);
        "The database did not answer, or nothing could have stored the output.";
        "Repeat the request unchanged after `Retry-After`.";
}

impl Code {
    /// The code as callers see it.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.row().status
    }

    /// A short title for people, the same for every occurrence.
    pub const fn title(self) -> &'static str {
        self.row().title
    }

    /// Who refused, unless the problem says otherwise.
    pub const fn source(self) -> Source {
        self.row().source
    }

    /// Whether the same request can ever fare better soon.
    pub const fn retry(self) -> Retry {
        self.row().retry
    }

    /// `Retry-After` where nobody knows better.
    pub const fn retry_after(self) -> Option<Span> {
        self.row().retry_after
    }

    /// The code that callers see under this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// The table of all codes in Markdown, as `docs/CONTRACT.md` has it.
    pub fn reference() -> String {
        let mut table = String::from(
            "| code | status | source | retry | what happened | what to do |\n\
             |---|---|---|---|---|---|\n",
        );
        for code in Self::ALL {
            let row = code.row();
            let retry = match (row.retry, row.retry_after) {
                (Retry::Pointless, None) => "no".to_owned(),
                (Retry::Pointless, Some(after)) => format!("no; {} s", after.seconds_up()),
                (Retry::Worthwhile, None) => "yes".to_owned(),
                (Retry::Worthwhile, Some(after)) => format!("yes, {} s", after.seconds_up()),
            };
            // Writing into a `String` can't fail.
            let _ = writeln!(
                table,
                "| `{}` | {} | {} | {retry} | {} | {} |",
                row.name,
                row.status,
                row.source.as_str(),
                row.means,
                row.action,
            );
        }
        table
    }
}

/// Who refused: what `X-Oncepress-Error-Source` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The gateway itself.
    Oncepress,
    /// Gemini.
    Gemini,
    /// The destination.
    Publisher,
}

impl Source {
    /// The word in the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oncepress => "oncepress",
            Self::Gemini => "gemini",
            Self::Publisher => "publisher",
        }
    }
}

/// Whether a client library should send the same request again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request can succeed later.
    Worthwhile,
    /// It can't, or not within the minutes a library retries for: `x-should-retry: false`.
    Pointless,
}

/// One fault, and where in the request it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// JSON pointer (RFC 6901) into the body, or into the query as if it were an object; empty for
    /// all of it.
    pub pointer: String,
    /// What is wrong there, without the value.
    pub detail: String,
}

impl Fault {
    /// A fault at `pointer`.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

/// What Gemini itself answered, for endpoints that pass its errors on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamError {
    /// Gemini's status code.
    pub status: u16,
    /// Gemini's own JSON body, byte for byte.
    pub body: Vec<u8>,
}

/// A refusal or failure on its way to the caller.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// What happened this time, for people: no secret, prompt or output.
    pub detail: String,
    /// Each fault of the request by JSON pointer, or each member that conflicts.
    pub faults: Vec<Fault>,
    /// When the same request may be sent again; `None` takes the code's own.
    pub retry_after: Option<Span>,
    /// The generation concerned.
    pub generation_id: Option<String>,
    /// Who refused; `None` takes the code's own.
    pub source: Option<Source>,
    /// Gemini's own answer, where one came.
    pub upstream: Option<UpstreamError>,
    /// Further members of the problem document.
    pub members: Vec<(&'static str, serde_json::Value)>,
    /// Further header fields, such as `allow`.
    pub headers: Vec<(&'static str, String)>,
}

impl Problem {
    /// A problem of this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            faults: Vec::new(),
            retry_after: None,
            generation_id: None,
            source: None,
            upstream: None,
            members: Vec::new(),
            headers: Vec::new(),
        }
    }

    /// `invalid_request` with each fault.
    pub fn invalid(faults: Vec<Fault>) -> Self {
        let detail = match faults.as_slice() {
            [only] if only.pointer.is_empty() => only.detail.clone(),
            [only] => format!("{}: {}", only.pointer, only.detail),
            _ => format!(
                "The request has {} faults; `errors` names each.",
                faults.len()
            ),
        };
        Self {
            faults,
            ..Self::new(Code::InvalidRequest, detail)
        }
    }

    /// `idempotency_conflict` with the JSON pointers that differ.
    pub fn conflict(pointers: impl IntoIterator<Item = String>) -> Self {
        let faults = pointers
            .into_iter()
            .map(|at| Fault::new(at, "differs from the first request"));
        Self {
            faults: faults.collect(),
            ..Self::new(
                Code::IdempotencyConflict,
                "The key was first used with another request.",
            )
        }
    }

    /// The same problem, about this generation.
    #[must_use]
    pub fn generation(mut self, id: impl Into<String>) -> Self {
        self.generation_id = Some(id.into());
        self
    }

    /// The same problem with this `Retry-After`.
    #[must_use]
    pub fn after(mut self, span: Span) -> Self {
        self.retry_after = Some(span);
        self
    }

    /// The same problem, refused by `source`.
    #[must_use]
    pub fn from_source(mut self, source: Source) -> Self {
        self.source = Some(source);
        self
    }

    /// The same problem with Gemini's own answer.
    #[must_use]
    pub fn upstream(mut self, status: u16, body: impl Into<Vec<u8>>) -> Self {
        self.upstream = Some(UpstreamError {
            status,
            body: body.into(),
        });
        self
    }

    /// The same problem with one member more in its document.
    #[must_use]
    pub fn member(mut self, name: &'static str, value: impl Into<serde_json::Value>) -> Self {
        self.members.push((name, value.into()));
        self
    }

    /// The same problem with one header field more.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// What the table says about one code.
struct Row {
    name: &'static str,
    status: u16,
    title: &'static str,
    source: Source,
    retry: Retry,
    retry_after: Option<Span>,
    means: &'static str,
    action: &'static str,
}

/// A caller has waited 25 s already and a long article takes a minute or two.
pub const IN_PROGRESS_RETRY: Span = Span::from_seconds(15);
/// The rate limiter counts by the minute.
pub const RATE_LIMIT_RETRY: Span = Span::from_seconds(60);
/// Gemini's short limits are a minute's; it says more exactly in most answers.
pub const GEMINI_RATE_RETRY: Span = Span::from_seconds(60);
/// A daily quota renews at a time Gemini does not tell; an hour keeps the asking cheap.
pub const GEMINI_QUOTA_RETRY: Span = Span::from_hours(1);
/// Overload of a model passes within a minute or is an outage.
pub const GEMINI_UNAVAILABLE_RETRY: Span = Span::from_seconds(30);
/// The reconciler runs once a minute.
pub const RECONCILIATION_RETRY: Span = Span::from_seconds(60);
/// A stall of D1 lasts 30 to 80 s, one of KV about as long.
pub const STORE_RETRY: Span = Span::from_seconds(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_codes_is_stable() {
        let lines: Vec<String> = Code::ALL
            .iter()
            .map(|code| {
                format!(
                    "{} {} {} {:?} {:?}",
                    code.status(),
                    code.as_str(),
                    code.source().as_str(),
                    code.retry(),
                    code.retry_after().map(Span::seconds_up),
                )
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        400 invalid_request oncepress Pointless None
        400 invalid_idempotency_key oncepress Pointless None
        400 unknown_model_price oncepress Pointless None
        401 unauthenticated oncepress Pointless None
        402 credits_exhausted oncepress Pointless None
        403 forbidden oncepress Pointless None
        404 not_found oncepress Pointless None
        405 method_not_allowed oncepress Pointless None
        409 idempotency_conflict oncepress Pointless None
        409 generation_in_progress oncepress Worthwhile Some(15)
        409 invalid_state oncepress Pointless None
        410 gone oncepress Pointless None
        413 request_too_large oncepress Pointless None
        415 unsupported_media_type oncepress Pointless None
        422 output_held oncepress Pointless None
        429 rate_limited oncepress Worthwhile Some(60)
        500 internal oncepress Worthwhile None
        500 misconfigured oncepress Pointless None
        502 gemini_rejected gemini Pointless None
        502 gemini_auth gemini Pointless None
        503 gemini_rate_limited gemini Worthwhile Some(60)
        503 gemini_quota_exhausted gemini Pointless Some(3600)
        503 gemini_unavailable gemini Worthwhile Some(30)
        503 request_reconciliation_pending oncepress Worthwhile Some(60)
        503 dedup_unavailable oncepress Worthwhile Some(30)
        503 store_unavailable oncepress Worthwhile Some(30)
        "#);
    }

    #[test]
    fn a_code_is_found_by_its_name_and_by_no_other() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
        assert_eq!(Code::parse("Internal"), None);
    }

    #[test]
    fn one_fault_is_told_in_the_detail_and_many_are_counted() {
        let one = Problem::invalid(vec![Fault::new("/site", "is required")]);
        assert_eq!(one.detail, "/site: is required");
        let two = Problem::invalid(vec![one.faults[0].clone(), Fault::new("/x", "is unknown")]);
        assert_eq!(two.detail, "The request has 2 faults; `errors` names each.");
    }
}
