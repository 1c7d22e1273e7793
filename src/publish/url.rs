//! Percent-encoding of paths and query values.

use std::fmt::Write as _;

/// `text` with every byte outside of RFC 3986's unreserved characters encoded.
pub(crate) fn encode(text: &str) -> String {
    encode_but(text, &[])
}

/// The same for a whole path, whose slashes stay.
pub(crate) fn encode_path(path: &str) -> String {
    encode_but(path, b"/")
}

fn encode_but(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a string can't fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
