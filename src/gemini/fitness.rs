//! Decides whether an answer that was paid for may be published without a person.
//!
//! ```
//! use oncepress::gemini::answer::Assembled;
//! use oncepress::gemini::fitness::{Expectation, Fitness, HeldReason};
//! let cut = Assembled {
//!     text: "Half an art".to_owned(),
//!     finish_reason: Some("MAX_TOKENS".to_owned()),
//!     candidates: 1,
//!     ..Assembled::default()
//! };
//! let fitness = Expectation::default().assess(&cut);
//! assert_eq!(fitness, Fitness::Held(HeldReason::MaxTokens));
//! ```

use crate::gemini::answer::{Assembled, PartKind};

/// Whether an answer is fit to publish by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    /// It is.
    Fit,
    /// It is stored, and a person decides.
    Held(HeldReason),
}

/// Why an answer is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldReason {
    /// The prompt was blocked.
    Blocked,
    /// There is no candidate.
    NoCandidate,
    /// A whole answer that names no reason to end.
    Incomplete,
    /// The output was cut at the limit of tokens.
    MaxTokens,
    /// More follows in a further request.
    Continuation,
    /// It is the rest of an answer that earlier requests began.
    PartialHop,
    /// A safety filter stopped it.
    Safety,
    /// It recites a source.
    Recitation,
    /// Its language is not supported.
    Language,
    /// The model's own output was malformed.
    Malformed,
    /// Gemini stopped for another reason.
    Stopped,
    /// It calls a function, so it is not the last word.
    FunctionCall,
    /// There is no text to publish.
    Empty,
    /// JSON was asked for, and the text is none.
    InvalidJson,
}

/// What the request asked for, as far as fitness depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The form of the text.
    pub form: Form,
    /// Where in a long answer the request stands.
    pub hop: Hop,
    /// What becomes of the answer.
    pub purpose: Purpose,
}

/// The form of text that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    #[default]
    Text,
    /// One JSON value.
    Json,
}

/// Where in a long answer a request stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hop {
    /// It begins the answer.
    #[default]
    First,
    /// It carried a `continuationToken`: its answer is a rest.
    Later,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// It is a text on its own, to be published or handed out as one.
    #[default]
    Publish,
    /// A drop-in client gets Gemini's own answer and nothing is published: function calls, images
    /// and parts of a long answer are as good as text.
    Relay,
}

impl Expectation {
    /// Whether `answer` is fit. An answer that may have been cut on its way never gets here: it is
    /// no answer but an unknown outcome (see [`Exchange`](crate::gemini::exchange::Exchange)).
    pub fn assess(self, answer: &Assembled) -> Fitness {
        self.reason(answer).map_or(Fitness::Fit, Fitness::Held)
    }

    fn reason(self, answer: &Assembled) -> Option<HeldReason> {
        if answer.block_reason.is_some() {
            return Some(HeldReason::Blocked);
        }
        if answer.candidates == 0 {
            return Some(HeldReason::NoCandidate);
        }
        let relay = self.purpose == Purpose::Relay;
        match answer.finish_reason.as_deref() {
            None => return Some(HeldReason::Incomplete),
            Some("CONTINUATION") if relay => return None,
            Some("STOP") if relay && self.hop == Hop::Later => return None,
            Some("STOP") => {}
            Some(reason) => return Some(stopped(reason)),
        }
        if self.hop == Hop::Later {
            return Some(HeldReason::PartialHop);
        }
        if answer.has(PartKind::FunctionCall) {
            return (!relay).then_some(HeldReason::FunctionCall);
        }
        if answer.text.trim().is_empty() {
            let relayed = relay && answer.has(PartKind::Data);
            return (!relayed).then_some(HeldReason::Empty);
        }
        (self.form == Form::Json && !is_json(&answer.text)).then_some(HeldReason::InvalidJson)
    }
}

impl HeldReason {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::NoCandidate => "no_candidate",
            Self::Incomplete => "incomplete",
            Self::MaxTokens => "max_tokens",
            Self::Continuation => "continuation",
            Self::PartialHop => "partial_hop",
            Self::Safety => "safety",
            Self::Recitation => "recitation",
            Self::Language => "language",
            Self::Malformed => "malformed",
            Self::Stopped => "stopped",
            Self::FunctionCall => "function_call",
            Self::Empty => "empty",
            Self::InvalidJson => "invalid_json",
        }
    }

    /// One sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Blocked => "Gemini blocked the prompt.",
            Self::NoCandidate => "Gemini answered without a candidate.",
            Self::Incomplete => "The answer does not say that it is finished.",
            Self::MaxTokens => "The output was cut at its limit of tokens.",
            Self::Continuation => "The output goes on in a further request.",
            Self::PartialHop => "This is only the rest of an output that earlier requests began.",
            Self::Safety => "A safety filter stopped the output.",
            Self::Recitation => "The output recites a source, so Gemini stopped it.",
            Self::Language => "Gemini does not support the language of the output.",
            Self::Malformed => "The model's output was malformed.",
            Self::Stopped => "Gemini stopped the output for a reason of its own.",
            Self::FunctionCall => "The output calls a function and waits for its result.",
            Self::Empty => "The output has no text.",
            Self::InvalidJson => "JSON was asked for, and the output is not valid JSON.",
        }
    }

    /// The reason with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        ALL.into_iter().find(|reason| reason.code() == code)
    }
}

/// What a `finishReason` other than `STOP` comes to.
fn stopped(reason: &str) -> HeldReason {
    match reason {
        "MAX_TOKENS" => HeldReason::MaxTokens,
        "CONTINUATION" => HeldReason::Continuation,
        "SAFETY"
        | "PROHIBITED_CONTENT"
        | "BLOCKLIST"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "MODEL_ARMOR" => HeldReason::Safety,
        "RECITATION" | "IMAGE_RECITATION" => HeldReason::Recitation,
        "LANGUAGE" => HeldReason::Language,
        "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE" => HeldReason::Malformed,
        _ => HeldReason::Stopped,
    }
}

/// Whether the text is one JSON value, however deep, with nothing around it but white space.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

const ALL: [HeldReason; 14] = [
    HeldReason::Blocked,
    HeldReason::NoCandidate,
    HeldReason::Incomplete,
    HeldReason::MaxTokens,
    HeldReason::Continuation,
    HeldReason::PartialHop,
    HeldReason::Safety,
    HeldReason::Recitation,
    HeldReason::Language,
    HeldReason::Malformed,
    HeldReason::Stopped,
    HeldReason::FunctionCall,
    HeldReason::Empty,
    HeldReason::InvalidJson,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(reason: &str, text: &str) -> Assembled {
        Assembled {
            text: text.to_owned(),
            finish_reason: Some(reason.to_owned()),
            candidates: 1,
            ..Assembled::default()
        }
    }

    fn reason(expectation: Expectation, answer: &Assembled) -> &'static str {
        match expectation.assess(answer) {
            Fitness::Fit => "fit",
            Fitness::Held(reason) => {
                assert_eq!(HeldReason::from_code(reason.code()), Some(reason));
                assert!(reason.sentence().ends_with('.'));
                reason.code()
            }
        }
    }

    const RELAY: Expectation = Expectation {
        form: Form::Text,
        hop: Hop::First,
        purpose: Purpose::Relay,
    };

    #[test]
    fn only_a_finished_text_is_fit() {
        let publish = Expectation::default();
        assert_eq!(reason(publish, &answer("STOP", "text")), "fit");
        assert_eq!(reason(publish, &answer("STOP", "")), "empty");
        assert_eq!(reason(publish, &answer("STOP", " \n")), "empty");
        let unfinished = Assembled {
            finish_reason: None,
            ..answer("", "text")
        };
        assert_eq!(reason(publish, &unfinished), "incomplete");
        assert_eq!(reason(publish, &Assembled::default()), "no_candidate");
        let blocked = Assembled {
            block_reason: Some("OTHER".to_owned()),
            ..Assembled::default()
        };
        assert_eq!(reason(publish, &blocked), "blocked");
    }

    #[test]
    fn every_finish_reason_of_gemini_has_its_code() {
        let codes = [
            "STOP",
            "MAX_TOKENS",
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "OTHER",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MALFORMED_FUNCTION_CALL",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_OTHER",
            "NO_IMAGE",
            "IMAGE_RECITATION",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
            "MALFORMED_RESPONSE",
            "ESCALATION",
            "PUP_LIMITED_DISABLED",
            "CONTINUATION",
            "MODEL_ARMOR",
            "OF_NEXT_YEAR",
        ]
        .map(|word| {
            format!(
                "{word} {}",
                reason(Expectation::default(), &answer(word, "text"))
            )
        });
        insta::assert_snapshot!(codes.join("\n"), @r"
        STOP fit
        MAX_TOKENS max_tokens
        SAFETY safety
        RECITATION recitation
        LANGUAGE language
        OTHER stopped
        BLOCKLIST safety
        PROHIBITED_CONTENT safety
        SPII safety
        MALFORMED_FUNCTION_CALL malformed
        IMAGE_SAFETY safety
        IMAGE_PROHIBITED_CONTENT safety
        IMAGE_OTHER stopped
        NO_IMAGE stopped
        IMAGE_RECITATION recitation
        UNEXPECTED_TOOL_CALL malformed
        TOO_MANY_TOOL_CALLS malformed
        MISSING_THOUGHT_SIGNATURE malformed
        MALFORMED_RESPONSE malformed
        ESCALATION stopped
        PUP_LIMITED_DISABLED stopped
        CONTINUATION continuation
        MODEL_ARMOR safety
        OF_NEXT_YEAR stopped
        ");
    }

    #[test]
    fn json_that_was_asked_for_must_be_json() {
        let json = Expectation {
            form: Form::Json,
            ..Expectation::default()
        };
        for text in ["{}", " [1, 2]\n", "\"text\"", "1e999"] {
            assert_eq!(reason(json, &answer("STOP", text)), "fit", "{text}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(reason(json, &answer("STOP", &deep)), "fit");
        for text in [
            "{",
            "{} {}",
            "```json\n{}\n```",
            "text",
            "{'a': 1}",
            "NaN",
            "{\"a\": 1,}",
        ] {
            assert_eq!(
                reason(json, &answer("STOP", text)),
                "invalid_json",
                "{text}"
            );
        }
        assert_eq!(reason(json, &answer("MAX_TOKENS", "{")), "max_tokens");
    }

    #[test]
    fn a_function_call_is_held_where_something_is_published_and_relayed_else() {
        let mut call = answer("STOP", "I will look.");
        call.parts.insert(PartKind::FunctionCall);
        assert_eq!(reason(Expectation::default(), &call), "function_call");
        assert_eq!(reason(RELAY, &call), "fit");
        let mut image = answer("STOP", "");
        image.parts.insert(PartKind::Data);
        assert_eq!(reason(Expectation::default(), &image), "empty");
        assert_eq!(reason(RELAY, &image), "fit");
        assert_eq!(reason(RELAY, &answer("STOP", "")), "empty");
    }

    #[test]
    fn parts_of_a_long_answer_are_relayed_and_never_published() {
        let later = |purpose| Expectation {
            form: Form::Json,
            hop: Hop::Later,
            purpose,
        };
        assert_eq!(reason(RELAY, &answer("CONTINUATION", "{")), "fit");
        assert_eq!(reason(later(Purpose::Relay), &answer("STOP", "}")), "fit");
        assert_eq!(
            reason(Expectation::default(), &answer("CONTINUATION", "a")),
            "continuation"
        );
        assert_eq!(
            reason(later(Purpose::Publish), &answer("STOP", "rest")),
            "partial_hop"
        );
        assert_eq!(reason(RELAY, &answer("MAX_TOKENS", "cut")), "max_tokens");
    }
}
