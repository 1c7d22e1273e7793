//! Compares identity with answers that `tests/vectors/make_vectors.py` computed by another route.

use super::canonical::Canonical;
use super::decimal::Decimal;
use super::identity::{Beside, IdentityInput, Surface, identify};
use super::json::Json;
use super::pointer::JsonPointer;
use super::scope::{Name, Scope};

#[test]
fn known_answers_of_an_independent_computation_hold() {
    let parse = |text: &str| Json::parse(text.as_bytes()).unwrap();
    let vectors = parse(include_str!("../../tests/vectors/identity.json"));
    let list = |name: &str| vectors.get(name).and_then(Json::as_array).unwrap();
    for pair in list("decimals").iter().map(|pair| pair.as_array().unwrap()) {
        let spelled = pair[0].as_str().unwrap();
        assert_eq!(
            Decimal::parse(spelled).unwrap().to_string(),
            pair[1].as_str().unwrap()
        );
    }
    for pair in list("canonical")
        .iter()
        .map(|pair| pair.as_array().unwrap())
    {
        let (json, mut bytes) = (parse(pair[0].as_str().unwrap()), Vec::new());
        Canonical::of(&json).unwrap().write(&mut bytes);
        assert_eq!(hex::encode(bytes), pair[1].as_str().unwrap());
    }
    assert!(list("identities").len() >= 5);
    for case in list("identities") {
        let text = |name: &str| case.get(name).and_then(Json::as_str);
        let name = |at: usize| {
            let names = case.get("scope").and_then(Json::as_array).unwrap();
            Name::parse(names[at].as_str().unwrap()).unwrap()
        };
        let pointers = case
            .get("ignores")
            .and_then(Json::as_array)
            .unwrap_or_default();
        let ignores: Vec<_> = pointers
            .iter()
            .map(|p| JsonPointer::parse(p.as_str().unwrap()).unwrap())
            .collect();
        let input = IdentityInput {
            scope: &Scope {
                account: name(0),
                site: name(1),
                pipeline: name(2),
            },
            surface: if text("surface") == Some("api") {
                Surface::Api
            } else {
                Surface::DropIn
            },
            model: text("model").unwrap(),
            request: &parse(text("request").unwrap()),
            beside: Beside {
                variant: text("variant"),
                publish: case.get("publish"),
            },
            ignores: &ignores,
        };
        let identity = identify(&input).unwrap();
        assert_eq!(
            Some(identity.fingerprint.to_string().as_str()),
            text("fingerprint")
        );
        assert_eq!(Some(identity.digest.to_string().as_str()), text("digest"));
        assert_eq!(Some(identity.derived_key.as_str()), text("derivedKey"));
    }
}
