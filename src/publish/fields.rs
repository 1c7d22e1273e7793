//! Reading one configuration table: typed members, unknown ones refused, all faults kept.

use serde_json::{Map, Value};

use super::ssrf::{Endpoint, Loopback};

/// A secret's value; never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// The value itself, for the one place that sends it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Where secrets are looked up by name.
pub(crate) type Secrets<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One table being read. [`Fields::finish`] gives the faults, those of unknown members included.
pub(crate) struct Fields<'a> {
    path: String,
    table: Map<String, Value>,
    secrets: Secrets<'a>,
    loopback: Loopback,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(value: &Value, secrets: Secrets<'a>, loopback: Loopback) -> Self {
        let mut fields = Self {
            path: String::new(),
            table: Map::new(),
            secrets,
            loopback,
            known: Vec::new(),
            faults: Vec::new(),
        };
        match value.as_object() {
            Some(table) => fields.table.clone_from(table),
            None => fields.faults.push("must be a table".to_owned()),
        }
        fields
    }

    /// Notes a fault of the member `name`.
    pub(crate) fn fault(&mut self, name: &str, problem: impl std::fmt::Display) {
        self.faults.push(format!("{}{name}: {problem}", self.path));
    }

    /// The member, if it is there.
    pub(crate) fn value(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.table.get(name).cloned()
    }

    /// A text that may be left out.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) if !text.is_empty() => Some(text),
            _ => {
                self.fault(name, "must be a text that is not empty");
                None
            }
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&mut self, name: &'static str) -> Option<String> {
        if !self.table.contains_key(name) {
            self.known.push(name);
            self.fault(name, "is missing");
            return None;
        }
        self.text(name)
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        let list: Option<Vec<String>> = value.as_array().and_then(|list| {
            list.iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect()
        });
        let list = list.filter(|list| list.iter().all(|item| !item.is_empty()));
        if list.is_none() {
            self.fault(name, "must be a list of texts");
        }
        list
    }

    /// An address that publishers may be pointed at.
    pub(crate) fn endpoint(&mut self, name: &'static str) -> Option<Endpoint> {
        let url = self.required(name)?;
        self.parse_endpoint(name, &url)
    }

    /// The same, with a default.
    pub(crate) fn endpoint_or(&mut self, name: &'static str, default: &str) -> Option<Endpoint> {
        let url = if self.table.contains_key(name) {
            self.text(name)?
        } else {
            default.to_owned()
        };
        self.known.push(name);
        self.parse_endpoint(name, &url)
    }

    fn parse_endpoint(&mut self, name: &'static str, url: &str) -> Option<Endpoint> {
        Endpoint::parse(url, self.loopback)
            .map_err(|problem| self.fault(name, problem))
            .ok()
    }

    /// The base of an API: an address without a query, to which paths are appended.
    pub(crate) fn base(
        &mut self,
        name: &'static str,
        endpoint: Option<Endpoint>,
    ) -> Option<Endpoint> {
        let endpoint = endpoint?;
        if endpoint.has_query() {
            self.fault(name, "must not have a query");
            return None;
        }
        Some(endpoint)
    }

    /// The secret that the member names.
    pub(crate) fn secret(&mut self, name: &'static str) -> Option<Secret> {
        let reference = self.required(name)?;
        self.look_up(name, &reference)
    }

    /// A secret by its name; a missing or empty one is a fault of the member `name`.
    pub(crate) fn look_up(&mut self, name: &str, reference: &str) -> Option<Secret> {
        let secret = (self.secrets)(reference)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty() && value.bytes().all(|b| (b' '..=b'~').contains(&b)));
        if secret.is_none() {
            self.fault(
                name,
                format_args!("the secret `{reference}` is not set (or not ASCII)"),
            );
        }
        secret.map(Secret)
    }

    /// A table within this one, whose faults go into this one's.
    pub(crate) fn table<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let Some(table) = value.as_object() else {
            self.fault(name, "must be a table");
            return None;
        };
        let mut inner = Self {
            path: format!("{}{name}.", self.path),
            table: table.clone(),
            secrets: self.secrets,
            loopback: self.loopback,
            known: Vec::new(),
            faults: Vec::new(),
        };
        let read = read(&mut inner);
        self.faults.extend(inner.finish());
        read
    }

    /// Takes every other member as known, where nobody can say which are.
    pub(crate) fn ignore_rest(&mut self) {
        self.table.clear();
    }

    /// All faults, with those members that nobody asked for.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let unknown: Vec<String> = self
            .table
            .keys()
            .filter(|name| !self.known.contains(&name.as_str()))
            .cloned()
            .collect();
        for name in unknown {
            let known = self.known.join(", ");
            self.fault(&name, format_args!("is not known here (known: {known})"));
        }
        self.faults
    }
}
