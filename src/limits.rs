//! Every bound and clock of the service, each with its reason.
//!
//! Clocks nest: Gemini's deadline (13 min) < lease (14 min) < reconciliation (15 min), so that a
//! runner has given up before its lease ends, and its lease has ended before anybody decides its
//! fate.

use crate::time::Span;

/// Longest wait for Gemini. Cloudflare ends a Durable Object's alarm after 15 minutes
/// (developers.cloudflare.com/durable-objects/platform/limits), and the commit needs some of them.
pub const GEMINI_DEADLINE: Span = Span::from_minutes(13);
/// How long a claim shields its runner: Gemini's deadline and a minute for the commit.
pub const LEASE: Span = Span::from_minutes(14);
/// Age at which the fate of a generation that is still running is decided.
pub const RECONCILE_AFTER: Span = Span::from_minutes(15);
/// Life of a mark in KV: the default window; redeliveries were seen as late as 20 minutes.
pub const KV_MARK_TTL: Span = Span::from_minutes(30);
/// Default window of a derived key, for the same reason.
pub const WINDOW_DEFAULT: Span = Span::from_minutes(30);
/// Range of `windowMinutes`: 1 minute to 30 days (the retention).
pub const WINDOW_MINUTES: std::ops::RangeInclusive<i64> = 1..=43_200;
/// How far `requestedAt` may lie in the past and in the future: a scheduler's slot, and its clock.
pub const REQUESTED_AT_PAST: Span = Span::from_hours(24);
/// See [`REQUESTED_AT_PAST`].
pub const REQUESTED_AT_FUTURE: Span = Span::from_minutes(5);
/// How long an operation key is bound, from the creation of its generation.
pub const OPERATION_KEY_TTL: Span = Span::from_hours(24);
/// How long a finished generation is kept after its last delivery became final.
pub const RETENTION: Span = Span::from_days(30);
/// Longest wait of a caller for a running generation. Cloudflare asks for an answer, or its first
/// byte, within 30 s where the client may go away.
pub const WAIT_MAX: Span = Span::from_seconds(25);
/// How long an API key is believed without a look at the database; a revoked key dies within it.
pub const AUTH_CACHE_TTL: Span = Span::from_seconds(60);

/// Largest body of `POST /api/v1/generations`.
pub const BODY_MAX_BYTES: usize = 1_048_576;
/// Largest body of the drop-in endpoints, which is Gemini's own limit for inline data.
pub const DROP_IN_BODY_MAX_BYTES: usize = 20 * 1_048_576;
/// A request's body over this lies in R2 until its generation is settled, so that claims stay small.
pub const REQUEST_INLINE_MAX_BYTES: usize = 1_048_576;
/// Largest body where no bucket is bound: a claim is one D1 batch, of rows under 2,000,000 bytes.
pub const REQUEST_D1_MAX_BYTES: usize = 4 * 1_048_576;
/// How long the first byte of a stream may take before the answer begins without it: Cloudflare
/// and many clients give up on a silent connection after 30 s or more.
pub const FIRST_BYTE_PATIENCE: Span = Span::from_seconds(20);
/// A stream that is silent for so long gets a sign of life.
pub const HEARTBEAT: Span = Span::from_seconds(15);
/// Deepest nesting of a JSON document.
pub const JSON_DEPTH_MAX: usize = 128;
/// An output over this goes to R2 before the commit, so that the hot table stays thin.
pub const OUTPUT_INLINE_MAX_BYTES: usize = 262_144;
/// Largest piece of text in one D1 row: the platform's limit is 2,000,000 bytes for the whole row
/// (developers.cloudflare.com/d1/platform/limits), and no local run enforces it.
pub const D1_TEXT_MAX_BYTES: usize = 1_500_000;
/// Largest answer of Gemini that is read. One of 65,536 tokens has half a MiB, with pictures some
/// more; one of 8 MiB costs 44 MiB of an isolate's 128 MB (docs/DEFAULTS.md).
pub const GEMINI_ANSWER_MAX_BYTES: usize = 8 * 1_048_576;
/// What the running answers of an isolate may hold together before only the oldest reads on: each
/// held byte costs two or three, and those of one answer up to six, as it is taken apart.
pub const ANSWERS_HELD_MAX_BYTES: usize = 12 * 1_048_576;
/// What a stream's handler keeps of an answer for the isolate's cache; also the largest output that
/// a generation's actor remembers after its end. 200 at once are 12.5 MiB.
pub const STREAM_KEPT_MAX_BYTES: usize = 65_536;
/// Subrequests of one drain; the free plan allows 50 an invocation.
pub const SUBREQUEST_BUDGET_DEFAULT: u32 = 50;
/// Attempts of a delivery before it is dead…
pub const ATTEMPTS_MAX: u32 = 10;
/// …spread over at least this long, so that a weekend's outage is survived.
pub const DELIVERY_RETRY_SPAN: Span = Span::from_hours(72);
/// How long a drain holds its rows: a few time-outs of a slow destination.
pub const DELIVERY_LEASE: Span = Span::from_seconds(120);
/// The longest `Retry-After` that is honoured.
pub const RETRY_AFTER_MAX: Span = Span::from_hours(24);
/// Longest wait for a publisher.
pub const PUBLISH_TIMEOUT: Span = Span::from_seconds(15);
/// Most destinations of one generation.
pub const DESTINATIONS_MAX: usize = 20;
/// Most deliveries of one generation, those that duplicates named included: replays are free, so
/// they must not let it grow without end.
pub const DELIVERIES_MAX: usize = 100;
