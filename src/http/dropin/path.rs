//! Which paths of the Gemini API are served, and how. What is not listed is not passed on: some
//! calls, such as making an ephemeral token, would hand out the gateway's own key.

use crate::error::{Code, Problem};
use crate::gemini::request::{ApiVersion, Method, ModelName};
use crate::http::query;

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// It is generated once.
    Generating(Generating),
    /// It passes through.
    Passing(Passing),
}

/// A generating call that is served here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generating {
    pub(super) version: ApiVersion,
    pub(super) model: ModelName,
    pub(super) method: Method,
}

/// A call that passes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passing {
    pub(super) method: &'static str,
    /// The path at Gemini, of checked segments.
    pub(super) path: String,
    pub(super) kind: Kind,
}

/// What a call that passes through does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It reads what is everybody's, or a thing by an id that only its maker knows.
    Open,
    /// It works with what the project of the gateway's key holds for all: files, caches, batches.
    Shared,
    /// It generates, and is paid each time it is sent.
    Unguarded,
}

/// Finds out what a call is.
pub(super) fn parse(method: &str, path: &str) -> Result<Target, Problem> {
    let method = METHODS
        .into_iter()
        .find(|known| *known == method)
        .ok_or_else(|| not_allowed("GET, POST, PATCH, PUT, DELETE"))?;
    let segments = segments(path).ok_or_else(not_served)?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let passing = |kind| {
        Ok(Target::Passing(Passing {
            method,
            path: format!("/{}", segments.join("/")),
            kind,
        }))
    };
    match segments.as_slice() {
        ["upload", version, "files"] if known(version) => match method {
            "POST" | "PUT" => passing(Kind::Shared),
            _ => Err(not_allowed("POST, PUT")),
        },
        ["download", version, ..] if known(version) && method == "GET" => passing(Kind::Shared),
        [_, ..] if method == "PUT" => Err(not_allowed("GET, POST, PATCH, DELETE")),
        [version, "models", call] if known(version) => match call.rsplit_once(':') {
            None if method == "GET" => passing(Kind::Open),
            None => Err(not_allowed("GET")),
            Some(_) if method != "POST" => Err(not_allowed("POST")),
            Some((model, call)) => match generating(version, model, call)? {
                Some(generating) => Ok(Target::Generating(generating)),
                None if COUNTING.contains(&call) => passing(Kind::Open),
                None => passing(Kind::Unguarded),
            },
        },
        [version, rest @ ..] if known(version) => passing(kind(method, rest)?),
        _ => Err(not_served()),
    }
}

fn known(version: &str) -> bool {
    ApiVersion::parse(version).is_some()
}

fn generating(version: &str, model: &str, call: &str) -> Result<Option<Generating>, Problem> {
    let method = match call {
        "generateContent" => Method::Unary,
        "streamGenerateContent" => Method::Stream,
        _ => return Ok(None),
    };
    match (ApiVersion::parse(version), ModelName::parse(model)) {
        (Some(version), Some(model)) => Ok(Some(Generating {
            version,
            model,
            method,
        })),
        _ => Err(not_served()),
    }
}

/// What the other calls do.
fn kind(method: &str, rest: &[&str]) -> Result<Kind, Problem> {
    match (method, rest) {
        ("GET", ["models"] | ["openai", "models", ..] | ["interactions", _])
        | ("DELETE", ["interactions", _])
        | ("POST", ["interactions", _, "cancel"]) => Ok(Kind::Open),
        (_, ["openai", "files" | "batches", ..]) | ("GET", ["models", _, "operations", ..]) => {
            Ok(Kind::Shared)
        }
        ("POST", ["interactions"] | ["openai", ..]) => Ok(Kind::Unguarded),
        ("POST", ["tunedModels", call]) if call.contains(':') => Ok(Kind::Unguarded),
        (_, [collection, ..]) if SHARED.contains(collection) => Ok(Kind::Shared),
        _ => Err(not_served()),
    }
}

/// The path's segments, unescaped, each of harmless characters; `None` where one is not.
fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/')
        .map(|part| {
            let part = query::decode(&part.replace('+', "%2B"))?;
            let harmless = part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:~@$=-".contains(&b));
            let names = !part.bytes().all(|b| b == b'.');
            (harmless && names && part.len() <= SEGMENT_MAX_BYTES).then_some(part)
        })
        .collect()
}

fn not_served() -> Problem {
    Problem::new(
        Code::NotFound,
        "This path of the Gemini API is not served here.",
    )
}

fn not_allowed(allowed: &'static str) -> Problem {
    Problem::new(
        Code::MethodNotAllowed,
        format!("This path takes {allowed}."),
    )
    .header("allow", allowed)
}

const METHODS: [&str; 5] = ["GET", "POST", "PATCH", "PUT", "DELETE"];
/// Calls of a model that count and generate nothing.
const COUNTING: [&str; 3] = ["countTokens", "countTextTokens", "countMessageTokens"];
/// Collections of the project behind the gateway's key.
const SHARED: [&str; 7] = [
    "batches",
    "cachedContents",
    "fileSearchStores",
    "files",
    "generatedFiles",
    "operations",
    "tunedModels",
];
/// Longer than any name of Google's.
const SEGMENT_MAX_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(method: &str, path: &str) -> String {
        match parse(method, path) {
            Ok(Target::Generating(call)) => format!("{:?} {}", call.method, call.model),
            Ok(Target::Passing(passing)) => format!("{:?} {}", passing.kind, passing.path),
            Err(problem) => problem.code.as_str().to_owned(),
        }
    }

    #[test]
    fn each_call_is_served_passed_on_or_refused() {
        let calls = [
            ("POST", "/v1/models/gemini-3.8-flash:generateContent"),
            (
                "POST",
                "/v1beta/models/gemini-3.8-flash%3AstreamGenerateContent",
            ),
            ("GET", "/v1beta/models/gemini-3.8-flash:generateContent"),
            ("GET", "/v1alpha/models"),
            ("GET", "/v1/models/gemini-3.8-flash"),
            ("POST", "/v1/models/gemini-3.8-flash:countTokens"),
            ("POST", "/v1/models/gemini-embedding-001:embedContent"),
            ("POST", "/v1/models/gemini-3.8-flash:batchGenerateContent"),
            ("POST", "/v1/interactions"),
            ("GET", "/v1/interactions/v1_abc"),
            ("POST", "/v1/interactions/v1_abc/cancel"),
            ("POST", "/v1beta/openai/chat/completions"),
            ("GET", "/v1beta/openai/models"),
            ("POST", "/v1beta/openai/files"),
            ("GET", "/v1beta/files/abc"),
            ("PATCH", "/v1beta/cachedContents/abc"),
            ("POST", "/v1beta/batches/abc:cancel"),
            ("POST", "/v1beta/tunedModels/abc:generateContent"),
            ("POST", "/upload/v1beta/files"),
            ("GET", "/download/v1beta/files/abc:download"),
            ("POST", "/v1alpha/auth_tokens"),
            ("OPTIONS", "/v1/models"),
            ("PUT", "/v1/files/abc"),
        ];
        let lines: Vec<_> = calls
            .iter()
            .map(|(method, path)| format!("{method} {path} -> {}", shown(method, path)))
            .collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        POST /v1/models/gemini-3.8-flash:generateContent -> Unary gemini-3.8-flash
        POST /v1beta/models/gemini-3.8-flash%3AstreamGenerateContent -> Stream gemini-3.8-flash
        GET /v1beta/models/gemini-3.8-flash:generateContent -> method_not_allowed
        GET /v1alpha/models -> Open /v1alpha/models
        GET /v1/models/gemini-3.8-flash -> Open /v1/models/gemini-3.8-flash
        POST /v1/models/gemini-3.8-flash:countTokens -> Open /v1/models/gemini-3.8-flash:countTokens
        POST /v1/models/gemini-embedding-001:embedContent -> Unguarded /v1/models/gemini-embedding-001:embedContent
        POST /v1/models/gemini-3.8-flash:batchGenerateContent -> Unguarded /v1/models/gemini-3.8-flash:batchGenerateContent
        POST /v1/interactions -> Unguarded /v1/interactions
        GET /v1/interactions/v1_abc -> Open /v1/interactions/v1_abc
        POST /v1/interactions/v1_abc/cancel -> Open /v1/interactions/v1_abc/cancel
        POST /v1beta/openai/chat/completions -> Unguarded /v1beta/openai/chat/completions
        GET /v1beta/openai/models -> Open /v1beta/openai/models
        POST /v1beta/openai/files -> Shared /v1beta/openai/files
        GET /v1beta/files/abc -> Shared /v1beta/files/abc
        PATCH /v1beta/cachedContents/abc -> Shared /v1beta/cachedContents/abc
        POST /v1beta/batches/abc:cancel -> Shared /v1beta/batches/abc:cancel
        POST /v1beta/tunedModels/abc:generateContent -> Unguarded /v1beta/tunedModels/abc:generateContent
        POST /upload/v1beta/files -> Shared /upload/v1beta/files
        GET /download/v1beta/files/abc:download -> Shared /download/v1beta/files/abc:download
        POST /v1alpha/auth_tokens -> not_found
        OPTIONS /v1/models -> method_not_allowed
        PUT /v1/files/abc -> method_not_allowed
        ");
    }

    #[test]
    fn no_path_leads_anywhere_else() {
        for path in [
            "/v1/../admin",
            "/v1/models/..",
            "/v1/models/%2e%2e",
            "/v1/files/a%2Fb",
            "/v1/files//x",
            "/v1/files/a%5cb",
            "/v1/files/a%3Fkey=x",
            "/v1/files/a%23",
            "/v1/files/%zz",
            "/v1/files/日本",
            "//v1/models",
            "/v2/models",
            "/v1",
            "/download/v2/files/x",
        ] {
            assert_eq!(shown("GET", path), "not_found", "{path}");
        }
        let escape = "/v1/models/..%2Ffiles:generateContent";
        assert_eq!(shown("POST", escape), "not_found");
    }
}
