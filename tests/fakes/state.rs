//! What the server remembers: documents by kind and key, each change appended to the state file.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::fault::Fault;
use super::gemini;
use super::http::Request;
use super::script::Script;
use super::{Service, split_service};

/// The state, shared by all connections, and the gates that replies wait at.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    gates: Mutex<HashMap<String, watch::Sender<bool>>>,
}

impl Shared {
    /// Takes up the state file, if one is given and there.
    pub(crate) fn open(state_file: Option<&Path>) -> io::Result<Self> {
        let state = match state_file {
            Some(path) => State::load(path)?,
            None => State::default(),
        };
        Ok(Self {
            state: Mutex::new(state),
            gates: Mutex::default(),
        })
    }

    /// The state; never held across an await.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the gate of that name is opened.
    pub(crate) async fn pass_gate(&self, name: &str) {
        let mut open = self.gate(name).subscribe();
        let _opened = open.wait_for(|open| *open).await;
    }

    /// Lets everything pass that waits at the gate, now and later.
    pub(crate) fn open_gate(&self, name: &str) {
        self.gate(name).send_replace(true);
    }

    /// Opens every gate for those who wait, and forgets them.
    pub(crate) fn reset_gates(&self) {
        for (_name, gate) in self
            .gates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain()
        {
            gate.send_replace(true);
        }
    }

    fn gate(&self, name: &str) -> watch::Sender<bool> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates
            .entry(name.to_owned())
            .or_insert_with(|| watch::Sender::new(false))
            .clone()
    }
}

/// Everything but the gates.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The queued faults; not kept over a restart.
    pub(crate) script: Script,
    documents: BTreeMap<String, BTreeMap<String, Value>>,
    journal: Option<File>,
}

impl State {
    fn load(path: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(String::new()),
            _ => Err(error),
        })?;
        let mut state = Self::default();
        for line in text.lines() {
            // A crash may have cut the last line; its change was never answered.
            let Ok(change) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let word = |name: &str| change[name].as_str().unwrap_or_default().to_owned();
            state.apply(&word("kind"), &word("key"), change.get("value").cloned());
        }
        state.journal = Some(OpenOptions::new().create(true).append(true).open(path)?);
        if !text.is_empty() && !text.ends_with('\n') {
            state.append(b"\n")?;
        }
        Ok(state)
    }

    /// The fault for a request: the script's, and what its prompt asks for.
    pub(crate) fn fault_for(&mut self, request: &Request) -> Result<Fault, String> {
        let (service, _rest) = split_service(&request.path);
        if service == Service::Control {
            return Ok(Fault::default());
        }
        let body = String::from_utf8_lossy(&request.body);
        let text = format!("{} {}\n{body}", request.method, request.path);
        let mut fault = self.script.take(service, &text).unwrap_or_default();
        if service == Service::Gemini && gemini::is_generation(request) {
            let prompt = gemini::prompt_text(request);
            fault.merge(self.script.markers(&prompt)?);
        }
        Ok(fault)
    }

    /// Writes a document.
    pub(crate) fn put(&mut self, kind: &str, key: &str, value: Value) {
        self.note(&json!({"kind": kind, "key": key, "value": value}));
        self.apply(kind, key, Some(value));
    }

    /// Writes a document under the next number of its kind, which is the answer.
    pub(crate) fn add(&mut self, kind: &str, make: impl FnOnce(u64) -> Value) -> u64 {
        let n = self
            .all(kind)
            .last()
            .and_then(|(key, _)| key.parse().ok())
            .unwrap_or(0)
            + 1;
        self.put(kind, &number_key(n), make(n));
        n
    }

    /// Removes a document, or, with an empty key, all of its kind.
    pub(crate) fn remove(&mut self, kind: &str, key: &str) {
        self.note(&json!({"kind": kind, "key": key}));
        self.apply(kind, key, None);
    }

    /// One document.
    pub(crate) fn find(&self, kind: &str, key: &str) -> Option<&Value> {
        self.documents.get(kind)?.get(key)
    }

    /// All documents of a kind, in the order of their keys.
    pub(crate) fn all(&self, kind: &str) -> impl DoubleEndedIterator<Item = (&String, &Value)> {
        self.documents.get(kind).into_iter().flatten()
    }

    /// The kinds that start with a prefix.
    pub(crate) fn kinds(&self, prefix: &str) -> Vec<String> {
        self.documents
            .keys()
            .filter(|kind| kind.starts_with(prefix))
            .cloned()
            .collect()
    }

    /// Forgets everything.
    pub(crate) fn reset(&mut self) {
        self.note(&json!({"kind": "", "key": ""}));
        self.documents.clear();
        self.script = Script::default();
    }

    /// A setting of a service, by a path like `/webhook/blog/secrets`.
    pub(crate) fn setting(&self, pointer: &str) -> Option<&Value> {
        self.find("config", "all")?.pointer(pointer)
    }

    fn apply(&mut self, kind: &str, key: &str, value: Option<Value>) {
        match (kind, key, value) {
            ("", _, _) => self.documents.clear(),
            (_, "", _) => drop(self.documents.remove(kind)),
            (_, _, None) => {
                self.documents
                    .get_mut(kind)
                    .and_then(|documents| documents.remove(key));
            }
            (_, _, Some(value)) => {
                let documents = self.documents.entry(kind.to_owned()).or_default();
                documents.insert(key.to_owned(), value);
            }
        }
    }

    fn note(&mut self, change: &Value) {
        self.append(format!("{change}\n").as_bytes())
            .expect("the state file can be written");
    }

    /// One write a change, straight to the system: a killed process leaves whole lines.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.journal
            .as_mut()
            .map_or(Ok(()), |journal| journal.write_all(line))
    }
}

/// A number as a key that sorts like the number.
pub(crate) fn number_key(n: u64) -> String {
    format!("{n:012}")
}
