//! The message that a webhook or a queue gets: `generation.published`, the same at every attempt.

use serde_json::{Map, Value, json};

use super::Parcel;

/// The JSON message of a parcel.
///
/// Its `timestamp` is the moment the output was committed, not that of the attempt, so that all
/// attempts send the same bytes and a receiver can compare them.
pub fn envelope(parcel: &Parcel) -> String {
    envelope_with(parcel, Content::Whole)
}

/// The same without the text, for a channel that could not carry it; the receiver fetches the
/// text by `data.generationId`.
pub fn thin_envelope(parcel: &Parcel) -> String {
    envelope_with(parcel, Content::LeftOut)
}

#[derive(Clone, Copy)]
enum Content {
    Whole,
    LeftOut,
}

fn envelope_with(parcel: &Parcel, content: Content) -> String {
    let mut data = Map::new();
    for (name, value) in [
        ("deliveryId", &parcel.delivery_id),
        ("generationId", &parcel.generation_id),
        ("key", &parcel.key),
        ("fingerprint", &parcel.fingerprint),
        ("account", &parcel.account),
        ("site", &parcel.site),
        ("pipeline", &parcel.pipeline),
        ("model", &parcel.model),
        ("target", &parcel.target),
    ] {
        data.insert(name.to_owned(), Value::from(value.as_str()));
    }
    data.insert("topic".to_owned(), Value::from(parcel.topic.clone()));
    data.insert(
        "createdAt".to_owned(),
        Value::from(parcel.created_at.to_rfc3339()),
    );
    data.insert(
        "completedAt".to_owned(),
        Value::from(parcel.completed_at.to_rfc3339()),
    );
    data.insert(
        "contentType".to_owned(),
        Value::from(parcel.content_type.as_str()),
    );
    data.insert("contentBytes".to_owned(), Value::from(parcel.content.len()));
    match content {
        Content::Whole => {
            data.insert("content".to_owned(), Value::from(parcel.content.as_str()));
        }
        Content::LeftOut => {}
    }
    let timestamp = parcel.completed_at.to_rfc3339();
    json!({ "type": "generation.published", "timestamp": timestamp, "data": data }).to_string()
}
