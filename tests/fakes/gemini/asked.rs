//! What a request for a generation asks for, and whether Gemini would take it.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::super::fault::Fault;
use super::super::http::Request;
use super::super::ledger::Entry;
use super::MODELS;
use super::errors::{self, Refusal};
use super::version_and_rest;

/// A request for a generation, read.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The model without `models/`.
    pub(crate) model: String,
    /// The method after the colon.
    pub(crate) method: String,
    /// The body, or what was wrong with it.
    pub(crate) body: Result<Value, String>,
    /// Of the prompt's texts and the continuation token.
    pub(crate) prompt_sha256: String,
    request_sha256: String,
    prompt: String,
    key: String,
    fault: Value,
}

impl Asked {
    /// Reads it; nothing is checked yet.
    pub(crate) fn read(request: &Request, fault: &Fault) -> Self {
        let rest = version_and_rest(&request.path)
            .map(|(_, rest)| rest)
            .unwrap_or_default();
        let (model, method) = rest.rsplit_once(':').unwrap_or((&rest, ""));
        let body = request.json().map_err(|error| error.to_string());
        Self::new(request, fault, model, method, body)
    }

    /// The same for a body that another API's request comes down to.
    pub(crate) fn new(
        request: &Request,
        fault: &Fault,
        model: &str,
        method: &str,
        body: Result<Value, String>,
    ) -> Self {
        let prompt = body.as_ref().map(prompt_text).unwrap_or_default();
        let token = body
            .as_ref()
            .ok()
            .and_then(|body| member(body, "continuationToken"));
        let token = token.and_then(Value::as_str).unwrap_or_default();
        let key = errors::key_of(request).unwrap_or_default();
        Self {
            model: model.trim_start_matches("models/").to_owned(),
            method: method.to_owned(),
            prompt_sha256: hex::encode(Sha256::digest(format!("{prompt}\0{token}"))),
            request_sha256: hex::encode(Sha256::digest(&request.body)),
            body,
            prompt,
            key: key.chars().take(4).chain(['…']).collect(),
            fault: fault.to_json(),
        }
    }

    /// Refuses what the real API refuses.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if !MODELS.contains(&self.model.as_str()) {
            return Err(errors::unknown_model(&self.model));
        }
        let body = match &self.body {
            Ok(Value::Object(members)) => members,
            Ok(_) => {
                return Err(errors::invalid(
                    "Invalid JSON payload received. Root element must be a message.",
                ));
            }
            Err(problem) => {
                let message = format!("Invalid JSON payload received. {problem}");
                return Err(errors::invalid(&message));
            }
        };
        let known: &[&str] = match self.method.as_str() {
            "countTokens" => &["contents", "generateContentRequest"],
            _ => REQUEST_MEMBERS,
        };
        if let Some(name) = body
            .keys()
            .find(|name| !known.contains(&camel(name).as_str()))
        {
            return Err(errors::unknown_name(name, ""));
        }
        let config = member(&Value::Object(body.clone()), "generationConfig").cloned();
        let config = config.as_ref().and_then(Value::as_object);
        if let Some(name) = config
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .find(|name| !CONFIG_MEMBERS.contains(&camel(name.trim_start_matches('_')).as_str()))
        {
            return Err(errors::unknown_name(name, "generation_config"));
        }
        let contents = body
            .get("contents")
            .or_else(|| body.get("generateContentRequest"));
        if contents.is_none_or(|contents| contents.as_array().is_some_and(Vec::is_empty)) {
            return Err(errors::invalid(
                "* GenerateContentRequest.contents: contents is not specified\n",
            ));
        }
        Ok(())
    }

    /// A member of the body, in either spelling.
    pub(crate) fn member(&self, name: &str) -> Option<&Value> {
        member(self.body.as_ref().ok()?, name)
    }

    /// A member of the generation config, in either spelling.
    pub(crate) fn config(&self, name: &str) -> Option<&Value> {
        member(self.member("generationConfig")?, name)
    }

    /// A member of the thinking config, in either spelling.
    pub(crate) fn thinking(&self, name: &str) -> Option<&Value> {
        member(self.config("thinkingConfig")?, name)
    }

    /// Whether JSON is asked for.
    pub(crate) fn wants_json(&self) -> bool {
        self.config("responseMimeType").and_then(Value::as_str) == Some("application/json")
    }

    /// The words after a marker like `[[say:…]]`.
    pub(crate) fn marker(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.prompt.split_once(&format!("[[{name}:"))?;
        Some(rest.split_once("]]")?.0)
    }

    /// A token for every 4 bytes.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        u64::try_from(self.prompt.len().div_ceil(4))
            .unwrap_or(u64::MAX)
            .max(1)
    }

    /// The ledger's entry, as far as the request goes.
    pub(crate) fn entry(&self, status: u16) -> Entry {
        Entry {
            model: self.model.clone(),
            method: self.method.clone(),
            prompt_sha256: self.prompt_sha256.clone(),
            request_sha256: self.request_sha256.clone(),
            prompt_start: self.prompt.chars().take(80).collect(),
            status,
            key: self.key.clone(),
            fault: self.fault.clone(),
            ..Entry::default()
        }
    }
}

/// The texts of system instruction and contents; a part without text counts as its JSON.
///
/// What the neighbouring APIs call `input`, `messages` or `batch` counts too.
pub(crate) fn prompt_text(body: &Value) -> String {
    let inner = body.get("generateContentRequest").unwrap_or(body);
    let contents = member(inner, "systemInstruction")
        .into_iter()
        .chain(list(&inner["contents"]));
    let mut texts: Vec<String> = contents
        .flat_map(|content| list(&content["parts"]))
        .map(text_or_json)
        .collect();
    texts.extend(list(&body["input"]).map(text_or_json));
    texts.extend(list(&body["messages"]).map(|message| text_or_json(&message["content"])));
    let batch = body
        .pointer("/batch/inputConfig/requests/requests")
        .unwrap_or(&Value::Null);
    texts.extend(list(batch).map(|item| prompt_text(&item["request"])));
    texts.join("\n")
}

/// A list's items, or the one thing that stands in a list's place.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let (many, one) = match value {
        Value::Array(items) => (items.as_slice(), None),
        Value::Null => (&[][..], None),
        one => (&[][..], Some(one)),
    };
    many.iter().chain(one)
}

fn text_or_json(part: &Value) -> String {
    let text = part.as_str().or_else(|| part["text"].as_str());
    text.map_or_else(|| part.to_string(), str::to_owned)
}

/// A member spelled in camelCase or in `snake_case`.
fn member<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object
        .as_object()?
        .iter()
        .find(|(known, _)| camel(known) == name)
        .map(|(_, value)| value)
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}

const REQUEST_MEMBERS: &[&str] = &[
    "model",
    "contents",
    "systemInstruction",
    "generationConfig",
    "safetySettings",
    "tools",
    "toolConfig",
    "cachedContent",
    "serviceTier",
    "labels",
    "store",
    "continuationToken",
];
const CONFIG_MEMBERS: &[&str] = &[
    "temperature",
    "topP",
    "topK",
    "candidateCount",
    "maxOutputTokens",
    "stopSequences",
    "responseLogprobs",
    "logprobs",
    "presencePenalty",
    "frequencyPenalty",
    "seed",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "responseModalities",
    "mediaResolution",
    "speechConfig",
    "thinkingConfig",
    "imageConfig",
    "enableEnhancedCivicAnswers",
    "audioTranscriptionConfig",
];
