//! The body of `POST /api/v1/generations`.

use super::bounds::{
    CACHED_CONTENT_MAX_CHARS, LABEL_MAX_CHARS, LABELS_MAX, OUTPUT_TOKENS_MAX, TOPIC_MAX_CHARS,
    VARIANT_MAX_CHARS, VERSION_MAX_CHARS,
};
use super::reader::{Faults, Object};
use crate::config::{Destination, is_model, parse_name, target};
use crate::error::Fault;
use crate::key::json::Json;
use crate::limits;
use crate::time::{Span, Timestamp};

/// What a valid body asks for. What Gemini gets is made from the body itself.
///
/// ```
/// use oncepress::{http::validate::{GenerationRequest, KeyDefaults}, key::json::Json};
/// let body = Json::parse(br#"{"site": "demo", "pipeline": "a", "userPrompt": "Hi"}"#).unwrap();
/// let now = oncepress::time::Timestamp::from_millis(0);
/// let request = GenerationRequest::parse(&body, &KeyDefaults::default(), now).unwrap();
/// assert_eq!(request.site, "demo");
/// assert_eq!(request.publish, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerationRequest {
    /// The site.
    pub site: String,
    /// The pipeline.
    pub pipeline: String,
    /// The model that was asked for.
    pub model: Option<String>,
    /// The destinations that were asked for; `None` takes the pipeline's, empty means none.
    pub publish: Option<Vec<Destination>>,
    /// How long repeats of the request are the same operation.
    pub window: Span,
    /// The scheduler's slot.
    pub requested_at: Option<Timestamp>,
    /// What it is about, for people.
    pub topic: Option<String>,
    /// The caller's word for another version, on purpose.
    pub variant: Option<String>,
    /// The version of the response schema.
    pub schema_version: Option<String>,
    /// The most output tokens that were asked for.
    pub max_output_tokens: Option<i64>,
    /// JSON was asked for, so that an output which is none is held.
    pub json_mode: bool,
}

/// What an API key fills in where a request is silent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyDefaults {
    /// The site.
    pub site: Option<String>,
    /// The pipeline.
    pub pipeline: Option<String>,
    /// The destinations.
    pub publish: Option<Vec<Destination>>,
}

impl GenerationRequest {
    /// Reads a body; all faults are named together.
    pub fn parse(body: &Json, defaults: &KeyDefaults, now: Timestamp) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let Some(object) = Object::of("", body, MEMBERS, &mut faults) else {
            return faults.settle(None);
        };
        prompt(&object, &mut faults);
        let generation_config = object.object("generationConfig", &mut faults);
        schema(&object, generation_config.as_ref(), &mut faults);
        gemini_members(&object, &mut faults);
        let site = scope_name(&object, "site", defaults.site.as_deref(), &mut faults);
        let pipeline = scope_name(
            &object,
            "pipeline",
            defaults.pipeline.as_deref(),
            &mut faults,
        );
        let minutes = object.integer("windowMinutes", limits::WINDOW_MINUTES, &mut faults);
        let request = Self {
            site: site.unwrap_or_default(),
            pipeline: pipeline.unwrap_or_default(),
            model: object.parsed("model", model, &mut faults),
            publish: destinations(&object, &mut faults).or_else(|| defaults.publish.clone()),
            window: minutes.map_or(limits::WINDOW_DEFAULT, Span::from_minutes),
            requested_at: object.parsed("requestedAt", |text| slot(text, now), &mut faults),
            topic: object.line("topic", 1..=TOPIC_MAX_CHARS, &mut faults),
            variant: object.line("variant", 1..=VARIANT_MAX_CHARS, &mut faults),
            schema_version: object.line("schemaVersion", 1..=VERSION_MAX_CHARS, &mut faults),
            max_output_tokens: generation_config
                .as_ref()
                .and_then(|config| budgets(config, &mut faults)),
            json_mode: object.get("responseSchema").is_some()
                || generation_config.as_ref().is_some_and(asks_for_json),
        };
        faults.settle(Some(request))
    }
}

impl KeyDefaults {
    /// Reads the `defaults` of an API key; faults are named from `pointer` on.
    pub fn parse(json: &Json) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let defaults = Self::read("", json, &mut faults);
        faults.settle(defaults)
    }

    pub(super) fn read(pointer: &str, json: &Json, faults: &mut Faults) -> Option<Self> {
        let object = Object::of(pointer, json, &["site", "pipeline", "publish"], faults)?;
        Some(Self {
            site: object.parsed("site", parse_name, faults),
            pipeline: object.parsed("pipeline", parse_name, faults),
            publish: destinations(&object, faults),
        })
    }
}

/// A name that the body or else the API key gives.
fn scope_name(
    object: &Object<'_>,
    name: &str,
    default: Option<&str>,
    faults: &mut Faults,
) -> Option<String> {
    if object.get(name).is_none() && default.is_none() {
        faults.add(object.at(name), "is required");
    }
    object
        .parsed(name, parse_name, faults)
        .or_else(|| default.map(str::to_owned))
}

/// One of `userPrompt` and `contents`, and not empty.
fn prompt(object: &Object<'_>, faults: &mut Faults) {
    object.string("systemPrompt", faults);
    let user_prompt = object.string("userPrompt", faults);
    if user_prompt.is_some_and(|text| text.trim().is_empty()) {
        faults.add(object.at("userPrompt"), "must not be blank");
    }
    let contents = object.objects("contents", faults);
    if contents.is_some_and(<[Json]>::is_empty) {
        faults.add(object.at("contents"), "must not be empty");
    }
    match (object.get("userPrompt"), object.get("contents")) {
        (None, None) => faults.add(
            object.at("userPrompt"),
            "is required, unless contents is given",
        ),
        (Some(_), Some(_)) => {
            faults.add(object.at("contents"), "must not be given with userPrompt");
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
}

/// `responseSchema` stands alone: it sets the media type and the schema of generationConfig.
fn schema(object: &Object<'_>, generation_config: Option<&Object<'_>>, faults: &mut Faults) {
    let schema = object.object("responseSchema", faults);
    let (Some(_), Some(config)) = (schema, generation_config) else {
        return;
    };
    for name in CONFIG_SCHEMAS
        .iter()
        .filter(|name| config.get(name).is_some())
    {
        faults.add(config.at(name), "must not be given with responseSchema");
    }
    for name in CONFIG_MEDIA_TYPES
        .iter()
        .filter(|name| config.get(name).is_some())
    {
        if config.get(name).and_then(Json::as_str) != Some("application/json") {
            faults.add(
                config.at(name),
                "must be application/json where responseSchema is given",
            );
        }
    }
}

/// Members that go to Gemini as they are: their kind is checked, their content is Gemini's.
fn gemini_members(object: &Object<'_>, faults: &mut Faults) {
    object.objects("safetySettings", faults);
    object.objects("tools", faults);
    object.object("toolConfig", faults);
    object.line("cachedContent", 1..=CACHED_CONTENT_MAX_CHARS, faults);
    object.parsed("serviceTier", service_tier, faults);
    let Some(labels) = object.object("labels", faults) else {
        return;
    };
    if labels.members().len() > LABELS_MAX {
        faults.add(
            object.at("labels"),
            format!("must have at most {LABELS_MAX} members"),
        );
        return;
    }
    for (name, value) in labels.members() {
        if !(1..=LABEL_MAX_CHARS).contains(&name.chars().count()) {
            let detail = format!("must have names of 1 to {LABEL_MAX_CHARS} characters");
            faults.add(object.at("labels"), detail);
        } else if value
            .as_str()
            .is_none_or(|text| text.chars().count() > LABEL_MAX_CHARS)
        {
            let detail = format!("must be a string of at most {LABEL_MAX_CHARS} characters");
            faults.add(labels.at(name), detail);
        }
    }
}

/// What bounds the cost: the output's tokens, and how many outputs there are.
fn budgets(config: &Object<'_>, faults: &mut Faults) -> Option<i64> {
    for name in ["candidateCount", "candidate_count"] {
        if config.get(name).is_some()
            && config
                .integer(name, 1..=1, &mut Faults::default())
                .is_none()
        {
            faults.add(config.at(name), "must be 1: a generation has one output");
        }
    }
    let tokens = ["maxOutputTokens", "max_output_tokens"];
    tokens
        .iter()
        .filter_map(|name| config.integer(name, 1..=OUTPUT_TOKENS_MAX, faults))
        .max()
}

fn asks_for_json(config: &Object<'_>) -> bool {
    let media_types = CONFIG_MEDIA_TYPES
        .iter()
        .filter_map(|name| config.get(name));
    media_types
        .filter_map(Json::as_str)
        .any(|text| text == "application/json")
}

fn model(text: &str) -> Result<String, String> {
    let valid = is_model(text).then(|| text.to_owned());
    valid.ok_or_else(|| "must be a model's id, such as gemini-3.8-flash".to_owned())
}

fn service_tier(text: &str) -> Result<(), String> {
    let known = ["flex", "standard", "priority"].contains(&text);
    known
        .then_some(())
        .ok_or_else(|| "must be flex, standard or priority".to_owned())
}

fn slot(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let at = Timestamp::parse_rfc3339(text).ok_or("must be a date-time of RFC 3339")?;
    let earliest = now.minus(limits::REQUESTED_AT_PAST);
    let latest = now.plus(limits::REQUESTED_AT_FUTURE);
    if (earliest..=latest).contains(&at) {
        return Ok(at);
    }
    Err("must be at most 24 hours in the past and 5 minutes in the future".to_owned())
}

fn destinations(object: &Object<'_>, faults: &mut Faults) -> Option<Vec<Destination>> {
    let items = object.array("publish", faults)?;
    let pointer = object.at("publish");
    if items.len() > limits::DESTINATIONS_MAX {
        let max = limits::DESTINATIONS_MAX;
        faults.add(pointer, format!("must have at most {max} destinations"));
        return None;
    }
    let mut destinations: Vec<Destination> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let pointer = format!("{pointer}/{at}");
        let Some(destination) = destination(&pointer, item, faults) else {
            continue;
        };
        if destinations.contains(&destination) {
            faults.add(pointer, "repeats an earlier destination");
        } else {
            destinations.push(destination);
        }
    }
    Some(destinations)
}

fn destination(pointer: &str, item: &Json, faults: &mut Faults) -> Option<Destination> {
    let object = Object::of(pointer, item, &["publisher", "target"], faults)?;
    object.require("publisher", faults);
    object.require("target", faults);
    let publisher = object.parsed("publisher", parse_name, faults);
    let place = object.parsed("target", target, faults);
    Some(Destination {
        publisher: publisher?,
        target: place?,
    })
}

const MEMBERS: &[&str] = &[
    "site",
    "pipeline",
    "userPrompt",
    "contents",
    "systemPrompt",
    "model",
    "responseSchema",
    "schemaVersion",
    "generationConfig",
    "safetySettings",
    "tools",
    "toolConfig",
    "cachedContent",
    "labels",
    "serviceTier",
    "variant",
    "topic",
    "windowMinutes",
    "requestedAt",
    "publish",
];
/// Every spelling of a schema in generationConfig that Gemini takes.
const CONFIG_SCHEMAS: [&str; 5] = [
    "responseSchema",
    "response_schema",
    "responseJsonSchema",
    "response_json_schema",
    "_responseJsonSchema",
];
const CONFIG_MEDIA_TYPES: [&str; 2] = ["responseMimeType", "response_mime_type"];

#[cfg(test)]
mod tests;
