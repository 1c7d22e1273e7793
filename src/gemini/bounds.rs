//! Bounds what a request can use, so that its cost can be reserved before it is sent.

use crate::gemini::request::either;
use crate::gemini::usage::Tier;
use crate::key::json::{Json, Number};

/// What a request can use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Tokens that can reach the prompt.
    pub input_tokens: u64,
    /// Tokens of answer and thoughts together, all candidates counted.
    pub output_tokens: u64,
    /// The dearest tier that may serve it.
    pub tier: Tier,
}

impl Bounds {
    /// The bounds of a request of Gemini, or of a body of our own API, that is `bytes` long.
    ///
    /// A token stands for at least one byte, so text can't bring more tokens than bytes. What is
    /// not text can: a picture of a few bytes, a file or a cache by its name, what a tool finds, or
    /// the part that a long answer has reached. Such a request is bounded by the model's window.
    /// `maxOutputTokens` bounds each candidate with its thoughts.
    ///
    /// ```
    /// use oncepress::gemini::bounds::Bounds;
    /// use oncepress::key::json::Json;
    /// let text = br#"{"userPrompt": "Hi", "generationConfig": {"maxOutputTokens": 3500}}"#;
    /// let bounds = Bounds::of(&Json::parse(text).unwrap(), text.len());
    /// assert_eq!((bounds.input_tokens, bounds.output_tokens), (67, 3_500));
    /// ```
    pub fn of(body: &Json, bytes: usize) -> Self {
        let empty = Json::Null;
        let config = either(body, "generationConfig", "generation_config").unwrap_or(&empty);
        let unreadable = WINDOW_TOKENS;
        let per_candidate = limit(config, "maxOutputTokens", "max_output_tokens", unreadable)
            .unwrap_or(OUTPUT_TOKENS_DEFAULT)
            .min(WINDOW_TOKENS);
        // A count of candidates that can't be read is refused by Gemini.
        let candidates = limit(config, "candidateCount", "candidate_count", 1).unwrap_or(1);
        Self {
            input_tokens: if is_text(body) {
                u64::try_from(bytes).unwrap_or(u64::MAX)
            } else {
                WINDOW_TOKENS
            },
            output_tokens: per_candidate.saturating_mul(candidates),
            tier: tier(body),
        }
    }
}

/// A limit in either spelling, the larger of both; zero means that none is set.
fn limit(config: &Json, camel: &str, snake: &str, unreadable: u64) -> Option<u64> {
    let set = [camel, snake]
        .into_iter()
        .filter_map(|name| config.get(name));
    let read = set
        .filter(|value| !value.is_null())
        .map(|value| count(value).unwrap_or(unreadable));
    read.filter(|limit| *limit > 0).max()
}

/// A count as Google's JSON takes it: a number, or a number in a string.
fn count(value: &Json) -> Option<u64> {
    let number = match value {
        Json::Number(number) => number.to_i64(),
        Json::String(text) => Number::parse(text)?.to_i64(),
        _ => None,
    };
    u64::try_from(number?).ok()
}

fn tier(body: &Json) -> Tier {
    match either(body, "serviceTier", "service_tier") {
        None => Tier::Standard,
        // A tier that is not known here may be dearer than the list price.
        Some(name) => name
            .as_str()
            .and_then(Tier::parse)
            .unwrap_or(Tier::Priority),
    }
}

/// Whether all that can reach the prompt is text in the body.
fn is_text(body: &Json) -> bool {
    let by_name = [
        either(body, "cachedContent", "cached_content"),
        either(body, "continuationToken", "continuation_token"),
    ];
    let spoken = [
        body.get("contents"),
        either(body, "systemInstruction", "system_instruction"),
    ];
    let tools = body.get("tools").filter(|tools| !tools.is_null());
    by_name.iter().all(Option::is_none)
        && !spoken.into_iter().flatten().any(has_media)
        && tools.is_none_or(|tools| {
            tools
                .as_array()
                .is_some_and(|tools| tools.iter().all(is_declared))
        })
}

/// Whether a tool is declared in the request and run by the caller.
fn is_declared(tool: &Json) -> bool {
    let declared = |name: &str| matches!(name, "functionDeclarations" | "function_declarations");
    tool.as_object()
        .is_some_and(|members| members.iter().all(|(name, _)| declared(name)))
}

/// Whether data or a file is anywhere inside; JSON's depth is bounded where it is parsed.
fn has_media(value: &Json) -> bool {
    match value {
        Json::Array(items) => items.iter().any(has_media),
        Json::Object(members) => members
            .iter()
            .any(|(name, value)| MEDIA.contains(&name.as_str()) || has_media(value)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

const MEDIA: [&str; 4] = ["inlineData", "inline_data", "fileData", "file_data"];
/// The window of Gemini's models: prompt, thoughts and answer together.
pub const WINDOW_TOKENS: u64 = 1_048_576;
/// Most that a model puts out where the request sets no limit.
pub const OUTPUT_TOKENS_DEFAULT: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(body: &str) -> Bounds {
        Bounds::of(&Json::parse(body.as_bytes()).unwrap(), body.len())
    }

    #[test]
    fn text_is_bounded_by_its_bytes() {
        for body in [
            r#"{"userPrompt": "x"}"#,
            r#"{"contents": [{"parts": [{"text": "inlineData"}]}], "tools": null}"#,
            r#"{"tools": [{"functionDeclarations": [{"name": "f"}]}, {}]}"#,
        ] {
            assert_eq!(bounds(body).input_tokens, body.len() as u64, "{body}");
        }
    }

    #[test]
    fn what_is_not_text_is_bounded_by_the_window() {
        for body in [
            r#"{"contents": [{"parts": [{"inlineData": {"data": "AA=="}}]}]}"#,
            r#"{"contents": [{"parts": [{"file_data": {}}]}]}"#,
            r#"{"contents": [{"parts": [{"functionResponse": {"parts": [{"inlineData": {}}]}}]}]}"#,
            r#"{"cachedContent": "cachedContents/x"}"#,
            r#"{"continuationToken": "AA=="}"#,
            r#"{"tools": [{"googleSearch": {}}]}"#,
            r#"{"tools": [{"functionDeclarations": [], "urlContext": {}}]}"#,
            r#"{"tools": {}}"#,
        ] {
            assert_eq!(bounds(body).input_tokens, WINDOW_TOKENS, "{body}");
        }
    }

    #[test]
    fn the_limit_of_output_is_read_in_every_spelling() {
        let limit =
            |config: &str| bounds(&format!(r#"{{"generationConfig": {config}}}"#)).output_tokens;
        assert_eq!(limit("{}"), 65_536);
        assert_eq!(limit(r#"{"maxOutputTokens": 3e3}"#), 3_000);
        assert_eq!(limit(r#"{"max_output_tokens": "3000"}"#), 3_000);
        assert_eq!(
            limit(r#"{"maxOutputTokens": 10, "max_output_tokens": 20}"#),
            20
        );
        assert_eq!(limit(r#"{"maxOutputTokens": 0}"#), 65_536);
        assert_eq!(limit(r#"{"maxOutputTokens": 9e99}"#), WINDOW_TOKENS);
        assert_eq!(limit(r#"{"maxOutputTokens": "many"}"#), WINDOW_TOKENS);
        assert_eq!(
            limit(r#"{"maxOutputTokens": 1000, "candidateCount": 4}"#),
            4_000
        );
        assert_eq!(
            bounds(r#"{"generation_config": {"maxOutputTokens": 7}}"#).output_tokens,
            7
        );
    }

    #[test]
    fn an_unknown_tier_is_bounded_by_the_dearest() {
        assert_eq!(bounds("{}").tier, Tier::Standard);
        assert_eq!(bounds(r#"{"serviceTier": "flex"}"#).tier, Tier::Flex);
        assert_eq!(
            bounds(r#"{"service_tier": "priority"}"#).tier,
            Tier::Priority
        );
        assert_eq!(bounds(r#"{"serviceTier": "gold"}"#).tier, Tier::Priority);
        assert_eq!(bounds(r#"{"serviceTier": 1}"#).tier, Tier::Priority);
    }
}
