//! Publishers: adapters to the places where text is published.
//!
//! A publisher is *sans-IO*: it says which effect it wants next and is told what came of it. One
//! driver carries the effects out, so every adapter is tested natively, at every crash point.

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
    /// An earlier attempt may have taken effect: look before writing again.
    pub maybe_sent: bool,
    /// What an earlier attempt asked to be remembered (a draft's id, …).
    pub progress: Option<String>,
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
#[derive(Debug)]
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
    Transient {
        /// Why, without secrets or output.
        reason: String,
        /// The status code, where there was an answer.
        status: Option<u16>,
        /// Not before this long from now, where the destination said so.
        retry_after: Option<Span>,
    },
    /// It may be there or not: look before writing again.
    Ambiguous {
        /// Why.
        reason: String,
        /// The status code, where there was an answer.
        status: Option<u16>,
        /// Not before this long from now, where the destination said so.
        retry_after: Option<Span>,
    },
    /// It is not there and trying again is pointless.
    Permanent {
        /// A stable word such as `target_taken`, then why.
        reason: String,
        /// The status code, where there was an answer.
        status: Option<u16>,
    },
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
