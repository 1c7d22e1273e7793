use std::fmt::Write as _;

use super::*;
use crate::limits;

struct TwoZones;

impl Zones for TwoZones {
    fn offset_minutes(&self, zone: &str, _: Timestamp) -> Option<i32> {
        match zone {
            "UTC" => Some(0),
            "Asia/Tokyo" => Some(540),
            _ => None,
        }
    }
}

/// The configuration with these texts over a sound one; an empty text takes one away.
fn parse(texts: &[(&str, &str)]) -> (Config, Vec<String>) {
    parse_bound(texts, &["KV_DEDUP", "DB", "RUNNER", "BUCKET"])
}

fn parse_bound(texts: &[(&str, &str)], bound: &[&str]) -> (Config, Vec<String>) {
    let sound = [
        ("ENVIRONMENT", "development"),
        ("GEMINI_API_KEY", "gemini-secret"),
        ("ADMIN_TOKEN", "admin-secret-0123"),
    ];
    let text = |name: &str| {
        let all = texts.iter().chain(&sound);
        all.copied()
            .find(|(other, _)| *other == name)
            .map(|(_, text)| text.to_owned())
    };
    let bound = |name: &str| bound.contains(&name);
    let (config, faults) = Config::parse(Sources {
        text: &text,
        bound: &bound,
        zones: &TwoZones,
    });
    (config, faults.iter().map(ToString::to_string).collect())
}

#[test]
fn the_documentation_is_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CONFIGURATION.md");
    if std::env::var_os("REWRITE_DOCS").is_some() {
        std::fs::write(page, Config::reference()).unwrap();
    }
    let written = std::fs::read_to_string(page).unwrap();
    assert!(
        written == Config::reference(),
        "run REWRITE_DOCS=1 cargo test --lib config"
    );
}

/// The names that a first look needs, as `README.md` and `README.ja.md` list them.
const FIRST: [&str; 11] = [
    "ENVIRONMENT",
    "GEMINI_API_KEY",
    "ADMIN_TOKEN",
    "SLACK_WEBHOOK_URL",
    "DEFAULT_MODEL",
    "KV_FAILURE_POLICY",
    "ON_UNKNOWN",
    "DIGEST_TIME",
    "DIGEST_TIMEZONE",
    "PUBLISHERS",
    "PIPELINES",
];

fn first_entries() -> impl Iterator<Item = &'static Entry> {
    let entry = |name: &&str| ENTRIES.iter().find(|entry| entry.name == *name).unwrap();
    FIRST.iter().map(entry)
}

#[test]
fn the_table_of_the_readme_is_a_part_of_it() {
    const BEGIN: &str = "<!-- configuration: generated from src/config/names.rs -->\n\n";
    const END: &str = "\n<!-- end of configuration -->";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let mut expected = "| name | default | what |\n|---|---|---|\n".to_owned();
    for entry in first_entries() {
        let (name, default) = (entry.name, entry.shown_default());
        writeln!(expected, "| `{name}` | {default} | {} |", entry.means).unwrap();
    }
    if std::env::var_os("REWRITE_DOCS").is_some() {
        let page = format!("{before}{BEGIN}{expected}{END}{after}");
        return std::fs::write(path, page).unwrap();
    }
    assert!(
        table == expected,
        "run REWRITE_DOCS=1 cargo test --lib config"
    );
}

#[test]
fn the_japanese_readme_lists_the_same_names_with_the_same_defaults() {
    let page = include_str!("../../README.ja.md");
    let (_, section) = page.split_once("\n## 設定\n").unwrap();
    let told: Vec<(String, String)> = section
        .split("\n## ")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|row| row.split_once("` | "))
        .map(|(name, rest)| {
            (
                name.to_owned(),
                rest.split(" | ").next().unwrap().to_owned(),
            )
        })
        .collect();
    let expected: Vec<(String, String)> = first_entries()
        .map(|entry| {
            let default = entry.shown_default();
            let default = default.replace("required", "必須").replace("none", "なし");
            (entry.name.to_owned(), default)
        })
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn three_settings_suffice_and_every_default_is_valid() {
    let (config, faults) = parse(&[]);
    assert_eq!(faults, Vec::<String>::new());
    let defaults: Vec<(&str, &str)> = ENTRIES
        .iter()
        .filter_map(|entry| Some((entry.name, entry.default?)))
        .collect();
    let (spelled_out, faults) = parse(&defaults);
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(format!("{config:?}"), format!("{spelled_out:?}"));
    assert_eq!(config.subrequest_budget, limits::SUBREQUEST_BUDGET_DEFAULT);
    let seed = JsonPointer::parse("/generationConfig/seed").unwrap();
    assert_eq!(config.identity_ignores, [seed]);
    assert_eq!(config.stale_after, Span::from_minutes(60));
    assert_eq!(config.digest_time, Span::from_hours(8));
    assert_eq!(config.runner, RunnerMode::DurableObject);
}

#[test]
fn every_fault_is_named_at_once() {
    let (_, faults) = parse_bound(
        &[
            ("ENVIRONMENT", ""),
            ("ADMIN_TOKEN", "short"),
            ("GEMINI_BASE_URL", "http://example.com"),
            ("KV_FAILURE_POLICY", "allow"),
            ("IDENTITY_IGNORES", "[\"seed\"]"),
            ("DIGEST_TIME", "8:00"),
            ("DIGEST_TIMEZONE", "Tokyo"),
            ("STALE_MINUTES", "0"),
            ("CORS_ORIGINS", "*"),
            ("PRICES", r#"{"gemini-x":{"input":-1}}"#),
            ("CURRENCY_PER_USD", "{"),
            ("RUNNER_MODE", "durable_object"),
            (
                "PUBLISHERS",
                r#"{"shut":{"kind":"r2","accounts":["acme"]},"Bad":{"kind":"r3"}}"#,
            ),
            (
                "PIPELINES",
                r#"{"demo":1,"a/b":{"publish":[{"publisher":"x","target":"{slug}"},
                {"publisher":"x","target":"y"},{"publisher":"Bad","target":"y"},
                {"publisher":"shut","target":"../y"},{"publisher":"shut","target":"y"}],
                "template":"makrdown","acounts":[],"near_duplicates":"drop",
                "gate":{"min_chars":-1}}}"#,
            ),
        ],
        &["DB"],
    );
    insta::assert_snapshot!(faults.join("\n"), @r#"
    KV_DEDUP is not bound; environments inherit no bindings
    ENVIRONMENT is not set
    PUBLISHERS.shut is an r2 publisher, but BUCKET is not bound
    PUBLISHERS.Bad must be 1 to 64 of `a-z 0-9 . _ -`, starting with a letter or digit
    PUBLISHERS.Bad.kind must be r2, webhook, github, wordpress, ghost or queue
    PIPELINES.demo must be named SITE/PIPELINE, each 1 to 64 of `a-z 0-9 . _ -`
    PIPELINES.demo must be a table
    PIPELINES."a/b".acounts is not known here
    PIPELINES."a/b".publish[0].target may use {account} {site} {pipeline} {date} {id} {topic} and no other braces
    PIPELINES."a/b".publish[1].publisher names a publisher that PUBLISHERS does not have
    PIPELINES."a/b".publish[2].publisher must be 1 to 64 of `a-z 0-9 . _ -`, starting with a letter or digit
    PIPELINES."a/b".publish[3].target must be a relative path without empty, `.` or `..` parts, `\`, invisible characters or outer white space
    PIPELINES."a/b".publish[4].publisher names a publisher that is not open to each of the accounts
    PIPELINES."a/b".template must be text, json or markdown, or a table with body and content_type
    PIPELINES."a/b".gate.min_chars must be a whole number that is not negative
    PIPELINES."a/b".near_duplicates must be `allow` or `hold`
    GEMINI_BASE_URL must be https, unless its host is the loopback interface
    KV_FAILURE_POLICY must be `deny` or `arbiter`
    IDENTITY_IGNORES must be a list of JSON pointers, such as `["/generationConfig/seed"]`
    PRICES/gemini-x/input must be a price in US dollars for a million tokens
    PRICES/gemini-x/output is required
    DIGEST_TIME must be a time of day from 00:00 to 23:59
    DIGEST_TIMEZONE must be an IANA time zone
    STALE_MINUTES must be a whole number from 1 to 43200
    RUNNER_MODE is `durable_object`, but RUNNER is not bound
    CORS_ORIGINS must be a list of origins, such as `["https://example.com"]`
    CURRENCY_PER_USD must be a decimal above 0 with at most six places, below 1000000000
    ADMIN_TOKEN must have 16 characters or more
    "#);
}

#[test]
fn tables_that_are_none_are_named() {
    let (_, faults) = parse(&[("PRICES", "[]"), ("PUBLISHERS", "{"), ("PIPELINES", "1")]);
    insta::assert_snapshot!(faults.join("\n"), @r"
    PUBLISHERS is not valid JSON, at column 1
    PIPELINES must be a table
    PRICES must be a table
    ");
}

#[test]
fn a_missing_runner_means_inline_unless_it_was_asked_for() {
    let (config, faults) = parse_bound(&[], &["KV_DEDUP", "DB"]);
    assert_eq!((config.runner, faults.len()), (RunnerMode::Inline, 0));
}

#[test]
fn a_pipeline_is_read_in_full_and_only_for_its_accounts() {
    let (config, faults) = parse(&[
        (
            "PUBLISHERS",
            r#"{"archive":{"kind":"r2","accounts":["acme"]}}"#,
        ),
        (
            "PIPELINES",
            r#"{"demo/articles":{"accounts":["acme"],"model":"gemini-4-argon",
            "publish":[{"publisher":"archive","target":"{date}/{id}.md"}],"template":"markdown",
            "gate":{"min_chars":10},"near_duplicates":"hold"}}"#,
        ),
    ]);
    assert_eq!(faults, Vec::<String>::new());
    let pipeline = config.pipeline("acme", "demo", "articles").unwrap();
    assert_eq!(pipeline.model.as_deref(), Some("gemini-4-argon"));
    assert_eq!(pipeline.publish[0].target, "{date}/{id}.md");
    assert_eq!(pipeline.near_duplicates, NearDuplicates::Hold);
    assert_eq!(pipeline.gate.as_ref().unwrap().chars_min, Some(10));
    assert_eq!(config.pipeline("default", "demo", "articles"), None);
    assert_eq!(config.pipeline("acme", "demo", "other"), None);
}

#[test]
fn no_secret_is_ever_shown() {
    let (config, faults) = parse(&[
        ("SLACK_WEBHOOK_URL", "https://hooks.example/hook-secret"),
        ("GEMINI_BASE_URL", "https://user:base-secret@example.com"),
    ]);
    let shown = format!("{config:?} {faults:?}");
    assert!(!shown.contains("-secret"), "{shown}");
    assert_eq!(config.gemini_api_key.expose(), "gemini-secret");
    assert_eq!(
        config.slack_webhook_url.unwrap().expose(),
        "https://hooks.example/hook-secret"
    );
}

#[test]
fn a_variable_that_the_platform_would_refuse_is_a_fault() {
    let long = format!("{{{}}}", " ".repeat(5_200));
    let (_, faults) = parse(&[("PRICES", &long)]);
    assert_eq!(
        faults,
        ["PRICES is over 5120 bytes, a limit of the platform"]
    );
}
