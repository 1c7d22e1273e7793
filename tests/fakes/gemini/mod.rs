//! The Gemini API: generations, token counts and models, in the words of the real one.

mod answer;
mod asked;
mod batches;
mod chat;
mod errors;
mod interactions;
mod text;
mod wire;

use serde_json::{Value, json};

use super::fault::Fault;
use super::http::{Request, percent_decode};
use super::reply::Reply;
use super::state::State;
use asked::Asked;

/// Answers a request at the root.
pub(crate) fn answer(state: &mut State, request: &Request, fault: &Fault) -> Reply {
    let style = errors::Style::of(request);
    if let Err(refusal) = errors::check_key(request) {
        note_refused(state, request, fault, refusal.code);
        return refusal.reply(style);
    }
    let Some((_version, rest)) = version_and_rest(&request.path) else {
        return errors::html_not_found(&request.path);
    };
    match (request.method.as_str(), rest.as_str()) {
        (_, rest) if rest.starts_with("interactions") => {
            interactions::answer(state, request, rest, fault)
        }
        (_, rest) if rest.starts_with("batches") || rest.ends_with(":batchGenerateContent") => {
            batches::answer(state, request, rest, fault)
        }
        ("POST", "openai/chat/completions") => chat::answer(state, request, fault),
        ("GET", "models") => Reply::json(200, &json!({"models": models()})),
        ("GET", rest) if rest.starts_with("models/") => match model(&rest["models/".len()..]) {
            Some(model) => errors::pretty_reply(200, &model),
            None => errors::unknown_model(&rest["models/".len()..]).reply(style),
        },
        ("POST", rest) => match rest.rsplit_once(':') {
            Some((_, "generateContent" | "streamGenerateContent")) => {
                generate(state, request, fault, style)
            }
            Some((_, "countTokens")) => count_tokens(request, style),
            _ => errors::html_not_found(&request.path),
        },
        _ => errors::html_not_found(&request.path),
    }
}

/// Tells a test that its prompt asks for a fault there isn't.
pub(crate) fn mistake(problem: &str) -> Reply {
    errors::invalid(&format!("fakes: {problem}")).reply(errors::Style::Unary)
}

/// Whether the request, if it succeeds, is billed.
pub(crate) fn is_generation(request: &Request) -> bool {
    let ends = [
        ":generateContent",
        ":streamGenerateContent",
        ":batchGenerateContent",
        "/interactions",
        "/openai/chat/completions",
    ];
    request.method == "POST" && ends.iter().any(|end| request.path.ends_with(end))
}

/// The texts of a request's prompt, joined; empty where there is none.
pub(crate) fn prompt_text(request: &Request) -> String {
    request
        .json()
        .map(|body| asked::prompt_text(&body))
        .unwrap_or_default()
}

/// Writes down a request that a fault, or a check, kept from being billed.
pub(crate) fn note_refused(state: &mut State, request: &Request, fault: &Fault, status: u16) {
    if is_generation(request) {
        let entry = Asked::read(request, fault).entry(status);
        state.ledger_refused(&entry);
    }
}

fn generate(state: &mut State, request: &Request, fault: &Fault, style: errors::Style) -> Reply {
    let asked = Asked::read(request, fault);
    match buy(state, &asked, fault) {
        Ok((draft, n)) => {
            let mut reply = draft.reply(fault, style);
            reply.ledger_entry = Some(n);
            reply
        }
        Err(refusal) => refusal.reply(style),
    }
}

/// Writes an answer and the ledger's entry for it, or the entry of a refusal.
fn buy(
    state: &mut State,
    asked: &Asked,
    fault: &Fault,
) -> Result<(answer::Draft, u64), errors::Refusal> {
    let purchase = state.purchases(&asked.prompt_sha256) + 1;
    let draft = asked
        .check()
        .and_then(|()| errors::scripted(fault, &asked.model).map_or(Ok(()), Err))
        .and_then(|()| answer::Draft::write(asked, fault, purchase))
        .inspect_err(|refusal| state.ledger_refused(&asked.entry(refusal.code)))?;
    let mut entry = asked.entry(200);
    entry.prompt_tokens = draft.usage.prompt;
    entry.output_tokens = draft.usage.candidates;
    entry.thought_tokens = draft.usage.thoughts;
    entry.response_id.clone_from(&draft.response_id);
    let n = state.ledger_billed(&entry);
    Ok((draft, n))
}

fn count_tokens(request: &Request, style: errors::Style) -> Reply {
    let asked = Asked::read(request, &Fault::default());
    if let Err(refusal) = asked.check() {
        return refusal.reply(style);
    }
    let tokens = asked.prompt_tokens();
    errors::pretty_reply(
        200,
        &json!({"totalTokens": tokens,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]}),
    )
}

/// Splits `/v1beta/models/x:method` into the version and the rest, decoded.
fn version_and_rest(path: &str) -> Option<(&str, String)> {
    let (version, rest) = path.strip_prefix('/')?.split_once('/')?;
    ["v1", "v1beta", "v1alpha"]
        .contains(&version)
        .then(|| (version, percent_decode(rest)))
}

fn models() -> Vec<Value> {
    MODELS.iter().filter_map(|id| model(id)).collect()
}

fn model(id: &str) -> Option<Value> {
    MODELS.contains(&id).then(|| {
        json!({
            "name": format!("models/{id}"), "version": "001", "displayName": id,
            "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536,
            "supportedGenerationMethods":
                ["generateContent", "countTokens", "createCachedContent", "batchGenerateContent"],
            "temperature": 1, "topP": 0.95, "topK": 64, "maxTemperature": 2, "thinking": true,
        })
    })
}

/// The text models of November 2026, and the aliases.
const MODELS: [&str; 20] = [
    "gemini-4-argon",
    "gemini-4-carbon",
    "gemini-4-hydrogen",
    "gemini-4-neon",
    "gemini-3.8-flash",
    "gemini-3.7-flash",
    "gemini-3.6-flash",
    "gemini-3.5-flash",
    "gemini-3.5-flash-lite",
    "gemini-3.1-pro-preview",
    "gemini-3.1-flash-lite",
    "gemini-3-flash-preview",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
    "gemma-4-31b-it",
    "gemma-4-26b-a4b-it",
    "gemini-pro-latest",
    "gemini-flash-latest",
    "gemini-flash-lite-latest",
];
