//! Makes one unary answer out of a stream's chunks.

use serde_json::{Map, Value};

use crate::gemini::answer::index;

/// Merges the chunks of a stream into one `GenerateContentResponse`, unknown members included.
///
/// Neighbouring texts of one kind become one part; a part that carries anything else, such as a
/// `thoughtSignature`, stays as it is. Identity (`responseId`, `modelVersion`) is the first said,
/// everything else the last, and citations are gathered.
///
/// ```
/// use oncepress::gemini::merge::merge_chunks;
/// use serde_json::json;
/// let chunks = [
///     json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}}]}),
///     json!({"candidates": [{"content": {"parts": [{"text": "b"}]}, "finishReason": "STOP"}]}),
/// ];
/// assert_eq!(merge_chunks(chunks), json!({"candidates": [
///     {"content": {"role": "model", "parts": [{"text": "ab"}]}, "finishReason": "STOP"}]}));
/// ```
pub fn merge_chunks(chunks: impl IntoIterator<Item = Value>) -> Value {
    let mut merged = Map::new();
    for chunk in chunks {
        merge_chunk(&mut merged, &chunk);
    }
    Value::Object(merged)
}

fn merge_chunk(merged: &mut Map<String, Value>, chunk: &Value) {
    for (name, value) in chunk.as_object().into_iter().flatten() {
        match name.as_str() {
            "candidates" => merge_candidates(merged, value),
            "responseId" | "modelVersion" | "promptFeedback" => keep_first(merged, name, value),
            _ => keep_last(merged, name, value),
        }
    }
}

fn merge_candidates(merged: &mut Map<String, Value>, value: &Value) {
    let Some(news) = value.as_array() else { return };
    let list = merged
        .entry("candidates")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Some(list) = list.as_array_mut() else {
        return;
    };
    for (position, new) in news.iter().enumerate() {
        let wanted = index(new, position);
        let is_it = |(at, old): (usize, &Value)| index(old, at) == wanted;
        // Candidates mostly come in the same order; a search for each would be their square.
        let in_place = list.get(position).is_some_and(|old| is_it((position, old)));
        let known = if in_place {
            Some(position)
        } else {
            list.iter().enumerate().position(is_it)
        };
        match known
            .and_then(|at| list.get_mut(at))
            .and_then(Value::as_object_mut)
        {
            Some(candidate) => merge_candidate(candidate, new),
            None => list.push(merged_alone(new)),
        }
    }
}

/// A candidate's first chunk, with the neighbouring texts in it merged.
fn merged_alone(new: &Value) -> Value {
    let mut candidate = Map::new();
    merge_candidate(&mut candidate, new);
    Value::Object(candidate)
}

fn merge_candidate(candidate: &mut Map<String, Value>, new: &Value) {
    for (name, value) in new.as_object().into_iter().flatten() {
        match name.as_str() {
            "content" => merge_content(candidate, value),
            "citationMetadata" => gather_lists(candidate, name, value),
            _ => keep_last(candidate, name, value),
        }
    }
}

fn merge_content(candidate: &mut Map<String, Value>, value: &Value) {
    let content = candidate
        .entry("content")
        .or_insert_with(|| Value::Object(Map::new()));
    let Some(content) = content.as_object_mut() else {
        return;
    };
    for (name, value) in value.as_object().into_iter().flatten() {
        match (name.as_str(), value.as_array()) {
            ("parts", Some(parts)) => {
                let merged = content
                    .entry("parts")
                    .or_insert_with(|| Value::Array(Vec::new()));
                for part in parts {
                    append_part(merged, part);
                }
            }
            _ => keep_last(content, name, value),
        }
    }
}

fn append_part(parts: &mut Value, part: &Value) {
    let Some(parts) = parts.as_array_mut() else {
        return;
    };
    if let (Some(before), Some(text)) = (parts.last_mut(), plain_text(part))
        && plain_text(before).is_some()
        && before.get("thought") == part.get("thought")
        && let Some(Value::String(joined)) = before.get_mut("text")
    {
        joined.push_str(text);
        return;
    }
    parts.push(part.clone());
}

/// The text of a part that has nothing but a text and whether it is a thought.
fn plain_text(part: &Value) -> Option<&str> {
    let members = part.as_object()?;
    let plain = members
        .keys()
        .all(|name| name == "text" || name == "thought");
    if plain {
        members.get("text")?.as_str()
    } else {
        None
    }
}

/// Adds the items of the lists in `value` to those already there, each item once: chunks may
/// bring only what is new, or all so far.
fn gather_lists(candidate: &mut Map<String, Value>, name: &str, value: &Value) {
    let gathered = candidate
        .entry(name)
        .or_insert_with(|| Value::Object(Map::new()));
    let (Some(gathered), Some(news)) = (gathered.as_object_mut(), value.as_object()) else {
        return keep_last(candidate, name, value);
    };
    for (name, new) in news {
        match (
            gathered.get_mut(name).and_then(Value::as_array_mut),
            new.as_array(),
        ) {
            (Some(old), Some(items)) => {
                for item in items {
                    if !old.contains(item) {
                        old.push(item.clone());
                    }
                }
            }
            _ => keep_last(gathered, name, new),
        }
    }
}

fn keep_first(merged: &mut Map<String, Value>, name: &str, value: &Value) {
    if merged.get(name).is_none_or(Value::is_null) {
        merged.insert(name.to_owned(), value.clone());
    }
}

fn keep_last(merged: &mut Map<String, Value>, name: &str, value: &Value) {
    if !value.is_null() || !merged.contains_key(name) {
        merged.insert(name.to_owned(), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn neighbouring_texts_of_one_kind_become_one_part() {
        let chunk = |parts: Value| json!({"candidates": [{"content": {"parts": parts}}]});
        let chunks = [
            chunk(json!([{"text": "h", "thought": true}, {"text": "m", "thought": true}])),
            chunk(json!([{"text": "a"}])),
            chunk(json!([{"text": "b", "thoughtSignature": "AA=="}])),
            chunk(json!([{"text": "c"}])),
            chunk(json!([{"functionCall": {"name": "f"}}])),
            chunk(json!([{"text": "d"}, {"text": ""}])),
        ];
        assert_eq!(
            merge_chunks(chunks),
            chunk(json!([
                {"text": "hm", "thought": true}, {"text": "a"},
                {"text": "b", "thoughtSignature": "AA=="}, {"text": "c"},
                {"functionCall": {"name": "f"}}, {"text": "d"},
            ]))
        );
    }

    #[test]
    fn unknown_members_stay_and_the_last_word_counts() {
        let chunks = [
            json!({"responseId": "a", "new": 1, "usageMetadata": {"totalTokenCount": 1},
                "promptFeedback": {"safetyRatings": []}}),
            json!({"responseId": "b", "new": 2, "usageMetadata": {"totalTokenCount": 2},
                "candidates": [{"newer": [1], "finishReason": "STOP"}]}),
            json!({"new": null, "candidates": [{"newer": [2], "finishReason": null}]}),
        ];
        assert_eq!(
            merge_chunks(chunks),
            json!({"responseId": "a", "new": 2, "usageMetadata": {"totalTokenCount": 2},
                "promptFeedback": {"safetyRatings": []},
                "candidates": [{"newer": [2], "finishReason": "STOP"}]})
        );
    }

    #[test]
    fn candidates_are_merged_by_their_index() {
        let part = |index: u64, text: &str| json!({"candidates": [{"index": index, "content": {"parts": [{"text": text}]}}]});
        let merged = merge_chunks([part(0, "a"), part(1, "x"), part(0, "b"), part(1, "y")]);
        let text = |at: usize| {
            let pointer = format!("/candidates/{at}/content/parts/0/text");
            merged.pointer(&pointer).unwrap().clone()
        };
        assert_eq!((text(0), text(1)), (json!("ab"), json!("xy")));
    }

    #[test]
    fn citations_are_gathered_whether_chunks_repeat_them_or_not() {
        let cited = |sources: Value| json!({"candidates": [{"citationMetadata": {"citationSources": sources}}]});
        let chunks = [
            cited(json!([{"uri": "a"}])),
            cited(json!([{"uri": "a"}, {"uri": "b"}])),
        ];
        assert_eq!(
            merge_chunks(chunks),
            cited(json!([{"uri": "a"}, {"uri": "b"}]))
        );
    }

    #[test]
    fn no_chunks_make_an_empty_answer() {
        assert_eq!(merge_chunks([]), json!({}));
    }
}
