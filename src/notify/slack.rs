//! Slack: alerts and digest as Block Kit, sent to an incoming webhook.
//!
//! A webhook can't tell a repeat, so a connection that is lost after sending may show a message
//! twice. Text from outside is escaped, cut, and never taken for markup that calls people.

use serde_json::{Value, json};

use crate::app::App;
use crate::config::{Config, Secret};
use crate::notify::money::{percent, show};
use crate::notify::send::TIMEOUT;
use crate::notify::{Channel, Kind, Message, Told};
use crate::outbox::retry_after;
use crate::ports::{HttpAnswer, HttpRequest, Task};
use crate::store::alerts::Bundle;
use crate::store::digests::StoredDigest;
use crate::time::{Span, Timestamp};

/// A Slack incoming webhook.
#[derive(Debug)]
pub struct Slack {
    url: Secret,
}

impl Slack {
    /// The webhook at this URL, which is itself the secret.
    pub const fn new(url: Secret) -> Self {
        Self { url }
    }
}

impl Channel for Slack {
    fn tell<'a>(&'a self, app: &'a App, message: Message<'a>) -> Task<'a, Told> {
        Box::pin(async move {
            let payload = match message {
                Message::Alert(bundle) => alert(bundle, app.config()),
                Message::Digest(digest) => self::digest(digest, app.config()),
            };
            let request = HttpRequest {
                method: "POST",
                url: self.url.expose().to_owned(),
                headers: vec![("content-type".to_owned(), "application/json".to_owned())],
                body: payload.to_string().into_bytes(),
                timeout: TIMEOUT,
            };
            match app.outbound.send(request).await {
                Ok(answer) => read(answer, app.now()).await,
                Err(_) => Told::Down {
                    status: None,
                    pause: None,
                },
            }
        })
    }
}

/// Reads an answer. Slack says `ok`; what is compatible with it says nothing, or JSON. A 200 that
/// says `no_service` is none.
async fn read(mut answer: HttpAnswer, now: Timestamp) -> Told {
    let status = answer.status;
    let pause = answer
        .headers
        .iter()
        .find(|(name, _)| name == "retry-after")
        .and_then(|(_, value)| retry_after::parse(value, now));
    let mut body: Vec<u8> = Vec::new();
    while body.len() < ANSWER_MAX_BYTES {
        match answer.body.next().await {
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            // What was taken was taken: a body that breaks off after a good status is no fault.
            Ok(None) | Err(_) => break,
        }
    }
    let word = String::from_utf8_lossy(&body);
    let word = word.trim();
    match status {
        200..=299 if word.is_empty() || word == "ok" || word.starts_with('{') => Told::Taken,
        400 | 413 => Told::Refused { status },
        _ => Told::Down {
            status: Some(status),
            pause,
        },
    }
}

/// The payload of an alert.
pub fn alert(bundle: &Bundle, config: &Config) -> Value {
    let told = words(bundle, config);
    let mut fields: Vec<Value> = Vec::new();
    let mut field = |name: &str, value: &str| {
        if !value.is_empty() {
            let text = format!("*{name}*\n{}", safe(value, FIELD_MAX));
            fields.push(markdown(&text));
        }
    };
    field("Account", &bundle.account);
    field("Site", &bundle.site);
    field("Pipeline", &bundle.pipeline);
    if told.counted {
        field("Count", &bundle.count.to_string());
    }
    field("Newest topic", bundle.topic.as_deref().unwrap_or_default());
    for (name, value) in &told.facts {
        field(name, value);
    }
    fields.truncate(FIELDS_MAX);
    let mut blocks = vec![header(&told.title)];
    if !fields.is_empty() {
        blocks.push(json!({"type": "section", "fields": fields}));
    }
    blocks.push(json!({"type": "section",
        "text": markdown(&format!("*What to do*\n{}", told.remedy))}));
    let when = format!(
        "Oncepress, {} · {} to {} UTC",
        safe(&config.environment, FIELD_MAX),
        minute(bundle.opened_at),
        clock(bundle.newest_at)
    );
    blocks.push(json!({"type": "context", "elements": [markdown(&when)]}));
    let place = [&bundle.account, &bundle.site, &bundle.pipeline];
    let place: Vec<&str> = place
        .into_iter()
        .map(String::as_str)
        .filter(|word| !word.is_empty())
        .collect();
    let mut plain = told.title;
    if !place.is_empty() {
        plain = format!("{plain} ({})", safe(&place.join("/"), FIELD_MAX));
    }
    message(&plain, &blocks)
}

/// The payload of a digest.
pub fn digest(digest: &StoredDigest, config: &Config) -> Value {
    let title = format!("Oncepress, {}: {}", config.environment, digest.day);
    let body = safe(&digest.body, TEXT_MAX);
    let blocks = vec![
        header(&title),
        json!({"type": "section", "text": markdown(&format!("```{body}```"))}),
    ];
    message(&safe(&title, FIELD_MAX), &blocks)
}

/// What an alert says.
struct Words {
    title: String,
    /// Whether its count says something that the title does not.
    counted: bool,
    facts: Vec<(&'static str, String)>,
    remedy: &'static str,
}

fn words(bundle: &Bundle, config: &Config) -> Words {
    let n = bundle.count;
    let detail = bundle.detail.clone().unwrap_or_default();
    let Some(kind) = Kind::parse(&bundle.kind) else {
        // A kind of a newer version, after a roll-back: said as it is.
        return told(
            format!("Alert: {}", bundle.kind),
            vec![("Detail", detail)],
            DEFAULT_REMEDY,
        );
    };
    let many = |one: &str, more: &str| -> String {
        if n == 1 {
            format!("1 {one}")
        } else {
            format!("{n} {more}")
        }
    };
    match kind {
        Kind::Duplicate => told(
            format!("{} caught", many("duplicate", "duplicates")),
            age(bundle),
            "Nothing: the stored answer was given and nothing was bought. If it goes on, two \
             layers retry the same call, or a time-out is shorter than a generation takes.",
        ),
        Kind::Stale => {
            let minutes = config.stale_after.millis() / 60_000;
            let owed = many("delivery is", "deliveries are");
            told(
                format!("{owed} owed for over {minutes} minutes"),
                Vec::new(),
                "Look at the last answer of its destination in the outbox and repair that; what \
                 is owed goes out by itself then.",
            )
        }
        Kind::Dead => told(
            format!("{} not tried again", many("delivery is", "deliveries are")),
            vec![("Last error", detail)],
            "Repair the cause, then requeue it in the outbox. The text is stored: requeueing \
             buys nothing.",
        ),
        Kind::OutcomeUnknown => told(
            format!("{} of unknown outcome", many("delivery", "deliveries")),
            vec![("Last error", detail)],
            "Look at the destination: cancel the delivery if the text is there, requeue it if it \
             is not.",
        ),
        Kind::Held => told(
            format!("{} held", many("output is", "outputs are")),
            vec![("Newest reason", detail)],
            "It is paid for and stored, and nothing is published. Read it in the dashboard, then \
             publish, abandon or regenerate it.",
        ),
        Kind::Unknown => told(
            format!("{} of unknown outcome", many("generation", "generations")),
            vec![("Newest reason", detail)],
            "Gemini may have done and billed the work. Under a derived key `ON_UNKNOWN` decides \
             after 15 minutes; under an operation key abandon or regenerate it.",
        ),
        Kind::Credits => told(
            "Over 80 % of the day's credits are used".to_owned(),
            credits(&detail, config),
            "Raise `dailyCredits` of the account, or leave it: what might pass the limit is \
             answered with 402 until the account's midnight.",
        ),
        Kind::KvErrors => told(
            "KV failed in over 0.1 % of the week's calls".to_owned(),
            key_value(&detail),
            "Nothing is bought twice by it. Look at Cloudflare's status page; if it lasts, let \
             `KV_FAILURE_POLICY = \"arbiter\"` answer while KV can't be read.",
        ),
        Kind::DeadMessage => told(
            format!(
                "{} given up",
                many("queue message was", "queue messages were")
            ),
            vec![("Newest reason", detail)],
            "Its generation has failed and its key is free: repair the cause, then send the \
             request again.",
        ),
    }
    .uncounted(matches!(kind, Kind::Credits | Kind::KvErrors))
}

fn told(title: String, facts: Vec<(&'static str, String)>, remedy: &'static str) -> Words {
    Words {
        title,
        counted: true,
        facts,
        remedy,
    }
}

impl Words {
    fn uncounted(mut self, uncounted: bool) -> Self {
        self.counted = !uncounted;
        self
    }
}

fn age(bundle: &Bundle) -> Vec<(&'static str, String)> {
    let age = bundle
        .original_at
        .map(|at| span(bundle.newest_at.since(at)));
    age.map(|age| ("Age of the original", age))
        .into_iter()
        .collect()
}

/// The account's figures at the moment of the warning.
fn credits(detail: &str, config: &Config) -> Vec<(&'static str, String)> {
    let Ok(figures) = serde_json::from_str::<Value>(detail) else {
        return Vec::new();
    };
    let amount = |name: &str| {
        let value = figures
            .get(name)
            .and_then(Value::as_i64)
            .unwrap_or_default();
        show(&config.currency, value)
    };
    let day = figures.get("day").and_then(Value::as_str);
    vec![
        ("Day", day.unwrap_or_default().to_owned()),
        ("Spent", amount("spent")),
        ("Reserved", amount("reserved")),
        ("Limit", amount("limit")),
    ]
}

fn key_value(detail: &str) -> Vec<(&'static str, String)> {
    let Ok(figures) = serde_json::from_str::<Value>(detail) else {
        return Vec::new();
    };
    let of = |name: &str| {
        figures
            .get(name)
            .and_then(Value::as_u64)
            .unwrap_or_default()
    };
    let (errors, operations) = (of("errors"), of("operations"));
    let share = crate::store::figures::share(errors, operations).unwrap_or_default();
    vec![
        ("Error rate", percent(share, 2)),
        ("Errors", errors.to_string()),
        ("Calls", operations.to_string()),
    ]
}

/// A span in its two largest units.
fn span(span: Span) -> String {
    let seconds = span.millis().max(0) / 1_000;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest} s"),
        (0, 0, _) => format!("{minutes} min {rest} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn minute(at: Timestamp) -> String {
    let text = at.to_rfc3339();
    text.get(..16).unwrap_or(&text).replace('T', " ")
}

fn clock(at: Timestamp) -> String {
    let text = at.to_rfc3339();
    text.get(11..16).unwrap_or(&text).to_owned()
}

fn message(plain: &str, blocks: &[Value]) -> Value {
    json!({"text": plain, "blocks": blocks, "unfurl_links": false, "unfurl_media": false})
}

fn header(title: &str) -> Value {
    json!({"type": "header", "text": {"type": "plain_text", "text": safe(title, HEADER_MAX)}})
}

/// Marked-up text in which Slack looks for no names, channels or links of its own.
fn markdown(text: &str) -> Value {
    json!({"type": "mrkdwn", "text": text, "verbatim": true})
}

/// Text from outside: cut to so many characters, without control characters, and with the three
/// characters escaped that mean something to Slack.
fn safe(text: &str, chars_max: usize) -> String {
    let mut kept: String = text
        .chars()
        .take(chars_max)
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect();
    if text.chars().nth(chars_max).is_some() {
        kept.push('…');
    }
    kept.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

const DEFAULT_REMEDY: &str = "See the dashboard.";
/// Slack's own limit is 150 characters; escaping may make five of one.
const HEADER_MAX: usize = 100;
/// Slack's own limit is 2,000 characters a field.
const FIELD_MAX: usize = 300;
/// Slack's own limit of fields in a section.
const FIELDS_MAX: usize = 10;
/// Slack's own limit is 3,000 characters a section.
const TEXT_MAX: usize = 2_500;
/// Slack answers with a word.
const ANSWER_MAX_BYTES: usize = 1_024;

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
#[path = "slack_tests.rs"]
mod tests;
