use super::*;

fn now() -> Timestamp {
    Timestamp::parse_rfc3339("2026-11-30T09:00:00Z").unwrap()
}

fn parse(body: &str) -> Result<GenerationRequest, Vec<Fault>> {
    let body = Json::parse(body.as_bytes()).unwrap();
    GenerationRequest::parse(&body, &KeyDefaults::default(), now())
}

/// The faults of a sound body with these members more, one a line.
fn faults(members: &str) -> String {
    let body = format!(r#"{{"site":"demo","pipeline":"a","userPrompt":"p",{members}}}"#);
    let faults = parse(&body).unwrap_err();
    let lines = faults
        .iter()
        .map(|fault| format!("{} {}", fault.pointer, fault.detail));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_member_is_read() {
    let request = parse(
        r#"{"site":"demo","pipeline":"a.b-c_9","contents":[{"parts":[{"text":"x"}]}],
        "systemPrompt":"","model":"models/gemini-4-argon","responseSchema":{},
        "schemaVersion":"3","generationConfig":{"maxOutputTokens":3.5e3,"candidateCount":1},
        "safetySettings":[{}],"tools":[{}],"toolConfig":{},"cachedContent":"cachedContents/x",
        "labels":{"team":"news"},"serviceTier":"flex","variant":"b","topic":"東京",
        "windowMinutes":43200,"requestedAt":"2026-11-29T18:00:00+09:00",
        "publish":[{"publisher":"archive","target":"{date}/{id}.md"}]}"#,
    )
    .unwrap();
    assert_eq!(request.model.as_deref(), Some("models/gemini-4-argon"));
    assert_eq!(request.max_output_tokens, Some(3_500));
    assert!(request.json_mode);
    assert_eq!(request.window, Span::from_days(30));
    assert_eq!(
        request.requested_at,
        Some(now().minus(Span::from_hours(24)))
    );
    assert_eq!(request.publish.unwrap()[0].target, "{date}/{id}.md");
}

#[test]
fn absent_destinations_are_the_pipelines_and_an_empty_list_is_none() {
    let sound = r#""site":"demo","pipeline":"a","userPrompt":"p""#;
    let silent = parse(&format!("{{{sound}}}")).unwrap();
    assert_eq!(
        (silent.publish, silent.window),
        (None, limits::WINDOW_DEFAULT)
    );
    assert!(!silent.json_mode);
    let none = parse(&format!(r#"{{{sound},"publish":[]}}"#)).unwrap();
    assert_eq!(none.publish, Some(Vec::new()));
}

#[test]
fn an_api_key_fills_in_what_the_request_leaves_out() {
    let json = br#"{"site":"demo","pipeline":"a","publish":[{"publisher":"x","target":"y"}]}"#;
    let defaults = KeyDefaults::parse(&Json::parse(json).unwrap()).unwrap();
    let body = Json::parse(br#"{"userPrompt":"p","pipeline":"b"}"#).unwrap();
    let request = GenerationRequest::parse(&body, &defaults, now()).unwrap();
    assert_eq!(
        (request.site.as_str(), request.pipeline.as_str()),
        ("demo", "b")
    );
    assert_eq!(request.publish, defaults.publish);
}

#[test]
fn all_faults_of_an_empty_body_are_named_together() {
    let faults = parse("{}").unwrap_err();
    let pointers: Vec<&str> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(pointers, ["/userPrompt", "/site", "/pipeline"]);
    assert_eq!(
        parse("[]").unwrap_err(),
        [Fault::new("", "must be an object")]
    );
}

#[test]
fn wrong_types_are_named_by_pointer() {
    insta::assert_snapshot!(faults(
        r#""foo":1,"a/b~c":1,"systemPrompt":null,"contents":{},"model":"../x",
            "responseSchema":[],
        "schemaVersion":3,"generationConfig":"x","safetySettings":[1],"tools":{},
        "toolConfig":[],"cachedContent":"","labels":{"a":1,"":""},"serviceTier":"FLEX",
        "variant":"","topic":"a\u0000b","windowMinutes":0,"requestedAt":"now",
        "publish":[{"publisher":"X","target":"{slug}","url":"https://x"},{},1]"#
    ), @r#"
    /foo is not a known member
    /a~1b~0c is not a known member
    /systemPrompt must be a string
    /contents must be an array
    /contents must not be given with userPrompt
    /generationConfig must be an object
    /responseSchema must be an object
    /safetySettings/0 must be an object
    /tools must be an array
    /toolConfig must be an object
    /cachedContent must have 1 to 256 characters
    /serviceTier must be flex, standard or priority
    /labels/a must be a string of at most 63 characters
    /labels must have names of 1 to 63 characters
    /windowMinutes must be a whole number from 1 to 43200
    /model must be a model's id, such as gemini-3.8-flash
    /publish/0/url is not a known member
    /publish/0/publisher must be 1 to 64 of `a-z 0-9 . _ -`, starting with a letter or digit
    /publish/0/target may use {account} {site} {pipeline} {date} {id} {topic} and no other braces
    /publish/1/publisher is required
    /publish/1/target is required
    /publish/2 must be an object
    /requestedAt must be a date-time of RFC 3339
    /topic must have no control characters
    /variant must have 1 to 128 characters
    /schemaVersion must be a string
    "#);
}

#[test]
fn a_schema_is_given_once_and_with_its_media_type() {
    insta::assert_snapshot!(faults(
        r#""responseSchema":{},"generationConfig":{"response_schema":{},
        "_responseJsonSchema":{},"responseMimeType":"text/plain"}"#
    ), @r#"
    /generationConfig/response_schema must not be given with responseSchema
    /generationConfig/_responseJsonSchema must not be given with responseSchema
    /generationConfig/responseMimeType must be application/json where responseSchema is given
    "#);
    insta::assert_snapshot!(faults(
        r#""generationConfig":{"maxOutputTokens":1e999999999,"candidateCount":2}"#
    ), @r#"
    /generationConfig/candidateCount must be 1: a generation has one output
    /generationConfig/maxOutputTokens must be a whole number from 1 to 1048576
    "#);
}

#[test]
fn bounds_are_exact() {
    let sound = |members: String| {
        parse(&format!(
            r#"{{"site":"d","pipeline":"a","userPrompt":"p",{members}}}"#
        ))
        .is_ok()
    };
    let at = |span: Span| format!(r#""requestedAt":"{}""#, now().plus(span).to_rfc3339());
    assert!(sound(at(Span::from_minutes(5))) && sound(at(Span::from_hours(-24))));
    assert!(!sound(at(Span::from_millis(300_001))));
    assert!(!sound(at(Span::from_millis(-86_400_001))));
    for (minutes, valid) in [
        ("1", true),
        ("43200", true),
        ("43201", false),
        ("1.5", false),
    ] {
        assert_eq!(
            sound(format!(r#""windowMinutes":{minutes}"#)),
            valid,
            "{minutes}"
        );
    }
    for (member, max) in [("topic", 256), ("variant", 128), ("schemaVersion", 64)] {
        assert!(
            sound(format!(r#""{member}":"{}""#, "東".repeat(max))),
            "{member}"
        );
        assert!(
            !sound(format!(r#""{member}":"{}""#, "x".repeat(max + 1))),
            "{member}"
        );
    }
    let list = |count: usize| {
        let items = (0..count).map(|at| format!(r#"{{"publisher":"a","target":"{at}"}}"#));
        format!(r#""publish":[{}]"#, items.collect::<Vec<_>>().join(","))
    };
    assert!(sound(list(limits::DESTINATIONS_MAX)) && !sound(list(limits::DESTINATIONS_MAX + 1)));
}

#[test]
fn both_prompts_none_blank_or_a_repeated_destination_are_refused() {
    assert_eq!(
        faults(r#""contents":[{}]"#),
        "/contents must not be given with userPrompt"
    );
    let twice = r#""publish":[{"publisher":"a","target":"b"},{"publisher":"a","target":"b"}]"#;
    assert_eq!(faults(twice), "/publish/1 repeats an earlier destination");
    let blank = parse(r#"{"site":"d","pipeline":"a","userPrompt":" \n"}"#).unwrap_err();
    assert_eq!(blank, [Fault::new("/userPrompt", "must not be blank")]);
}

#[test]
fn a_flood_of_unknown_members_gets_a_short_answer() {
    let members: Vec<String> = (0..1_000).map(|at| format!(r#""x{at}":0"#)).collect();
    assert_eq!(
        faults(&members.join(",")).lines().count(),
        super::super::bounds::FAULTS_MAX
    );
    let long = format!(r#""{}":0"#, "x".repeat(10_000));
    assert!(faults(&long).len() < 100);
}
