//! Accounts and API keys. A key's text is never stored, only its SHA-256.

use crate::json_form::json_form;
use crate::ports::{DbError, Statement};
use crate::store::row::Row;
use crate::store::{optional, statement, text};
use crate::time::Timestamp;

/// What an API key gives access to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key's id.
    pub key_id: String,
    /// The SHA-256 of its text, in hex.
    pub hash: String,
    /// Whose it is.
    pub account: String,
    /// The account's limit of credits a day; `None` is unlimited.
    pub daily_credits: Option<i64>,
    /// The account's time zone (IANA).
    pub timezone: String,
    /// Defaults for site, pipeline and destinations, as JSON.
    pub defaults: String,
}

json_form!(Access {
    key_id,
    hash,
    account,
    daily_credits,
    timezone,
    defaults,
});

/// An account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub account: String,
    /// Its limit of credits a day.
    pub daily_credits: Option<i64>,
    /// Its time zone.
    pub timezone: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Looks a key up by its hash; a revoked key is not found.
pub fn find_key(hash: &str) -> Statement {
    statement(
        "SELECT k.id, k.hash, k.account, k.defaults, a.daily_credits, a.timezone \
         FROM api_keys k JOIN accounts a ON a.account = k.account \
         WHERE k.hash = ?1 AND k.revoked_at IS NULL",
        vec![text(hash)],
    )
}

/// Reads [`find_key`].
pub fn read_access(row: Row<'_>) -> Result<Access, DbError> {
    Ok(Access {
        key_id: row.text("id")?,
        hash: row.text("hash")?,
        account: row.text("account")?,
        daily_credits: row.optional_integer("daily_credits")?,
        timezone: row.text("timezone")?,
        defaults: row.text("defaults")?,
    })
}

/// Makes an account, or changes nothing where it exists.
pub fn create(account: &Account) -> Vec<Statement> {
    vec![
        statement(
            "INSERT INTO accounts (account, daily_credits, timezone, created_at) \
             VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            vec![
                text(&account.account),
                account
                    .daily_credits
                    .map_or(crate::ports::SqlValue::Null, super::integer),
                text(&account.timezone),
                super::integer(account.created_at.millis()),
            ],
        ),
        find(&account.account),
    ]
}

/// One account.
pub fn find(account: &str) -> Statement {
    statement(
        "SELECT * FROM accounts WHERE account = ?1",
        vec![text(account)],
    )
}

/// What an account has spent and reserved on a day.
pub fn credit_day(account: &str, day: &str) -> Statement {
    statement(
        "SELECT spent, reserved FROM credit_days WHERE account = ?1 AND day = ?2",
        vec![text(account), text(day)],
    )
}

/// A page of accounts in order of their names.
pub fn list(after: &str, limit: usize) -> Statement {
    statement(
        "SELECT * FROM accounts WHERE account > ?1 ORDER BY account LIMIT ?2",
        vec![text(after), super::count(limit)],
    )
}

/// Reads an account.
pub fn read(row: Row<'_>) -> Result<Account, DbError> {
    Ok(Account {
        account: row.text("account")?,
        daily_credits: row.optional_integer("daily_credits")?,
        timezone: row.text("timezone")?,
        created_at: row.time("created_at")?,
    })
}

/// Changes an account's limit and time zone.
pub fn update(account: &str, daily_credits: Option<i64>, timezone: &str) -> Vec<Statement> {
    vec![
        statement(
            "UPDATE accounts SET daily_credits = ?2, timezone = ?3 WHERE account = ?1",
            vec![
                text(account),
                daily_credits.map_or(crate::ports::SqlValue::Null, super::integer),
                text(timezone),
            ],
        ),
        find(account),
    ]
}

/// Adds a key to an account that exists.
pub fn add_key(
    id: &str,
    hash: &str,
    account: &str,
    label: Option<&str>,
    defaults: &str,
    now: Timestamp,
) -> Vec<Statement> {
    vec![
        statement(
            "INSERT INTO api_keys (id, hash, account, label, defaults, created_at) \
             SELECT ?1, ?2, account, ?4, ?5, ?6 FROM accounts WHERE account = ?3 \
             ON CONFLICT DO NOTHING",
            vec![
                text(id),
                text(hash),
                text(account),
                optional(label),
                text(defaults),
                super::integer(now.millis()),
            ],
        ),
        statement("SELECT id FROM api_keys WHERE id = ?1", vec![text(id)]),
    ]
}

/// The keys of the named accounts (a JSON list), without their hashes.
pub fn keys(accounts: &str) -> Statement {
    statement(
        "SELECT id, account, label, defaults, created_at, revoked_at FROM api_keys \
         WHERE account IN (SELECT value FROM json_each(?1)) ORDER BY account, created_at, id",
        vec![text(accounts)],
    )
}

/// Revokes a key; a second time changes nothing.
pub fn revoke(id: &str, now: Timestamp) -> Vec<Statement> {
    vec![
        statement(
            "UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
            vec![text(id), super::integer(now.millis())],
        ),
        statement("SELECT hash FROM api_keys WHERE id = ?1", vec![text(id)]),
    ]
}
