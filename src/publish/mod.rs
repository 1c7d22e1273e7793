//! Publishers: adapters to the places where text is published.
//!
//! A publisher is *sans-IO*: it says which effect it wants next and is told what came of it. One
//! driver carries the effects out, so every adapter is tested natively, at every crash point.

mod answer;
mod cms;
pub mod envelope;
pub mod excerpt;
mod fields;
pub mod ghost;
pub mod github;
pub mod queue;
pub mod r2;
pub mod settings;
mod slug;
pub mod ssrf;
pub mod target;
pub mod template;
mod url;
pub mod webhook;
pub mod wordpress;

use crate::ports::{HttpError, HttpRequest, Object, PutNew};
use crate::time::{Span, Timestamp};

/// One generation on its way to one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The delivery's id: its constant idempotency key, without dots.
    pub delivery_id: String,
    /// The generation's id.
    pub generation_id: String,
    /// Whose it is.
    pub account: String,
    /// Its site.
    pub site: String,
    /// Its pipeline.
    pub pipeline: String,
    /// What it is about, for people.
    pub topic: Option<String>,
    /// The model that was asked for.
    pub model: String,
    /// The idempotency key.
    pub key: String,
    /// SHA-256 of the canonical request, 64 hex digits.
    pub fingerprint: String,
    /// When the generation was created.
    pub created_at: Timestamp,
    /// When its output was committed.
    pub completed_at: Timestamp,
    /// Where in the destination it goes.
    pub target: String,
    /// The output's text.
    pub text: String,
    /// What is sent: the text, or what the template made of it.
    pub content: String,
    /// The media type of `content`.
    pub content_type: String,
    /// An earlier attempt may have taken effect: look before writing again. Once true it stays
    /// true for the delivery's life, through a requeue too; an attempt that was begun and never
    /// finished counts.
    pub maybe_sent: bool,
    /// What an earlier attempt asked to be remembered (a draft's id, …).
    pub progress: Option<String>,
}

impl Parcel {
    /// Fills `content` and `content_type` by a template.
    pub fn render(&mut self, template: &template::Template) {
        let rendered = template.render(self);
        self.content = rendered.content;
        self.content_type = rendered.content_type;
    }
}

/// What a publication wants done.
#[derive(Debug)]
pub enum Effect {
    /// Send an HTTP request; the reply's body is read up to 1 MiB.
    Http(HttpRequest),
    /// Put an object into R2 unless one of that name exists.
    PutNew {
        /// The object's key.
        key: String,
        /// The object.
        object: Object,
    },
    /// Read an object of R2.
    GetObject {
        /// The object's key.
        key: String,
    },
    /// Send a message to the queue bound under this name.
    Send {
        /// The binding.
        binding: String,
        /// The JSON body.
        body: String,
    },
}

/// What came of an [`Effect`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// The whole answer to an HTTP request.
    Http {
        /// The status code.
        status: u16,
        /// Header fields, names in lower case.
        headers: Vec<(String, String)>,
        /// The body, cut at 1 MiB.
        body: Vec<u8>,
    },
    /// The HTTP request has no whole answer.
    HttpFailed(HttpError),
    /// The conditional put was done.
    Put(PutNew),
    /// The object that was asked for.
    Object(Option<Object>),
    /// The message was accepted.
    Sent,
    /// The store or queue failed; a write may have taken effect.
    Failed(String),
}

/// The next step of a publication.
#[derive(Debug)]
pub enum Step {
    /// Carry this out and come back with its reply.
    Do(Effect),
    /// It is over.
    Done(Outcome),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination has it.
    Published {
        /// The destination's id or URL.
        reference: Option<String>,
        /// It was there before this attempt.
        replayed: bool,
    },
    /// It is certainly not there; try again.
    Transient(Failure),
    /// It may be there or not: look before writing again.
    Ambiguous(Failure),
    /// Trying again is pointless until a person has acted.
    Permanent(Failure),
}

/// Why an attempt did not publish, without secrets and without the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A stable word: one of the constants in [`failure`].
    pub code: &'static str,
    /// The same for people, with what they can do about it.
    pub detail: String,
    /// The status code, where there was an answer.
    pub status: Option<u16>,
    /// Not before this long from now, where the destination said so.
    pub retry_after: Option<Span>,
    /// The start of the destination's answer, where there was one; secrets are struck out.
    pub excerpt: Option<String>,
}

impl Failure {
    /// A failure that no answer of the destination explains.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            status: None,
            retry_after: None,
            excerpt: None,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

/// The stable words of [`Failure::code`].
pub mod failure {
    /// Another text is where this one should go.
    pub const TARGET_TAKEN: &str = "target_taken";
    /// The place to write to (bucket, repository, branch, site) is gone or out of sight.
    pub const TARGET_MISSING: &str = "target_missing";
    /// The destination does not take this name or place.
    pub const TARGET_REFUSED: &str = "target_refused";
    /// The destination wrote under another name than it was asked to.
    pub const TARGET_RENAMED: &str = "target_renamed";
    /// The destination refuses the credentials: expired, revoked or without the right.
    pub const CREDENTIALS_REFUSED: &str = "credentials_refused";
    /// The text is larger than the destination takes.
    pub const CONTENT_TOO_LARGE: &str = "content_too_large";
    /// The destination asks for fewer requests.
    pub const RATE_LIMITED: &str = "rate_limited";
    /// The destination answered with a redirect, which is never followed.
    pub const REDIRECT_REFUSED: &str = "redirect_refused";
    /// The receiver said that it wants no more (410).
    pub const ENDPOINT_GONE: &str = "endpoint_gone";
    /// The destination refused the request (another 4xx).
    pub const REJECTED: &str = "rejected";
    /// A rule of the repository forbids the change.
    pub const RULE_VIOLATED: &str = "rule_violated";
    /// The destination's state moved while it was written to.
    pub const TARGET_MOVED: &str = "target_moved";
    /// The destination, or something before it, is down (5xx).
    pub const UNAVAILABLE: &str = "unavailable";
    /// The connection was lost, so that nobody knows what was done.
    pub const CONNECTION_LOST: &str = "connection_lost";
    /// The time was up, so that nobody knows what was done.
    pub const TIMED_OUT: &str = "timed_out";
    /// Nothing was sent: no connection could be made.
    pub const NOT_SENT: &str = "not_sent";
    /// The answer is not what the configuration says a success looks like.
    pub const ASSERTION_FAILED: &str = "assertion_failed";
    /// The answer can't be read.
    pub const INVALID_ANSWER: &str = "invalid_answer";
    /// The bucket or the queue failed.
    pub const STORE_FAILED: &str = "store_failed";
    /// A reply that does not belong to the effect: a fault of the driver.
    pub const UNEXPECTED_REPLY: &str = "unexpected_reply";
}

/// What a repeat does at a destination, and so what risk of a duplicate remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdempotencyClass {
    /// The destination honours the key, or creation under a chosen name collides.
    Native,
    /// The adapter looks before it writes again; a race between look and write is healed.
    Probe,
    /// The destination can't be asked: at least once, with a constant key.
    None,
}

/// One attempt at publishing one parcel: a state machine that does no IO itself.
pub trait Publication {
    /// Takes the reply to the last effect (`None` at first) and says what is next.
    fn step(&mut self, reply: Option<Reply>, now: Timestamp) -> Step;
    /// What a later attempt should know, even if this one dies after the present step.
    fn progress(&self) -> Option<String> {
        None
    }
}

/// The topic as it is, else the first line of the text that says something, without Markdown's
/// marks.
pub(crate) fn title(topic: Option<&str>, text: &str) -> String {
    let topic = topic.map(str::trim).into_iter();
    let mut lines = topic.chain(text.lines().map(without_marks));
    let title = lines.find(|line| !line.is_empty()).unwrap_or_default();
    excerpt::cut(title, TITLE_MAX_BYTES).trim_end().to_owned()
}

/// A line of Markdown without the marks around it. At its end `#` is one only after a space: a text
/// about C# is not about C.
fn without_marks(line: &str) -> &str {
    let mark = |marks: &'static str| move |c: char| c.is_whitespace() || marks.contains(c);
    let line = line
        .trim_start_matches(mark("#*_>`=-"))
        .trim_end_matches(mark("*_`=-"));
    let open = line.trim_end_matches('#');
    if open.ends_with(char::is_whitespace) {
        open.trim_end_matches(mark("*_`=-"))
    } else {
        line
    }
}

/// Ghost takes 255 characters of a title; a line of prose as title is cut long before.
const TITLE_MAX_BYTES: usize = 250;
