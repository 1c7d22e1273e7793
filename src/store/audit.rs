//! The audit trail: who did what to whom, and why.

use crate::ports::Statement;
use crate::store::{integer, optional, statement, text};
use crate::time::Timestamp;

/// An act of a person.
#[derive(Clone, Debug)]
pub struct Act<'a> {
    /// `admin`, or the id of the API key.
    pub actor: &'a str,
    /// Whose data.
    pub account: &'a str,
    /// What was done.
    pub action: &'a str,
    /// To which id.
    pub subject: &'a str,
    /// Why, in the actor's words.
    pub reason: Option<&'a str>,
    /// Names this act, so that a repeated batch records it once.
    pub token: &'a str,
}

/// Records an act.
pub fn record(act: &Act<'_>, now: Timestamp) -> Statement {
    statement(
        "INSERT INTO audit (at, actor, account, action, subject, reason, token) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (token) DO NOTHING",
        vec![
            integer(now.millis()),
            text(act.actor),
            text(act.account),
            text(act.action),
            text(act.subject),
            optional(act.reason),
            text(act.token),
        ],
    )
}
