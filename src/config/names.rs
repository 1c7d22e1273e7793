//! Every binding, secret and variable: one table, from which defaults and documentation come.

use std::fmt::Write as _;

use crate::documentation;

/// One name in the Worker's environment.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The name, as in `wrangler.toml` and `.dev.vars`.
    pub name: &'static str,
    /// What kind of thing it names.
    pub kind: Kind,
    /// The text that stands for it where it is not set.
    pub default: Option<&'static str>,
    /// What it does.
    pub means: &'static str,
    /// Why the default is what it is, or why it has none.
    pub reason: &'static str,
}

impl Entry {
    /// The default as documentation shows it.
    pub(super) fn shown_default(&self) -> String {
        match (self.kind, self.default) {
            (_, Some(text)) => format!("`{text}`"),
            (Kind::RequiredBinding | Kind::RequiredSecret, None) => "required".to_owned(),
            (_, None) if self.name == ENVIRONMENT.name => "required".to_owned(),
            (_, None) => "none".to_owned(),
        }
    }
}

/// What a name in the environment stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A resource of Cloudflare without which nothing runs.
    RequiredBinding,
    /// A resource of Cloudflare that can be left out.
    OptionalBinding,
    /// A secret without which nothing runs.
    RequiredSecret,
    /// A secret that can be left out.
    OptionalSecret,
    /// A plain value.
    Variable,
    /// A table: JSON.
    Table,
}

macro_rules! entries {
    ($($name:ident $kind:ident $default:expr; $means:literal; $reason:literal;)*) => {
        $(
            #[doc = $means]
            pub const $name: Entry = Entry {
                name: stringify!($name),
                kind: Kind::$kind,
                default: $default,
                means: documentation($means),
                reason: documentation($reason),
            };
        )*

        /// All entries, in the order of the documentation.
        pub const ENTRIES: &[Entry] = &[$($name,)*];
    };
}

entries! {
    KV_DEDUP RequiredBinding None;
        "KV namespace of the marks that answer replays without the database.";
        "A hint beside the arbiter in D1; each environment has its own.";
    DB RequiredBinding None;
        "D1 database: claims, generations, outbox, accounts.";
        "The one store with an atomic claim.";
    BUCKET OptionalBinding None;
        "R2 bucket: outputs over 256 KiB, outputs that D1 refused, and the `r2` publisher.";
        "Without it KV takes what D1 refuses, and `r2` publishers are a fault.";
    RUNNER OptionalBinding None;
        "Durable Object namespace whose objects carry one generation each.";
        "Without it generations run in the handler, which a client's leaving can cut.";
    JOBS OptionalBinding None;
        "Queue of generations that were asked for with `Prefer: respond-async`.";
        "Without it such a request is answered as if it had not asked.";
    ANALYTICS OptionalBinding None;
        "Analytics Engine dataset: a data point for each event.";
        "Alerts and digest live from the database's own counters.";
    RATE_LIMIT OptionalBinding None;
        "Rate limiter, keyed by account.";
        "Without it, or when it fails, every request passes.";
    ASSETS OptionalBinding None;
        "Static assets: the dashboard.";
        "The API works without it.";
    GEMINI_API_KEY RequiredSecret None;
        "Key with which Gemini is called.";
        "It is a secret.";
    ADMIN_TOKEN RequiredSecret None;
        "Bearer token of `/admin`: 16 characters or more, without spaces.";
        "It is a secret; shorter ones can be guessed over the network.";
    SLACK_WEBHOOK_URL OptionalSecret None;
        "Slack incoming webhook for alerts and the digest.";
        "Without it alerts are logged and shown on the dashboard only.";
    ENVIRONMENT Variable None;
        "Name of the environment, such as `development` or `production`.";
        "No default: KV, D1 and R2 carry the name, and a Worker with another one refuses to run.";
    GEMINI_BASE_URL Variable Some("https://generativelanguage.googleapis.com");
        "Where Gemini is: https, or http on the loopback interface.";
        "Google's own address.";
    GEMINI_UPSTREAM Variable Some("stream");
        "`stream` or `unary`: how `/api` calls ask Gemini.";
        "A stream is no silent connection, and a cut shows as a missing finish reason.";
    DEFAULT_MODEL Variable Some("gemini-3.8-flash");
        "Model of requests that name none and whose pipeline names none.";
        "The default of Google's own SDKs.";
    KV_FAILURE_POLICY Variable Some("deny");
        "`deny` or `arbiter`: what happens when KV can't be read and the isolate knows nothing.";
        "`deny` answers 503, so that no doubt is ever bought; `arbiter` lets D1 decide alone.";
    ON_UNKNOWN Variable Some("regenerate");
        "`regenerate` or `hold`: fate of an unknown generation of a derived key after 15 minutes.";
        "A content pipeline would rather pay twice once than miss its article.";
    IDENTITY_IGNORES Table Some(r#"["/generationConfig/seed"]"#);
        "JSON pointers of request members that the derived key leaves out.";
        "A retry with a new seed is still a retry.";
    PRICES Table Some("{}");
        "Prices of models, over the built-in table.";
        "The built-in table holds the published prices with their dates.";
    DIGEST_TIME Variable Some("08:00");
        "When the daily digest is made, `HH:MM` on the clock of `DIGEST_TIMEZONE`.";
        "Before the working day.";
    DIGEST_TIMEZONE Variable Some("UTC");
        "IANA time zone of the digest.";
        "The one zone that nobody has to guess.";
    STALE_MINUTES Variable Some("60");
        "A delivery owed for longer is stale: 1 to 43200.";
        "An hour is over an ordinary outage and within a working day.";
    SUBREQUEST_BUDGET Variable Some("50");
        "Subrequests that one drain may make: 10 to 10000.";
        "The free plan allows 50 an invocation; the paid plan 10,000 unless configured otherwise.";
    RUNNER_MODE Variable None;
        "`durable_object` or `inline`: where generations run.";
        "Where it is not set: `durable_object` if `RUNNER` is bound, else `inline`.";
    CORS_ORIGINS Table Some("[]");
        "Origins whose pages may call the API, as a list.";
        "Off: the dashboard is served from the same origin, and keys do not belong in web pages.";
    CURRENCY Variable Some("USD");
        "ISO 4217 code of the currency that reports show.";
        "Gemini is priced in US dollars.";
    CURRENCY_PER_USD Variable Some("1");
        "What one US dollar is in that currency, as a decimal: `149.5`.";
        "For show only; all sums inside are US dollars.";
    PUBLISHERS Table Some("{}");
        "Destinations by name: `[vars.PUBLISHERS.NAME]`.";
        "Nothing is published unless configured.";
    PIPELINES Table Some("{}");
        "Settings of single pipelines: `[vars.PIPELINES.\"SITE/PIPELINE\"]`.";
        "A pipeline without settings works; its callers name the destinations.";
}

/// The documentation of every name, as `docs/CONFIGURATION.md` has it.
pub(super) fn markdown() -> String {
    let mut page = String::from(HEAD);
    for (title, kinds) in SECTIONS {
        // Writing into a `String` can't fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| name | default | what | why |\n|---|---|---|---|\n"
        );
        for entry in ENTRIES.iter().filter(|entry| kinds.contains(&entry.kind)) {
            let default = entry.shown_default();
            let Entry {
                name,
                means,
                reason,
                ..
            } = entry;
            let _ = writeln!(page, "| `{name}` | {default} | {means} | {reason} |");
        }
    }
    page.push_str(TABLES);
    page
}

const SECTIONS: [(&str, &[Kind]); 3] = [
    ("Bindings", &[Kind::RequiredBinding, Kind::OptionalBinding]),
    ("Secrets", &[Kind::RequiredSecret, Kind::OptionalSecret]),
    ("Variables", &[Kind::Variable, Kind::Table]),
];

const HEAD: &str = "# Configuration

Generated from `src/config/names.rs`; a test compares the two.
(`REWRITE_DOCS=1 cargo test --lib config` writes this page anew.)

All configuration is in `wrangler.toml`, once for development and once under `[env.production]`,
since Cloudflare's environments inherit no binding and no variable. Secrets are in `.dev.vars`
locally and set with `wrangler secret put` in production. Everything is read once and checked as a
whole: every fault is listed by name at `GET /admin/health`, and until there is none the Worker
answers 500 `misconfigured`. A variable holds at most 5,120 bytes (a limit of the platform).
";

const TABLES: &str = r#"
## Prices

US dollars for a million tokens. An entry replaces the built-in one of its name.

```toml
[vars.PRICES]
"gemini-pro-latest" = "gemini-4-argon"   # a name that stands for another model
"gemini-4-argon" = [
  { input = 2, output = 10, cached = 0.1 },
  { from = "2026-12-01", input = 4, output = 20, cached = 0.2 },
]
```

`cached` and `audio` are as `input` where they are missing; `long` holds the rates of prompts over
200,000 tokens.
## Publishers

```toml
[vars.PUBLISHERS.archive]
kind = "r2"              # r2 | webhook | github | wordpress | ghost | queue
accounts = ["default"]   # who may use it; only `default` where absent
ambiguous = "at_least_once"  # or at_most_once: what an attempt without a clear outcome does
prefix = "articles/"     # the kind's own settings
```

Secrets are named, never written here: `secrets = ["HOOK_SECRET"]`.

## Pipelines

```toml
[vars.PIPELINES."demo/articles"]
accounts = ["default"]   # whose pipeline it is; only `default` where absent
model = "gemini-3.8-flash"
publish = [{ publisher = "archive", target = "{site}/{date}/{id}.md" }]
template = "markdown"    # text (default) | json | markdown | { body, content_type }
near_duplicates = "hold" # or allow (default)

[vars.PIPELINES."demo/articles".gate]
min_chars = 400
max_chars = 40000
must_contain = ["\n## "]
must_not_contain = ["As an AI"]
```

`target` may use `{account}`, `{site}`, `{pipeline}`, `{date}` (UTC, of the request's anchor),
`{id}` (the generation's) and `{topic}`. They are filled in once, when the request is claimed.
An output that the gate refuses is held: stored, paid for, and left to a person.
"#;
