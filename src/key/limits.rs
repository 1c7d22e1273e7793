//! The bounds of parsing and identity, each with its reason. Depth and body size are in
//! [`crate::limits`].

/// Longest spelling of a number. No model parameter needs more than twenty characters; a thousand
/// leaves room for any exact literal, and keeps an exact comparison cheap.
pub const NUMBER_MAX_CHARS: usize = 1_000;
/// Most values (of any kind, nested ones too) in one JSON document. A parsed value takes some 60
/// bytes, so this is about 15 MB of the 128 MB that an isolate has
/// (developers.cloudflare.com/workers/platform/limits). A 20 MiB request to Gemini consists of
/// long base64 strings, not of many values.
pub const JSON_VALUES_MAX: usize = 250_000;
/// Longest JSON pointer that an error names. A longer one is cut to the nearest enclosing value.
pub const POINTER_MAX_BYTES: usize = 512;
