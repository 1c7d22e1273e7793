//! What the fake model says: the same for the same prompt, but never twice the same purchase.

use serde_json::{Map, Value, json};

/// An article in Japanese, English and emoji, exactly so many bytes long if that is asked for.
pub(crate) fn article(prompt_sha256: &str, purchase: u64, size_bytes: Option<usize>) -> String {
    let digest = hex::decode(prompt_sha256).unwrap_or_default();
    let mut text = format!("# 記事 {} 🖋️ (purchase {purchase})\n", &prompt_sha256[..8]);
    let mut sentences = digest
        .iter()
        .cycle()
        .map(|byte| SENTENCES[usize::from(*byte) % SENTENCES.len()]);
    let wanted_bytes = size_bytes.unwrap_or(DEFAULT_BYTES);
    while text.len() < wanted_bytes {
        text.push('\n');
        text.push_str(sentences.next().unwrap_or("."));
    }
    if let Some(size_bytes) = size_bytes {
        let end = (0..=size_bytes)
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        let missing = size_bytes - text.len();
        text.push_str(&".".repeat(missing));
    }
    text
}

/// A value for a response schema; without one, an article as an object.
pub(crate) fn json_answer(schema: Option<&Value>, prompt_sha256: &str, purchase: u64) -> Value {
    match schema {
        Some(schema) => by_schema(schema, prompt_sha256, purchase, 0),
        None => json!({
            "title": format!("記事 {} 🖋️", &prompt_sha256[..8]),
            "body": article(prompt_sha256, purchase, None),
            "tags": ["東京", "tokyo", "🗼"],
            "purchase": purchase,
        }),
    }
}

/// The text in so many pieces, cut between characters.
pub(crate) fn pieces(text: &str, count: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let size = characters.len().div_ceil(count.max(1)).max(1);
    characters
        .chunks(size)
        .map(|piece| piece.iter().collect())
        .collect()
}

fn by_schema(schema: &Value, prompt_sha256: &str, purchase: u64, depth: usize) -> Value {
    let inner = |schema: &Value| by_schema(schema, prompt_sha256, purchase, depth + 1);
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    let kind = schema["type"]
        .as_str()
        .unwrap_or("object")
        .to_ascii_lowercase();
    match kind.as_str() {
        _ if depth > DEPTH_MAX => Value::Null,
        "object" => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let members: Map<_, _> = properties
                .map(|(name, schema)| (name.clone(), inner(schema)))
                .collect();
            Value::Object(members)
        }
        "array" => {
            let count = schema["minItems"].as_u64().unwrap_or(1).clamp(1, 100);
            (0..count).map(|_| inner(&schema["items"])).collect()
        }
        "integer" | "number" => Value::from(purchase),
        "boolean" => Value::from(true),
        "null" => Value::Null,
        _ => Value::from(format!(
            "文章 {} 🖋️ (purchase {purchase})",
            &prompt_sha256[..8]
        )),
    }
}

/// About 100 tokens.
const DEFAULT_BYTES: usize = 400;
/// A schema that refers to itself ends here.
const DEPTH_MAX: usize = 16;

const SENTENCES: [&str; 8] = [
    "朝の市場では、魚屋の声が一番よく通ります。🐟",
    "The first train leaves at five, and it is never empty.",
    "雨の日の図書館は静かで、紙の匂いがします。📚",
    "A retry is a second letter, not a second purchase. ✉️",
    "駅前のパン屋は、開店前から行列ができています。🥐",
    "What is written once need not be written again.",
    "夕方になると、川沿いの灯りが一つずつともります。🏮",
    "Numbers tell how often; they do not tell why. 🔢",
];
