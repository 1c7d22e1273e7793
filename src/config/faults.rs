//! Faults of the configuration, gathered by name, and the reading of JSON tables.

use serde_json::{Map, Value};

/// One fault of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFault {
    /// The variable, secret or binding, and where in its table: `PIPELINES."a/b".publish[0]`.
    pub name: String,
    /// What is wrong with it, without its value.
    pub problem: String,
}

impl std::fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.problem)
    }
}

/// The faults found so far.
#[derive(Debug, Default)]
pub(super) struct Faults(pub(super) Vec<ConfigFault>);

impl Faults {
    /// Notes a fault.
    pub(super) fn add(&mut self, name: impl Into<String>, problem: impl Into<String>) {
        self.0.push(ConfigFault {
            name: name.into(),
            problem: problem.into(),
        });
    }

    /// Notes a fault told as `member: problem`, below `path`.
    pub(super) fn add_in(&mut self, path: &str, told: &str) {
        match told.split_once(": ") {
            Some((member, problem)) => self.add(format!("{path}.{member}"), problem),
            None => self.add(path, told),
        }
    }

    /// The value, or `None` with its fault noted.
    pub(super) fn keep<T>(&mut self, name: &str, parsed: Result<T, String>) -> Option<T> {
        parsed.map_err(|problem| self.add(name, problem)).ok()
    }
}

/// The members of one JSON object, read by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'a> {
    path: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Members<'a> {
    /// The object's members; anything but an object, and each unknown member, is a fault.
    pub(super) fn of(
        path: &'a str,
        value: &'a Value,
        known: &[&str],
        faults: &mut Faults,
    ) -> Option<Self> {
        let Value::Object(map) = value else {
            faults.add(path, "must be a table");
            return None;
        };
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            faults.add(member(path, name), "is not known here");
        }
        Some(Self { path, map })
    }

    /// A member as it is.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    /// The full name of a member.
    pub(super) fn path(&self, name: &str) -> String {
        member(self.path, name)
    }

    /// A text.
    pub(super) fn text(&self, name: &str, faults: &mut Faults) -> Option<&'a str> {
        let value = self.map.get(name)?;
        if !value.is_string() {
            faults.add(self.path(name), "must be a text");
        }
        value.as_str()
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self, name: &str, faults: &mut Faults) -> Option<u64> {
        let value = self.map.get(name)?;
        if !value.is_u64() {
            faults.add(
                self.path(name),
                "must be a whole number that is not negative",
            );
        }
        value.as_u64()
    }

    /// A list of texts, none of them empty.
    pub(super) fn texts(&self, name: &str, faults: &mut Faults) -> Option<Vec<String>> {
        let value = self.map.get(name)?;
        let texts = texts(value);
        if texts.is_none() {
            faults.add(
                self.path(name),
                "must be a list of texts that are not empty",
            );
        }
        texts
    }
}

/// A list of texts, none of them empty.
pub(super) fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    value.as_array()?.iter().map(text).collect()
}

/// The full name of a member; one that is no plain word is quoted, as TOML does.
pub(super) fn member(path: &str, name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(plain) {
        format!("{path}.{name}")
    } else {
        format!("{path}.{name:?}")
    }
}
