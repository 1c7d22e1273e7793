//! The ledger: every generation Gemini was asked for, and whether it was billed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::clock;
use super::state::{State, number_key};

/// What is written down about one request for a generation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// The model, as asked for.
    pub(crate) model: String,
    /// `generateContent`, `streamGenerateContent`, `batch`, `interaction` or `chat`.
    pub(crate) method: String,
    /// Of the prompt's text, with the continuation token where one is given.
    pub(crate) prompt_sha256: String,
    /// Of the request's bytes.
    pub(crate) request_sha256: String,
    /// The prompt's first characters.
    pub(crate) prompt_start: String,
    /// Tokens in.
    pub(crate) prompt_tokens: u64,
    /// Tokens out, without thoughts.
    pub(crate) output_tokens: u64,
    /// Tokens thought.
    pub(crate) thought_tokens: u64,
    /// The status it was answered with; 0 for none.
    pub(crate) status: u16,
    /// Which of several keys was used, without giving it away.
    pub(crate) key: String,
    /// The response id.
    pub(crate) response_id: String,
    /// The faults it met.
    pub(crate) fault: Value,
}

impl State {
    /// How often this prompt was billed so far.
    pub(crate) fn purchases(&self, prompt_sha256: &str) -> u64 {
        self.find("purchases", prompt_sha256)
            .and_then(Value::as_u64)
            .unwrap_or(0)
    }

    /// Writes down a billed generation; the number of the entry is the answer.
    pub(crate) fn ledger_billed(&mut self, entry: &Entry) -> u64 {
        let purchase = self.purchases(&entry.prompt_sha256) + 1;
        self.put("purchases", &entry.prompt_sha256, Value::from(purchase));
        self.add("ledger", |n| {
            entry_json(n, entry, "completed", Some(purchase))
        })
    }

    /// Writes down a request that cost nothing.
    pub(crate) fn ledger_refused(&mut self, entry: &Entry) {
        self.add("ledger", |n| entry_json(n, entry, "refused", None));
    }

    /// Marks an entry: its caller didn't get all of it.
    pub(crate) fn ledger_cut(&mut self, n: u64) {
        if let Some(entry) = self.find("ledger", &number_key(n)) {
            let mut entry = entry.clone();
            entry["outcome"] = Value::from("cut");
            self.put("ledger", &number_key(n), entry);
        }
    }

    /// The whole ledger with its sums.
    pub(crate) fn ledger_json(&self) -> Value {
        let entries: Vec<&Value> = self.all("ledger").map(|(_, entry)| entry).collect();
        let count = |outcome: &str| entries.iter().filter(|e| e["outcome"] == outcome).count();
        let billed = entries
            .iter()
            .filter(|entry| entry["billed"] == true)
            .count();
        let mut by_prompt: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
        for entry in &entries {
            let sums = by_prompt.entry(entry["promptSha256"].as_str().unwrap_or_default());
            let [billed, cut, refused] = sums.or_default();
            *billed += u64::from(entry["billed"] == true);
            *cut += u64::from(entry["outcome"] == "cut");
            *refused += u64::from(entry["outcome"] == "refused");
        }
        let duplicates: u64 = by_prompt
            .values()
            .map(|[billed, ..]| billed.saturating_sub(1))
            .sum();
        let by_prompt: BTreeMap<_, _> = by_prompt
            .into_iter()
            .map(|(prompt, [billed, cut, refused])| {
                (
                    prompt,
                    json!({"billed": billed, "cut": cut, "refused": refused}),
                )
            })
            .collect();
        json!({
            "total": entries.len(), "billed": billed, "completed": count("completed"),
            "cut": count("cut"), "refused": count("refused"), "duplicates": duplicates,
            "byPrompt": by_prompt, "entries": entries,
        })
    }

    /// Forgets the ledger.
    pub(crate) fn ledger_clear(&mut self) {
        self.remove("ledger", "");
        self.remove("purchases", "");
    }
}

fn entry_json(n: u64, entry: &Entry, outcome: &str, purchase: Option<u64>) -> Value {
    json!({
        "n": n, "at": clock::now_rfc3339(), "model": entry.model, "method": entry.method,
        "promptSha256": entry.prompt_sha256, "requestSha256": entry.request_sha256,
        "promptStart": entry.prompt_start, "promptTokens": entry.prompt_tokens,
        "outputTokens": entry.output_tokens, "thoughtTokens": entry.thought_tokens,
        "billed": purchase.is_some(), "purchase": purchase, "outcome": outcome,
        "status": entry.status, "key": entry.key, "responseId": entry.response_id,
        "fault": entry.fault,
    })
}
