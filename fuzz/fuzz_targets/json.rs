//! Any bytes: the parser and `serde_json` agree, what is read is written and read again, and a
//! request has one identity in both spellings of its text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oncepress::key::identity::{Beside, IdentityInput, Surface, identify};
use oncepress::key::json::{Json, JsonFault};
use oncepress::key::scope::{Name, Scope};

fuzz_target!(|bytes: &[u8]| {
    let theirs = serde_json::from_slice::<serde_json::Value>(bytes);
    let json = match Json::parse(bytes) {
        Ok(json) => json,
        Err(error) => {
            let ours_alone = [JsonFault::DuplicateName, JsonFault::NumberTooLong];
            assert!(theirs.is_err() || ours_alone.contains(&error.kind), "{error}");
            assert!(error.offset <= bytes.len());
            return;
        }
    };
    if let Err(error) = theirs {
        // It refuses what no double holds, and one level of nesting earlier.
        let text = error.to_string();
        assert!(text.contains("number out of range") || text.contains("recursion limit"), "{text}");
    }
    let written = json.write();
    let again = Json::parse(written.as_bytes()).expect("what is written is JSON");
    assert_eq!(again, json);

    let name = |text| Name::parse(text).expect("a name");
    let scope = Scope { account: name("a"), site: name("b"), pipeline: name("c") };
    for surface in [Surface::Api, Surface::DropIn] {
        let identity = |request| {
            let (model, beside) = ("m", Beside::default());
            let input =
                IdentityInput { scope: &scope, surface, model, request, beside, ignores: &[] };
            identify(&input)
        };
        assert_eq!(identity(&json), identity(&again));
    }
});
