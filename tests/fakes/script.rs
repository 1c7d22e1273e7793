//! Faults queued from outside, and the markers a prompt may carry.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::Service;
use super::fault::Fault;

/// The queued faults, consumed in order.
#[derive(Debug, Default)]
pub(crate) struct Script {
    entries: Vec<Entry>,
    markers_spent: HashSet<String>,
}

#[derive(Debug)]
struct Entry {
    service: String,
    substring: String,
    /// Uses left; negative is for ever.
    times: i64,
    used: u64,
    fault: Fault,
}

impl Script {
    /// Queues `{"for","match","times","fault"}`.
    pub(crate) fn add(&mut self, entry: &Value) -> Result<(), String> {
        let service = entry.get("for").and_then(Value::as_str).unwrap_or_default();
        if !SCRIPTED.iter().any(|known| known.name() == service) {
            return Err(format!("unknown service: {service:?}"));
        }
        let unknown = entry
            .as_object()
            .into_iter()
            .flat_map(serde_json::Map::keys);
        if let Some(name) = unknown
            .into_iter()
            .find(|name| !["for", "match", "times", "fault"].contains(&name.as_str()))
        {
            return Err(format!("unknown member: {name}"));
        }
        self.entries.push(Entry {
            service: service.to_owned(),
            substring: entry
                .get("match")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            times: entry.get("times").and_then(Value::as_i64).unwrap_or(1),
            used: 0,
            fault: Fault::parse(entry.get("fault").unwrap_or(&Value::Null))?,
        });
        Ok(())
    }

    /// The next fault for a request whose method, path and body are given as one text.
    pub(crate) fn take(&mut self, service: Service, request: &str) -> Option<Fault> {
        let entry = self.entries.iter_mut().find(|entry| {
            entry.times != 0
                && entry.service == service.name()
                && request.contains(&entry.substring)
        })?;
        entry.used += 1;
        entry.times = if entry.times > 0 { entry.times - 1 } else { -1 };
        Some(entry.fault.clone())
    }

    /// The faults a prompt asks for: `[[fault:NAME]]` always, `[[fault-once:NAME]]` the first time.
    pub(crate) fn markers(&mut self, prompt: &str) -> Result<Fault, String> {
        let mut fault = Fault::default();
        for marker in prompt
            .split("[[")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once("]]")?.0))
        {
            let word = match marker.split_once(':') {
                Some(("fault", word)) => word,
                Some(("fault-once", word)) => {
                    if !self.markers_spent.insert(format!("{word}\n{prompt}")) {
                        continue;
                    }
                    word
                }
                _ => continue,
            };
            fault.merge(Fault::parse(&Value::from(word))?);
        }
        Ok(fault)
    }

    /// What is queued and how often each was used.
    pub(crate) fn to_json(&self) -> Value {
        let show = |entry: &Entry| {
            json!({"for": entry.service, "match": entry.substring, "times": entry.times,
                "used": entry.used, "fault": entry.fault.to_json()})
        };
        let entries: Vec<_> = self.entries.iter().map(show).collect();
        json!({ "entries": entries })
    }
}

/// What a script can be for.
const SCRIPTED: [Service; 6] = [
    Service::Gemini,
    Service::Webhook,
    Service::Github,
    Service::Wordpress,
    Service::Ghost,
    Service::Slack,
];
