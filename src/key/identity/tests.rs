use proptest::prelude::*;

use super::*;
use crate::key::respell::{self, Choices};
use crate::key::scope::Name;

const API: &str = r#"{
    "site": "blog", "pipeline": "daily", "model": "gemini-3.8-flash", "systemPrompt": "Be brief",
    "userPrompt": "Write", "responseSchema": {"type": "OBJECT", "required": ["a_b"]},
    "generationConfig": {
        "temperature": 0.7, "topP": 1, "topK": 40, "candidateCount": 1, "maxOutputTokens": 100,
        "stopSequences": ["x", "y"], "seed": 7, "responseMimeType": "application/json",
        "responseModalities": ["TEXT"], "thinkingConfig": {"thinkingLevel": "LOW"}
    },
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
    "cachedContent": "cachedContents/x", "labels": {"team": "a"}, "serviceTier": "flex",
    "variant": "v", "topic": "kilns", "windowMinutes": 30, "requestedAt": "2026-11-30T09:00:00Z",
    "publish": [{"publisher": "hook", "target": "a"}]
}"#;

const DROP_IN: &str = r#"{
    "contents": [
        {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"mimeType": "a/b", "data": "AA"}}]},
        {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "f", "args": {"a_b": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"ok": true}}}]}
    ],
    "systemInstruction": {"parts": [{"text": "Be brief"}]},
    "generationConfig": {"seed": 1, "responseJsonSchema": {"minItems": 1}},
    "safetySettings": [], "tools": [{"codeExecution": {}}], "toolConfig": {}, "store": false,
    "cachedContent": "c", "serviceTier": "flex", "continuationToken": "dG8=", "labels": {"t": "a"},
    "unknown": null
}"#;

fn parse(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn scope(account: &str, site: &str, pipeline: &str) -> Scope {
    let name = |text| Name::parse(text).unwrap();
    Scope {
        account: name(account),
        site: name(site),
        pipeline: name(pipeline),
    }
}

fn seed() -> Vec<JsonPointer> {
    vec![JsonPointer::parse("/generationConfig/seed").unwrap()]
}

fn of(surface: Surface, request: &Json) -> Identity {
    let ignores = seed();
    let scope = scope("acme", "blog", "daily");
    let (model, beside) = ("gemini-3.8-flash", Beside::default());
    let input = IdentityInput {
        scope: &scope,
        surface,
        model,
        request,
        beside,
        ignores: &ignores,
    };
    identify(&input).unwrap()
}

fn api(text: &str) -> Identity {
    of(Surface::Api, &parse(text))
}

fn drop_in(text: &str) -> Identity {
    of(Surface::DropIn, &parse(text))
}

/// Asserts that the derived key stays, and that the fingerprint stays if `whole`.
fn assert_same(left: &Identity, right: &Identity, whole: bool) {
    assert_eq!(left.digest, right.digest);
    assert_eq!(left.derived_key, right.derived_key);
    assert_eq!(left.fingerprint == right.fingerprint, whole);
    assert_eq!(left.leaves.diff(&right.leaves).is_empty(), whole);
}

/// Asserts that both change, and that the difference is named.
fn assert_apart(left: &Identity, right: &Identity, what: &str) {
    assert_ne!(left.digest, right.digest, "{what}");
    assert_ne!(left.derived_key, right.derived_key, "{what}");
    assert_ne!(left.fingerprint, right.fingerprint, "{what}");
    assert!(!left.leaves.diff(&right.leaves).is_empty(), "{what}");
}

/// The request with each of its values changed, taken away, or set to `null`, one at a time.
fn changes(json: &Json) -> Vec<(String, Json)> {
    let mut all = Vec::new();
    match json {
        Json::Object(members) => {
            all.extend((0..members.len()).map(|at| {
                let mut fewer = members.clone();
                let (name, _) = fewer.remove(at);
                (format!("/{name}"), Json::Object(fewer))
            }));
            for (at, (name, value)) in members.iter().enumerate() {
                all.extend(changes(value).into_iter().map(|(pointer, changed)| {
                    let mut members = members.clone();
                    members[at].1 = changed;
                    (format!("/{name}{pointer}"), Json::Object(members))
                }));
            }
        }
        Json::Array(elements) => {
            all.extend((0..elements.len()).map(|at| {
                let mut fewer = elements.clone();
                fewer.remove(at);
                (format!("/{at}"), Json::Array(fewer))
            }));
            let twice = [elements.clone(), elements.clone(), vec![Json::Bool(true)]].concat();
            all.push((String::new(), Json::Array(twice)));
            for (at, value) in elements.iter().enumerate() {
                all.extend(changes(value).into_iter().map(|(pointer, changed)| {
                    let mut elements = elements.clone();
                    elements[at] = changed;
                    (format!("/{at}{pointer}"), Json::Array(elements))
                }));
            }
        }
        Json::String(text) => all.push((String::new(), Json::from(format!("{text}.")))),
        Json::Number(number) => {
            let longer = format!("{}1", number.as_str());
            let longer = crate::key::json::Number::parse(&longer).unwrap();
            all.push((String::new(), Json::Number(longer)));
        }
        Json::Bool(value) => all.push((String::new(), Json::Bool(!value))),
        Json::Null => all.push((String::new(), Json::Bool(false))),
    }
    if *json != Json::Null {
        all.push((String::new(), Json::Null));
    }
    all.push((String::new(), Json::from("something else")));
    all.push((
        String::new(),
        Json::Object(vec![("further".to_owned(), json.clone())]),
    ));
    all
}

#[test]
fn a_change_of_any_field_is_another_purchase_but_for_those_that_do_not_count() {
    let nowhere = [
        "/topic",
        "/windowMinutes",
        "/requestedAt",
        "/labels",
        "/site",
        "/pipeline",
        "/model",
    ];
    let fingerprint_only = ["/publish", "/generationConfig/seed"];
    for (surface, body, nowhere) in [
        (Surface::Api, API, &nowhere[..]),
        (Surface::DropIn, DROP_IN, &["/labels"]),
    ] {
        let request = parse(body);
        let before = of(surface, &request);
        let changes = changes(&request);
        assert!(changes.len() > 150);
        for (pointer, changed) in changes {
            let after = of(surface, &changed);
            let is = |names: &[&str]| names.iter().any(|name| pointer.starts_with(name));
            if is(nowhere) {
                assert_same(&before, &after, true);
            } else if is(&fingerprint_only) {
                assert_same(&before, &after, false);
            } else {
                assert_apart(&before, &after, &pointer);
            }
        }
    }
}

proptest! {
    #[test]
    fn another_spelling_of_a_request_is_the_same_purchase(seed: u64) {
        for (surface, body) in [(Surface::Api, API), (Surface::DropIn, DROP_IN)] {
            let request = parse(body);
            let respelled = parse(&Choices(seed).respell(&request));
            prop_assert_eq!(of(surface, &request), of(surface, &respelled));
        }
    }

    #[test]
    fn requests_are_one_purchase_exactly_if_they_are_equal(a in respell::json(), b in respell::json()) {
        let request = |tools: &Json| Json::Object(vec![("cachedContent".to_owned(), tools.clone())]);
        for surface in [Surface::Api, Surface::DropIn] {
            let (left, right) = (of(surface, &request(&a)), of(surface, &request(&b)));
            prop_assert_eq!(left.fingerprint == right.fingerprint, respell::equal(&a, &b));
            prop_assert_eq!(left.digest == right.digest, respell::equal(&a, &b));
        }
    }

    #[test]
    fn any_body_has_an_identity(json in respell::json()) {
        for surface in [Surface::Api, Surface::DropIn] {
            of(surface, &json);
        }
    }
}

#[test]
fn what_stands_around_the_body_counts() {
    let request = parse(r#"{"userPrompt":"Hello"}"#);
    let publish = parse(r#"[{"publisher":"hook","target":"a"}]"#);
    let (base, ignores) = (scope("acme", "blog", "daily"), seed());
    let input = IdentityInput {
        scope: &base,
        surface: Surface::DropIn,
        model: "m",
        request: &request,
        beside: Beside::default(),
        ignores: &ignores,
    };
    let before = identify(&input).unwrap();
    for other in [
        scope("acma", "blog", "daily"),
        scope("acme", "blo", "daily"),
        scope("acme", "blog", "gdaily"),
    ] {
        assert_apart(
            &before,
            &identify(&IdentityInput {
                scope: &other,
                ..input
            })
            .unwrap(),
            "scope",
        );
    }
    let other = |input: IdentityInput<'_>| identify(&input).unwrap();
    assert_apart(
        &before,
        &other(IdentityInput {
            model: "n",
            ..input
        }),
        "model",
    );
    assert_apart(
        &before,
        &other(IdentityInput {
            surface: Surface::Api,
            ..input
        }),
        "surface",
    );
    let variant = |variant| Beside {
        variant: Some(variant),
        publish: None,
    };
    let (one, empty) = (variant("1"), variant(""));
    let one = other(IdentityInput {
        beside: one,
        ..input
    });
    assert_apart(&before, &one, "variant");
    assert_apart(
        &before,
        &other(IdentityInput {
            beside: empty,
            ..input
        }),
        "empty variant",
    );
    let beside = Beside {
        variant: None,
        publish: Some(&publish),
    };
    let published = other(IdentityInput { beside, ..input });
    assert_same(&before, &published, false);
    assert_eq!(
        before.leaves.diff(&published.leaves),
        ["/publish/0/publisher", "/publish/0/target"]
    );
    assert_eq!(before.leaves.diff(&one.leaves), ["/variant"]);
}

#[test]
fn the_model_of_the_api_is_the_resolved_one_however_it_was_given() {
    let (with, without) = (
        r#"{"userPrompt":"x","model":"gemini-3.8-flash"}"#,
        r#"{"userPrompt":"x"}"#,
    );
    assert_eq!(api(with), api(without));
}

#[test]
fn a_conflict_is_named_by_the_pointers_of_the_body() {
    let after = API
        .replace("0.7", "0.8")
        .replace("\"Be brief\"", "\"Be long\"");
    let pointers = api(API).leaves.diff(&api(&after).leaves);
    assert_eq!(pointers, ["/generationConfig/temperature", "/systemPrompt"]);
}

#[test]
fn outer_white_space_of_prompts_counts_in_the_fingerprint_only() {
    let prompt = |text: &str| {
        api(&format!(
            r#"{{"userPrompt":"{text}","systemPrompt":"{text}"}}"#
        ))
    };
    let before = prompt("a b");
    for space in [
        "\\n",
        " ",
        "\\t\\r\\u000b\\f",
        "\u{85}",
        "\u{a0}",
        "\u{1680}",
        "\u{2000}",
        "\u{2029}",
        "\u{3000}",
        "\u{feff}",
    ] {
        assert_same(&before, &prompt(&format!("{space}a b{space}")), false);
        assert_apart(&before, &prompt(&format!("a{space}{space}b")), space);
    }
    for letter in ["\u{200b}", "\u{180e}", "\\u0000", "\u{2060}"] {
        assert_apart(&before, &prompt(&format!("a b{letter}")), letter);
    }
    let long = "word ".repeat(100);
    assert_same(&prompt(&long), &prompt(&format!(" {long}")), false);
    assert_apart(&prompt(&long), &prompt(&format!("{long}x")), "long");
    assert_apart(&prompt("é"), &prompt("e\u{301}"), "no normalisation");
    let contents = |text: &str| format!(r#"{{"contents":[{{"parts":[{{"text":"{text}"}}]}}]}}"#);
    assert_apart(
        &api(&contents("a")),
        &api(&contents("a ")),
        "contents are not trimmed",
    );
    assert_apart(
        &drop_in(&contents("a")),
        &drop_in(&contents("a ")),
        "nor in the drop-in",
    );
}

#[test]
fn a_schema_version_stands_for_the_text_of_the_schema_but_not_for_its_absence() {
    let with = |version: &str, schema: &str, inner: &str| {
        api(&format!(
            r#"{{"userPrompt":"x","schemaVersion":{version},"responseSchema":{schema},
                "generationConfig":{{{inner}}}}}"#
        ))
    };
    let before = with("\"1\"", r#"{"type":"OBJECT"}"#, "");
    assert_same(&before, &with("\"1\"", r#"{"type":"ARRAY"}"#, ""), false);
    assert_apart(
        &before,
        &with("\"2\"", r#"{"type":"OBJECT"}"#, ""),
        "another version",
    );
    assert_apart(&before, &with("\"1\"", "null", ""), "no schema");
    let unversioned = with("null", r#"{"type":"OBJECT"}"#, "");
    assert_apart(
        &unversioned,
        &with("null", r#"{"type":"ARRAY"}"#, ""),
        "no version",
    );
    for name in [
        "responseSchema",
        "response_schema",
        "responseJsonSchema",
        "_responseJsonSchema",
    ] {
        let inner = |schema: &str| with("\"1\"", "null", &format!(r#""{name}":{schema}"#));
        assert_same(&inner("{}"), &inner(r#"{"a_b":1}"#), false);
        assert_apart(&inner("{}"), &inner("null"), name);
    }
    let versioned = |schema: &str| {
        drop_in(&format!(
            r#"{{"schemaVersion":"1","generationConfig":{{"responseSchema":{schema}}}}}"#
        ))
    };
    assert_apart(
        &versioned("{}"),
        &versioned(r#"{"a":1}"#),
        "the drop-in has no schemaVersion",
    );
}

#[test]
fn an_empty_generation_config_is_none_and_one_of_a_seed_alone_is_none_in_the_derived_key() {
    for identity in [api, drop_in] {
        let none = identity(r#"{"x":1}"#);
        assert_eq!(none, identity(r#"{"x":1,"generationConfig":{}}"#));
        assert_same(
            &none,
            &identity(r#"{"x":1,"generationConfig":{"seed":1}}"#),
            false,
        );
        assert_apart(
            &none,
            &identity(r#"{"x":1,"generationConfig":null}"#),
            "null",
        );
        assert_apart(
            &none,
            &identity(r#"{"x":1,"generationConfig":{"thinkingConfig":{}}}"#),
            "inner",
        );
    }
    assert_eq!(drop_in("{}"), drop_in(r#"{"generation_config":{}}"#));
    assert_apart(
        &drop_in("{}"),
        &drop_in(r#"{"toolConfig":{}}"#),
        "only generationConfig",
    );
}

#[test]
fn the_user_role_of_a_system_instruction_is_none() {
    let none = drop_in(r#"{"systemInstruction":{"parts":[]}}"#);
    assert_eq!(
        none,
        drop_in(r#"{"systemInstruction":{"role":"user","parts":[]}}"#)
    );
    assert_eq!(
        none,
        drop_in(r#"{"system_instruction":{"parts":[],"role":"user"}}"#)
    );
    assert_apart(
        &none,
        &drop_in(r#"{"systemInstruction":{"role":"system","parts":[]}}"#),
        "system",
    );
    assert_apart(
        &none,
        &drop_in(r#"{"systemInstruction":{"role":null,"parts":[]}}"#),
        "null",
    );
    assert_apart(
        &drop_in(r#"{"contents":[{"parts":[]}]}"#),
        &drop_in(r#"{"contents":[{"role":"user","parts":[]}]}"#),
        "contents keep theirs",
    );
}

#[test]
fn both_spellings_of_a_field_at_once_are_refused() {
    let request = parse(r#"{"generationConfig":{"topK":1,"top_k":1}}"#);
    let scope = scope("acme", "blog", "daily");
    for surface in [Surface::Api, Surface::DropIn] {
        let (model, beside) = ("m", Beside::default());
        let input = IdentityInput {
            scope: &scope,
            surface,
            model,
            request: &request,
            beside,
            ignores: &[],
        };
        assert_eq!(
            identify(&input).unwrap_err().pointer,
            "/generationConfig/topK"
        );
    }
}

#[test]
fn ignored_pointers_name_members_and_elements_and_never_everything() {
    let scope = scope("acme", "blog", "daily");
    let digest = |body: &str, model: &str, variant: Option<&str>, pointers: &[&str]| {
        let ignores: Vec<_> = pointers
            .iter()
            .map(|text| JsonPointer::parse(text).unwrap())
            .collect();
        let (surface, beside) = (
            Surface::DropIn,
            Beside {
                variant,
                publish: None,
            },
        );
        let request = &parse(body);
        let input = IdentityInput {
            scope: &scope,
            surface,
            model,
            request,
            beside,
            ignores: &ignores,
        };
        identify(&input).unwrap().digest
    };
    let body = r#"{"a":[{"b":1},{"b":2}],"c~/":3}"#;
    let plain = digest(body, "m", None, &[]);
    for (pointers, changed, ignored) in [
        (&["/a/0/b"][..], r#"{"a":[{"b":9},{"b":2}],"c~/":3}"#, true),
        (&["/a/0/b"], r#"{"a":[{"b":1},{"b":9}],"c~/":3}"#, false),
        (&["/a/0", "/a/1"], r#"{"a":[{"b":8},9],"c~/":3}"#, true),
        (&["/a/0"], r#"{"a":[{"b":2}],"c~/":3}"#, false),
        (&["/c~0~1"], r#"{"a":[{"b":1},{"b":2}]}"#, true),
        (
            &["/a/00", "/a/+0", "/a/2", "/a/-", "/a/x", "/c~0~1/x"],
            "{}",
            false,
        ),
        (&[""], "{}", false),
    ] {
        let (before, after) = (
            digest(body, "m", None, pointers),
            digest(changed, "m", None, pointers),
        );
        assert_eq!(before == after, ignored, "{pointers:?}");
    }
    assert_eq!(
        digest(body, "m", None, &["/a/00", "/nothing/here", ""]),
        plain
    );
    let around = |pointers: &[&str]| digest(body, "n", Some("v"), pointers);
    assert_eq!(
        around(&["/model", "/variant"]),
        digest(body, "m", None, &["/model", "/variant"])
    );
    assert_ne!(around(&["/model"]), digest(body, "m", None, &["/model"]));
    assert_ne!(around(&["/site"]), plain);
}

#[test]
fn a_body_member_is_never_taken_for_what_stands_beside_it() {
    let request = parse(r#"{"variant":"v"}"#);
    let inside = drop_in(r#"{"variant":"v"}"#);
    let (scope, ignores, empty) = (scope("acme", "blog", "daily"), seed(), parse("{}"));
    let (surface, model) = (Surface::DropIn, "gemini-3.8-flash");
    let beside = Beside {
        variant: Some("v"),
        publish: None,
    };
    let input = IdentityInput {
        scope: &scope,
        surface,
        model,
        request: &empty,
        beside,
        ignores: &ignores,
    };
    assert_apart(&inside, &identify(&input).unwrap(), "beside");
    assert_apart(
        &inside,
        &identify(&IdentityInput {
            request: &request,
            ..input
        })
        .unwrap(),
        "both",
    );
}

#[test]
fn stored_hashes_are_read_back_from_64_lower_case_hex_digits_only() {
    let identity = api("{}");
    assert_eq!(
        Fingerprint::parse(&identity.fingerprint.to_string()),
        Some(identity.fingerprint)
    );
    assert_eq!(
        Digest::parse(&identity.digest.to_string()),
        Some(identity.digest)
    );
    let hex = identity.digest.to_string();
    for text in [
        "",
        hex.get(1..).unwrap(),
        &format!("{hex}0"),
        &hex.to_uppercase(),
        &hex.replace('0', "g"),
    ] {
        assert_eq!(
            (Digest::parse(text), Fingerprint::parse(text)),
            (None, None),
            "{text}"
        );
    }
}
