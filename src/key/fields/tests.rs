use super::*;
use crate::key::canonical::Canonical;
use crate::key::json::Json;

fn snake(camel: &str) -> String {
    let lower = |c: char| {
        if c.is_uppercase() {
            format!("_{}", c.to_lowercase())
        } else {
            c.into()
        }
    };
    camel.chars().map(lower).collect()
}

fn canonical(text: &str) -> Canonical<'static> {
    let json = Box::leak(Box::new(Json::parse(text.as_bytes()).unwrap()));
    Canonical::of_kind(json, GEMINI_REQUEST).unwrap()
}

/// Every field of the table, as the way of names that leads to it.
fn ways(kind: Kind, way: &[&'static str], all: &mut Vec<Vec<&'static str>>) {
    if let Message(fields) | Ours(fields) = kind {
        for (name, kind) in fields {
            let way = [way, &[name]].concat();
            all.push(way.clone());
            ways(*kind, &way, all);
        }
    }
}

/// `value` at the end of a way, in an array where the number says so.
fn nested(way: impl DoubleEndedIterator<Item = String>, value: &str, arrays: bool) -> String {
    way.rev().fold(value.to_owned(), |value, name| {
        let inner = format!(r#"{{"{name}":{value}}}"#);
        if arrays { format!("[{inner}]") } else { inner }
    })
}

#[test]
fn every_field_counts_as_one_in_both_spellings_and_ends_at_the_callers_own_data() {
    let mut all = Vec::new();
    ways(GEMINI_REQUEST, &[], &mut all);
    assert!(all.len() > 100);
    for way in all {
        for arrays in [false, true] {
            let camel =
                |value: &str| nested(way.iter().map(|name| (*name).to_owned()), value, arrays);
            let snakes = |value: &str| nested(way.iter().map(|name| snake(name)), value, arrays);
            assert_eq!(canonical(&camel("1")), canonical(&snakes("1")), "{way:?}");
            let (mine, yours) = (
                r#"{"own_data":{"own_data":1}}"#,
                r#"{"ownData":{"own_data":1}}"#,
            );
            assert_ne!(canonical(&camel(mine)), canonical(&camel(yours)), "{way:?}");
        }
    }
}

#[test]
fn the_fields_that_sdks_spell_in_snake_case_are_listed() {
    for (camel, snake) in [
        (
            r#"{"generationConfig":{"thinkingConfig":{"thinkingLevel":"LOW","includeThoughts":true}}}"#,
            r#"{"generation_config":{"thinking_config":{"thinking_level":"LOW","include_thoughts":true}}}"#,
        ),
        (
            r#"{"contents":[{"parts":[{"inlineData":{"mimeType":"a/b","data":""},"thoughtSignature":""}]}]}"#,
            r#"{"contents":[{"parts":[{"inline_data":{"mime_type":"a/b","data":""},"thought_signature":""}]}]}"#,
        ),
        (
            r#"{"systemInstruction":{"parts":[]},"cachedContent":"c","safetySettings":[]}"#,
            r#"{"system_instruction":{"parts":[]},"cached_content":"c","safety_settings":[]}"#,
        ),
        (
            r#"{"toolConfig":{"functionCallingConfig":{"allowedFunctionNames":["a_b"]}}}"#,
            r#"{"tool_config":{"function_calling_config":{"allowed_function_names":["a_b"]}}}"#,
        ),
        (
            r#"{"tools":[{"functionDeclarations":[{"parametersJsonSchema":{}}]}],"continuationToken":""}"#,
            r#"{"tools":[{"function_declarations":[{"parameters_json_schema":{}}]}],"continuation_token":""}"#,
        ),
    ] {
        assert_eq!(canonical(camel), canonical(snake));
    }
}

#[test]
fn the_callers_own_names_are_never_folded() {
    for body in [
        r#"{"labels":{"X":1}}"#,
        r#"{"generationConfig":{"responseSchema":{"properties":{"X":{}}}}}"#,
        r#"{"generation_config":{"response_json_schema":{"X":{}}}}"#,
        r#"{"generationConfig":{"responseFormat":[{"text":{"schema":{"X":1}}}]}}"#,
        r#"{"tools":[{"functionDeclarations":[{"parameters":{"X":1}}]}]}"#,
        r#"{"tools":[{"functionDeclarations":[{"parametersJsonSchema":{"X":1}}]}]}"#,
        r#"{"tools":[{"mcpServers":[{"streamableHttpTransport":{"headers":{"X":"1"}}}]}]}"#,
        r#"{"contents":[{"parts":[{"functionCall":{"args":{"X":1}}}]}]}"#,
        r#"{"contents":[{"parts":[{"functionResponse":{"response":{"X":1}}}]}]}"#,
        r#"{"contents":[{"parts":[{"partMetadata":{"X":1}}]}]}"#,
        r#"{"contents":[{"parts":[{"toolCall":{"args":{"X":1}}}]}]}"#,
        r#"{"unknown":{"X":1}}"#,
    ] {
        let named = |name: &str| canonical(&body.replace('X', name));
        assert_ne!(named("mime_type"), named("mimeType"), "{body}");
        assert_ne!(named("response_schema"), named("responseSchema"), "{body}");
        // Both are two names there, and no duplicate.
        let both = body.replace("\"X\":", "\"max_items\":0,\"maxItems\":");
        canonical(&both);
    }
}

#[test]
fn only_the_two_spellings_of_a_field_are_one() {
    let config = |name: &str| canonical(&format!(r#"{{"generationConfig":{{"{name}":1}}}}"#));
    for name in [
        "max_outputTokens",
        "maxoutputtokens",
        "MaxOutputTokens",
        "max__output_tokens",
        "_max_output_tokens",
        "max_output_tokens_",
        "MAX_OUTPUT_TOKENS",
    ] {
        assert_ne!(config(name), config("maxOutputTokens"), "{name}");
    }
}

#[test]
fn both_spellings_in_one_object_are_refused_where_they_stand() {
    for (body, pointer) in [
        (
            r#"{"generationConfig":{},"generation_config":{}}"#,
            "/generationConfig",
        ),
        (
            r#"{"contents":[{},{"parts":[{"inline_data":{"mime_type":"a","mimeType":"a"}}]}]}"#,
            "/contents/1/parts/0/inline_data/mimeType",
        ),
    ] {
        let json = Json::parse(body.as_bytes()).unwrap();
        assert_eq!(
            Canonical::of_kind(&json, GEMINI_REQUEST)
                .unwrap_err()
                .pointer,
            pointer
        );
    }
}

#[test]
fn the_members_of_our_own_body_have_one_spelling() {
    let ours = |text: &'static str| {
        let json = Box::leak(Box::new(Json::parse(text.as_bytes()).unwrap()));
        Canonical::of_kind(json, API_REQUEST).unwrap()
    };
    assert_ne!(
        ours(r#"{"generation_config":{"topK":1}}"#),
        ours(r#"{"generationConfig":{"topK":1}}"#)
    );
    assert_eq!(
        ours(r#"{"generationConfig":{"top_k":1}}"#),
        ours(r#"{"generationConfig":{"topK":1}}"#)
    );
}
