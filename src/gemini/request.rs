//! Builds what is sent to Gemini.
//!
//! ```
//! use oncepress::gemini::request::from_api;
//! use oncepress::key::json::Json;
//! let body = Json::parse(br#"{"site": "a", "pipeline": "b", "systemPrompt": "Be brief.",
//!     "userPrompt": "Hi", "generationConfig": {"temperature": 0.70}}"#).unwrap();
//! assert_eq!(from_api(&body).unwrap(), concat!(
//!     r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}],"#,
//!     r#""systemInstruction":{"parts":[{"text":"Be brief."}]},"#,
//!     r#""generationConfig":{"temperature":0.70}}"#));
//! ```

use std::fmt;

use crate::key::json::Json;
use crate::ports::HttpRequest;
use crate::time::Span;

/// The name of a model, without `models/`.
///
/// ```
/// use oncepress::gemini::request::ModelName;
/// assert_eq!(ModelName::parse("models/gemini-3.8-flash").unwrap().as_str(), "gemini-3.8-flash");
/// assert_eq!(ModelName::parse("../files"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ModelName(String);

/// The version of Gemini's API that a path names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiVersion {
    /// `v1`, which Google's newest SDKs call.
    V1,
    /// `v1beta`, which takes every member of a request.
    #[default]
    V1Beta,
    /// `v1alpha`.
    V1Alpha,
}

/// How the answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// In one piece.
    Unary,
    /// As server-sent events.
    Stream,
}

/// What is wrong with a member of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {problem}")]
pub struct RequestFault {
    /// JSON pointer to the member.
    pub pointer: &'static str,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl ModelName {
    /// Reads `x` or `models/x`. Letters, digits, `.`, `_` and `-` only, a letter or digit first:
    /// nothing that could lead to another path.
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix("models/").unwrap_or(text);
        let fits = (1..=MODEL_NAME_MAX_BYTES).contains(&name.len());
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
        (fits && plain && starts).then(|| Self(name.to_owned()))
    }

    /// The name, without `models/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ApiVersion {
    /// The version of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::V1, Self::V1Beta, Self::V1Alpha]
            .into_iter()
            .find(|version| version.as_str() == name)
    }

    /// Its name in a path.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta => "v1beta",
            Self::V1Alpha => "v1alpha",
        }
    }
}

/// The request that posts `body` to a path of Gemini's API.
pub fn upstream_request(
    base_url: &str,
    path: &str,
    api_key: &str,
    body: impl Into<Vec<u8>>,
    timeout: Span,
) -> HttpRequest {
    HttpRequest {
        method: "POST",
        url: format!("{}{path}", base_url.trim_end_matches('/')),
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("x-goog-api-key".to_owned(), api_key.to_owned()),
            ("x-goog-api-client".to_owned(), CLIENT.to_owned()),
        ],
        body: body.into(),
        timeout,
    }
}

/// The path and query of a generating call.
pub fn upstream_path(version: ApiVersion, model: &ModelName, method: Method) -> String {
    let call = match method {
        Method::Unary => "generateContent",
        Method::Stream => "streamGenerateContent?alt=sse",
    };
    format!("/{}/models/{model}:{call}", version.as_str())
}

/// The JSON text of Gemini's request for a body of `POST /api/v1/generations`, every value as it
/// was spelled. Only what the request is made of is checked here.
pub fn from_api(body: &Json) -> Result<String, Vec<RequestFault>> {
    let mut faults = Vec::new();
    let mut members = Vec::new();
    match contents(body) {
        Ok(contents) => members.push(("contents".to_owned(), contents)),
        Err(fault) => faults.push(fault),
    }
    match body.get("systemPrompt") {
        None => {}
        Some(Json::String(text)) => {
            members.push((
                "systemInstruction".to_owned(),
                object([("parts", parts(text))]),
            ));
        }
        Some(_) => faults.push(fault("/systemPrompt", "must be a text")),
    }
    match generation_config(body) {
        Ok(config) => members.extend(config.map(|config| ("generationConfig".to_owned(), config))),
        Err(found) => faults.extend(found),
    }
    let passed = body.as_object().into_iter().flatten();
    members.extend(
        passed
            .filter(|(name, _)| PASSED_ON.contains(&name.as_str()))
            .cloned(),
    );
    if faults.is_empty() {
        Ok(Json::Object(members).write())
    } else {
        Err(faults)
    }
}

/// Whether the answer to this body, the API's own or Gemini's, has to be JSON.
pub fn json_requested(body: &Json) -> bool {
    if body
        .get("responseSchema")
        .is_some_and(|schema| !schema.is_null())
    {
        return true;
    }
    let Some(config) = either(body, "generationConfig", "generation_config") else {
        return false;
    };
    match either(config, "responseMimeType", "response_mime_type") {
        Some(mime) => mime.as_str().is_some_and(is_json_type),
        None => CONFIG_SCHEMAS
            .iter()
            .any(|(_, camel, snake)| either(config, camel, snake).is_some()),
    }
}

fn contents(body: &Json) -> Result<Json, RequestFault> {
    match (body.get("userPrompt"), body.get("contents")) {
        (Some(Json::String(text)), None) => Ok(Json::Array(vec![object([
            ("role", Json::from("user")),
            ("parts", parts(text)),
        ])])),
        (Some(_), None) => Err(fault("/userPrompt", "must be a text")),
        (None, Some(contents @ Json::Array(_))) => Ok(contents.clone()),
        (None, Some(_)) => Err(fault("/contents", "must be a list")),
        (None, None) => Err(fault("/userPrompt", "is required, or contents")),
        (Some(_), Some(_)) => Err(fault("/contents", "must not stand beside userPrompt")),
    }
}

fn generation_config(body: &Json) -> Result<Option<Json>, Vec<RequestFault>> {
    let config = body.get("generationConfig");
    if config.is_some_and(|config| config.as_object().is_none()) {
        return Err(vec![fault("/generationConfig", "must be an object")]);
    }
    let Some(schema) = body.get("responseSchema") else {
        return Ok(config.cloned());
    };
    if schema.as_object().is_none() {
        return Err(vec![fault("/responseSchema", "must be an object")]);
    }
    let empty = Json::Object(Vec::new());
    let config = config.unwrap_or(&empty);
    let conflicts = CONFIG_SCHEMAS
        .iter()
        .filter(|(_, camel, snake)| config.get(camel).is_some() || config.get(snake).is_some());
    let mut faults: Vec<_> = conflicts
        .map(|(pointer, ..)| fault(pointer, "must not stand beside responseSchema"))
        .collect();
    let mime = either(config, "responseMimeType", "response_mime_type");
    if mime.is_some_and(|mime| !mime.as_str().is_some_and(is_json_type)) {
        let problem = "must be application/json where responseSchema is given";
        faults.push(fault("/generationConfig/responseMimeType", problem));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut members = config.as_object().unwrap_or_default().to_vec();
    if mime.is_none() {
        members.retain(|(name, _)| name != "responseMimeType" && name != "response_mime_type");
        members.push((
            "responseMimeType".to_owned(),
            Json::from("application/json"),
        ));
    }
    members.push(("responseSchema".to_owned(), schema.clone()));
    Ok(Some(Json::Object(members)))
}

/// A member under the name that Google's JSON gives it, or its other spelling; `null` is absent.
pub(crate) fn either<'a>(object: &'a Json, camel: &str, snake: &str) -> Option<&'a Json> {
    let present = |name| object.get(name).filter(|value| !value.is_null());
    present(camel).or_else(|| present(snake))
}

fn is_json_type(mime: &str) -> bool {
    let essence = mime.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn parts(text: &str) -> Json {
    Json::Array(vec![object([("text", Json::from(text))])])
}

fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    Json::Object(
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    )
}

fn fault(pointer: &'static str, problem: &'static str) -> RequestFault {
    RequestFault { pointer, problem }
}

/// What names this software to Google.
const CLIENT: &str = concat!("oncepress/", env!("CARGO_PKG_VERSION"));
/// Google's longest name of a model is a third of this.
const MODEL_NAME_MAX_BYTES: usize = 128;
/// Members that mean in the API what they mean in Gemini's request.
const PASSED_ON: [&str; 7] = [
    "safetySettings",
    "tools",
    "toolConfig",
    "cachedContent",
    "labels",
    "serviceTier",
    "continuationToken",
];
/// The members of a generation config that ask for JSON by a schema.
const CONFIG_SCHEMAS: [(&str, &str, &str); 3] = [
    (
        "/generationConfig/responseSchema",
        "responseSchema",
        "response_schema",
    ),
    (
        "/generationConfig/responseJsonSchema",
        "responseJsonSchema",
        "response_json_schema",
    ),
    (
        "/generationConfig/_responseJsonSchema",
        "_responseJsonSchema",
        "_response_json_schema",
    ),
];

/// How many candidates a body asks for: the most that any member of that name says. In a string the
/// name's quotes are escaped. The body is not parsed for it, since it may have 20 MiB.
///
/// ```
/// use oncepress::gemini::request::candidates;
/// assert_eq!(candidates(r#"{"generationConfig": {"candidateCount": 3}}"#), 3);
/// assert_eq!(candidates(r#"{"contents": [{"parts": [{"text": "\"candidateCount\": 3"}]}]}"#), 0);
/// ```
pub fn candidates(body: &str) -> usize {
    let named = body.split("\"candidate").skip(1).filter_map(|rest| {
        let rest = rest
            .strip_prefix("Count\"")
            .or(rest.strip_prefix("_count\""))?;
        let rest = rest.trim_start_matches([':', '"', ' ', '\t', '\r', '\n']);
        rest.split(|c: char| !c.is_ascii_digit())
            .next()?
            .parse()
            .ok()
    });
    named.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn built(body: &str) -> String {
        match from_api(&Json::parse(body.as_bytes()).unwrap()) {
            Ok(text) => text,
            Err(faults) => faults
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    #[test]
    fn everything_that_shapes_the_output_is_passed_on_as_it_was_spelled() {
        insta::assert_snapshot!(built(r#"{"site": "a", "pipeline": "b", "model": "gemini-2.5-pro",
            "topic": "t", "variant": "v", "windowMinutes": 5, "publish": [], "schemaVersion": "1",
            "contents": [{"role": "user", "parts": [{"text": "a\u0000\u00e9"}]}],
            "generationConfig": {"seed": 9007199254740993, "topP": 1e-400, "thinkingConfig": {}},
            "safetySettings": [], "tools": [{"googleSearch": {}}], "toolConfig": {"x": 1.0},
            "cachedContent": "cachedContents/c", "labels": {"team": "x"}, "serviceTier": "flex"}"#),
            @r#"{"contents":[{"role":"user","parts":[{"text":"a\u0000é"}]}],"generationConfig":{"seed":9007199254740993,"topP":1e-400,"thinkingConfig":{}},"safetySettings":[],"tools":[{"googleSearch":{}}],"toolConfig":{"x":1.0},"cachedContent":"cachedContents/c","labels":{"team":"x"},"serviceTier":"flex"}"#);
    }

    #[test]
    fn a_response_schema_sets_the_json_type_beside_the_rest_of_the_config() {
        insta::assert_snapshot!(built(r#"{"userPrompt": "x", "responseSchema": {"type": "OBJECT"},
            "generationConfig": {"maxOutputTokens": 10}}"#),
            @r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"maxOutputTokens":10,"responseMimeType":"application/json","responseSchema":{"type":"OBJECT"}}}"#);
        insta::assert_snapshot!(built(r#"{"userPrompt": "x", "responseSchema": {},
            "generationConfig": {"response_mime_type": "application/json"}}"#),
            @r#"{"contents":[{"role":"user","parts":[{"text":"x"}]}],"generationConfig":{"response_mime_type":"application/json","responseSchema":{}}}"#);
    }

    #[test]
    fn every_fault_is_reported_by_its_pointer() {
        insta::assert_snapshot!(built(r#"{"userPrompt": 1, "systemPrompt": [],
            "responseSchema": {}, "generationConfig": {"response_schema": {},
            "responseJsonSchema": {}, "responseMimeType": "text/x.enum"}}"#), @r"
        /userPrompt: must be a text
        /systemPrompt: must be a text
        /generationConfig/responseSchema: must not stand beside responseSchema
        /generationConfig/responseJsonSchema: must not stand beside responseSchema
        /generationConfig/responseMimeType: must be application/json where responseSchema is given
        ");
        insta::assert_snapshot!(built(r#"{"generationConfig": [], "responseSchema": "x"}"#), @r"
        /userPrompt: is required, or contents
        /generationConfig: must be an object
        ");
        insta::assert_snapshot!(built(r#"{"userPrompt": "a", "contents": [], "responseSchema": 1}"#), @r"
        /contents: must not stand beside userPrompt
        /responseSchema: must be an object
        ");
    }

    #[test]
    fn json_is_requested_by_a_schema_or_by_its_type_in_either_spelling() {
        let requested = |body: &str| json_requested(&Json::parse(body.as_bytes()).unwrap());
        for body in [
            r#"{"responseSchema": {}}"#,
            r#"{"generationConfig": {"responseMimeType": "application/json"}}"#,
            r#"{"generation_config": {"response_mime_type": "Application/JSON; charset=utf-8"}}"#,
            r#"{"generationConfig": {"responseSchema": {}}}"#,
            r#"{"generationConfig": {"response_json_schema": {}}}"#,
        ] {
            assert!(requested(body), "{body}");
        }
        for body in [
            "{}",
            "[]",
            r#"{"generationConfig": {}}"#,
            r#"{"responseSchema": null, "generationConfig": {"responseSchema": null}}"#,
            r#"{"generationConfig": {"responseMimeType": "text/plain"}}"#,
            r#"{"generationConfig": {"responseMimeType": "text/x.enum", "responseSchema": {}}}"#,
        ] {
            assert!(!requested(body), "{body}");
        }
    }

    #[test]
    fn a_name_that_could_lead_elsewhere_is_no_model() {
        for name in [
            "",
            ".",
            "..",
            "models/",
            "models/..",
            "a/b",
            "models/models/a",
            "tunedModels/a",
            "a:b",
            "a?b",
            "a%2fb",
            "a#b",
            "a b",
            "-a",
            "ä",
            "a\n",
            "a\\b",
        ] {
            assert_eq!(ModelName::parse(name), None, "{name}");
        }
        assert_eq!(ModelName::parse(&"a".repeat(129)), None);
        let model = ModelName::parse("models/gemini-3.1-pro-preview").unwrap();
        let path = |version, method| upstream_path(version, &model, method);
        assert_eq!(
            path(ApiVersion::V1, Method::Unary),
            "/v1/models/gemini-3.1-pro-preview:generateContent"
        );
        assert_eq!(
            path(ApiVersion::default(), Method::Stream),
            "/v1beta/models/gemini-3.1-pro-preview:streamGenerateContent?alt=sse"
        );
        assert_eq!(ApiVersion::parse("v1alpha"), Some(ApiVersion::V1Alpha));
        assert_eq!(ApiVersion::parse("v2"), None);
    }

    #[test]
    fn the_key_travels_in_a_header_and_never_in_the_address() {
        let model = ModelName::parse("m").unwrap();
        let path = upstream_path(ApiVersion::V1Beta, &model, Method::Unary);
        let base_url = "http://127.0.0.1:8080/t/tenant/";
        let request = upstream_request(base_url, &path, "secret", "{}", Span::from_minutes(13));
        assert_eq!(
            request.url,
            "http://127.0.0.1:8080/t/tenant/v1beta/models/m:generateContent"
        );
        let header = |name: &str| {
            request
                .headers
                .iter()
                .find(|(n, _)| n == name)
                .unwrap()
                .1
                .as_str()
        };
        assert_eq!(header("x-goog-api-key"), "secret");
        assert_eq!(header("content-type"), "application/json");
        assert!(header("x-goog-api-client").starts_with("oncepress/"));
        assert_eq!(request.timeout, Span::from_minutes(13));
    }

    proptest! {
        #[test]
        fn a_prompt_arrives_as_it_was_sent(system in "[\\s\\S]*", user in "[\\s\\S]*") {
            let body = Json::Object(vec![
                ("systemPrompt".to_owned(), Json::from(system.as_str())),
                ("userPrompt".to_owned(), Json::from(user.as_str())),
            ]);
            let sent: serde_json::Value = serde_json::from_str(&from_api(&body).unwrap()).unwrap();
            prop_assert_eq!(sent.pointer("/contents/0/parts/0/text").unwrap(), &user);
            prop_assert_eq!(sent.pointer("/systemInstruction/parts/0/text").unwrap(), &system);
        }
    }
}
