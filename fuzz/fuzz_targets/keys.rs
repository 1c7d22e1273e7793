//! Any text: every reader of a key, a name, a number, a pointer or a time takes it or refuses it,
//! and what it takes it gives back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oncepress::key::decimal::Decimal;
use oncepress::key::idempotency_key::OperationKey;
use oncepress::key::leaves::Leaves;
use oncepress::key::pointer::JsonPointer;
use oncepress::key::scope::Name;
use oncepress::key::window::Anchor;
use oncepress::time::Timestamp;

fuzz_target!(|text: &str| {
    if let Ok(Some(key)) = OperationKey::parse(&[text]) {
        let quoted = format!("\"{key}\"");
        assert_eq!(OperationKey::parse(&[&quoted]), Ok(Some(key)));
    }
    if let Some(name) = Name::parse(text) {
        assert_eq!(name.as_str(), text);
    }
    if let Some(pointer) = JsonPointer::parse(text) {
        assert_eq!(pointer.to_string(), text);
    }
    if let Some(leaves) = Leaves::from_json(text) {
        assert_eq!(Leaves::from_json(&leaves.to_json()), Some(leaves));
    }
    if let Some(decimal) = Decimal::parse(text) {
        assert_eq!(Decimal::parse(&decimal.to_string()), Some(decimal));
    }
    let _ = Anchor::parse(Some(text), Timestamp::from_millis(1_795_996_800_000));
});
