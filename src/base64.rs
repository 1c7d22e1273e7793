//! Base64 (RFC 4648) as cursors and destinations write it.
//!
//! The crate of that name compiles to ten times the code: it knows more alphabets, and is made for
//! a speed that is not needed here.

use Base64::{Standard, Url};

/// One of the two alphabets, each with its custom for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base64 {
    /// `+` and `/`, and padded with `=`.
    Standard,
    /// `-` and `_`, without padding.
    Url,
}

impl Base64 {
    /// Writes bytes as text.
    pub fn encode(self, bytes: &[u8]) -> String {
        let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
        for group in bytes.chunks(3) {
            let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
            let word = byte(0) << 16 | byte(1) << 8 | byte(2);
            let written = group.len().saturating_add(1);
            for shift in [18, 12, 6, 0].into_iter().take(written) {
                text.push(self.symbol(word >> shift & 63));
            }
            if self == Standard {
                text.extend((written..4).map(|_| '='));
            }
        }
        text
    }

    /// Reads what [`encode`](Self::encode) writes, and nothing else.
    pub fn decode(self, text: &str) -> Option<Vec<u8>> {
        let text = match self {
            Standard if text.len().is_multiple_of(4) => {
                let short = text.strip_suffix('=').unwrap_or(text);
                short.strip_suffix('=').unwrap_or(short)
            }
            Standard => return None,
            Url => text,
        };
        let mut bytes = Vec::new();
        for group in text.as_bytes().chunks(4) {
            let mut word = 0_u32;
            for at in 0..4 {
                let six = group
                    .get(at)
                    .map_or(Some(0), |symbol| self.value(*symbol))?;
                word = word << 6 | six;
            }
            let [_, three @ ..] = word.to_be_bytes();
            let (read, rest) = three.split_at_checked(group.len().saturating_sub(1))?;
            if read.is_empty() || rest.iter().any(|byte| *byte != 0) {
                return None;
            }
            bytes.extend_from_slice(read);
        }
        Some(bytes)
    }

    const fn last(self) -> [u8; 2] {
        match self {
            Standard => *b"+/",
            Url => *b"-_",
        }
    }

    fn symbol(self, value: u32) -> char {
        let at = usize::try_from(value).unwrap_or_default();
        let [next, last] = self.last();
        let beyond = if at == PLAIN.len() { next } else { last };
        char::from(*PLAIN.get(at).unwrap_or(&beyond))
    }

    fn value(self, symbol: u8) -> Option<u32> {
        let last = self.last();
        let at = PLAIN.iter().chain(&last).position(|s| *s == symbol)?;
        u32::try_from(at).ok()
    }
}

/// What both alphabets begin with.
const PLAIN: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_written_as_the_crate_writes_them_and_read_back(bytes: Vec<u8>) {
            prop_assert_eq!(Standard.encode(&bytes), STANDARD.encode(&bytes));
            prop_assert_eq!(Url.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes));
            for alphabet in [Standard, Url] {
                prop_assert_eq!(alphabet.decode(&alphabet.encode(&bytes)), Some(bytes.clone()));
            }
        }

        #[test]
        fn any_text_is_read_or_refused_as_the_crate_does(text in "[A-Za-z0-9+/_=é-]{0,9}={0,3}") {
            prop_assert_eq!(Standard.decode(&text), STANDARD.decode(&text).ok());
            prop_assert_eq!(Url.decode(&text), URL_SAFE_NO_PAD.decode(&text).ok());
        }
    }
}
