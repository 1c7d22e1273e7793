//! An answer as a draft: written by the prompt, spoiled by the faults.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::fault::Fault;
use super::asked::Asked;
use super::errors::{self, Refusal};
use super::text;

/// An answer before it is put on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// What it cost.
    pub(crate) usage: Usage,
    /// Its id.
    pub(crate) response_id: String,
    pub(super) model: String,
    /// The parts of each chunk; a chunk may have none.
    pub(super) chunks: Vec<Vec<Value>>,
    pub(super) finish: Option<String>,
    pub(super) finish_message: Option<&'static str>,
    pub(super) block_reason: Option<String>,
    pub(super) token: Option<String>,
    /// The candidate of a broken call has no content at all.
    pub(super) without_content: bool,
}

/// Tokens, by kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// In, cached ones included.
    pub(crate) prompt: u64,
    /// Of those, cached.
    pub(crate) cached: u64,
    /// Out, without thoughts.
    pub(crate) candidates: u64,
    /// Thought.
    pub(crate) thoughts: u64,
}

impl Draft {
    /// Writes the answer to a request that is the n-th purchase of its prompt.
    pub(crate) fn write(asked: &Asked, fault: &Fault, purchase: u64) -> Result<Self, Refusal> {
        let hops = Hops::of(asked, fault)?;
        let id = format!("{}{purchase:04}", &asked.prompt_sha256[..16]);
        let thinks = asked.thinking("thinkingBudget").and_then(Value::as_i64) != Some(0);
        let mut draft = Self {
            usage: Usage {
                prompt: fault
                    .number("prompt-tokens")
                    .unwrap_or_else(|| asked.prompt_tokens()),
                cached: fault.number("cached-tokens").unwrap_or(0),
                candidates: 0,
                thoughts: fault
                    .number("thought-tokens")
                    .unwrap_or(if thinks { 24 } else { 0 }),
            },
            response_id: id,
            model: asked.model.clone(),
            chunks: Vec::new(),
            finish: Some("STOP".to_owned()),
            finish_message: None,
            block_reason: None,
            token: hops.next_token(asked),
            without_content: false,
        };
        if draft.token.is_some() {
            draft.finish = Some("CONTINUATION".to_owned());
        }
        draft.say(asked, fault, purchase);
        draft.usage.prompt += (hops.hop - 1) * draft.usage.candidates;
        draft.spoil(asked, fault);
        Ok(draft)
    }

    /// The text without thoughts, piece by piece.
    pub(crate) fn texts(&self) -> Vec<String> {
        let parts = self
            .chunks
            .iter()
            .flatten()
            .filter(|part| part["thought"].is_null());
        let texts = parts.filter_map(|part| part["text"].as_str());
        texts
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Why it ended; empty where it doesn't say.
    pub(crate) fn finish(&self) -> &str {
        self.finish.as_deref().unwrap_or_default()
    }

    /// Writes the text, or what stands in its place.
    fn say(&mut self, asked: &Asked, fault: &Fault, purchase: u64) {
        let mut said = said_text(asked, fault, purchase);
        let limit = asked.config("maxOutputTokens").and_then(Value::as_u64);
        let limit_bytes = limit.and_then(|tokens| usize::try_from(tokens.saturating_mul(4)).ok());
        if let Some(limit_bytes) = limit_bytes.filter(|limit_bytes| *limit_bytes < said.len()) {
            let end = (0..=limit_bytes)
                .rev()
                .find(|end| said.is_char_boundary(*end));
            said.truncate(end.unwrap_or(0));
            self.finish = Some("MAX_TOKENS".to_owned());
        }
        let tokens = u64::try_from(said.len().div_ceil(4)).unwrap_or(u64::MAX);
        self.usage.candidates = fault.number("output-tokens").unwrap_or(tokens);
        if asked.thinking("includeThoughts") == Some(&Value::Bool(true)) {
            let thought = "**Planning**\n\nまず構成を考えます。";
            self.chunks
                .push(vec![json!({"text": thought, "thought": true})]);
        }
        if fault.has("thought-without-text") {
            self.chunks.push(vec![
                json!({"thought": true, "thoughtSignature": SIGNATURE}),
            ]);
        }
        let count = fault
            .number("chunks")
            .and_then(|count| usize::try_from(count).ok());
        let count = count
            .unwrap_or(CHUNKS)
            .max(said.len().div_ceil(CHUNK_BYTES_MAX));
        self.chunks.extend(
            text::pieces(&said, count)
                .into_iter()
                .map(|piece| vec![json!({ "text": piece })]),
        );
        if self.usage.thoughts > 0 {
            self.chunks
                .push(vec![json!({"text": "", "thoughtSignature": SIGNATURE})]);
        }
    }

    /// Applies the faults that make an answer unfit.
    fn spoil(&mut self, asked: &Asked, fault: &Fault) {
        let keep = self.chunks.len().div_ceil(2);
        if fault.has("empty") {
            self.end_with("STOP", 0);
            self.chunks.push(Vec::new());
        }
        if fault.has("max-tokens") {
            self.end_with("MAX_TOKENS", keep);
        }
        if fault.has("max-tokens-thinking") {
            self.end_with("MAX_TOKENS", 0);
            let limit = asked
                .config("maxOutputTokens")
                .and_then(Value::as_u64)
                .unwrap_or(3000);
            self.usage.thoughts = limit.saturating_sub(1);
        }
        if let Some(reason) = word_or(fault, "block", "PROHIBITED_CONTENT") {
            self.end_with("", 0);
            self.usage.thoughts = 0;
            self.block_reason = Some(reason);
        }
        if fault.has("safety") {
            self.end_with("SAFETY", keep);
        }
        if fault.has("recitation") {
            self.end_with("RECITATION", 0);
        }
        if fault.has("malformed-function-call") {
            self.end_with("MALFORMED_FUNCTION_CALL", 0);
            self.finish_message = Some("Malformed function call: print(default_api.lookup(");
            self.usage.thoughts = 0;
            self.without_content = true;
        }
        if let Some(reason) = word_or(fault, "finish", "OTHER") {
            self.finish = Some(reason);
        }
        if fault.has("no-finish") {
            self.finish = None;
        }
        if fault.has("function-call") {
            let name = asked
                .member("tools")
                .and_then(|tools| tools.pointer("/0/functionDeclarations/0/name")?.as_str());
            let call = json!({"id": "call-1", "name": name.unwrap_or("lookup"),
                "args": {"query": "東京"}});
            self.chunks = vec![vec![
                json!({"functionCall": call, "thoughtSignature": SIGNATURE}),
            ]];
        }
        if fault.has("image") {
            self.chunks = vec![vec![json!({
                "inlineData": {"mimeType": "image/png", "data": PNG_BASE64},
            })]];
        }
    }

    /// Ends with a reason after so many chunks; without any there is no output to count.
    fn end_with(&mut self, finish: &str, chunks: usize) {
        self.chunks.truncate(chunks);
        self.finish = Some(finish.to_owned());
        if chunks == 0 {
            self.usage.candidates = 0;
        }
    }
}

/// Which request of a long answer this is.
#[derive(Debug, Clone, Copy)]
struct Hops {
    hop: u64,
    of: u64,
}

impl Hops {
    /// By the token, else by the fault; most answers take one.
    fn of(asked: &Asked, fault: &Fault) -> Result<Self, Refusal> {
        let Some(token) = asked.member("continuationToken") else {
            return Ok(Self {
                hop: 1,
                of: fault.number_or("continuation", 3).unwrap_or(1),
            });
        };
        let token = token.as_str().and_then(|token| STANDARD.decode(token).ok());
        let token = token.and_then(|token| serde_json::from_slice::<Value>(&token).ok());
        let number = |name: &str| token.as_ref()?.get(name)?.as_u64();
        match (number("hop"), number("of")) {
            (Some(hop), Some(of)) => Ok(Self { hop, of }),
            _ => Err(errors::invalid("Invalid continuation token.")),
        }
    }

    fn next_token(self, asked: &Asked) -> Option<String> {
        let token = json!({"hop": self.hop + 1, "of": self.of, "of_prompt": asked.prompt_sha256});
        (self.hop < self.of).then(|| STANDARD.encode(token.to_string()))
    }
}

fn said_text(asked: &Asked, fault: &Fault, purchase: u64) -> String {
    let size_bytes = fault
        .number("size")
        .and_then(|size| usize::try_from(size).ok());
    let said = fault
        .words("say")
        .or_else(|| asked.marker("say").map(str::to_owned));
    let schema = asked
        .config("responseSchema")
        .or_else(|| asked.config("responseJsonSchema"));
    let mut said = match said {
        Some(said) => said,
        None if fault.has("invalid-json") => "{\"title\": \"途中で切れた".to_owned(),
        None if asked.wants_json() && size_bytes.is_some() => {
            let body = text::article(&asked.prompt_sha256, purchase, size_bytes);
            json!({ "body": body }).to_string()
        }
        None if asked.wants_json() => {
            text::json_answer(schema, &asked.prompt_sha256, purchase).to_string()
        }
        None => text::article(&asked.prompt_sha256, purchase, size_bytes),
    };
    if fault.has("nul") {
        said.push_str("\u{0}after NUL");
    }
    if fault.has("line-separators") {
        said.push_str("\u{2028}one\u{2029}two\u{85}three");
    }
    said
}

fn word_or(fault: &Fault, knob: &str, default: &str) -> Option<String> {
    fault
        .has(knob)
        .then(|| fault.text(knob).unwrap_or(default).to_owned())
}

/// As many as a short answer comes in.
const CHUNKS: usize = 4;
/// A long answer comes in more chunks, not in longer ones.
const CHUNK_BYTES_MAX: usize = 16 * 1024;
const SIGNATURE: &str = "EjQKMgG+Pvb7ZmFrZSBzaWduYXR1cmU=";
/// One transparent pixel.
const PNG_BASE64: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk\
    YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
