//! Publishing to a Cloudflare Queue, for the operator's own consumer.

use super::envelope::{envelope, thin_envelope};
use super::fields::Fields;
use super::{Effect, Failure, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::time::Timestamp;

/// The settings of a `queue` publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    binding: String,
}

impl QueueSettings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let binding = fields.required("binding")?;
        // JOBS is our own: its consumer would take a foreign message for work of ours.
        if binding == "JOBS" {
            fields.fault(
                "binding",
                "must not be JOBS, which is Oncepress's own queue",
            );
            return None;
        }
        Some(Self { binding })
    }

    pub(crate) fn begin(&self, parcel: &Parcel) -> Message {
        let whole = envelope(parcel);
        let body = if whole.len() > MESSAGE_MAX_BYTES {
            thin_envelope(parcel)
        } else {
            whole
        };
        Message {
            binding: self.binding.clone(),
            delivery_id: parcel.delivery_id.clone(),
            body: Some(body),
        }
    }
}

/// One attempt at sending one message.
#[derive(Debug)]
pub(crate) struct Message {
    binding: String,
    delivery_id: String,
    body: Option<String>,
}

impl Publication for Message {
    fn step(&mut self, reply: Option<Reply>, _now: Timestamp) -> Step {
        match (self.body.take(), reply) {
            (Some(body), _) => Step::Do(Effect::Send {
                binding: self.binding.clone(),
                body,
            }),
            (None, Some(Reply::Sent)) => Step::Done(Outcome::Published {
                reference: Some(self.delivery_id.clone()),
                replayed: false,
            }),
            (None, Some(Reply::Failed(why))) => {
                Step::Done(Outcome::Ambiguous(Failure::new(failure::STORE_FAILED, why)))
            }
            (None, _) => Step::Done(super::answer::unexpected()),
        }
    }
}

/// The largest message that carries its text. The platform's limit is 128 KB a message with about
/// 100 bytes of its own (developers.cloudflare.com/queues/platform/limits); over it the consumer
/// gets the id and fetches the text.
const MESSAGE_MAX_BYTES: usize = 127_000;
