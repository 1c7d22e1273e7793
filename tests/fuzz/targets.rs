//! What hostile input is given to, once for both runners: `cargo fuzz` (fuzz/fuzz_targets) and the
//! bounded run of `cargo test --test fuzz`. A target takes any bytes and panics where a rule is
//! broken.

use oncepress::config::{Config, Sources};
use oncepress::gemini::exchange::Exchange;
use oncepress::gemini::sse::Reader;
use oncepress::key::canonical::Canonical;
use oncepress::key::decimal::Decimal;
use oncepress::key::idempotency_key::OperationKey;
use oncepress::key::identity::{Beside, IdentityInput, Surface, identify};
use oncepress::key::json::{Json, JsonFault};
use oncepress::key::leaves::Leaves;
use oncepress::key::pointer::JsonPointer;
use oncepress::key::scope::{Name, Scope};
use oncepress::key::window::Anchor;
use oncepress::limits::RETRY_AFTER_MAX;
use oncepress::outbox::retry_after;
use oncepress::ports::{HttpError, Zones};
use oncepress::time::{Span, Timestamp};

use crate::reference;

/// A target's name, and what it is given.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
#[allow(dead_code, reason = "each runner of cargo-fuzz takes one by itself")]
pub const TARGETS: [Target; 6] = [
    ("json", json),
    ("keys", keys),
    ("sse", sse),
    ("retry_after", retry_after),
    ("answer", answer),
    ("config", config),
];

const NOW: Timestamp = Timestamp::from_millis(1_796_029_200_000);

/// The parser, the canonical form and the slow reference agree; what is read is written and read
/// again; a request has one identity in both spellings of its text.
pub fn json(bytes: &[u8]) {
    let slow = reference::read(bytes);
    let json = match Json::parse(bytes) {
        Ok(json) => json,
        Err(error) => {
            let ours_alone = [JsonFault::NumberTooLong, JsonFault::TooManyValues];
            let ours_alone = ours_alone.contains(&error.kind);
            assert!(slow.is_none() || ours_alone, "{error}");
            assert!(error.offset <= bytes.len());
            return;
        }
    };
    let slow = slow.expect("what the parser takes, the slow reader takes");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let canonical = Canonical::of(&json).expect("a member that occurs twice is no JSON here");
    canonical.write(&mut ours);
    reference::write(&slow, &mut theirs);
    assert!(
        ours == theirs,
        "{}\n{}",
        String::from_utf8_lossy(&ours),
        String::from_utf8_lossy(&theirs)
    );
    let written = json.write();
    let again = Json::parse(written.as_bytes()).expect("what is written is JSON");
    assert_eq!(again, json);
    let name = |text| Name::parse(text).expect("a name");
    let scope = Scope {
        account: name("a"),
        site: name("b"),
        pipeline: name("c"),
    };
    for surface in [Surface::Api, Surface::DropIn] {
        let identity = |request| {
            let (model, beside) = ("m", Beside::default());
            identify(&IdentityInput {
                scope: &scope,
                surface,
                model,
                request,
                beside,
                ignores: &[],
            })
        };
        assert_eq!(identity(&json), identity(&again));
    }
}

/// Every reader of a key, a name, a number, a pointer or a time takes a text or refuses it, and
/// what it takes it gives back.
pub fn keys(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(Some(key)) = OperationKey::parse(&[text]) {
        let quoted = format!("\"{key}\"");
        assert_eq!(OperationKey::parse(&[&quoted]), Ok(Some(key)));
        assert!(
            OperationKey::parse(&[text, text]).is_err(),
            "one header is enough"
        );
    }
    if let Some(name) = Name::parse(text) {
        assert_eq!(name.as_str(), text);
        assert!((1..=64).contains(&text.len()));
    }
    if let Some(pointer) = JsonPointer::parse(text) {
        assert_eq!(pointer.to_string(), text);
    }
    if let Some(leaves) = Leaves::from_json(text) {
        assert_eq!(Leaves::from_json(&leaves.to_json()), Some(leaves));
    }
    if let Some(decimal) = Decimal::parse(text) {
        assert_eq!(Decimal::parse(&decimal.to_string()), Some(decimal));
    }
    if let Ok(anchor) = Anchor::parse(Some(text), NOW) {
        let shown = anchor.at().to_rfc3339();
        assert_eq!(Timestamp::parse_rfc3339(&shown), Some(anchor.at()));
    }
}

/// Cuts made by the input's own bytes: any of them must make no difference.
fn pieces<'a>(cuts: &[u8], mut rest: &'a [u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for cut in cuts.iter().cycle().take(4_096) {
        let (piece, left) = rest.split_at(usize::from(*cut % 32).min(rest.len()));
        pieces.push(piece);
        rest = left;
        if rest.is_empty() {
            break;
        }
    }
    pieces.push(rest);
    pieces
}

/// The first bytes, as numbers, and the rest.
fn split<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (head, rest) = bytes.split_at_checked(N)?;
    Some((head.try_into().ok()?, rest))
}

/// However the body of a stream is cut, its events and its end are the same.
pub fn sse(bytes: &[u8]) {
    let Some((cuts, body)) = split::<4>(bytes) else {
        return;
    };
    let mut whole = Reader::default();
    let events = whole.push(body);
    let mut cut = Reader::default();
    let mut gathered = Vec::new();
    for piece in pieces(&cuts, body) {
        gathered.extend(cut.push(piece));
    }
    assert_eq!(events, gathered);
    assert_eq!(whole.fault(), cut.fault());
    assert_eq!(whole.finish(), cut.finish());
}

/// Whatever Gemini answers, at once or cut up, whole or broken off, has one meaning.
pub fn answer(bytes: &[u8]) {
    let Some(([status, how, cuts @ ..], body)) = split::<6>(bytes) else {
        return;
    };
    let status = [
        200, 200, 200, 400, 403, 404, 408, 429, 499, 500, 502, 503, 504, 301,
    ][usize::from(status) % 14];
    let headers = [("retry-after".to_owned(), i64::from(how).to_string())];
    let cut = (how % 3 == 0).then(|| HttpError::Lost("reset by peer".to_owned()));
    let mut at_once = Exchange::begin(status, &headers);
    at_once.push(body);
    let mut by_piece = Exchange::begin(status, &headers);
    for piece in pieces(&cuts, body) {
        by_piece.push(piece);
    }
    let one = at_once.end(cut.as_ref(), NOW);
    let other = by_piece.end(cut.as_ref(), NOW);
    assert_eq!(format!("{one:?}"), format!("{other:?}"));
    match one {
        Ok(answer) => {
            assert!((200..300).contains(&status));
            let usage = answer.usage.unwrap_or_default();
            let _ = usage.billed_output_tokens();
        }
        Err(failure) => {
            let wait = failure.retry_after.unwrap_or_default();
            assert!(wait >= Span::default(), "{wait:?}");
        }
    }
}

/// Any text is one of the legal forms or nothing; a moment in each of the forms is read exactly.
pub fn retry_after(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for asked in [
        retry_after::parse(&text, NOW),
        retry_after::parse_epoch_seconds(&text, NOW),
    ] {
        let bound = Span::from_millis(0)..=RETRY_AFTER_MAX;
        assert!(asked.is_none_or(|span| bound.contains(&span)), "{asked:?}");
    }
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    assert!(!digits || retry_after::parse(&text, NOW).is_some());
    let Some(([a, b, c, d], _)) = split::<4>(bytes) else {
        return;
    };
    let seconds = i64::from(u32::from_be_bytes([a, b, c, d]));
    in_every_form(seconds);
}

/// A moment of this century in the three notations of a date, against the sum done by hand.
fn in_every_form(seconds: i64) {
    let at = Timestamp::from_millis(seconds * 1_000);
    let (year, month, day) = at.date();
    let days = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let long = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let weekday = usize::try_from((seconds / 86_400) % 7).expect("a day of seven");
    let month = months[usize::try_from(month - 1).expect("a month of twelve")];
    let (h, m, s) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let clock = format!("{h:02}:{m:02}:{s:02}");
    // Half a minute before the moment asks for half a minute.
    let now = at.minus(Span::from_seconds(30));
    let wait = Some(Span::from_seconds(30));
    let fixed = format!("{}, {day:02} {month} {year:04} {clock} GMT", days[weekday]);
    assert_eq!(retry_after::parse(&fixed, now), wait, "{fixed}");
    let asctime = format!("{} {month} {day:>2} {clock} {year:04}", days[weekday]);
    assert_eq!(retry_after::parse(&asctime, now), wait, "{asctime}");
    let short = year % 100;
    let rfc850 = format!("{}, {day:02}-{month}-{short:02} {clock} GMT", long[weekday]);
    assert_eq!(retry_after::parse(&rfc850, now), wait, "{rfc850}");
}

struct NoZones;

impl Zones for NoZones {
    fn offset_minutes(&self, zone: &str, _at: Timestamp) -> Option<i32> {
        (zone == "UTC").then_some(0)
    }
}

/// Lines of `NAME=VALUE`: any of them is a configuration or a list of faults, each with a name and
/// without the values of secrets.
pub fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.find(|(other, _)| *other == name);
        found.map(|(_, value)| value.to_owned())
    };
    let bound = |name: &str| value(name).as_deref() != Some("unbound");
    let sources = || Sources {
        text: &value,
        bound: &bound,
        zones: &NoZones,
    };
    let (config, faults) = Config::parse(sources());
    let (_, again) = Config::parse(sources());
    assert_eq!(faults, again);
    let told: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
    let shown = format!("{config:?}");
    for name in ["GEMINI_API_KEY", "ADMIN_TOKEN", "SLACK_WEBHOOK_URL"] {
        // Where it is written elsewhere too, nothing can be said.
        let secret = value(name).filter(|secret| secret.contains("s3cret"));
        let Some(secret) = secret.filter(|secret| text.matches(secret.as_str()).count() == 1)
        else {
            continue;
        };
        assert!(
            !told.contains(&secret) && !shown.contains(&secret),
            "{name}"
        );
    }
    for fault in &faults {
        assert!(
            !fault.name.is_empty() && !fault.problem.is_empty(),
            "{fault:?}"
        );
    }
    let _ = config.pipeline("default", "blog", "daily");
}
