//! Finds where one JSON text ends and the next begins, a byte at a time.

use crate::gemini::sse::{EVENT_MAX_BYTES, StreamFault};

/// Cuts a run of JSON values, or a JSON list that arrives piece by piece, into its values.
///
/// It only counts brackets and quotes; whether a piece is valid JSON is for the parser to say.
#[derive(Debug)]
pub(crate) struct Splitter {
    bytes_max: usize,
    text: Vec<u8>,
    depth: usize,
    within: Within,
    list: List,
}

/// Where the next byte falls inside the open value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    Plain,
    String,
    Escape,
}

/// The list around the values, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// No `[` was seen.
    None,
    /// A `[` waits for its `]`.
    Open,
    /// The list was closed.
    Closed,
}

impl Default for Splitter {
    fn default() -> Self {
        Self::new(EVENT_MAX_BYTES)
    }
}

impl Splitter {
    /// A splitter of values of at most `bytes_max` bytes.
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            text: Vec::new(),
            depth: 0,
            within: Within::Plain,
            list: List::None,
        }
    }

    /// Takes one byte; gives the text of the value that it ends.
    pub(crate) fn push(&mut self, byte: u8) -> Result<Option<Vec<u8>>, StreamFault> {
        if self.text.is_empty() {
            self.between(byte)
        } else {
            self.inside(byte)
        }
    }

    /// Whether a value, or the list around the values, waits for its end.
    pub(crate) fn is_open(&self) -> bool {
        !self.text.is_empty() || self.list == List::Open
    }

    /// Whether the next byte may begin an item of a list.
    pub(crate) fn awaits_item(&self) -> bool {
        self.text.is_empty() && self.list == List::Open
    }

    /// The list around the values.
    pub(crate) fn list(&self) -> List {
        self.list
    }

    /// Forgets a `[` that turned out to begin no list.
    pub(crate) fn forget_list(&mut self) {
        self.list = List::None;
    }

    fn between(&mut self, byte: u8) -> Result<Option<Vec<u8>>, StreamFault> {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' | b',' => {}
            b'{' => {
                self.depth = 1;
                self.text.push(byte);
            }
            b'"' => {
                self.depth = 0;
                self.within = Within::String;
                self.text.push(byte);
            }
            b'[' if self.list != List::Open => self.list = List::Open,
            b']' if self.list == List::Open => self.list = List::Closed,
            _ => return Err(StreamFault::NotJson),
        }
        Ok(None)
    }

    fn inside(&mut self, byte: u8) -> Result<Option<Vec<u8>>, StreamFault> {
        if self.text.len() >= self.bytes_max {
            return Err(StreamFault::TooLarge);
        }
        if self.text.len() == self.text.capacity() {
            // Doubling would hold a large answer twice.
            self.text.reserve_exact((self.text.len() / 4).max(256));
        }
        self.text.push(byte);
        match (self.within, byte) {
            (Within::Escape, _) | (Within::Plain, b'"') => self.within = Within::String,
            (Within::String, b'\\') => self.within = Within::Escape,
            (Within::String, b'"') => {
                self.within = Within::Plain;
                return Ok(self.finished());
            }
            (Within::Plain, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
            (Within::Plain, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return Ok(self.finished());
            }
            (Within::Plain | Within::String, _) => {}
        }
        Ok(None)
    }

    /// The text of the open value, if its last bracket or quote has just closed.
    fn finished(&mut self) -> Option<Vec<u8>> {
        (self.depth == 0).then(|| std::mem::take(&mut self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_may_reach_the_bound_and_not_pass_it() {
        let split = |bytes_max| {
            let mut splitter = Splitter::new(bytes_max);
            br#"{"a":1}"#.iter().map(|byte| splitter.push(*byte)).collect::<Result<Vec<_>, _>>()
        };
        assert_eq!(
            split(7).unwrap().last(),
            Some(&Some(br#"{"a":1}"#.to_vec()))
        );
        assert_eq!(split(6), Err(StreamFault::TooLarge));
    }
}
