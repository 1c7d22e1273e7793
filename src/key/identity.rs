//! Fingerprint and derived key: what makes two requests the same purchase.
//!
//! The **fingerprint** is the SHA-256 of the whole request in canonical form. The **derived key**
//! is that of a looser form, which the repeats of one job share though they differ a little:
//!
//! | | fingerprint | derived key |
//! |---|---|---|
//! | account, site, pipeline, resolved model, kind of endpoint | in | in |
//! | contents, prompts, configuration, schema, tools, `variant`, … | in | in |
//! | `topic`, `windowMinutes`, `requestedAt`, `labels` | out | out |
//! | destinations (`publish`) | in | out |
//! | what `IDENTITY_IGNORES` names | in | out |
//! | white space around `systemPrompt` and `userPrompt` | in | out |
//! | the response schema's text where `schemaVersion` is given | in | out |
//!
//! Both read Google's own fields in either spelling, take an empty `generationConfig` for none,
//! and `role: "user"` in `systemInstruction` for no role.
//!
//! In both, every part is a canonical value that says where it ends ([`super::canonical`]), and
//! their number and order are fixed: no two different requests are hashed from the same bytes.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::canonical::{Canonical, RepeatedMember, Sink};
use super::fields::{API_REQUEST, GEMINI_REQUEST};
use super::json::Json;
use super::leaves::Leaves;
use super::pointer::JsonPointer;
use super::scope::Scope;

/// Which kind of endpoint a request came to. The same body means different things to the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// `POST /api/v1/generations`.
    Api,
    /// The Gemini API's own methods, whose body is Gemini's.
    DropIn,
}

/// A request whose identity is asked for.
#[derive(Clone, Copy, Debug)]
pub struct IdentityInput<'a> {
    /// Whose it is.
    pub scope: &'a Scope,
    /// Which kind of endpoint it came to.
    pub surface: Surface,
    /// The model: as the caller named it, else the default. An alias stays itself.
    pub model: &'a str,
    /// The whole body as sent.
    pub request: &'a Json,
    /// What stands beside the body: nothing for the API, whose body says it all.
    pub beside: Beside<'a>,
    /// What does not count in the derived key. Pointers use the camel-case names of fields; an
    /// element of an array keeps its place and counts as `null`; the whole request can't be named.
    pub ignores: &'a [JsonPointer],
}

/// What a drop-in request says in headers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// `X-Oncepress-Variant`.
    pub variant: Option<&'a str>,
    /// `X-Oncepress-Publish` as a list of `{"publisher","target"}`.
    pub publish: Option<&'a Json>,
}

/// The identity of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// SHA-256 of the whole canonical request.
    pub fingerprint: Fingerprint,
    /// SHA-256 behind the derived key, in full: what is compared before a duplicate is believed.
    pub digest: Digest,
    /// `idem:{account}:{site}:{pipeline}:{first 32 hex digits of the digest}`.
    pub derived_key: String,
    /// A digest per leaf of what the fingerprint covers.
    pub leaves: Leaves,
}

/// Finds the identity of a request; refuses one that spells a field in both cases at once.
///
/// ```
/// use oncepress::key::identity::{Beside, IdentityInput, Surface, identify};
/// use oncepress::key::json::Json;
/// use oncepress::key::scope::{Name, Scope};
/// let name = |text| Name::parse(text).unwrap();
/// let scope = Scope { account: name("acme"), site: name("blog"), pipeline: name("daily") };
/// let key = |body: &str| {
///     let request = &Json::parse(body.as_bytes()).unwrap();
///     let (surface, model, beside) = (Surface::Api, "gemini-3.8-flash", Beside::default());
///     let input =
///         IdentityInput { scope: &scope, surface, model, request, beside, ignores: &[] };
///     identify(&input).unwrap().derived_key
/// };
/// let first = key(r#"{"userPrompt": "Hello", "generationConfig": {"temperature": 1}}"#);
/// let again = key(r#"{"generationConfig": {"temperature": 1.0}, "userPrompt": "Hello\n"}"#);
/// assert!(first.starts_with("idem:acme:blog:daily:"));
/// assert_eq!(first, again);
/// assert_ne!(first, key(r#"{"userPrompt": "Hello"}"#));
/// ```
pub fn identify(input: &IdentityInput<'_>) -> Result<Identity, RepeatedMember> {
    let mut body = body(input)?;
    let publish = input.beside.publish.map(Canonical::of).transpose()?;
    let mut frame = frame(input, publish);
    let fingerprint = Fingerprint(hash(b"fingerprint\n", &frame, &body));
    let leaves = leaves(input, &frame, &body);
    loosen_frame(input, &mut frame);
    loosen_body(input, &mut body);
    let digest = Digest(hash(b"derived key\n", &frame, &body));
    Ok(Identity {
        fingerprint,
        digest,
        derived_key: derived_key(input.scope, &digest),
        leaves,
    })
}

/// The body in canonical form, without what never counts.
fn body<'a>(input: &IdentityInput<'a>) -> Result<Canonical<'a>, RepeatedMember> {
    let (kind, left_out): (_, &[&str]) = match input.surface {
        Surface::Api => (API_REQUEST, API_LEFT_OUT),
        Surface::DropIn => (GEMINI_REQUEST, &["labels"]),
    };
    let mut body = Canonical::of_kind(input.request, kind)?;
    for name in left_out {
        body.remove(name);
    }
    let instruction = body.member("systemInstruction");
    if let Some(instruction) = instruction.filter(|_| input.surface == Surface::DropIn)
        && instruction.member("role") == Some(&mut Canonical::Text("user"))
    {
        instruction.remove("role");
    }
    drop_empty_configuration(&mut body);
    Ok(body)
}

fn drop_empty_configuration(body: &mut Canonical<'_>) {
    if body.member(GENERATION_CONFIG) == Some(&mut Canonical::Object(Vec::new())) {
        body.remove(GENERATION_CONFIG);
    }
}

/// Takes out of the frame what does not count in the derived key. Account, site and pipeline do.
fn loosen_frame(input: &IdentityInput<'_>, frame: &mut Frame<'_>) {
    let named = |name: &str| {
        input
            .ignores
            .iter()
            .any(|pointer| pointer.to_string() == name)
    };
    for (pointer, part) in frame {
        let ignored = matches!(*pointer, MODEL | VARIANT) && named(pointer);
        if ignored || *pointer == PUBLISH {
            *part = Canonical::Null;
        }
    }
}

/// Takes out of the body what does not count in the derived key.
fn loosen_body<'a>(input: &IdentityInput<'a>, body: &mut Canonical<'a>) {
    if input.surface == Surface::Api {
        body.remove("publish");
        for name in ["systemPrompt", "userPrompt"] {
            trim_member(input.request, body, name);
        }
        if !matches!(body.member("schemaVersion"), None | Some(Canonical::Null)) {
            hide_schemas(body);
        }
    }
    for pointer in input.ignores {
        ignore(body, pointer.tokens());
    }
    drop_empty_configuration(body);
}

fn trim_member<'a>(request: &'a Json, body: &mut Canonical<'a>, name: &str) {
    let sent = request.get(name).and_then(Json::as_str);
    if let (Some(sent), Some(value)) = (sent, body.member(name)) {
        let trimmed = trim(sent);
        if trimmed.len() < sent.len() {
            *value = Canonical::text(trimmed);
        }
    }
}

/// A prompt without outer white space: Unicode's `White_Space`, and the byte order mark, which is
/// none but which editors leave behind. It serves the hash only; Gemini gets the original.
pub fn trim(prompt: &str) -> &str {
    prompt.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
}

/// Puts a mark in place of each response schema: that there is one still counts.
fn hide_schemas(body: &mut Canonical<'_>) {
    hide(body.member(RESPONSE_SCHEMA));
    if let Some(configuration) = body.member(GENERATION_CONFIG) {
        for name in [RESPONSE_SCHEMA, "responseJsonSchema", "_responseJsonSchema"] {
            hide(configuration.member(name));
        }
    }
}

fn hide(schema: Option<&mut Canonical<'_>>) {
    if let Some(schema) = schema.filter(|schema| **schema != Canonical::Null) {
        *schema = Canonical::Bool(true);
    }
}

/// Takes away what a pointer names, if it is there.
fn ignore(value: &mut Canonical<'_>, tokens: &[String]) {
    let Some((token, rest)) = tokens.split_first() else {
        return;
    };
    if rest.is_empty() {
        value.remove(token);
    }
    let inner = match value {
        Canonical::Array(elements) => elements
            .iter_mut()
            .enumerate()
            .find(|(at, _)| at.to_string() == *token)
            .map(|e| e.1),
        other => other.member(token),
    };
    match inner {
        Some(element) if rest.is_empty() => *element = Canonical::Null,
        Some(inner) => ignore(inner, rest),
        None => {}
    }
}

fn hash(purpose: &[u8], frame: &Frame<'_>, body: &Canonical<'_>) -> [u8; 32] {
    let mut sha = Sha256::new();
    sha.put(VERSION);
    sha.put(purpose);
    for (_, part) in frame {
        part.write(&mut sha);
    }
    body.write(&mut sha);
    sha.finalize().into()
}

/// What stands around the body, each under the pointer that it has for people: always as many
/// parts, always in this order.
type Frame<'a> = [(&'static str, Canonical<'a>); 7];

fn frame<'a>(input: &IdentityInput<'a>, publish: Option<Canonical<'a>>) -> Frame<'a> {
    let Scope {
        account,
        site,
        pipeline,
    } = input.scope;
    // The kind of endpoint says what the body is, so it goes by the pointer of the whole.
    let surface = Canonical::Text(match input.surface {
        Surface::Api => "api",
        Surface::DropIn => "drop-in",
    });
    let variant = input
        .beside
        .variant
        .map_or(Canonical::Null, Canonical::text);
    [
        ("", surface),
        ("/account", Canonical::text(account.as_str())),
        ("/site", Canonical::text(site.as_str())),
        ("/pipeline", Canonical::text(pipeline.as_str())),
        (MODEL, Canonical::text(input.model)),
        (VARIANT, variant),
        (PUBLISH, publish.unwrap_or(Canonical::Null)),
    ]
}

/// The leaves of what the fingerprint covers.
fn leaves(input: &IdentityInput<'_>, frame: &Frame<'_>, body: &Canonical<'_>) -> Leaves {
    let given = frame.iter().filter(|(_, part)| *part != Canonical::Null);
    let parts = given.map(|(pointer, part)| ((*pointer).to_owned(), part));
    Leaves::of(
        &input.scope.account,
        parts.chain([(String::new(), body)]).collect(),
    )
}

fn derived_key(scope: &Scope, digest: &Digest) -> String {
    let Scope {
        account,
        site,
        pipeline,
    } = scope;
    let hex = digest.to_string();
    let prefix = hex.get(..DERIVED_KEY_HEX_DIGITS).unwrap_or(&hex);
    format!("idem:{account}:{site}:{pipeline}:{prefix}")
}

/// SHA-256 of a whole canonical request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// SHA-256 behind a derived key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Fingerprint {
    /// Reads 64 lower-case hex digits, as they are stored.
    pub fn parse(hex: &str) -> Option<Self> {
        bytes(hex).map(Self)
    }
}

impl Digest {
    /// Reads 64 lower-case hex digits, as they are stored.
    pub fn parse(hex: &str) -> Option<Self> {
        bytes(hex).map(Self)
    }
}

/// 64 lower-case hex digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// 64 lower-case hex digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

fn bytes(text: &str) -> Option<[u8; 32]> {
    let lower = !text.contains(|c: char| c.is_ascii_uppercase());
    let mut bytes = [0; 32];
    (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

/// Leads everything that is hashed; changes with anything that changes what is hashed.
const VERSION: &[u8] = b"oncepress-identity-1\n";
/// Members of the API's body that never count, or that stand in the frame: site, pipeline and the
/// resolved model.
const API_LEFT_OUT: &[&str] = &[
    "labels",
    "model",
    "pipeline",
    "requestedAt",
    "site",
    "topic",
    "windowMinutes",
];
const GENERATION_CONFIG: &str = "generationConfig";
const RESPONSE_SCHEMA: &str = "responseSchema";
const MODEL: &str = "/model";
const VARIANT: &str = "/variant";
const PUBLISH: &str = "/publish";
/// Enough to keep keys short; the whole digest decides.
const DERIVED_KEY_HEX_DIGITS: usize = 32;

#[cfg(test)]
mod tests;
