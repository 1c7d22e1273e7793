//! Marks in the isolate cache and in KV.
//!
//! A *result* mark is an immutable fact: a replay is answered from it without the database. A
//! *running* mark only says that somebody was at work when it was written; it may be stale, so it
//! leads to the arbiter like no mark at all.

use crate::idempotency::record::Stored;
use crate::json_form;
use crate::time::Timestamp;

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Somebody was running it.
    Running,
    /// The stored result.
    Result(Box<Stored>),
    /// The stored result's head; its body is too large for a mark and lies in R2 under this key.
    Pointer(Box<Stored>, String),
}

impl Mark {
    /// The text of a running mark.
    pub const RUNNING: &'static str = "running";

    /// The text of a result mark: one line of JSON, then the body as it is.
    pub fn result(stored: &Stored) -> String {
        let head = json_form::write(stored);
        let mut text = String::with_capacity(
            head.len()
                .saturating_add(stored.body.len())
                .saturating_add(8),
        );
        text.push_str("result ");
        text.push_str(&head);
        text.push('\n');
        text.push_str(&stored.body);
        text
    }

    /// The text of a mark whose body lies in R2.
    pub fn pointer(stored: &Stored, object: &str) -> String {
        let head = json_form::write(stored);
        format!("object {head}\n{object}")
    }

    /// Reads a mark; `None` for what this version does not understand.
    pub fn parse(text: &str) -> Option<Self> {
        if text == Self::RUNNING {
            return Some(Self::Running);
        }
        let (head, body) = text.split_once('\n')?;
        let (kind, head) = head.split_once(' ')?;
        let mut stored: Stored = json_form::read(head)?;
        match kind {
            "result" => {
                body.clone_into(&mut stored.body);
                Some(Self::Result(Box::new(stored)))
            }
            "object" => Some(Self::Pointer(Box::new(stored), body.to_owned())),
            _ => None,
        }
    }
}

/// Whether a stored result still answers a request with this claim key and fingerprint at
/// `anchor`. Only a clear yes counts; anything else is for the arbiter to decide.
pub fn answers(
    stored: &Stored,
    claim_key: &str,
    fingerprint: &str,
    operation: bool,
    anchor: Timestamp,
) -> bool {
    stored.claim_key == claim_key
        && (!operation || stored.fingerprint == fingerprint)
        && stored.anchor_at <= anchor
        && anchor < stored.expires_at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::record::tests::stored;

    #[test]
    fn a_result_mark_gives_back_the_same_result() {
        let text = Mark::result(&stored());
        assert_eq!(Mark::parse(&text), Some(Mark::Result(Box::new(stored()))));
    }

    #[test]
    fn marks_of_another_version_are_no_marks() {
        for text in ["", "done", "result {}\nx", "result", "later {\"a\":1}\nx"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_result_answers_inside_its_window_only() {
        let at = |ms| answers(&stored(), "k", "other", false, Timestamp::from_millis(ms));
        assert_eq!([4, 5, 9, 10].map(at), [false, true, true, false]);
        assert!(!answers(
            &stored(),
            "k2",
            "f",
            false,
            Timestamp::from_millis(5)
        ));
        assert!(!answers(
            &stored(),
            "k",
            "g",
            true,
            Timestamp::from_millis(5)
        ));
    }
}
