//! The documents say the numbers and codes of the code.

use oncepress::error::Code;
use oncepress::http::validate::bounds;
use oncepress::time::Span;
use oncepress::{limits, outbox};

const BEGIN: &str = "<!-- codes: generated from src/error.rs -->\n";
const END: &str = "<!-- end of codes -->";

#[test]
fn the_contract_lists_every_code() {
    let page = crate::text("docs/CONTRACT.md");
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let expected = format!("\n{}\n", Code::reference());
    if std::env::var_os("REWRITE_DOCS").is_some() {
        let page = format!("{before}{BEGIN}{expected}{END}{after}");
        return std::fs::write(crate::root().join("docs/CONTRACT.md"), page).unwrap();
    }
    assert!(
        table == expected,
        "run REWRITE_DOCS=1 cargo test --test contract"
    );
}

#[test]
fn the_contract_draws_every_verdict() {
    let page = crate::text("docs/CONTRACT.md");
    for verdict in [
        "Fresh",
        "Replay",
        "Attach",
        "In progress",
        "Conflict",
        "Refused",
        "Unknown and reconciliation",
        "Held",
        "Definite failure",
    ] {
        let drawn = format!("### {verdict}\n\n```mermaid\nsequenceDiagram\n");
        assert!(page.contains(&drawn), "{verdict}");
    }
}

#[test]
fn every_default_is_told_with_its_value_and_a_reason() {
    let page = crate::text("docs/DEFAULTS.md");
    let minutes = |span: Span| format!("{} min", span.millis() / 60_000);
    let hours = |span: Span| format!("{} h", span.millis() / 3_600_000);
    let seconds = |span: Span| format!("{} s", span.seconds_up());
    let bytes = |count: usize| format!("{count} bytes");
    let characters = |count: usize| format!("{count} characters");
    let rows = [
        ("Gemini's deadline", minutes(limits::GEMINI_DEADLINE)),
        ("Lease of a claim", minutes(limits::LEASE)),
        ("Reconciliation", minutes(limits::RECONCILE_AFTER)),
        ("Mark in KV", minutes(limits::KV_MARK_TTL)),
        ("Window of a derived key", minutes(limits::WINDOW_DEFAULT)),
        (
            "Window, at most",
            format!("{} min", limits::WINDOW_MINUTES.end()),
        ),
        (
            "`requestedAt`, in the past",
            hours(limits::REQUESTED_AT_PAST),
        ),
        (
            "`requestedAt`, in the future",
            minutes(limits::REQUESTED_AT_FUTURE),
        ),
        ("Operation key", hours(limits::OPERATION_KEY_TTL)),
        (
            "Retention",
            format!("{} d", limits::RETENTION.millis() / 86_400_000),
        ),
        ("Wait of a caller", seconds(limits::WAIT_MAX)),
        (
            "First byte of a stream",
            seconds(limits::FIRST_BYTE_PATIENCE),
        ),
        ("Sign of life in a stream", seconds(limits::HEARTBEAT)),
        ("Belief in an API key", seconds(limits::AUTH_CACHE_TTL)),
        (
            "Body of `POST /api/v1/generations`",
            bytes(limits::BODY_MAX_BYTES),
        ),
        (
            "Body of a drop-in call",
            bytes(limits::DROP_IN_BODY_MAX_BYTES),
        ),
        (
            "Request kept in D1",
            bytes(limits::REQUEST_INLINE_MAX_BYTES),
        ),
        (
            "Request kept in D1, without a bucket",
            bytes(limits::REQUEST_D1_MAX_BYTES),
        ),
        ("Depth of JSON", limits::JSON_DEPTH_MAX.to_string()),
        ("Output kept in D1", bytes(limits::OUTPUT_INLINE_MAX_BYTES)),
        ("Text in one row of D1", bytes(limits::D1_TEXT_MAX_BYTES)),
        ("Answer of Gemini", bytes(limits::GEMINI_ANSWER_MAX_BYTES)),
        (
            "Destinations of one generation",
            limits::DESTINATIONS_MAX.to_string(),
        ),
        ("`topic`", characters(bounds::TOPIC_MAX_CHARS)),
        ("`variant`", characters(bounds::VARIANT_MAX_CHARS)),
        ("`schemaVersion`", characters(bounds::VERSION_MAX_CHARS)),
        ("Faults in one answer", bounds::FAULTS_MAX.to_string()),
        ("Attempts", limits::ATTEMPTS_MAX.to_string()),
        ("Spread of the attempts", hours(limits::DELIVERY_RETRY_SPAN)),
        (
            "`Retry-After` that is honoured",
            hours(limits::RETRY_AFTER_MAX),
        ),
        ("Wait for a destination", seconds(limits::PUBLISH_TIMEOUT)),
        (
            "Subrequests of a drain",
            limits::SUBREQUEST_BUDGET_DEFAULT.to_string(),
        ),
        (
            "Deliveries of one generation",
            limits::DELIVERIES_MAX.to_string(),
        ),
        ("Lease of a delivery", minutes(limits::DELIVERY_LEASE)),
        (
            "Failures in a row that leave a publisher alone",
            outbox::circuit::OPEN_AFTER.to_string(),
        ),
        (
            "For how long",
            format!(
                "{}, doubled to {}",
                minutes(outbox::circuit::OPEN_FOR),
                minutes(outbox::circuit::OPEN_MAX)
            ),
        ),
    ];
    let codes = Code::ALL.iter().filter_map(|code| {
        Some((
            format!("`{}`", code.as_str()),
            code.retry_after()?.seconds_up().to_string(),
        ))
    });
    let rows = rows
        .into_iter()
        .map(|(what, value)| (what.to_owned(), value))
        .chain(codes);
    let mut told = 0;
    for (what, value) in rows {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {what} | ")));
        let row = row.unwrap_or_else(|| panic!("{what} is missing"));
        let reason = row.strip_prefix(&format!("| {what} | {value} | "));
        assert!(
            reason.is_some_and(|reason| reason.len() > 10),
            "{what} is {value}: {row}"
        );
        told += 1;
    }
    let ruled = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.ends_with(" |"))
        .count();
    let heads = page
        .lines()
        .filter(|line| line.starts_with("|---|"))
        .count();
    assert_eq!(ruled - heads, told, "a row that no constant stands behind");
}

#[test]
fn the_clocks_nest() {
    assert!(limits::GEMINI_DEADLINE < limits::LEASE);
    assert!(limits::LEASE < limits::RECONCILE_AFTER);
}
