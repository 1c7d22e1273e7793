//! The daily digests: made once a day, whatever fires twice, and sent until they arrive.

use crate::ports::{DbError, Statement};
use crate::store::row::Row;
use crate::store::{integer, statement, text};
use crate::time::{Span, Timestamp};

/// A stored digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDigest {
    /// The local date that it was made for.
    pub day: String,
    /// When it was made.
    pub made_at: Timestamp,
    /// Its figures, as JSON.
    pub figures: String,
    /// Its text.
    pub body: String,
    /// How often it was tried to send it.
    pub attempts: u32,
}

impl StoredDigest {
    /// Reads a row of `digests`.
    pub fn read(row: Row<'_>) -> Result<Self, DbError> {
        Ok(Self {
            day: row.text("day")?,
            made_at: row.time("made_at")?,
            figures: row.text("figures")?,
            body: row.text("body")?,
            attempts: u32::try_from(row.integer("attempts")?).unwrap_or(u32::MAX),
        })
    }
}

/// Stores a digest; a second one for the same day changes nothing.
pub fn store(digest: &StoredDigest) -> Statement {
    statement(
        "INSERT INTO digests (day, made_at, figures, body, next_attempt_at) \
         VALUES (?1, ?2, ?3, ?4, ?2) ON CONFLICT (day) DO NOTHING",
        vec![
            text(&digest.day),
            integer(digest.made_at.millis()),
            text(&digest.figures),
            text(&digest.body),
        ],
    )
}

/// The day of the latest digest.
pub fn latest_day() -> Statement {
    statement("SELECT MAX(day) AS day FROM digests", Vec::new())
}

/// The latest digest.
pub fn latest() -> Statement {
    statement(
        "SELECT * FROM digests ORDER BY day DESC LIMIT 1",
        Vec::new(),
    )
}

/// Leases the digest that has waited longest to be sent, unless the channel is paused.
pub fn lease(now: Timestamp) -> Statement {
    statement(
        "UPDATE digests SET attempts = attempts + 1, next_attempt_at = ?2 \
         WHERE day IN (SELECT day FROM digests WHERE sent_at IS NULL AND next_attempt_at <= ?1 \
           ORDER BY next_attempt_at LIMIT 1) \
           AND NOT EXISTS (SELECT 1 FROM meta WHERE name = 'notify_paused_until' \
             AND CAST(value AS INTEGER) > ?1) RETURNING *",
        vec![integer(now.millis()), integer(now.plus(LEASE).millis())],
    )
}

/// Ends the sending of a digest.
pub fn sent(day: &str, now: Timestamp) -> Statement {
    statement(
        "UPDATE digests SET sent_at = ?2 WHERE day = ?1 AND sent_at IS NULL",
        vec![text(day), integer(now.millis())],
    )
}

/// Puts a digest off.
pub fn retry(day: &str, at: Timestamp) -> Statement {
    statement(
        "UPDATE digests SET next_attempt_at = ?2 WHERE day = ?1 AND sent_at IS NULL",
        vec![text(day), integer(at.millis())],
    )
}

/// How long a sender holds a digest.
const LEASE: Span = Span::from_minutes(2);
