//! `openapi.json` and the code name the same codes, members and bounds.

use std::collections::BTreeSet;

use oncepress::error::{Code, Retry};
use oncepress::http::validate::{GenerationRequest, KeyDefaults, bounds};
use oncepress::key::json::Json;
use oncepress::limits;
use oncepress::time::Timestamp;
use serde_json::{Value, json};

use crate::schema::resolve;

/// The whole document.
pub(crate) fn document() -> Value {
    serde_json::from_str(&crate::text("public/openapi.json")).unwrap()
}

/// The operation behind a method and a path, and the template that the path fits.
pub(crate) fn operation<'a>(document: &'a Value, method: &str, path: &str) -> Option<&'a Value> {
    let path = path.split('?').next().unwrap();
    let templates = document["paths"].as_object().unwrap();
    let (_, item) = templates
        .iter()
        .find(|(template, _)| fits(template, path))?;
    item.get(method.to_ascii_lowercase())
}

/// Whether any operation has this path.
pub(crate) fn has_path(document: &Value, path: &str) -> bool {
    let path = path.split('?').next().unwrap();
    document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .any(|template| fits(template, path))
}

/// The answer that an operation documents for a status.
pub(crate) fn answer<'a>(
    document: &'a Value,
    operation: &'a Value,
    status: u64,
) -> Option<&'a Value> {
    let answer = operation["responses"].get(status.to_string())?;
    Some(
        answer
            .get("$ref")
            .map_or(answer, |to| resolve(document, to.as_str().unwrap())),
    )
}

fn fits(template: &str, path: &str) -> bool {
    let literal = |text: &str| regex::escape(text);
    let mut pattern = String::from("^");
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        pattern += &literal(before);
        pattern += "[^/:]+";
        rest = after.split_once('}').unwrap().1;
    }
    pattern += &literal(rest);
    pattern += "$";
    regex::Regex::new(&pattern).unwrap().is_match(path)
}

#[test]
fn every_reference_points_at_something() {
    fn walk(document: &Value, value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(reference) = members.get("$ref") {
                    resolve(document, reference.as_str().unwrap());
                }
                members.values().for_each(|value| walk(document, value));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(document, value)),
            _ => {}
        }
    }
    let document = document();
    walk(&document, &document);
}

#[test]
fn the_codes_of_each_status_are_those_of_the_table() {
    let document = document();
    let names = |codes: &Value| -> BTreeSet<String> {
        codes
            .as_array()
            .unwrap()
            .iter()
            .map(|code| code.as_str().unwrap().to_owned())
            .collect()
    };
    let all: BTreeSet<String> = Code::ALL
        .iter()
        .map(|code| code.as_str().to_owned())
        .collect();
    assert_eq!(
        names(&document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]),
        all
    );
    for status in Code::ALL
        .iter()
        .map(|code| code.status())
        .collect::<BTreeSet<_>>()
    {
        let answer = &document["components"]["responses"][format!("E{status}")];
        let schema = &answer["content"]["application/problem+json"]["schema"]["allOf"][1];
        let codes: Vec<Code> = Code::ALL
            .iter()
            .copied()
            .filter(|code| code.status() == status)
            .collect();
        let expected = codes.iter().map(|code| code.as_str().to_owned()).collect();
        assert_eq!(
            names(&schema["properties"]["code"]["enum"]),
            expected,
            "{status}"
        );
        let later = codes.iter().any(|code| code.retry_after().is_some());
        assert!(
            !later || answer["headers"].get("Retry-After").is_some(),
            "{status}"
        );
        let pointless = codes.iter().any(|code| code.retry() == Retry::Pointless);
        assert!(
            !pointless || answer["headers"].get("x-should-retry").is_some(),
            "{status}"
        );
    }
}

#[test]
fn the_members_of_a_generation_request_are_those_that_are_read() {
    let document = document();
    let schema = &document["components"]["schemas"]["GenerationRequest"];
    let parse = |body: &Value| {
        let body = Json::parse(body.to_string().as_bytes()).unwrap();
        GenerationRequest::parse(&body, &KeyDefaults::default(), Timestamp::default())
    };
    let refused = |body: &Value, pointer: &str, detail: &str| {
        let faults = parse(body).err().unwrap_or_default();
        faults
            .iter()
            .any(|fault| fault.pointer == pointer && fault.detail.contains(detail))
    };
    for name in schema["properties"].as_object().unwrap().keys() {
        let body = json!({ name.as_str(): null });
        assert!(
            !refused(&body, &format!("/{name}"), "known"),
            "{name} is not read"
        );
        assert!(
            refused(&body, &format!("/{name}"), "must be"),
            "{name} may be null"
        );
    }
    assert!(refused(
        &json!({"continuationToken": "x"}),
        "/continuationToken",
        "known"
    ));
}

#[test]
fn the_bounds_of_a_generation_request_are_those_of_the_code() {
    let document = document();
    let bound = |pointer: &str| {
        let all = document.pointer("/components/schemas").unwrap();
        all.pointer(pointer)
            .and_then(Value::as_u64)
            .unwrap_or_else(|| panic!("{pointer}"))
    };
    let request = |rest: &str| bound(&format!("/GenerationRequest/properties/{rest}"));
    let number = |bound: usize| u64::try_from(bound).unwrap();
    assert_eq!(request("topic/maxLength"), number(bounds::TOPIC_MAX_CHARS));
    assert_eq!(
        request("variant/maxLength"),
        number(bounds::VARIANT_MAX_CHARS)
    );
    assert_eq!(
        request("schemaVersion/maxLength"),
        number(bounds::VERSION_MAX_CHARS)
    );
    assert_eq!(
        request("cachedContent/maxLength"),
        number(bounds::CACHED_CONTENT_MAX_CHARS)
    );
    assert_eq!(request("labels/maxProperties"), number(bounds::LABELS_MAX));
    assert_eq!(
        request("labels/propertyNames/maxLength"),
        number(bounds::LABEL_MAX_CHARS)
    );
    assert_eq!(
        request("windowMinutes/maximum"),
        limits::WINDOW_MINUTES.end().unsigned_abs()
    );
    assert_eq!(
        request("generationConfig/properties/maxOutputTokens/maximum"),
        bounds::OUTPUT_TOKENS_MAX.unsigned_abs()
    );
    assert_eq!(
        bound("/Destinations/maxItems"),
        number(limits::DESTINATIONS_MAX)
    );
    assert_eq!(
        bound("/ResolveRequest/properties/reason/maxLength"),
        number(bounds::REASON_MAX_CHARS)
    );
    assert_eq!(
        bound("/KeyRequest/properties/label/maxLength"),
        number(bounds::KEY_LABEL_MAX_CHARS)
    );
    assert_eq!(
        bound("/AccountRequest/properties/dailyCredits/maximum"),
        bounds::DAILY_CREDITS.end().unsigned_abs()
    );
}

#[test]
fn every_operation_has_its_own_id_and_says_what_else_can_come() {
    let document = document();
    let mut ids = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()));
            let public = operation["security"] == json!([]);
            assert!(
                public || operation["responses"].get("default").is_some(),
                "{operation}"
            );
        }
    }
}
