//! Google's own field names, which its API takes in either case (`thinkingLevel` and
//! `thinking_level`), and where they end.
//!
//! Only what is listed here is folded. A member that is not listed, and everything inside a
//! `Plain` field, is compared as it was sent: schemas, arguments, results, labels and metadata are
//! the caller's data, where `a_b` and `aB` are two names. A field that Google adds later is
//! therefore told apart by its spelling until it is listed: a missed duplicate, never a wrong one.

/// What a value is, as far as its member names go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A scalar, or the caller's own data: nothing in it is folded.
    Plain,
    /// One of Google's messages, or an array of them.
    Message(&'static [Field]),
    /// A message that is ours: its members are known by exactly these names.
    Ours(&'static [Field]),
}

/// A field of a message: its name in camel case, and what its value is.
type Field = (&'static str, Kind);

impl Kind {
    /// The one name of a member that was sent under this name, and what its value is.
    pub(super) fn member(self, sent: &str) -> (&str, Self) {
        let (fields, either_case) = match self {
            Self::Plain => return (sent, Self::Plain),
            Self::Message(fields) => (fields, sent.contains('_')),
            Self::Ours(fields) => (fields, false),
        };
        let known = |(name, _): &&Field| *name == sent || (either_case && is_snake(sent, name));
        fields
            .iter()
            .find(known)
            .map_or((sent, Self::Plain), |(name, kind)| (name, *kind))
    }
}

/// Whether a name is the snake case of a name in camel case.
fn is_snake(sent: &str, camel: &str) -> bool {
    let lower = |letter: char| {
        let parts = [
            letter.is_ascii_uppercase().then_some('_'),
            Some(letter.to_ascii_lowercase()),
        ];
        parts.into_iter().flatten()
    };
    camel.chars().flat_map(lower).eq(sent.chars())
}

use Kind::{Message, Ours, Plain};

/// The body of `POST /api/v1/generations`.
pub(super) const API_REQUEST: Kind = Ours(&[
    ("contents", Message(CONTENT)),
    ("generationConfig", Message(GENERATION_CONFIG)),
    ("safetySettings", Message(SAFETY_SETTING)),
    ("toolConfig", Message(TOOL_CONFIG)),
    ("tools", Message(TOOL)),
]);

/// The body of `generateContent` and `streamGenerateContent`.
pub(super) const GEMINI_REQUEST: Kind = Message(&[
    ("cachedContent", Plain),
    ("contents", Message(CONTENT)),
    ("continuationToken", Plain),
    ("generationConfig", Message(GENERATION_CONFIG)),
    ("labels", Plain),
    ("model", Plain),
    ("safetySettings", Message(SAFETY_SETTING)),
    ("serviceTier", Plain),
    ("store", Plain),
    ("systemInstruction", Message(CONTENT)),
    ("toolConfig", Message(TOOL_CONFIG)),
    ("tools", Message(TOOL)),
]);

const CONTENT: &[Field] = &[("parts", Message(PART)), ("role", Plain)];

const PART: &[Field] = &[
    ("audioTranscription", Message(TRANSCRIPTION)),
    (
        "codeExecutionResult",
        Message(&[("id", Plain), ("outcome", Plain), ("output", Plain)]),
    ),
    (
        "executableCode",
        Message(&[("code", Plain), ("id", Plain), ("language", Plain)]),
    ),
    ("fileData", Message(FILE)),
    ("functionCall", Message(FUNCTION_CALL)),
    ("functionResponse", Message(FUNCTION_RESPONSE)),
    ("inlineData", Message(BLOB)),
    ("mediaProcessing", Plain),
    (
        "mediaResolution",
        Message(&[("level", Plain), ("numTokens", Plain)]),
    ),
    ("partMetadata", Plain),
    (
        "speechMetadata",
        Message(&[("speaker", Plain), ("style", Plain)]),
    ),
    ("text", Plain),
    ("thought", Plain),
    ("thoughtSignature", Plain),
    (
        "toolCall",
        Message(&[("args", Plain), ("id", Plain), ("toolType", Plain)]),
    ),
    (
        "toolResponse",
        Message(&[("id", Plain), ("response", Plain), ("toolType", Plain)]),
    ),
    (
        "videoMetadata",
        Message(&[("endOffset", Plain), ("fps", Plain), ("startOffset", Plain)]),
    ),
];

const BLOB: &[Field] = &[("data", Plain), ("displayName", Plain), ("mimeType", Plain)];

const FILE: &[Field] = &[
    ("displayName", Plain),
    ("fileUri", Plain),
    ("mimeType", Plain),
];

const TRANSCRIPTION: &[Field] = &[
    ("endOffset", Plain),
    ("finished", Plain),
    ("languageCode", Plain),
    ("speakerLabel", Plain),
    ("startOffset", Plain),
    ("text", Plain),
    ("words", Plain),
];

const FUNCTION_CALL: &[Field] = &[
    ("args", Plain),
    ("id", Plain),
    ("name", Plain),
    ("partialArgs", Plain),
    ("willContinue", Plain),
];

const FUNCTION_RESPONSE: &[Field] = &[
    ("id", Plain),
    ("name", Plain),
    (
        "parts",
        Message(&[("fileData", Message(FILE)), ("inlineData", Message(BLOB))]),
    ),
    ("response", Plain),
    ("scheduling", Plain),
    ("willContinue", Plain),
];

const SAFETY_SETTING: &[Field] = &[("category", Plain), ("method", Plain), ("threshold", Plain)];

const GENERATION_CONFIG: &[Field] = &[
    ("audioTimestamp", Plain),
    ("audioTranscriptionConfig", Message(AUDIO_TRANSCRIPTION)),
    ("candidateCount", Plain),
    ("enableAffectiveDialog", Plain),
    ("enableEnhancedCivicAnswers", Plain),
    ("frequencyPenalty", Plain),
    ("imageConfig", Message(IMAGE)),
    ("logprobs", Plain),
    ("maxOutputTokens", Plain),
    ("mediaResolution", Plain),
    ("presencePenalty", Plain),
    ("responseFormat", Message(RESPONSE_FORMAT)),
    ("responseJsonSchema", Plain),
    ("responseLogprobs", Plain),
    ("responseMimeType", Plain),
    ("responseModalities", Plain),
    ("responseSchema", Plain),
    ("seed", Plain),
    ("speechConfig", Message(SPEECH)),
    ("stopSequences", Plain),
    ("temperature", Plain),
    ("thinkingConfig", Message(THINKING)),
    ("topK", Plain),
    ("topP", Plain),
    (
        "translationConfig",
        Message(&[("echoTargetLanguage", Plain), ("targetLanguageCode", Plain)]),
    ),
];

const THINKING: &[Field] = &[
    ("includeThoughts", Plain),
    ("thinkingBudget", Plain),
    ("thinkingLevel", Plain),
];

const IMAGE: &[Field] = &[
    ("aspectRatio", Plain),
    (
        "imageOutputOptions",
        Message(&[("compressionQuality", Plain), ("mimeType", Plain)]),
    ),
    ("imageSize", Plain),
    ("outputCompressionQuality", Plain),
    ("outputMimeType", Plain),
    ("personGeneration", Plain),
    ("prominentPeople", Plain),
];

const RESPONSE_FORMAT: &[Field] = &[
    (
        "audio",
        Message(&[
            ("bitRate", Plain),
            ("delivery", Plain),
            ("mimeType", Plain),
            ("sampleRate", Plain),
        ]),
    ),
    (
        "image",
        Message(&[
            ("aspectRatio", Plain),
            ("delivery", Plain),
            ("imageSize", Plain),
            ("mimeType", Plain),
        ]),
    ),
    ("text", Message(&[("mimeType", Plain), ("schema", Plain)])),
    ("video", Plain),
];

const SPEECH: &[Field] = &[
    ("languageCode", Plain),
    (
        "multiSpeakerVoiceConfig",
        Message(&[(
            "speakerVoiceConfigs",
            Message(&[("speaker", Plain), ("voiceConfig", Message(VOICE))]),
        )]),
    ),
    ("voiceConfig", Message(VOICE)),
];

const VOICE: &[Field] = &[
    ("prebuiltVoiceConfig", Message(&[("voiceName", Plain)])),
    (
        "replicatedVoiceConfig",
        Message(&[
            ("consentAudio", Plain),
            ("mimeType", Plain),
            ("voiceConsentSignature", Message(&[("signature", Plain)])),
            ("voiceSampleAudio", Plain),
        ]),
    ),
    ("voice", Plain),
];

const AUDIO_TRANSCRIPTION: &[Field] = &[
    ("adaptationPhrases", Plain),
    ("customVocabulary", Plain),
    ("diarization", Plain),
    ("languageAuto", Plain),
    ("languageCodes", Plain),
    ("languageHints", Message(&[("languageCodes", Plain)])),
    ("mode", Plain),
    ("sourceText", Plain),
    ("wordTimestamp", Plain),
];

const TOOL_CONFIG: &[Field] = &[
    (
        "functionCallingConfig",
        Message(&[
            ("allowedFunctionNames", Plain),
            ("mode", Plain),
            ("streamFunctionCallArguments", Plain),
        ]),
    ),
    ("includeServerSideToolInvocations", Plain),
    (
        "retrievalConfig",
        Message(&[
            ("languageCode", Plain),
            (
                "latLng",
                Message(&[("latitude", Plain), ("longitude", Plain)]),
            ),
        ]),
    ),
];

const TOOL: &[Field] = &[
    ("codeExecution", Plain),
    (
        "computerUse",
        Message(&[
            ("disabledSafetyPolicies", Plain),
            ("enablePromptInjectionDetection", Plain),
            ("environment", Plain),
            ("excludedPredefinedFunctions", Plain),
        ]),
    ),
    ("fileSearch", Message(FILE_SEARCH)),
    ("functionDeclarations", Message(FUNCTION_DECLARATION)),
    ("googleMaps", Message(&[("enableWidget", Plain)])),
    ("googleSearch", Message(GOOGLE_SEARCH)),
    (
        "googleSearchRetrieval",
        Message(&[(
            "dynamicRetrievalConfig",
            Message(&[("dynamicThreshold", Plain), ("mode", Plain)]),
        )]),
    ),
    (
        "mcpServers",
        Message(&[
            ("name", Plain),
            ("streamableHttpTransport", Message(TRANSPORT)),
        ]),
    ),
    ("urlContext", Plain),
];

const FILE_SEARCH: &[Field] = &[
    ("fileSearchStoreNames", Plain),
    ("metadataFilter", Plain),
    ("topK", Plain),
];

const FUNCTION_DECLARATION: &[Field] = &[
    ("behavior", Plain),
    ("description", Plain),
    ("name", Plain),
    ("parameters", Plain),
    ("parametersJsonSchema", Plain),
    ("response", Plain),
    ("responseJsonSchema", Plain),
];

const GOOGLE_SEARCH: &[Field] = &[
    ("blockingConfidence", Plain),
    ("excludeDomains", Plain),
    (
        "searchTypes",
        Message(&[("imageSearch", Plain), ("webSearch", Plain)]),
    ),
    (
        "timeRangeFilter",
        Message(&[("endTime", Plain), ("startTime", Plain)]),
    ),
];

const TRANSPORT: &[Field] = &[
    ("headers", Plain),
    ("sseReadTimeout", Plain),
    ("terminateOnClose", Plain),
    ("timeout", Plain),
    ("url", Plain),
];

#[cfg(test)]
mod tests;
