use proptest::prelude::*;

use super::*;
use crate::key::respell::{Choices, equal, json};

fn parse(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn bytes(json: &Json) -> Vec<u8> {
    let mut bytes = Vec::new();
    Canonical::of(json).unwrap().write(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn two_values_share_their_bytes_exactly_if_they_are_equal(a in json(), b in json()) {
        prop_assert_eq!(bytes(&a) == bytes(&b), equal(&a, &b));
    }

    #[test]
    fn every_spelling_of_a_value_has_the_same_bytes(json in json(), seed: u64) {
        let text = Choices(seed).respell(&json);
        prop_assert_eq!(bytes(&json), bytes(&parse(&text)), "{}", text);
    }

    #[test]
    fn no_bytes_are_the_beginning_of_others(a in json(), b in json()) {
        prop_assert!(bytes(&a) == bytes(&b) || !bytes(&a).starts_with(&bytes(&b)));
    }
}

#[test]
fn what_looks_alike_but_is_not_stays_apart() {
    for (left, right) in [
        (r#"{"a":null}"#, "{}"),
        ("[]", "{}"),
        ("[null]", "[]"),
        ("[1,2]", "[2,1]"),
        ("[[1],2]", "[[1,2]]"),
        ("1", "\"1\""),
        ("true", "\"true\""),
        ("0", "false"),
        ("\"\"", "null"),
        ("\"é\"", "\"e\u{301}\""),
        ("\"a\"", "\"A\""),
        ("\"a\"", "\"a \""),
        (r#"{"a":1,"A":2}"#, r#"{"a":2,"A":1}"#),
        (r#"{"__proto__":1}"#, r#"{"__proto__":2}"#),
        (r#"["s1:a"]"#, r#"["a"]"#),
        (r#"{"a":"bc"}"#, r#"{"ab":"c"}"#),
        ("9007199254740993", "9007199254740992"),
    ] {
        assert_ne!(bytes(&parse(left)), bytes(&parse(right)), "{left} {right}");
    }
}

#[test]
fn a_long_text_and_the_bytes_that_stand_for_it_stay_apart() {
    let long = "x".repeat(TEXT_IN_PLACE_MAX_BYTES + 1);
    let whole = bytes(&Json::from(long.clone()));
    assert_eq!(whole.len(), 5 + 32);
    assert_ne!(whole, bytes(&Json::from(long.replace('x', "y"))));
    assert_eq!(bytes(&Json::from("x".repeat(128))).len(), 5 + 128);
}

#[test]
fn a_member_that_occurs_twice_is_refused_with_its_pointer() {
    let twice = |name: &str| (name.to_owned(), Json::Null);
    let json = Json::Array(vec![Json::Object(vec![
        twice("a/b"),
        twice("c"),
        twice("a/b"),
    ])]);
    assert_eq!(Canonical::of(&json).unwrap_err().pointer, "/0/a~1b");
}
