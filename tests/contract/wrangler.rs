//! `wrangler.toml` is complete for both environments, and says what the configuration says.

use std::collections::{BTreeMap, BTreeSet};

use oncepress::config::{Config, ENTRIES, Kind, Sources};
use oncepress::ports::Zones;
use oncepress::time::Timestamp;
use toml::{Table, Value};

struct Utc;

impl Zones for Utc {
    fn offset_minutes(&self, zone: &str, _: Timestamp) -> Option<i32> {
        (zone == "UTC").then_some(0)
    }
}

fn file() -> Table {
    crate::text("wrangler.toml").parse().unwrap()
}

/// Development is the top level; production stands under `env`.
fn environments() -> [(&'static str, Table); 2] {
    let file = file();
    let production = file["env"]["production"].as_table().unwrap().clone();
    [("development", file), ("production", production)]
}

/// Every binding, and what it is called at Cloudflare where it has a name of its own.
fn bindings(environment: &Table) -> BTreeMap<String, Option<String>> {
    let lists = [
        ("kv_namespaces", "binding", None),
        ("d1_databases", "binding", Some("database_name")),
        ("r2_buckets", "binding", Some("bucket_name")),
        ("analytics_engine_datasets", "binding", Some("dataset")),
        ("ratelimits", "name", Some("namespace_id")),
    ];
    let mut all = BTreeMap::new();
    let mut add = |list: &Value, name: &str, resource: Option<&str>| {
        for item in list.as_array().unwrap() {
            let text = |name: &str| item[name].as_str().unwrap().to_owned();
            all.insert(text(name), resource.map(text));
        }
    };
    for (list, name, resource) in lists {
        add(&environment[list], name, resource);
    }
    add(&environment["durable_objects"]["bindings"], "name", None);
    add(
        &environment["queues"]["producers"],
        "binding",
        Some("queue"),
    );
    all
}

#[test]
fn every_binding_exists_in_both_environments_and_no_name_is_shared() {
    let [(_, development), (_, production)] = environments();
    let (local, real) = (bindings(&development), bindings(&production));
    let named = |kinds: &[Kind]| -> BTreeSet<String> {
        ENTRIES
            .iter()
            .filter(|it| kinds.contains(&it.kind))
            .map(|it| it.name.to_owned())
            .collect()
    };
    let mut expected = named(&[Kind::RequiredBinding, Kind::OptionalBinding]);
    // Assets are inherited, and the same files serve both.
    assert_eq!(development["assets"]["binding"].as_str(), Some("ASSETS"));
    expected.remove("ASSETS");
    assert_eq!(local.keys().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(real.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for (binding, name) in &local {
        assert!(name.is_none() || name != &real[binding], "{binding}");
    }
    assert_ne!(development["name"], production["name"]);
}

#[test]
fn dead_letters_have_a_consumer_in_both_environments() {
    for (name, environment) in environments() {
        let consumers = environment["queues"]["consumers"].as_array().unwrap();
        let queue = |consumer: &Value| consumer["queue"].as_str().unwrap().to_owned();
        let queues: Vec<String> = consumers.iter().map(queue).collect();
        let dead = consumers[0]["dead_letter_queue"].as_str().unwrap();
        assert_eq!(
            queues,
            [
                format!("oncepress-{name}-jobs"),
                format!("oncepress-{name}-jobs-dead")
            ]
        );
        assert_eq!(dead, queues[1]);
    }
}

#[test]
fn every_variable_is_written_out_with_its_default_and_parses_without_a_fault() {
    for (name, environment) in environments() {
        let vars = environment["vars"].as_table().unwrap();
        let text = |name: &str| match name {
            "GEMINI_API_KEY" => Some("key".to_owned()),
            "ADMIN_TOKEN" => Some("0123456789abcdef".to_owned()),
            _ => vars.get(name).map(as_text),
        };
        let bound = bindings(&environment);
        let bound = |name: &str| bound.contains_key(name);
        let (config, faults) = Config::parse(Sources {
            text: &text,
            bound: &bound,
            zones: &Utc,
        });
        assert_eq!(faults, []);
        assert_eq!(config.environment, name);
        let variables = ENTRIES
            .iter()
            .filter(|it| matches!(it.kind, Kind::Variable | Kind::Table));
        for entry in variables {
            let written = text(entry.name).unwrap_or_else(|| panic!("{} is missing", entry.name));
            let sample = ["PUBLISHERS", "PIPELINES"].contains(&entry.name);
            let default = entry.default.unwrap_or(&written);
            assert!(sample || written == default, "{} is {written}", entry.name);
        }
        let known: BTreeSet<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        assert_eq!(
            vars.keys()
                .filter(|name| !known.contains(name.as_str()))
                .count(),
            0
        );
    }
}

#[test]
fn the_example_of_secrets_lists_each() {
    let example = crate::text(".dev.vars.example");
    for entry in ENTRIES {
        let secret = matches!(entry.kind, Kind::RequiredSecret | Kind::OptionalSecret);
        let listed = example
            .lines()
            .any(|line| line == format!("{}=", entry.name));
        assert_eq!(secret, listed, "{}", entry.name);
    }
}

/// A variable as the Worker's adapter sees it: text as it is, all else as JSON.
fn as_text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| serde_json::to_string(value).unwrap(), str::to_owned)
}
