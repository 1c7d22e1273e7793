//! What people hear unasked: alerts, bundled, and the daily digest.
//!
//! The database is the queue: an alert is a row of its own transaction, so nothing that happened
//! goes unsaid, and a channel that is down delays words and nothing else.

pub mod digest;
pub mod money;
pub mod send;
pub mod slack;

use crate::app::App;
use crate::ports::Task;
use crate::store::alerts::Bundle;
use crate::store::digests::StoredDigest;
use crate::time::Span;

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A duplicate was answered without a purchase.
    Duplicate,
    /// A delivery has been owed for too long.
    Stale,
    /// A delivery is not tried again.
    Dead,
    /// Nobody can tell whether a delivery arrived.
    OutcomeUnknown,
    /// An output is not fit to publish by itself.
    Held,
    /// Nobody knows whether Gemini did the work.
    Unknown,
    /// Less than a fifth of an account's credits of the day is left.
    Credits,
    /// KV failed too often in a week.
    KvErrors,
    /// A queue message was given up.
    DeadMessage,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Duplicate,
        Self::Stale,
        Self::Dead,
        Self::OutcomeUnknown,
        Self::Held,
        Self::Unknown,
        Self::Credits,
        Self::KvErrors,
        Self::DeadMessage,
    ];

    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate",
            Self::Stale => "stale",
            Self::Dead => "dead",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Held => "held",
            Self::Unknown => "unknown",
            Self::Credits => "credits",
            Self::KvErrors => "kv_errors",
            Self::DeadMessage => "dead_message",
        }
    }

    /// The kind of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Something to tell.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// A bundle of alerts.
    Alert(&'a Bundle),
    /// A digest.
    Digest(&'a StoredDigest),
}

/// What a channel made of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was taken.
    Taken,
    /// This message is refused; another may be taken.
    Refused {
        /// The status, where there was an answer.
        status: u16,
    },
    /// The channel is down, or asks to be left alone.
    Down {
        /// The status, where there was an answer.
        status: Option<u16>,
        /// How long it asked to be left alone.
        pause: Option<Span>,
    },
}

/// A way to people. Slack is one; a webhook or e-mail would be another.
pub trait Channel {
    /// Tells one message, within [`send::TIMEOUT`].
    fn tell<'a>(&'a self, app: &'a App, message: Message<'a>) -> Task<'a, Told>;
}

/// The channel that the configuration names; `None` leaves alerts to the dashboard and the digest.
pub fn channel(app: &App) -> Option<Box<dyn Channel>> {
    let url = app.config().slack_webhook_url.clone()?;
    Some(Box::new(slack::Slack::new(url)))
}

#[cfg(test)]
mod tests {
    use super::Kind;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in Kind::ALL {
            assert_eq!(Kind::parse(kind.as_str()), Some(kind));
        }
        assert_eq!(Kind::parse("other"), None);
    }
}
