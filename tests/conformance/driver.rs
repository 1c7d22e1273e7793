//! Runs attempts step by step, with a fault wherever a test wants one.

use oncepress::ports::HttpError;
use oncepress::publish::settings::PublisherSettings;
use oncepress::publish::{Effect, Outcome, Parcel, Reply, Step};
use oncepress::time::{Span, Timestamp};

use crate::destination::{Destination, perform};

/// What goes wrong at one effect of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before the effect, its progress stored.
    CrashBefore,
    /// The process dies after the effect took place.
    CrashAfter,
    /// The same, and the progress of this step was not stored.
    CrashAfterUnsaved,
    /// The connection breaks before the destination hears of it.
    LostBefore,
    /// The destination acts, and its answer is lost.
    LostAfter,
    /// The destination acts, and the time is up.
    TimedOutAfter,
    /// The destination acts, and a gateway answers in its place.
    GatewayAfter,
    /// A gateway answers, and the destination never hears of it.
    GatewayBefore,
    /// No connection could be made.
    NotSent,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::CrashAfterUnsaved,
        Self::LostBefore,
        Self::LostAfter,
        Self::TimedOutAfter,
        Self::GatewayAfter,
        Self::GatewayBefore,
        Self::NotSent,
    ];

    fn acts(self) -> bool {
        match self {
            Self::CrashAfter
            | Self::CrashAfterUnsaved
            | Self::LostAfter
            | Self::TimedOutAfter
            | Self::GatewayAfter => true,
            Self::CrashBefore | Self::LostBefore | Self::GatewayBefore | Self::NotSent => false,
        }
    }

    /// What the publisher hears, if it still lives.
    fn reply(self, effect: &Effect) -> Option<Reply> {
        let over_http = matches!(effect, Effect::Http(_));
        match self {
            Self::CrashBefore | Self::CrashAfter | Self::CrashAfterUnsaved => None,
            _ if !over_http => Some(Reply::Failed("internal error".to_owned())),
            Self::LostBefore | Self::LostAfter => {
                Some(Reply::HttpFailed(HttpError::Lost("reset".to_owned())))
            }
            Self::TimedOutAfter => Some(Reply::HttpFailed(HttpError::TimedOut)),
            Self::NotSent => Some(Reply::HttpFailed(HttpError::NotSent("no route".to_owned()))),
            Self::GatewayAfter | Self::GatewayBefore => Some(Reply::Http {
                status: 502,
                headers: Vec::new(),
                body: b"<h1>Bad Gateway</h1>".to_vec(),
            }),
        }
    }
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// `None` after a crash.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) effects: usize,
}

/// A delivery over its attempts, as the drain keeps it.
pub(crate) struct Delivery<'a> {
    pub(crate) settings: &'a PublisherSettings,
    pub(crate) parcel: Parcel,
    pub(crate) now: Timestamp,
}

impl Delivery<'_> {
    pub(crate) fn attempt(
        &mut self,
        world: &mut dyn Destination,
        faults: &[(usize, Fault)],
    ) -> Attempt {
        let attempt = self.run(world, faults);
        self.now = self.now.plus(Span::from_minutes(5));
        let certain = matches!(attempt.outcome, Some(Outcome::Transient(_)));
        self.parcel.maybe_sent |= !certain;
        attempt
    }

    /// Attempts without faults until it is published.
    pub(crate) fn finish(&mut self, world: &mut dyn Destination) -> Outcome {
        for _ in 0..6 {
            match self.attempt(world, &[]).outcome {
                Some(Outcome::Transient(_) | Outcome::Ambiguous(_)) => {}
                Some(outcome) => return outcome,
                None => panic!("nothing crashes here"),
            }
        }
        panic!(
            "not published within six attempts: {:?}",
            self.parcel.progress
        )
    }

    fn run(&mut self, world: &mut dyn Destination, faults: &[(usize, Fault)]) -> Attempt {
        let mut publication = self.settings.begin(self.parcel.clone());
        let mut reply = None;
        for effects in 0..EFFECTS_MAX {
            let effect = match publication.step(reply.take(), self.now) {
                Step::Do(effect) => effect,
                Step::Done(outcome) => {
                    self.save(publication.progress());
                    return Attempt {
                        outcome: Some(outcome),
                        effects,
                    };
                }
            };
            let fault = faults
                .iter()
                .find(|(at, _)| *at == effects)
                .map(|(_, fault)| *fault);
            if fault != Some(Fault::CrashAfterUnsaved) {
                self.save(publication.progress());
            }
            reply = match fault {
                None => Some(perform(world, &effect, self.now)),
                Some(fault) => {
                    if fault.acts() {
                        perform(world, &effect, self.now);
                    }
                    fault.reply(&effect)
                }
            };
            if reply.is_none() {
                return Attempt {
                    outcome: None,
                    effects,
                };
            }
        }
        panic!("an attempt never ends")
    }

    fn save(&mut self, progress: Option<String>) {
        if progress.is_some() {
            self.parcel.progress = progress;
        }
    }
}

const EFFECTS_MAX: usize = 25;

pub(crate) const TEXT: &str = "# Dogs & cats\n\n犬と猫についての長い記事です。";

pub(crate) fn parcel(target: &str, text: &str) -> Parcel {
    Parcel {
        delivery_id: "dlv_0123456789abcdef0123456789abcdef".to_owned(),
        generation_id: "gen_fedcba9876543210fedcba9876543210".to_owned(),
        account: "default".to_owned(),
        site: "blog".to_owned(),
        pipeline: "daily".to_owned(),
        topic: Some("Dogs & cats".to_owned()),
        model: "gemini-3.8-flash".to_owned(),
        key: "idem:default:blog:daily:00112233445566778899aabbccddeeff".to_owned(),
        fingerprint: "ab".repeat(32),
        created_at: start(),
        completed_at: start().plus(Span::from_seconds(20)),
        target: target.to_owned(),
        text: text.to_owned(),
        content: text.to_owned(),
        content_type: "text/plain; charset=utf-8".to_owned(),
        maybe_sent: false,
        progress: None,
    }
}

pub(crate) fn delivery<'a>(settings: &'a PublisherSettings, target: &str) -> Delivery<'a> {
    Delivery {
        settings,
        parcel: parcel(target, TEXT),
        now: start().plus(Span::from_minutes(1)),
    }
}

fn start() -> Timestamp {
    Timestamp::parse_rfc3339("2026-11-30T00:00:00Z").unwrap()
}
