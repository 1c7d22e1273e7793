//! The configuration: read once, checked as a whole, typed from then on.
//!
//! Texts become types here; no other module looks a variable up. Every fault is gathered with the
//! name of its variable, so that one look at `/admin/health` shows all that is to be corrected.

mod faults;
mod gate;
pub mod names;
mod pipelines;
mod values;

use serde_json::Value;

use crate::gemini::price::PriceTable;
use crate::key::pointer::JsonPointer;
use crate::ports::Zones;
use crate::publish::settings::PublisherSettings;
use crate::sorted::SortedMap;
use crate::time::{Span, Timestamp};

pub use faults::ConfigFault;
pub use gate::{GateRefusal, OutputGate};
pub use names::{ENTRIES, Entry, Kind};
pub use pipelines::{Destination, NearDuplicates, Pipeline};
pub use values::is_model;

pub(crate) use pipelines::target;
pub(crate) use values::name as parse_name;

use faults::{Faults, member};

/// Where the configuration comes from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The text of a variable or secret; a table as JSON.
    pub text: &'a dyn Fn(&str) -> Option<String>,
    /// Whether a binding of this name exists.
    pub bound: &'a dyn Fn(&str) -> bool,
    /// The time zones that the platform knows.
    pub zones: &'a dyn Zones,
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sources")
    }
}

/// The whole configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the environment.
    pub environment: String,
    /// Where Gemini is, without a slash at the end.
    pub gemini_base_url: String,
    /// How Gemini is asked for `/api` calls.
    pub gemini_upstream: Upstream,
    /// The model of requests that name none.
    pub default_model: String,
    /// What happens when KV can't be read.
    pub kv_failure_policy: KvFailurePolicy,
    /// The fate of unknown generations of derived keys.
    pub on_unknown: OnUnknown,
    /// JSON pointers that the derived key leaves out.
    pub identity_ignores: Vec<JsonPointer>,
    /// What tokens cost.
    pub prices: PriceTable,
    /// When the digest is made: since midnight, in its time zone.
    pub digest_time: Span,
    /// The digest's time zone.
    pub digest_timezone: String,
    /// A delivery owed for longer is stale.
    pub stale_after: Span,
    /// Subrequests that one drain may make.
    pub subrequest_budget: u32,
    /// Where generations run.
    pub runner: RunnerMode,
    /// Origins whose pages may call the API.
    pub cors_origins: Vec<String>,
    /// The currency of reports.
    pub currency: Currency,
    /// Publishers by name; a faulty one is left out.
    pub publishers: SortedMap<String, PublisherSettings>,
    /// Settings of pipelines by `SITE/PIPELINE`.
    pub pipelines: SortedMap<String, Pipeline>,
    /// The key with which Gemini is called.
    pub gemini_api_key: Secret,
    /// The bearer token of `/admin`; empty where it is missing, and then nobody has it.
    pub admin_token: Secret,
    /// Where alerts go.
    pub slack_webhook_url: Option<Secret>,
}

/// How Gemini is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// By `streamGenerateContent`.
    Stream,
    /// By `generateContent`.
    Unary,
}

/// What happens when KV can't be read and the isolate knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFailurePolicy {
    /// The request is refused.
    Deny,
    /// The claim in the database decides.
    Arbiter,
}

/// The fate of an unknown generation of a derived key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// Its claim is freed: the next try is fresh.
    Regenerate,
    /// A person decides.
    Hold,
}

/// Where generations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerMode {
    /// In a Durable Object each.
    DurableObject,
    /// In the request's handler.
    Inline,
}

/// A currency for show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Currency {
    /// Its ISO 4217 code.
    pub code: String,
    /// Millionths of it that one US dollar is.
    pub micros_per_usd: i64,
}

/// A text that is never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Config {
    /// Reads everything. Where a value is faulty its default stands in, so that `/admin/health`
    /// can still answer; a Worker with any fault serves nothing else.
    pub fn parse(sources: Sources<'_>) -> (Self, Vec<ConfigFault>) {
        let mut reader = Reader {
            sources,
            faults: Faults::default(),
        };
        reader.bindings();
        let environment = reader.required(&names::ENVIRONMENT, values::name);
        let publishers = reader.publishers(&environment);
        let pipelines = reader.pipelines(&publishers);
        let config = Self {
            environment,
            gemini_base_url: reader.read(&names::GEMINI_BASE_URL, values::base_url),
            gemini_upstream: reader.choice(&names::GEMINI_UPSTREAM, UPSTREAMS),
            default_model: reader.read(&names::DEFAULT_MODEL, values::model),
            kv_failure_policy: reader.choice(&names::KV_FAILURE_POLICY, KV_FAILURE_POLICIES),
            on_unknown: reader.choice(&names::ON_UNKNOWN, UNKNOWN_FATES),
            identity_ignores: reader.read(&names::IDENTITY_IGNORES, json_pointers),
            prices: reader.prices(),
            digest_time: reader.read(&names::DIGEST_TIME, values::time_of_day),
            digest_timezone: reader.zone(),
            stale_after: Span::from_minutes(reader.integer(&names::STALE_MINUTES, 1..=43_200)),
            subrequest_budget: reader.integer(&names::SUBREQUEST_BUDGET, 10..=10_000),
            runner: reader.runner(),
            cors_origins: reader.read(&names::CORS_ORIGINS, origins),
            currency: Currency {
                code: reader.read(&names::CURRENCY, values::currency),
                micros_per_usd: reader.read(&names::CURRENCY_PER_USD, values::millionths),
            },
            publishers: sound(publishers),
            pipelines,
            gemini_api_key: reader.secret(&names::GEMINI_API_KEY, 1),
            admin_token: reader.secret(&names::ADMIN_TOKEN, ADMIN_TOKEN_MIN_CHARS),
            slack_webhook_url: reader.optional(&names::SLACK_WEBHOOK_URL, values::web_url),
        };

        (config, reader.faults.0)
    }

    /// The settings of a pipeline, where it has any and is the account's.
    pub fn pipeline(&self, account: &str, site: &str, pipeline: &str) -> Option<&Pipeline> {
        let settings = self.pipelines.get(&format!("{site}/{pipeline}"))?;
        settings
            .accounts
            .iter()
            .any(|name| name == account)
            .then_some(settings)
    }

    /// The documentation of the configuration, in Markdown.
    pub fn reference() -> String {
        names::markdown()
    }
}

/// Reads entries and gathers what is wrong with them.
struct Reader<'a> {
    sources: Sources<'a>,
    faults: Faults,
}

impl Reader<'_> {
    /// The text of an entry; an empty one counts as not set, as `NAME=` in `.dev.vars` means it.
    fn text(&mut self, entry: &Entry) -> Option<String> {
        let text = (self.sources.text)(entry.name).filter(|text| !text.is_empty())?;
        if text.len() > VARIABLE_MAX_BYTES {
            let problem = format!("is over {VARIABLE_MAX_BYTES} bytes, a limit of the platform");
            self.faults.add(entry.name, problem);
        }
        Some(text)
    }

    /// A value that has a default. The defaults themselves are valid: a test reads them all.
    fn read<T: Default>(&mut self, entry: &Entry, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let set = self.optional_value(entry, &parse);
        set.or_else(|| parse(entry.default?).ok())
            .unwrap_or_default()
    }

    fn optional_value<T>(
        &mut self,
        entry: &Entry,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(entry)?;
        self.faults.keep(entry.name, parse(&text))
    }

    /// A value without which nothing runs.
    fn required(
        &mut self,
        entry: &Entry,
        parse: impl Fn(&str) -> Result<String, String>,
    ) -> String {
        let Some(text) = self.text(entry) else {
            self.faults.add(entry.name, "is not set");
            return String::new();
        };
        self.faults
            .keep(entry.name, parse(&text))
            .unwrap_or_default()
    }

    fn choice<T: Copy>(&mut self, entry: &Entry, (standard, choices): Choices<T>) -> T {
        self.optional_value(entry, |text| values::choice(text, choices))
            .unwrap_or(standard)
    }

    fn integer<T: Default + TryFrom<i64>>(
        &mut self,
        entry: &Entry,
        range: std::ops::RangeInclusive<i64>,
    ) -> T {
        let number = self.read(entry, |text| values::integer(text, range.clone()));
        T::try_from(number).unwrap_or_default()
    }

    fn secret(&mut self, entry: &Entry, chars_min: usize) -> Secret {
        Secret(self.required(entry, |text| values::header_secret(text, chars_min)))
    }

    fn optional(
        &mut self,
        entry: &Entry,
        parse: impl Fn(&str) -> Result<String, String>,
    ) -> Option<Secret> {
        self.optional_value(entry, parse).map(Secret)
    }

    /// A table of JSON.
    fn table(&mut self, entry: &Entry) -> Table {
        self.read(entry, |text| match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(_) => Err("must be a table".to_owned()),
            Err(error) => Err(format!("is not valid JSON, at column {}", error.column())),
        })
    }

    /// Every required binding must exist.
    fn bindings(&mut self) {
        for entry in ENTRIES
            .iter()
            .filter(|entry| entry.kind == Kind::RequiredBinding)
        {
            if !(self.sources.bound)(entry.name) {
                self.faults
                    .add(entry.name, "is not bound; environments inherit no bindings");
            }
        }
    }

    fn zone(&mut self) -> String {
        let zones = self.sources.zones;
        self.read(&names::DIGEST_TIMEZONE, |text| {
            let offset = zones.offset_minutes(text, Timestamp::default());
            offset
                .map(|_| text.to_owned())
                .ok_or("must be an IANA time zone".to_owned())
        })
    }

    /// By the binding, unless the variable says otherwise.
    fn runner(&mut self) -> RunnerMode {
        let bound = (self.sources.bound)(names::RUNNER.name);
        let by_binding = if bound {
            RunnerMode::DurableObject
        } else {
            RunnerMode::Inline
        };
        let modes = [
            ("durable_object", RunnerMode::DurableObject),
            ("inline", RunnerMode::Inline),
        ];
        let mode = self.choice(&names::RUNNER_MODE, (by_binding, &modes));
        if mode == RunnerMode::DurableObject && !bound {
            self.faults.add(
                names::RUNNER_MODE.name,
                "is `durable_object`, but RUNNER is not bound",
            );
        }
        mode
    }

    /// The built-in prices with the configured ones over them.
    fn prices(&mut self) -> PriceTable {
        let table = Value::Object(self.table(&names::PRICES));
        PriceTable::parse(&table).unwrap_or_else(|faults| {
            for fault in faults {
                let path = format!("{}{}", names::PRICES.name, fault.pointer);
                self.faults.add(path, fault.problem);
            }
            PriceTable::default()
        })
    }

    /// All publishers by name; a faulty one is named, and `None` here.
    fn publishers(&mut self, environment: &str) -> Publishers {
        let table = self.table(&names::PUBLISHERS);
        let mut publishers = Publishers::new();
        for (name, settings) in &table {
            let path = member(names::PUBLISHERS.name, name);
            self.faults.keep(&path, values::name(name));
            let settings = PublisherSettings::parse(name, settings, self.sources.text, environment);
            if settings
                .as_ref()
                .is_ok_and(|settings| settings.kind() == "r2")
                && !(self.sources.bound)(names::BUCKET.name)
            {
                self.faults
                    .add(path.as_str(), "is an r2 publisher, but BUCKET is not bound");
            }
            for problem in settings.as_ref().err().into_iter().flatten() {
                self.faults.add_in(&path, problem);
            }
            publishers.insert(name.clone(), settings.ok());
        }
        publishers
    }

    fn pipelines(&mut self, publishers: &Publishers) -> SortedMap<String, Pipeline> {
        let table = self.table(&names::PIPELINES);
        let mut pipelines = SortedMap::new();
        for (key, value) in &table {
            if let Some(pipeline) = pipelines::parse(key, value, publishers, &mut self.faults) {
                pipelines.insert(key.clone(), pipeline);
            }
        }
        pipelines
    }
}

/// Publishers by name; `None` stands for one that is there but faulty.
type Publishers = SortedMap<String, Option<PublisherSettings>>;

fn sound(publishers: Publishers) -> SortedMap<String, PublisherSettings> {
    let named = publishers.into_iter();
    named
        .filter_map(|(name, settings)| Some((name, settings?)))
        .collect()
}

/// A list of JSON pointers; the one to the whole document would ignore everything.
fn json_pointers(text: &str) -> Result<Vec<JsonPointer>, String> {
    let list = serde_json::from_str::<Value>(text).ok();
    let list = list.as_ref().and_then(faults::texts);
    let pointers = list.and_then(|list| list.iter().map(|text| JsonPointer::parse(text)).collect());
    pointers.ok_or_else(|| {
        "must be a list of JSON pointers, such as `[\"/generationConfig/seed\"]`".to_owned()
    })
}

fn origins(text: &str) -> Result<Vec<String>, String> {
    let list = serde_json::from_str::<Value>(text).ok();
    let list = list.as_ref().and_then(faults::texts);
    let list = list.ok_or("must be a list of origins, such as `[\"https://example.com\"]`")?;
    list.iter().map(|text| values::origin(text)).collect()
}

/// A table of the configuration.
type Table = serde_json::Map<String, Value>;

/// A standard choice, and all there are.
type Choices<'a, T> = (T, &'a [(&'static str, T)]);

const UPSTREAMS: Choices<'_, Upstream> = (
    Upstream::Stream,
    &[("stream", Upstream::Stream), ("unary", Upstream::Unary)],
);
const KV_FAILURE_POLICIES: Choices<'_, KvFailurePolicy> = (
    KvFailurePolicy::Deny,
    &[
        ("deny", KvFailurePolicy::Deny),
        ("arbiter", KvFailurePolicy::Arbiter),
    ],
);
const UNKNOWN_FATES: Choices<'_, OnUnknown> = (
    OnUnknown::Regenerate,
    &[
        ("regenerate", OnUnknown::Regenerate),
        ("hold", OnUnknown::Hold),
    ],
);
/// A variable's size on Cloudflare: 5 KB.
const VARIABLE_MAX_BYTES: usize = 5_120;
/// Sixteen random characters can't be guessed over the network.
const ADMIN_TOKEN_MIN_CHARS: usize = 16;

#[cfg(test)]
mod tests;
