//! What the service tells about itself: data points for Analytics Engine, and the names of its log
//! events. Each shape is written once, here; `docs/METRICS.md` and `docs/LOGGING.md` are made from
//! these tables.
//!
//! Analytics Engine samples where much is written, so counts there are
//! `sum(_sample_interval * double1)`. Alerts and digest never depend on it: they live from the
//! database's own counters, which a local run has too.

use crate::idempotency::record::Surface;
use crate::ports::Telemetry;

/// One data point: the words and numbers of an event, in the order of its [`Shape`].
#[derive(Clone, Debug, PartialEq)]
pub enum Point<'a> {
    /// A run ended.
    Generation {
        /// Whose, and of what.
        scope: Scope<'a>,
        /// The state it ended in.
        state: &'a str,
        /// Why, where it is not `generated`.
        reason: &'a str,
        /// How the request came in.
        surface: Surface,
        /// How long the run took.
        took_ms: i64,
        /// What it cost, in micro-dollars.
        cost_micro: i64,
    },
    /// A duplicate was caught.
    Duplicate {
        /// Whose, and of what.
        scope: Scope<'a>,
        /// Where it came from.
        cause: Cause,
        /// What it would have cost, in micro-dollars.
        saved_micro: i64,
        /// How old the original was.
        age_ms: i64,
    },
    /// A delivery was tried.
    Delivery {
        /// Whose, and of what.
        scope: Scope<'a>,
        /// The publisher's name.
        publisher: &'a str,
        /// What came of it.
        tally: &'a str,
        /// The failure's code.
        code: &'a str,
        /// How long the attempt took.
        took_ms: i64,
    },
    /// What an isolate did in KV since it last told.
    KeyValue {
        /// Reads, lists included.
        reads: u64,
        /// Writes, deletions included.
        writes: u64,
        /// Reads that failed.
        read_errors: u64,
        /// Writes that failed.
        write_errors: u64,
    },
    /// What is owed and stuck, each tick.
    Backlog {
        /// Deliveries that are due or wait for their next attempt.
        pending: u64,
        /// Those owed for too long.
        stale: u64,
        /// Those that wait for a person.
        dead: u64,
        /// Those whose outcome nobody knows.
        outcome_unknown: u64,
        /// Held outputs.
        held: u64,
        /// Generations of unknown outcome.
        unknown: u64,
        /// Generations in the queue.
        queued: u64,
        /// Age of the oldest pending delivery.
        oldest_ms: i64,
    },
    /// A message to people was sent, or was not.
    Alert {
        /// The kind of alert, or `digest`.
        kind: &'a str,
        /// `sent` or `retried`.
        outcome: &'a str,
        /// Events in it.
        events: u64,
    },
}

/// Whose an event is, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words of the API")]
pub struct Scope<'a> {
    pub account: &'a str,
    pub site: &'a str,
    pub pipeline: &'a str,
    pub model: &'a str,
}

/// Where a duplicate came from, as far as it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The first request was still being worked on: two layers retried at once.
    Overlap,
    /// A stream asked for again after its end: the first one was cut.
    CutStream,
    /// A background job that was handed in again.
    Redelivery,
    /// Any other request that came again after the answer was there.
    Repeat,
}

impl Cause {
    /// Of a duplicate that was answered from a finished result.
    pub const fn of(surface: Surface, background: bool) -> Self {
        match (surface, background) {
            (_, true) => Self::Redelivery,
            (Surface::Stream, false) => Self::CutStream,
            (Surface::Api | Surface::Generate, false) => Self::Repeat,
        }
    }

    /// The word in data points.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::CutStream => "cut_stream",
            Self::Redelivery => "redelivery",
            Self::Repeat => "repeat",
        }
    }
}

impl Point<'_> {
    /// Writes the point.
    pub fn write(&self, telemetry: &dyn Telemetry) {
        let (index, blobs, doubles) = self.values();
        let doubles: Vec<f64> = doubles.into_iter().map(number).collect();
        telemetry.point(index, &blobs, &doubles);
    }

    /// The index, the words and the numbers.
    fn values(&self) -> (&str, Vec<&str>, Vec<i64>) {
        let count = |value: &u64| i64::try_from(*value).unwrap_or(i64::MAX);
        match self {
            Self::Generation {
                scope,
                state,
                reason,
                surface,
                took_ms,
                cost_micro,
            } => (
                scope.account,
                scope.words("generation", &[state, reason, surface.as_str()]),
                vec![1, *took_ms, *cost_micro],
            ),
            Self::Duplicate {
                scope,
                cause,
                saved_micro,
                age_ms,
            } => (
                scope.account,
                scope.words("duplicate", &[cause.as_str()]),
                vec![1, *saved_micro, *age_ms],
            ),
            Self::Delivery {
                scope,
                publisher,
                tally,
                code,
                took_ms,
            } => (
                scope.account,
                scope.words("delivery", &[publisher, tally, code]),
                vec![1, *took_ms],
            ),
            Self::KeyValue {
                reads,
                writes,
                read_errors,
                write_errors,
            } => (
                "kv",
                vec!["kv"],
                [reads, writes, read_errors, write_errors]
                    .map(count)
                    .to_vec(),
            ),
            Self::Backlog { oldest_ms, .. } => {
                let mut doubles = self.backlog();
                doubles.push(*oldest_ms);
                ("backlog", vec!["backlog"], doubles)
            }
            Self::Alert {
                kind,
                outcome,
                events,
            } => (
                "alert",
                vec!["alert", kind, outcome],
                vec![1, count(events)],
            ),
        }
    }

    fn backlog(&self) -> Vec<i64> {
        let Self::Backlog {
            pending,
            stale,
            dead,
            outcome_unknown,
            held,
            unknown,
            queued,
            ..
        } = self
        else {
            return Vec::new();
        };
        [pending, stale, dead, outcome_unknown, held, unknown, queued]
            .map(|value| i64::try_from(*value).unwrap_or(i64::MAX))
            .to_vec()
    }
}

impl<'a> Scope<'a> {
    fn words(&self, event: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec![event, self.account, self.site, self.pipeline, self.model];
        words.extend_from_slice(more);
        words
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and milliseconds are far below 2^53"
)]
fn number(value: i64) -> f64 {
    value as f64
}

/// The form of an event's data points.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The event: always `blob1`.
    pub event: &'static str,
    /// When a point is written.
    pub when: &'static str,
    /// The index, by which Analytics Engine samples.
    pub index: &'static str,
    /// What `blob2`, `blob3`, … are.
    pub blobs: &'static [&'static str],
    /// What `double1`, `double2`, … are.
    pub doubles: &'static [&'static str],
}

/// Every event that writes data points.
pub const SHAPES: &[Shape] = &[
    Shape {
        event: "generation",
        when: "a run ended",
        index: "account",
        blobs: &[
            "account",
            "site",
            "pipeline",
            "model",
            "state: generated, held, failed, unknown",
            "reason, where not generated",
            "surface: api, generate, stream",
        ],
        doubles: &["1", "duration in ms", "cost in micro-USD"],
    },
    Shape {
        event: "duplicate",
        when: "a duplicate was answered without a purchase",
        index: "account",
        blobs: &[
            "account",
            "site",
            "pipeline",
            "model",
            "cause: overlap, cut_stream, redelivery, repeat",
        ],
        doubles: &["1", "saved micro-USD", "age of the original in ms"],
    },
    Shape {
        event: "delivery",
        when: "a delivery was tried",
        index: "account",
        blobs: &[
            "account",
            "site",
            "pipeline",
            "model",
            "publisher",
            "tally: published, retried, dead, outcome_unknown",
            "failure code",
        ],
        doubles: &["1", "duration in ms"],
    },
    Shape {
        event: "kv",
        when: "an isolate adds its counts to the database, at most once a second",
        index: "kv",
        blobs: &[],
        doubles: &["reads", "writes", "failed reads", "failed writes"],
    },
    Shape {
        event: "backlog",
        when: "each tick; counts stop at 1,000",
        index: "backlog",
        blobs: &[],
        doubles: &[
            "pending deliveries",
            "stale deliveries",
            "dead deliveries",
            "deliveries of unknown outcome",
            "held generations",
            "unknown generations",
            "queued generations",
            "age of the oldest pending delivery in ms",
        ],
    },
    Shape {
        event: "alert",
        when: "a message to people was sent or has to be sent again",
        index: "alert",
        blobs: &["kind, or digest", "outcome: sent, retried"],
        doubles: &["1", "events in it"],
    },
];

/// Every log event: its name, its members, and what it means.
pub const EVENTS: &[(&str, &str, &str)] = &[
    (
        "alert",
        "kind, account, site, pipeline, count",
        "People are told of something, whether or not there is a channel.",
    ),
    (
        "alert_given_up",
        "kind, attempts",
        "An alert could not be sent for 30 days.",
    ),
    (
        "alert_retried",
        "kind, status, pauseMs",
        "The channel did not take a message; it is sent again.",
    ),
    (
        "alerts_failed",
        "error",
        "The database refused to lease or settle alerts; the next tick does it.",
    ),
    (
        "circuit_not_recorded",
        "error",
        "A publisher's failures could not be remembered; the next drain counts anew.",
    ),
    (
        "commit_refused",
        "generationId, requestId, error",
        "The database refused a purchase; it is tried elsewhere and again.",
    ),
    (
        "delivery_attempt",
        "deliveryId, generationId, publisher, tally, code, latencyMs",
        "A delivery was tried.",
    ),
    (
        "delivery_not_recorded",
        "deliveryId, error",
        "An attempt's outcome could not be stored; the delivery is looked at again, as one that may have arrived.",
    ),
    (
        "digest_failed",
        "error",
        "The digest could not be made or marked; the next tick does it.",
    ),
    ("digest_made", "day", "The day's digest was made."),
    (
        "drain_failed",
        "generationId, error",
        "A drain stopped at a fault of the database; the next one goes on.",
    ),
    (
        "evidence_brought_in",
        "generationId, requestId, own",
        "An output from the fallback store came into the database.",
    ),
    (
        "evidence_not_brought_in",
        "error",
        "It did not; the next tick tries again.",
    ),
    (
        "evidence_unreadable",
        "error",
        "A fallback store could not be listed.",
    ),
    (
        "failure_not_recorded",
        "generationId, error",
        "A definite failure could not be stored; its evidence was kept.",
    ),
    (
        "foreign_environment",
        "verdict, why",
        "A store belongs to another environment; nothing is done.",
    ),
    (
        "forgotten_run_started",
        "generationId",
        "A claim whose claimant died was started by the cron trigger.",
    ),
    (
        "generation_settled",
        "generationId, requestId, account, site, pipeline, model, state, reason, durationMs",
        "A run ended.",
    ),
    (
        "generation_unknown",
        "generationId, requestId, freed, recorded",
        "The outcome of a run is not known.",
    ),
    (
        "kv_read_failed",
        "requestId, error",
        "KV could not be read; the request goes by `KV_FAILURE_POLICY`.",
    ),
    (
        "kv_write_failed",
        "error",
        "A mark was not written; a replay costs a look at the database.",
    ),
    (
        "lease_not_returned",
        "error",
        "Leased deliveries could not be given back; their lease ends by itself.",
    ),
    (
        "message_dead",
        "generationId",
        "A queue message was dead-lettered; its generation failed visibly.",
    ),
    (
        "message_retried",
        "generationId, error",
        "A queue message comes again after a fault of the database.",
    ),
    (
        "message_unreadable",
        "queue",
        "A queue message was not ours; it was dropped.",
    ),
    (
        "misconfigured",
        "name, faults",
        "The configuration is faulty; nothing is done.",
    ),
    (
        "purge_failed",
        "error",
        "The purge stopped; the next one goes on.",
    ),
    (
        "queue_refused",
        "generationId, error",
        "The queue did not take a message.",
    ),
    (
        "reconcile_failed",
        "generationId, error",
        "An overdue generation could not be settled; the next tick tries again.",
    ),
    (
        "regenerated",
        "generationId, actor",
        "A person had a generation run again.",
    ),
    (
        "request_not_kept",
        "generationId, error",
        "A large request could not be put into the object store.",
    ),
    (
        "request_refused",
        "requestId, method, code, status, generationId",
        "A request was answered with an error.",
    ),
    (
        "runner_unreachable",
        "generationId, error",
        "A runner could not be reached; it may have started.",
    ),
    (
        "stale_check_failed",
        "error",
        "Stale deliveries could not be looked for; the next tick does it.",
    ),
    (
        "stats_kept",
        "error",
        "Counts could not be added; they are added with the next ones.",
    ),
    (
        "store_failed",
        "error",
        "The database could not be reached; the request was refused.",
    ),
    (
        "stream_failed",
        "generationId, error",
        "A caller's stream could not be followed to its end; the generation goes on.",
    ),
    (
        "superseded",
        "generationId, evidenceId, state, kept",
        "A runner finished after a successor had taken over; its output is kept.",
    ),
    (
        "tick",
        "evidence, settled, drained, stale, purged, notified, budgetLeft",
        "A firing of the cron trigger, and what it did.",
    ),
    ("tick_failed", "error", "A tick could not be recorded."),
    (
        "tick_repeated",
        "scheduledAt",
        "The cron trigger fired twice for one minute; the second did nothing.",
    ),
    (
        "unknown_not_recorded",
        "generationId, error",
        "An unknown outcome could not be stored; it is found when its lease ends.",
    ),
];

/// The data points as a Markdown table, for `docs/METRICS.md`.
pub fn points_markdown() -> String {
    let list = |prefix: &str, from: usize, names: &[&str]| -> String {
        let named = names.iter().enumerate();
        let named = named.map(|(at, name)| format!("`{prefix}{}` {name}", at.saturating_add(from)));
        named.collect::<Vec<_>>().join("<br>")
    };
    let rows = SHAPES.iter().map(|shape| {
        let blobs = list("blob", 2, shape.blobs);
        let doubles = list("double", 1, shape.doubles);
        let (event, when, index) = (shape.event, shape.when, shape.index);
        format!("| `{event}` | {when} | {index} | {blobs} | {doubles} |\n")
    });
    format!(
        "| event (`blob1`) | written when | index | blobs | doubles |\n|---|---|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

/// The log events as a Markdown table, for `docs/LOGGING.md`.
pub fn events_markdown() -> String {
    let rows = EVENTS
        .iter()
        .map(|(name, members, meaning)| format!("| `{name}` | {members} | {meaning} |\n"));
    format!(
        "| event | members | meaning |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Point<'static>> {
        let scope = Scope {
            account: "a",
            site: "s",
            pipeline: "p",
            model: "m",
        };
        vec![
            Point::Generation {
                scope,
                state: "held",
                reason: "gate",
                surface: Surface::Api,
                took_ms: 5,
                cost_micro: 7,
            },
            Point::Duplicate {
                scope,
                cause: Cause::Overlap,
                saved_micro: 1,
                age_ms: 2,
            },
            Point::Delivery {
                scope,
                publisher: "r",
                tally: "dead",
                code: "x",
                took_ms: 3,
            },
            Point::KeyValue {
                reads: 1,
                writes: 2,
                read_errors: 3,
                write_errors: 4,
            },
            Point::Backlog {
                pending: 1,
                stale: 2,
                dead: 3,
                outcome_unknown: 4,
                held: 5,
                unknown: 6,
                queued: 7,
                oldest_ms: 8,
            },
            Point::Alert {
                kind: "dead",
                outcome: "sent",
                events: 3,
            },
        ]
    }

    #[test]
    fn every_point_has_the_form_that_its_table_says() {
        let samples = samples();
        assert_eq!(samples.len(), SHAPES.len());
        for (point, shape) in samples.iter().zip(SHAPES) {
            let (index, blobs, doubles) = point.values();
            assert_eq!(blobs[0], shape.event);
            assert_eq!(blobs.len(), shape.blobs.len() + 1, "{}", shape.event);
            assert_eq!(doubles.len(), shape.doubles.len(), "{}", shape.event);
            let by_account = shape.index == "account";
            assert_eq!(index, if by_account { "a" } else { shape.index });
        }
    }

    #[test]
    fn numbers_stand_where_the_table_says() {
        let (_, _, doubles) = samples()[4].values();
        assert_eq!(doubles, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_cause_is_told_by_how_the_duplicate_came() {
        let of = |surface, background| Cause::of(surface, background).as_str();
        assert_eq!(of(Surface::Stream, false), "cut_stream");
        assert_eq!(of(Surface::Api, true), "redelivery");
        assert_eq!(of(Surface::Generate, false), "repeat");
    }
}
