use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Json, JsonError> {
    document(text.as_bytes())
}

fn refusal(bytes: &[u8]) -> (JsonFault, String, usize) {
    let error = document(bytes).unwrap_err();
    (error.kind, error.pointer, error.offset)
}

fn json() -> impl Strategy<Value = Json> {
    let number = prop_oneof![
        9 => "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,5}|)([eE][+-]?[0-9]{1,2}|)",
        1 => "-?[1-9][eE][+-]?[0-9]{1,9}",
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        number.prop_map(|text| Json::Number(Number::parse(&text).unwrap())),
        any::<String>().prop_map(Json::String),
        "[\\x00-\\x7f]{0,20}".prop_map(Json::String),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let members = prop::collection::btree_map(any::<String>(), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Json::Array),
            members.prop_map(|members| Json::Object(members.into_iter().rev().collect())),
        ]
    })
}

/// Whether `serde_json` takes the text; unknown where it stops at a number too large for a double.
fn serde_accepts(bytes: &[u8]) -> Option<bool> {
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(_) => Some(true),
        Err(error) => (!error.to_string().starts_with("number out of range")).then_some(false),
    }
}

/// Whether both say the same of the text. A repeated name is ours alone to refuse.
fn agree(bytes: &[u8]) -> bool {
    let ours = document(bytes);
    let stricter = matches!(&ours, Err(error) if error.kind == JsonFault::DuplicateName);
    stricter || serde_accepts(bytes).is_none_or(|theirs| theirs == ours.is_ok())
}

fn same(ours: &Json, theirs: &serde_json::Value) -> bool {
    match (ours, theirs) {
        (Json::Null, serde_json::Value::Null) => true,
        (Json::Bool(a), serde_json::Value::Bool(b)) => a == b,
        (Json::Number(a), serde_json::Value::Number(b)) => {
            // Its fast way to a double may miss the nearest one by a bit.
            let (a, b) = (a.as_str().parse::<f64>().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= a.abs() * 1e-14
        }
        (Json::String(a), serde_json::Value::String(b)) => a == b,
        (Json::Array(a), serde_json::Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Json::Object(a), serde_json::Value::Object(b)) => {
            let pairs = a.iter().zip(b);
            a.len() == b.len()
                && pairs
                    .into_iter()
                    .all(|(a, b)| a.0 == *b.0 && same(&a.1, b.1))
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_the_same(json in json()) {
        prop_assert_eq!(parse(&json.write()), Ok(json));
    }

    #[test]
    fn serde_reads_the_same_values_from_what_is_written(json in json()) {
        if let Ok(theirs) = serde_json::from_str(&json.write()) {
            prop_assert!(same(&json, &theirs));
        }
    }

    #[test]
    fn serde_and_this_parser_agree_on_damaged_documents(
        json in json(), damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = json.write().into_bytes();
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        prop_assert!(agree(&bytes));
    }

    #[test]
    fn serde_and_this_parser_agree_on_texts_of_json_like_tokens(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"a\"", "\"\\u0061\"", "\"\\ud83d\\ude00\"", "\"", "\\",
            "\\ud800", "\\udc00", "1", "-", "0", ".", "e", "E+", "true", "false", "null", "nul",
            " ", "\n", "\u{0}", "\u{7f}", "\u{feff}", "é", "/", "//", "'",
        ]), 0..12),
    ) {
        let text = tokens.concat();
        prop_assert!(agree(text.as_bytes()));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Err(error) = document(&bytes) {
            prop_assert!(error.offset <= bytes.len());
        }
    }

    #[test]
    fn white_space_between_tokens_changes_nothing(json in json()) {
        prop_assert_eq!(parse(&spaced(&json)), Ok(json));
    }
}

/// Writes with white space wherever JSON allows it.
fn spaced(json: &Json) -> String {
    match json {
        Json::Array(elements) => {
            let inner: Vec<String> = elements.iter().map(spaced).collect();
            format!(" [\t{}\n] ", inner.join(" ,\r\n"))
        }
        Json::Object(members) => {
            let member = |(name, value): &(String, Json)| {
                format!("{} : {}", Json::String(name.clone()).write(), spaced(value))
            };
            let inner: Vec<String> = members.iter().map(member).collect();
            format!("\n{{ {} }}\t", inner.join(" , "))
        }
        scalar => format!(" {} ", scalar.write()),
    }
}

#[test]
fn a_fault_names_its_kind_its_place_and_its_byte() {
    use JsonFault::*;
    for (text, kind, pointer, offset) in [
        ("", UnexpectedEnd, "", 0),
        ("{", UnexpectedEnd, "", 1),
        (r#"{"a":"#, UnexpectedEnd, "/a", 5),
        (r#"{"a" 1}"#, UnexpectedCharacter, "/a", 5),
        (r#"{"a":1,}"#, UnexpectedCharacter, "", 7),
        ("[1,]", UnexpectedCharacter, "/1", 3),
        ("[1 2]", UnexpectedCharacter, "", 3),
        ("{1:2}", UnexpectedCharacter, "", 1),
        ("nulL", UnexpectedCharacter, "", 3),
        ("NaN", UnexpectedCharacter, "", 0),
        ("1 1", TrailingText, "", 2),
        ("\u{feff}1", ByteOrderMark, "", 0),
        ("[\"\u{1}\"]", ControlCharacter, "/0", 2),
        ("[\"tab\there\"]", ControlCharacter, "/0", 5),
        (r#"["a\x"]"#, InvalidEscape, "/0", 3),
        (r#"["\u12g4"]"#, InvalidEscape, "/0", 2),
        (r#"["\u+123"]"#, InvalidEscape, "/0", 2),
        (r#"{"a/b":[0,"x\ud800"]}"#, LoneSurrogate, "/a~1b/1", 12),
        (r#"["\udc00\ud800"]"#, LoneSurrogate, "/0", 2),
        (r#"["\ud800\u0041"]"#, LoneSurrogate, "/0", 2),
        (r#"["\ud800\ue000"]"#, LoneSurrogate, "/0", 2),
        (r#"["\udc00\udc00"]"#, LoneSurrogate, "/0", 2),
        (r#"["\udfff"]"#, LoneSurrogate, "/0", 2),
        (r#"["\ud800\n"]"#, LoneSurrogate, "/0", 2),
        (r#"{"\ud800":1}"#, LoneSurrogate, "", 2),
        ("[01]", InvalidNumber, "/0", 1),
        ("[-]", InvalidNumber, "/0", 1),
        ("[1.]", InvalidNumber, "/0", 1),
        ("[.5]", UnexpectedCharacter, "/0", 1),
        (r#"{"a":1,"b":2,"a":3}"#, DuplicateName, "/a", 13),
        (r#"[{"~":1,"\u007e":2}]"#, DuplicateName, "/0/~0", 8),
    ] {
        assert_eq!(
            refusal(text.as_bytes()),
            (kind, pointer.to_owned(), offset),
            "{text}"
        );
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused_where_they_stand() {
    let invalid = |pointer: &str, offset| (JsonFault::InvalidUtf8, pointer.to_owned(), offset);
    assert_eq!(refusal(b"{\"a\":[\"x\xff\"]}"), invalid("/a/0", 8));
    assert_eq!(refusal(b"[1]\xff"), invalid("", 3));
    // A surrogate in UTF-8, an overlong slash, and half of a character at the end.
    assert_eq!(refusal(b"\"\xed\xa0\x80\""), invalid("", 1));
    assert_eq!(refusal(b"\"\xc0\xaf\""), invalid("", 1));
    assert_eq!(refusal(b"\"\xe3\x81"), invalid("", 1));
    assert_eq!(
        refusal(b"[01,\"\xff\"]"),
        (JsonFault::InvalidNumber, "/0".to_owned(), 1)
    );
}

#[test]
fn escapes_become_the_characters_they_stand_for() {
    let text = r#""\"\\\/\b\f\n\r\t\u0000\u00e9\ud83d\ude00\uFFFFé😀""#;
    let plain = "\"\\/\u{8}\u{c}\n\r\t\u{0}é😀\u{ffff}é😀";
    assert_eq!(parse(text), Ok(Json::from(plain)));
    assert_eq!(
        Json::from("\u{0}\u{1f}\u{7f}é").write(),
        "\"\\u0000\\u001f\u{7f}é\""
    );
}

#[test]
fn every_control_character_needs_an_escape() {
    for byte in 0..=0x7f_u8 {
        let text = format!("\"{}\"", char::from(byte));
        let refused = document(text.as_bytes()).map_err(|error| error.kind);
        match byte {
            0..0x20 => assert_eq!(refused, Err(JsonFault::ControlCharacter), "{byte}"),
            b'"' | b'\\' => assert!(refused.is_err()),
            _ => assert_eq!(refused, Ok(Json::from(char::from(byte).to_string()))),
        }
    }
}

#[test]
fn nesting_ends_at_128_whatever_it_is_made_of() {
    let nested = |open: &str, close: &str, depth| open.repeat(depth) + "1" + &close.repeat(depth);
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        assert!(parse(&nested(open, close, 128)).is_ok());
        for depth in [129, 100_000] {
            let (kind, _, offset) = refusal(nested(open, close, depth).as_bytes());
            assert_eq!((kind, offset), (JsonFault::TooDeep, open.len() * 128));
        }
    }
    assert_eq!(refusal(&vec![b'['; 1 << 20]).0, JsonFault::TooDeep);
}

#[test]
fn a_repeated_name_is_found_among_very_many_members() {
    let members = |count: u32| -> Vec<String> {
        (0..count)
            .map(|n| format!("\"shared-prefix-{n}\":{n}"))
            .collect()
    };
    for count in [2, FEW_MEMBERS, FEW_MEMBERS + 1, 100_000] {
        let mut members = members(u32::try_from(count).unwrap());
        assert!(parse(&format!("{{{}}}", members.join(","))).is_ok());
        members.push("\"shared-prefix-\\u0031\":0".to_owned());
        let text = format!("{{{}}}", members.join(","));
        let expected = text.rfind("\"shared").unwrap();
        let place = "/shared-prefix-1".to_owned();
        assert_eq!(
            refusal(text.as_bytes()),
            (JsonFault::DuplicateName, place, expected)
        );
    }
}

#[test]
fn numbers_and_values_are_bounded_by_name() {
    let longest = "1".repeat(NUMBER_MAX_CHARS);
    assert!(parse(&longest).is_ok());
    assert_eq!(
        refusal(format!("[{longest}1]").as_bytes()).0,
        JsonFault::NumberTooLong
    );
    assert!(parse("1e999999999").is_ok());
    let array = |count| format!("[{}]", vec!["0"; count].join(","));
    assert!(parse(&array(JSON_VALUES_MAX - 1)).is_ok());
    assert_eq!(
        refusal(array(JSON_VALUES_MAX).as_bytes()).0,
        JsonFault::TooManyValues
    );
}

#[test]
fn the_messages_name_the_bounds_that_hold() {
    assert!(
        JsonFault::NumberTooLong
            .to_string()
            .contains(&NUMBER_MAX_CHARS.to_string())
    );
    assert!(
        JsonFault::TooManyValues
            .to_string()
            .contains(&JSON_VALUES_MAX.to_string())
    );
    assert!(
        JsonFault::TooDeep
            .to_string()
            .contains(&JSON_DEPTH_MAX.to_string())
    );
}
