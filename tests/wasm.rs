//! The core on the machine it is built for: what must not depend on the width of a pointer or on
//! the host is checked again on wasm32 (`scripts/test.sh`), with the vectors of the native tests.
#![cfg(target_arch = "wasm32")]

use oncepress::key::identity::{Beside, IdentityInput, Surface, identify};
use oncepress::key::json::Json;
use oncepress::key::pointer::JsonPointer;
use oncepress::key::scope::{Name, Scope};
use wasm_bindgen_test::wasm_bindgen_test;

const VECTORS: &str = include_str!("vectors/identity.json");
const LONG_ARTICLE: &str = include_str!("e2e/fixtures/long-article.json");

#[wasm_bindgen_test]
fn identities_are_those_of_the_vectors() {
    let vectors = Json::parse(VECTORS.as_bytes()).unwrap();
    let identities = vectors.get("identities").and_then(Json::as_array).unwrap();
    assert!(!identities.is_empty());
    for vector in identities {
        let name = text(vector, "name");
        let (fingerprint, digest, derived_key) = identity_of(vector);
        assert_eq!(fingerprint, text(vector, "fingerprint"), "{name}");
        assert_eq!(digest, text(vector, "digest"), "{name}");
        assert_eq!(derived_key, text(vector, "derivedKey"), "{name}");
    }
}

#[wasm_bindgen_test]
fn a_long_request_survives_parsing_and_writing() {
    let request = Json::parse(LONG_ARTICLE.as_bytes()).unwrap();
    assert_eq!(Json::parse(request.write().as_bytes()).unwrap(), request);
}

#[wasm_bindgen_test]
fn nesting_up_to_the_limit_does_not_exhaust_the_stack() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(Json::parse(nested(128).as_bytes()).is_ok());
    assert!(Json::parse(nested(1_000_000).as_bytes()).is_err());
}

fn identity_of(vector: &Json) -> (String, String, String) {
    let scope: Vec<_> = vector
        .get("scope")
        .and_then(Json::as_array)
        .unwrap()
        .iter()
        .collect();
    let part = |at: usize| Name::parse(scope[at].as_str().unwrap()).unwrap();
    let ignores: Vec<_> = vector
        .get("ignores")
        .and_then(Json::as_array)
        .unwrap_or_default()
        .iter()
        .map(|pointer| JsonPointer::parse(pointer.as_str().unwrap()).unwrap())
        .collect();
    let surface = match text(vector, "surface") {
        "api" => Surface::Api,
        _ => Surface::DropIn,
    };
    let beside = Beside {
        variant: vector.get("variant").and_then(Json::as_str),
        publish: vector.get("publish"),
    };
    let identity = identify(&IdentityInput {
        scope: &Scope {
            account: part(0),
            site: part(1),
            pipeline: part(2),
        },
        surface,
        model: text(vector, "model"),
        request: &Json::parse(text(vector, "request").as_bytes()).unwrap(),
        beside,
        ignores: &ignores,
    })
    .unwrap();
    (
        identity.fingerprint.to_string(),
        identity.digest.to_string(),
        identity.derived_key,
    )
}

fn text<'a>(vector: &'a Json, name: &str) -> &'a str {
    vector.get(name).and_then(Json::as_str).unwrap()
}
