//! Publishing into an R2 bucket: one object, written only where none is.

use super::fields::Fields;
use super::target::is_path;
use super::{Effect, Failure, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::ports::{Object, PutNew};
use crate::time::Timestamp;

/// The settings of an `r2` publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct R2Settings {
    /// Put before the target; may hold `{account}`.
    prefix: String,
}

impl R2Settings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let prefix = fields.text("prefix").unwrap_or_default();
        let probe = format!("{}x", prefix.replace("{account}", "a"));
        if !is_path(&probe) || is_reserved(&probe) {
            fields.fault(
                "prefix",
                "must be a path such as `posts/`, and not `_oncepress/`",
            );
            return None;
        }
        Some(Self { prefix })
    }

    pub(crate) fn begin(&self, parcel: Parcel) -> Put {
        let prefix = self.prefix.replace("{account}", &parcel.account);
        Put {
            key: format!("{prefix}{}", parcel.target),
            parcel,
            state: State::Start,
        }
    }
}

/// One attempt at putting one object.
#[derive(Debug)]
pub(crate) struct Put {
    key: String,
    parcel: Parcel,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    Putting,
    Reading,
}

impl Publication for Put {
    fn step(&mut self, reply: Option<Reply>, _now: Timestamp) -> Step {
        match (self.state, reply) {
            (State::Start, _) => self.put(),
            (State::Putting, Some(Reply::Put(PutNew::Created))) => self.published(false),
            (State::Putting, Some(Reply::Put(PutNew::Exists))) => {
                self.state = State::Reading;
                Step::Do(Effect::GetObject {
                    key: self.key.clone(),
                })
            }
            (State::Reading, Some(Reply::Object(found))) => self.compare(found.as_ref()),
            (State::Putting | State::Reading, Some(Reply::Failed(why))) => {
                Step::Done(Outcome::Ambiguous(Failure::new(failure::STORE_FAILED, why)))
            }
            (State::Putting | State::Reading, _) => Step::Done(super::answer::unexpected()),
        }
    }
}

impl Put {
    fn put(&mut self) -> Step {
        if self.key.len() > KEY_MAX_BYTES || is_reserved(&self.key) {
            let why = "the object's name is longer than 1,024 bytes or starts with `_oncepress/`";
            return Step::Done(Outcome::Permanent(Failure::new(
                failure::TARGET_REFUSED,
                why,
            )));
        }
        self.state = State::Putting;
        let metadata = [
            (DELIVERY, &self.parcel.delivery_id),
            ("oncepress-generation", &self.parcel.generation_id),
            ("oncepress-fingerprint", &self.parcel.fingerprint),
        ];
        let object = Object {
            bytes: self.parcel.content.clone().into_bytes(),
            content_type: self.parcel.content_type.clone(),
            metadata: metadata
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .into(),
        };
        Step::Do(Effect::PutNew {
            key: self.key.clone(),
            object,
        })
    }

    /// What is there is ours if it carries our key, and as good as ours if it says the same.
    fn compare(&self, found: Option<&Object>) -> Step {
        let Some(found) = found else {
            // Deleted between the put and the look: this delivery did not put it.
            let why = "the object was there and then gone";
            return Step::Done(Outcome::Ambiguous(Failure::new(failure::TARGET_MOVED, why)));
        };
        let key = (DELIVERY.to_owned(), self.parcel.delivery_id.clone());
        if found.metadata.contains(&key) || found.bytes == self.parcel.content.as_bytes() {
            return self.published(true);
        }
        let why = "another object has this name; choose another target, or move that one away";
        Step::Done(Outcome::Permanent(Failure::new(failure::TARGET_TAKEN, why)))
    }

    fn published(&self, replayed: bool) -> Step {
        Step::Done(Outcome::Published {
            reference: Some(self.key.clone()),
            replayed,
        })
    }
}

fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED_PREFIX)
}

/// Where Oncepress keeps its own objects in the same bucket; nothing is published there.
pub const RESERVED_PREFIX: &str = "_oncepress/";
/// R2's longest name (developers.cloudflare.com/r2/platform/limits).
const KEY_MAX_BYTES: usize = 1_024;
/// The metadata that holds the delivery's id.
const DELIVERY: &str = "oncepress-delivery";
