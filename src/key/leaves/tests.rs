use proptest::prelude::*;

use super::*;
use crate::key::respell;

fn account(name: &str) -> Name {
    Name::parse(name).unwrap()
}

fn leaves_of(owner: &str, json: &Json) -> Leaves {
    let canonical = Canonical::of(json).unwrap();
    Leaves::of(&account(owner), vec![(String::new(), &canonical)])
}

fn leaves(text: &str) -> Leaves {
    leaves_of("acme", &Json::parse(text.as_bytes()).unwrap())
}

fn diff(left: &str, right: &str) -> Vec<String> {
    let (left, right) = (leaves(left), leaves(right));
    let pointers = left.diff(&right);
    assert_eq!(pointers, right.diff(&left));
    pointers
}

#[test]
fn changed_missing_and_further_leaves_are_named() {
    let before = r#"{"a":{"b":1,"c":[1,2]},"d":"x","e~/":null}"#;
    assert_eq!(
        diff(before, r#"{"d":"x","e~/":null,"a":{"c":[1.0,2],"b":1}}"#),
        [""; 0]
    );
    assert_eq!(
        diff(before, r#"{"a":{"b":2,"c":[1,2]},"d":"x","e~/":null}"#),
        ["/a/b"]
    );
    assert_eq!(
        diff(before, r#"{"a":{"b":1,"c":[2,1]},"d":"x"}"#),
        ["/a/c/0", "/a/c/1", "/e~0~1"]
    );
    assert_eq!(
        diff(before, r#"{"a":{"b":1,"c":[1,2,3]},"d":"x","e~/":0}"#),
        ["/a/c/2", "/e~0~1"]
    );
}

#[test]
fn a_value_in_place_of_an_object_is_named_once() {
    assert_eq!(
        diff(r#"{"a":{"b":1},"a-b":1}"#, r#"{"a":7,"a-b":1}"#),
        ["/a"]
    );
    assert_eq!(
        diff(r#"{"a":[],"a-b":1}"#, r#"{"a":[1,{"x":2}],"a-b":2}"#),
        ["/a", "/a-b"]
    );
    assert_eq!(diff("{}", r#"{"a":1}"#), [""]);
}

#[test]
fn no_more_than_20_pointers_are_named() {
    let object = |value: u32| {
        let members: Vec<String> = (10..60).map(|n| format!("\"m{n}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    };
    let pointers = diff(&object(1), &object(2));
    assert_eq!(pointers.len(), 20);
    assert_eq!(pointers.first().unwrap(), "/m10");
}

#[test]
fn a_request_of_very_many_values_is_kept_coarser_but_every_change_shows() {
    let many = |last: usize| format!("[{}{last}]", "0,".repeat(100_000));
    let body = |text: &str, last| {
        format!(
            r#"{{"contents":{{"text":"{text}"}},"deep":{}}}"#,
            many(last)
        )
    };
    assert!(leaves(&body("a", 1)).iter().count() <= LEAVES_MAX);
    assert_eq!(diff(&body("a", 1), &body("a", 2)), ["/deep"]);
    assert_eq!(diff(&body("a", 1), &body("b", 1)), ["/contents/text"]);
    let wide: Vec<String> = (0..1_000).map(|n| format!("\"{n}\":[1,2]")).collect();
    assert_eq!(leaves(&format!("{{{}}}", wide.join(","))).iter().count(), 1);
    let full = format!("[{}0]", "0,".repeat(LEAVES_MAX - 1));
    assert_eq!(leaves(&full).iter().count(), LEAVES_MAX);
    assert_eq!(leaves(&format!("[{full}]")).iter().count(), LEAVES_MAX);
    assert_eq!(leaves(&format!("[{full},0]")).iter().count(), 2);
}

#[test]
fn long_names_do_not_make_the_leaves_large() {
    let long = "n".repeat(LEAVES_POINTERS_MAX_BYTES);
    let body = format!(r#"{{"a":{{"{long}":1}},"b":2}}"#);
    let pointers: Vec<String> = leaves(&body).iter().map(|(p, _)| p.to_owned()).collect();
    assert_eq!(pointers, ["/a", "/b"]);
    assert_eq!(diff(&body, &body.replace(":1", ":3")), ["/a"]);
}

#[test]
fn equal_values_of_two_accounts_or_of_two_fields_do_not_look_alike() {
    let json = Json::parse(br#"{"a":1,"b":1}"#).unwrap();
    let digests = |owner| -> Vec<String> {
        leaves_of(owner, &json)
            .iter()
            .map(|(_, digest)| digest.to_owned())
            .collect()
    };
    let (mine, yours) = (digests("acme"), digests("other"));
    assert_ne!(mine[0], mine[1]);
    assert!(mine.iter().all(|digest| !yours.contains(digest)));
    assert!(mine.iter().all(|digest| digest.len() == 16));
}

#[test]
fn what_is_stored_is_read_back_and_anything_else_is_not() {
    let before = leaves(r#"{"a":[{"\u0000\"":1}],"b~/":{}}"#);
    assert_eq!(Leaves::from_json(&before.to_json()), Some(before));
    for text in [
        "",
        "[]",
        "{}",
        r#"{"version":2,"leaves":[]}"#,
        r#"{"version":1,"leaves":[["a"]]}"#,
        r#"{"version":1,"leaves":[["a",1]]}"#,
        r#"{"version":1,"leaves":{}}"#,
    ] {
        assert_eq!(Leaves::from_json(text), None, "{text}");
    }
}

proptest! {
    #[test]
    fn requests_differ_somewhere_exactly_if_their_values_do(a in respell::json(), b in respell::json()) {
        let pointers = leaves_of("acme", &a).diff(&leaves_of("acme", &b));
        prop_assert_eq!(pointers.is_empty(), respell::equal(&a, &b));
    }
}
