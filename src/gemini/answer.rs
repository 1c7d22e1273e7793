//! Puts an answer together from its chunks: what is published, and what it used.
//!
//! ```
//! use oncepress::gemini::answer::Assembler;
//! use serde_json::json;
//! let mut assembler = Assembler::default();
//! assembler.absorb(&json!({"candidates": [{"content": {"parts": [
//!     {"text": "Let me think.", "thought": true}, {"text": "Once, "}]}}]}));
//! assembler.absorb(&json!({"candidates": [{"content": {"parts": [{"text": "and once only."}]},
//!     "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 4}}));
//! let answer = assembler.finish();
//! assert_eq!(answer.text, "Once, and once only.");
//! assert_eq!(answer.finish_reason.as_deref(), Some("STOP"));
//! ```

use serde_json::Value;

use crate::gemini::usage::Usage;
use crate::sorted::SortedSet;

/// An answer put together; of several candidates the first counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembled {
    /// The text of the first candidate, without thoughts.
    pub text: String,
    /// Why the first candidate ended, in Gemini's word. The last one said counts.
    pub finish_reason: Option<String>,
    /// Gemini's words on the reason.
    pub finish_message: Option<String>,
    /// Why the prompt was blocked.
    pub block_reason: Option<String>,
    /// What it used, by the last count that came; `None` where none came.
    pub usage: Option<Usage>,
    /// Gemini's id of the answer.
    pub response_id: Option<String>,
    /// The model that answered, where an alias was asked for.
    pub model_version: Option<String>,
    /// What continues the answer in a further request.
    pub continuation_token: Option<String>,
    /// What the first candidate consists of.
    pub parts: SortedSet<PartKind>,
    /// How many candidates there are.
    pub candidates: usize,
    /// Which of them named a reason to end.
    pub ended: SortedSet<usize>,
    /// Whether the last word on the first candidate was its reason to end.
    pub last_word: LastWord,
}

/// The kinds of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartKind {
    /// Text to publish.
    Text,
    /// A summary of thoughts, or their signature alone.
    Thought,
    /// A call of a tool that the caller has to answer.
    FunctionCall,
    /// Data such as an image, in the answer or by reference.
    Data,
    /// Code that Gemini ran, or what came of it.
    Code,
    /// Anything else, of today or later.
    Other,
}

/// What the chunks say about the end of the first candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastWord {
    /// No reason to end came, or content came after it.
    #[default]
    Open,
    /// One reason came, at the very end: Gemini's streams end so.
    Ended,
    /// A reason came at the end, and earlier too, with content after it: such a stream names
    /// a reason in chunks that are not its last.
    EndedAgain,
}

/// Takes chunks one by one; see the module's example.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    answer: Assembled,
}

impl Assembler {
    /// Takes one chunk, or a whole unary answer.
    pub fn absorb(&mut self, chunk: &Value) {
        let answer = &mut self.answer;
        let text = |name| chunk.get(name).and_then(non_empty);
        answer.response_id = answer.response_id.take().or_else(|| text("responseId"));
        answer.model_version = answer.model_version.take().or_else(|| text("modelVersion"));
        if let Some(reason) = chunk
            .pointer("/promptFeedback/blockReason")
            .and_then(non_empty)
        {
            answer.block_reason = Some(reason);
        }
        if let Some(usage) = chunk.get("usageMetadata").map(Usage::read)
            && usage.total_tokens > 0
        {
            answer.usage = Some(usage);
        }
        let candidates = chunk.get("candidates").and_then(Value::as_array);
        for (position, candidate) in candidates.into_iter().flatten().enumerate() {
            let index = index(candidate, position);
            answer.candidates = answer.candidates.max(index.saturating_add(1));
            if reason(candidate).is_some() {
                answer.ended.insert(index);
            }
            if index == 0 {
                answer.absorb_candidate(candidate);
            }
        }
    }

    /// The answer as far as it came.
    pub fn finish(self) -> Assembled {
        self.answer
    }
}

impl Assembled {
    /// Whether the first candidate has parts of this kind.
    pub fn has(&self, kind: PartKind) -> bool {
        self.parts.contains(&kind)
    }

    fn absorb_candidate(&mut self, candidate: &Value) {
        let parts = candidate
            .pointer("/content/parts")
            .and_then(Value::as_array);
        let has_parts = parts.is_some_and(|parts| !parts.is_empty());
        for part in parts.into_iter().flatten() {
            self.absorb_part(part);
        }
        let text = |name| candidate.get(name).and_then(non_empty);
        if let Some(message) = text("finishMessage") {
            self.finish_message = Some(message);
        }
        if let Some(token) = text("continuationToken") {
            self.continuation_token = Some(token);
        }
        let reason = reason(candidate);
        let went_on = has_parts && self.finish_reason.is_some();
        self.last_word = match (reason.is_some(), went_on, self.last_word) {
            (true, true, _) | (true, false, LastWord::EndedAgain) => LastWord::EndedAgain,
            (true, false, LastWord::Open) if self.finish_reason.is_some() => LastWord::EndedAgain,
            (true, false, LastWord::Open | LastWord::Ended) => LastWord::Ended,
            (false, true, _) => LastWord::Open,
            (false, false, before) => before,
        };
        self.finish_reason = reason.or_else(|| self.finish_reason.take());
    }

    fn absorb_part(&mut self, part: &Value) {
        let kind = kind(part);
        self.parts.insert(kind);
        if kind == PartKind::Text {
            self.text
                .push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
        }
    }
}

/// Why a candidate has ended, if it has.
pub(crate) fn reason(candidate: &Value) -> Option<String> {
    let said = candidate.get("finishReason").and_then(non_empty);
    said.filter(|reason| reason != UNSPECIFIED)
}

/// Which candidate this is: Google's JSON leaves out a zero, and old servers every index.
pub(crate) fn index(candidate: &Value, position: usize) -> usize {
    let stated = candidate.get("index").and_then(Value::as_u64);
    stated
        .and_then(|index| usize::try_from(index).ok())
        .unwrap_or(position)
}

fn kind(part: &Value) -> PartKind {
    let has = |name| part.get(name).is_some_and(|value| !value.is_null());
    if part.get("thought").and_then(Value::as_bool) == Some(true) {
        PartKind::Thought
    } else if has("functionCall") {
        PartKind::FunctionCall
    } else if has("inlineData") || has("fileData") {
        PartKind::Data
    } else if has("executableCode") || has("codeExecutionResult") {
        PartKind::Code
    } else if has("text") {
        PartKind::Text
    } else if has("thoughtSignature") {
        PartKind::Thought
    } else {
        PartKind::Other
    }
}

fn non_empty(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

/// The reason of a candidate that has not ended, where a server spells it out.
const UNSPECIFIED: &str = "FINISH_REASON_UNSPECIFIED";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn assembled(chunks: &[Value]) -> Assembled {
        let mut assembler = Assembler::default();
        for chunk in chunks {
            assembler.absorb(chunk);
        }
        assembler.finish()
    }

    fn text(text: &str) -> Value {
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]})
    }

    fn end(reason: &str) -> Value {
        json!({"candidates": [{"finishReason": reason}]})
    }

    #[test]
    fn the_last_usage_and_the_first_identity_count() {
        let answer = assembled(&[
            json!({"responseId": "a", "modelVersion": "m-1",
                "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4}}),
            json!({"responseId": "b", "usageMetadata":
                {"promptTokenCount": 4, "candidatesTokenCount": 9, "totalTokenCount": 13}}),
            json!({"usageMetadata": {}}),
        ]);
        assert_eq!(answer.usage.unwrap().output_tokens, 9);
        assert_eq!(answer.response_id.as_deref(), Some("a"));
        assert_eq!(answer.model_version.as_deref(), Some("m-1"));
    }

    #[test]
    fn thoughts_are_no_text_even_without_one() {
        let answer = assembled(&[json!({"candidates": [{"content": {"parts": [
            {"thought": true, "text": "hm"}, {"thought": true, "thoughtSignature": "AA=="},
            {"thoughtSignature": "AA=="}, {"text": "yes", "thoughtSignature": "AA=="},
        ]}}]})]);
        assert_eq!(answer.text, "yes");
        assert_eq!(
            answer.parts,
            SortedSet::from_iter([PartKind::Text, PartKind::Thought])
        );
    }

    #[test]
    fn the_kinds_of_parts_are_told_apart() {
        let answer = assembled(&[json!({"candidates": [{"content": {"parts": [
            {"functionCall": {"name": "f"}}, {"inlineData": {}}, {"executableCode": {}}, {"new": 1},
        ]}}]})]);
        let kinds = [
            PartKind::FunctionCall,
            PartKind::Data,
            PartKind::Code,
            PartKind::Other,
        ];
        assert!(kinds.into_iter().all(|kind| answer.has(kind)));
        assert!(!answer.has(PartKind::Text));
    }

    #[test]
    fn of_several_candidates_the_first_counts() {
        let answer = assembled(&[
            json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "second"}]}}]}),
            json!({"candidates": [{"content": {"parts": [{"text": "first"}]}},
                {"content": {"parts": [{"text": "no index"}]}, "finishReason": "SAFETY"}]}),
        ]);
        assert_eq!((answer.text.as_str(), answer.candidates), ("first", 2));
        assert_eq!(answer.finish_reason, None);
    }

    #[test]
    fn a_reason_that_more_follows_is_not_the_last_word() {
        let last_word = |chunks: &[Value]| assembled(chunks).last_word;
        assert_eq!(last_word(&[text("a")]), LastWord::Open);
        assert_eq!(last_word(&[text("a"), end("STOP")]), LastWord::Ended);
        assert_eq!(
            last_word(&[text("a"), end("STOP"), end("STOP")]),
            LastWord::Ended
        );
        assert_eq!(
            last_word(&[text("a"), end("STOP"), text("b")]),
            LastWord::Open
        );
        let again = [text("a"), end("STOP"), text("b"), end("MAX_TOKENS")];
        assert_eq!(last_word(&again), LastWord::EndedAgain);
        assert_eq!(
            assembled(&again).finish_reason.as_deref(),
            Some("MAX_TOKENS")
        );
        let each = json!({"candidates": [{"content": {"parts": [{"text": "a"}]},
            "finishReason": "STOP"}]});
        assert_eq!(last_word(&[each.clone(), each]), LastWord::EndedAgain);
        assert_eq!(
            last_word(&[text("a"), end("FINISH_REASON_UNSPECIFIED")]),
            LastWord::Open
        );
        let usage_after = json!({"candidates": [{"index": 0}], "usageMetadata": {}});
        assert_eq!(
            last_word(&[text("a"), end("STOP"), usage_after]),
            LastWord::Ended
        );
    }

    #[test]
    fn what_a_candidate_says_of_itself_is_kept() {
        let answer = assembled(&[
            json!({"candidates": [{"continuationToken": "early"}]}),
            json!({"candidates": [{"finishReason": "CONTINUATION", "finishMessage": "More.",
                "continuationToken": "late"}]}),
        ]);
        assert_eq!(answer.continuation_token.as_deref(), Some("late"));
        assert_eq!(answer.finish_message.as_deref(), Some("More."));
        let blocked = assembled(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]);
        assert_eq!(blocked.block_reason.as_deref(), Some("SAFETY"));
    }

    #[test]
    fn members_of_other_types_are_taken_for_absent() {
        let odd = assembled(&[
            json!({"candidates": 1, "usageMetadata": [], "responseId": {}, "promptFeedback": 0}),
            json!({"candidates": [null, 1, {"content": null, "index": -1, "finishReason": 7}]}),
            json!({"candidates": [{"content": {"parts": [null, 1, {"text": 5}, {"thought": "x"}]}}]}),
            json!([]),
        ]);
        assert_eq!(
            (odd.text.as_str(), odd.finish_reason, odd.usage),
            ("", None, None)
        );
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(vec![
            "candidates",
            "content",
            "parts",
            "text",
            "thought",
            "index",
            "finishReason",
            "error",
            "usageMetadata",
            "promptTokenCount",
            "promptFeedback",
            "blockReason",
            "functionCall",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-zA-Z]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..4).prop_map(|members| {
                    Value::Object(
                        members
                            .into_iter()
                            .map(|(n, v)| (n.to_owned(), v))
                            .collect(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_is_taken_and_merging_it_first_changes_nothing(
            texts in prop::collection::vec("[a-z]{0,3}", 0..8),
            odd in json_value(),
        ) {
            let mut assembler = Assembler::default();
            assembler.absorb(&odd);
            let _ = crate::gemini::merge::merge_chunks([odd.clone(), odd]);
            let _ = assembler.finish();

            let mut chunks: Vec<_> = texts.iter().map(|t| text(t)).collect();
            chunks.push(end("STOP"));
            let merged = crate::gemini::merge::merge_chunks(chunks.clone());
            prop_assert_eq!(assembled(&[merged]), assembled(&chunks));
        }
    }
}
