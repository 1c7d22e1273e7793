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
/// Longest text that is hashed in place. A longer one stands as its own SHA-256, so that a prompt
/// is read once for the three digests it is part of. Two blocks of SHA-256: below that, hashing
/// apart costs more than it saves.
pub const TEXT_IN_PLACE_MAX_BYTES: usize = 128;
/// Most leaves kept of a request, to say later which of its fields another one changed. Far more
/// than a request has fields; what lies below is kept as one digest.
pub const LEAVES_MAX: usize = 512;
/// Most bytes of pointers in them, so that the row they are in stays small.
pub const LEAVES_POINTERS_MAX_BYTES: usize = 32_768;
/// Most pointers that a conflict names: enough to see what happened.
pub const CONFLICT_POINTERS_MAX: usize = 20;
/// Longest name of an account, a site or a pipeline.
pub const NAME_MAX_CHARS: usize = 64;
/// Longest operation key: room for a UUID and a prefix, short enough for an index.
pub const OPERATION_KEY_MAX_CHARS: usize = 128;
