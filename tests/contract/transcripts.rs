//! The transcripts conform to `openapi.json`, to the table of codes and to the request parser.

use std::collections::{BTreeMap, BTreeSet};

use oncepress::error::{Code, Retry};
use oncepress::http::validate::{GenerationRequest, KeyDefaults};
use oncepress::key::json::Json;
use oncepress::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::openapi::{answer, document, has_path, operation};
use crate::schema::{Extent, faults, is_open, resolve};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transcript {
    name: String,
    on: Vec<Stage>,
    given: Vec<Step>,
    request: Request,
    expect: Expect,
    #[serde(default, rename = "billed")]
    _billed: Option<u32>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Stage {
    Workerd,
    Simulated,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Step {
    send: Option<Request>,
    #[serde(rename = "as")]
    kept_as: Option<String>,
    fault: Option<Value>,
    vars: Option<Value>,
    store: Option<BTreeMap<String, String>>,
    account: Option<Value>,
    rate_limit: Option<u32>,
    advance: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Request {
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
    body_text: Option<String>,
    #[serde(rename = "as")]
    sender: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Expect {
    status: u64,
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    #[serde(default)]
    body: Value,
    same_body_as: Option<String>,
}

fn transcripts() -> Vec<Transcript> {
    let folder = crate::root().join("tests/contract/transcripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    paths.iter().map(read).collect()
}

#[test]
fn every_request_and_answer_is_in_the_description() {
    let document = document();
    for transcript in transcripts() {
        let Transcript {
            name,
            request,
            expect,
            ..
        } = &transcript;
        if expect.status == 405 {
            assert!(has_path(&document, &request.path) && found(&document, request).is_none());
            continue;
        }
        let operation = found(&document, request).unwrap_or_else(|| panic!("{name}: no such call"));
        let answer = answer(&document, operation, expect.status);
        let answer = answer.unwrap_or_else(|| panic!("{name}: {} is not told", expect.status));
        check_headers(&document, answer, transcript.name.as_str(), expect);
        check_body(&document, answer, name, expect);
        check_request(&document, operation, name, request, expect.status);
    }
}

#[test]
fn steps_are_known_and_names_are_kept_before_they_are_used() {
    let document = document();
    let mut names = BTreeSet::new();
    for transcript in transcripts() {
        let name = &transcript.name;
        assert!(names.insert(name.clone()), "{name}: twice");
        let mut kept = BTreeSet::new();
        for step in &transcript.given {
            let told = [
                step.send.is_some(),
                step.fault.is_some(),
                step.vars.is_some(),
                step.store.is_some(),
                step.account.is_some(),
                step.rate_limit.is_some(),
                step.advance.is_some(),
            ];
            assert_eq!(
                told.iter().filter(|told| **told).count(),
                1,
                "{name}: one thing a step"
            );
            assert!(
                step.advance.is_none() || transcript.on == [Stage::Simulated],
                "{name}"
            );
            kept.extend(step.kept_as.clone());
            if let Some(request) = &step.send {
                let operation = found(&document, request).unwrap_or_else(|| panic!("{name}"));
                check_request(&document, operation, name, request, 200);
            }
        }
        let first = transcript
            .expect
            .same_body_as
            .iter()
            .all(|name| kept.contains(name));
        let used = transcript.request.path.contains("{first.");
        assert!(first && (!used || kept.contains("first")), "{name}");
        let sender = transcript.request.sender.as_deref().unwrap_or("acme");
        assert!(
            ["acme", "globex", "admin", "nobody"].contains(&sender),
            "{name}"
        );
        let admin = transcript.request.path.starts_with("/admin/");
        assert!(
            !admin || sender == "admin" || transcript.expect.status == 403,
            "{name}"
        );
    }
}

#[test]
fn refusals_follow_the_table_of_codes_and_every_code_is_shown() {
    let mut shown = BTreeSet::new();
    for Transcript { name, expect, .. } in transcripts() {
        let header = |name: &str| expect.headers.get(name).cloned().flatten();
        let Some(code) = header("x-oncepress-error-code") else {
            // Health and liveness tell their state, whatever it is.
            let state = expect.body["status"] == "unavailable";
            assert!(expect.status < 400 || state, "{name}: no code");
            continue;
        };
        let code = Code::parse(&code).unwrap_or_else(|| panic!("{name}: {code}"));
        shown.insert(code);
        assert_eq!(u64::from(code.status()), expect.status, "{name}");
        if header("content-type").as_deref() != Some("application/problem+json") {
            continue;
        }
        let source = header("x-oncepress-error-source").unwrap();
        assert!(
            is_open(&source) || source == code.source().as_str(),
            "{name}: {source}"
        );
        let pointless = code.retry() == Retry::Pointless;
        assert_eq!(
            header("x-should-retry").as_deref(),
            pointless.then_some("false"),
            "{name}"
        );
        assert!(
            code.retry_after().is_none() || header("retry-after").is_some(),
            "{name}"
        );
    }
    // A fault of our own can't be asked for.
    let all: BTreeSet<Code> = Code::ALL
        .iter()
        .copied()
        .filter(|code| *code != Code::Internal)
        .collect();
    assert_eq!(shown, all);
}

#[test]
fn the_parser_finds_in_each_generation_request_what_its_transcript_says() {
    for Transcript {
        name,
        request,
        expect,
        ..
    } in transcripts()
    {
        if request.method != "POST" || request.path != "/api/v1/generations" {
            continue;
        }
        let text = request
            .body
            .map(|body| body.to_string())
            .or(request.body_text)
            .unwrap();
        let text = text.replace("{tag}", "tag-1");
        let invalid = expect.body["code"] == "invalid_request";
        let parsed = Json::parse(text.as_bytes()).map(|body| {
            GenerationRequest::parse(&body, &KeyDefaults::default(), Timestamp::default())
        });
        match parsed {
            Err(_) => assert!(invalid, "{name}"),
            Ok(Ok(_)) => assert!(!invalid, "{name}"),
            Ok(Err(faults)) => {
                assert!(invalid, "{name}: {faults:?}");
                let told = expect.body["errors"].as_array().unwrap();
                let told: BTreeSet<&str> = told
                    .iter()
                    .map(|fault| fault["pointer"].as_str().unwrap())
                    .collect();
                let found = faults.iter().map(|fault| fault.pointer.as_str()).collect();
                assert_eq!(told, found, "{name}");
            }
        }
    }
}

fn found<'a>(document: &'a Value, request: &Request) -> Option<&'a Value> {
    operation(document, &request.method, &request.path)
}

/// Expected headers are told, with values that fit; required ones are expected.
fn check_headers(document: &Value, answer: &Value, name: &str, expect: &Expect) {
    let told: BTreeMap<String, &Value> = answer["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, header)| {
            let header = resolve(document, header["$ref"].as_str().unwrap());
            (name.to_ascii_lowercase(), header)
        })
        .collect();
    for (header, value) in &expect.headers {
        let Some(value) = value else { continue };
        if header == "content-type" {
            assert!(
                answer["content"].get(value).is_some(),
                "{name}: {value} is not told"
            );
            continue;
        }
        let schema = &told
            .get(header)
            .unwrap_or_else(|| panic!("{name}: {header} is not told"))["schema"];
        let number = schema["type"] == "integer" && !is_open(value);
        let value = if number {
            value.parse::<i64>().unwrap().into()
        } else {
            value.as_str().into()
        };
        assert_eq!(
            faults(document, schema, &value, Extent::Part),
            [""; 0],
            "{name}: {header}"
        );
    }
    for (header, told) in told {
        let required = told["required"] == true;
        let expected = expect.headers.get(&header).is_some_and(Option::is_some);
        assert!(!required || expected, "{name}: {header} is required");
    }
}

/// What is expected of the body fits its schema and names only members that it has.
fn check_body(document: &Value, answer: &Value, name: &str, expect: &Expect) {
    let media_types = answer["content"].as_object().unwrap();
    let json = media_types
        .iter()
        .find(|(media_type, _)| media_type.contains("json"));
    let schema = &json.unwrap_or_else(|| panic!("{name}: no JSON")).1["schema"];
    assert_eq!(
        faults(document, schema, &expect.body, Extent::Part),
        [""; 0],
        "{name}"
    );
    let mut known = BTreeSet::new();
    members(document, schema, &mut known);
    for member in expect
        .body
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys)
    {
        assert!(
            known.is_empty() || known.contains(member.as_str()),
            "{name}: {member} is not told"
        );
    }
}

/// The names of all members that a schema tells at its top.
fn members<'a>(document: &'a Value, schema: &'a Value, names: &mut BTreeSet<&'a str>) {
    if let Some(reference) = schema.get("$ref") {
        members(
            document,
            resolve(document, reference.as_str().unwrap()),
            names,
        );
    }
    for part in schema
        .get("allOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        members(document, part, names);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    names.extend(
        properties
            .into_iter()
            .flat_map(serde_json::Map::keys)
            .map(String::as_str),
    );
}

/// A request that is not refused for itself has a body of the described kind, and known headers.
fn check_request(document: &Value, operation: &Value, name: &str, request: &Request, status: u64) {
    assert!(
        request.body.is_none() || request.body_text.is_none(),
        "{name}: two bodies"
    );
    let parameters = operation.get("parameters").and_then(Value::as_array);
    let parameters: BTreeSet<String> = parameters
        .into_iter()
        .flatten()
        .map(|told| {
            told.get("$ref")
                .map_or(told, |to| resolve(document, to.as_str().unwrap()))
        })
        .map(|told| told["name"].as_str().unwrap().to_ascii_lowercase())
        .collect();
    for header in request
        .headers
        .keys()
        .filter(|name| *name != "authorization" && *name != "content-type")
    {
        assert!(parameters.contains(header), "{name}: {header} is not told");
    }
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let parameter = pair.split('=').next().unwrap().to_ascii_lowercase();
        assert!(
            parameters.contains(&parameter),
            "{name}: {parameter} is not told"
        );
    }
    let Some(body) = request.body.as_ref().filter(|_| status != 400) else {
        return;
    };
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let open = faults(document, schema, body, Extent::Part);
    assert_eq!(open, [""; 0], "{name}");
}
