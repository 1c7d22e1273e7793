//! Who asks: an API key of an account, or the administrator.

use crate::app::{App, sha256_hex};
use crate::error::{Code, Problem};
use crate::http::message::Request;
use crate::idempotency::gateway::store_problem;
use crate::json_form;
use crate::limits::AUTH_CACHE_TTL;
use crate::store::accounts::{Access, find_key, read_access};
use crate::store::row::first;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The bearer of the admin token.
    Admin,
    /// The bearer of an API key.
    Key(Access),
}

impl Principal {
    /// Whose data this principal sees: `None` is everybody's.
    pub fn account(&self) -> Option<&str> {
        match self {
            Self::Admin => None,
            Self::Key(access) => Some(&access.account),
        }
    }

    /// For the audit trail.
    pub fn actor(&self) -> &str {
        match self {
            Self::Admin => "admin",
            Self::Key(access) => &access.key_id,
        }
    }
}

/// Finds out who asks, by `Authorization: Bearer` alone or, where `anywhere`, also by Google's
/// header and query parameter.
pub async fn authenticate(
    app: &App,
    request: &Request,
    anywhere: Anywhere,
) -> Result<Principal, Problem> {
    let Some(secret) = credential(request, anywhere) else {
        return Err(refused(
            "No API key was sent; send `Authorization: Bearer <key>`.",
        ));
    };
    let admin = app.config().admin_token.expose();
    if !admin.is_empty() && same(&sha256_hex(&secret), &sha256_hex(admin)) {
        return Ok(Principal::Admin);
    }
    if !looks_like_a_key(&secret) {
        return Err(refused("This API key is unknown or revoked."));
    }
    access(app, &sha256_hex(&secret)).await.map(Principal::Key)
}

/// Where a credential may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anywhere {
    /// In `Authorization` only.
    No,
    /// In `x-goog-api-key` and `?key=` too, where Google's SDKs put it.
    Yes,
}

fn credential(request: &Request, anywhere: Anywhere) -> Option<String> {
    if anywhere == Anywhere::Yes {
        if let Some(key) = request.header("x-goog-api-key") {
            return Some(key.trim().to_owned());
        }
        if let Some(key) = crate::http::query::value(&request.query, "key") {
            return Some(key);
        }
    }
    let header = request.header("authorization")?;
    let (scheme, token) = header.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim().to_owned())
}

/// Keys have one form, so that guesses of another cost no look at the database.
fn looks_like_a_key(secret: &str) -> bool {
    secret.strip_prefix("opk_").is_some_and(|rest| {
        rest.len() == 48
            && rest
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// Looks the key up: in the isolate for a minute at most, so that a revoked key dies within it.
async fn access(app: &App, hash: &str) -> Result<Access, Problem> {
    let name = format!("auth:{hash}");
    let now = app.now();
    if let Some(known) = app.isolate.get(&name, now)
        && let Some(access) = json_form::read::<Access>(&known)
        && same(&access.hash, hash)
    {
        return Ok(access);
    }
    let results = app
        .run(vec![find_key(hash)])
        .await
        .map_err(|e| store_problem(app, &e))?;
    let found = first(&results, 0)
        .and_then(|row| row.map(read_access).transpose())
        .map_err(|error| store_problem(app, &error))?;
    let Some(access) = found.filter(|access| same(&access.hash, hash)) else {
        return Err(refused("This API key is unknown or revoked."));
    };
    app.isolate
        .put(&name, &json_form::write(&access), now.plus(AUTH_CACHE_TTL));
    Ok(access)
}

/// Compares two digests in time that does not depend on where they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .fold(0_u8, |acc, (x, y)| acc | (x ^ y))
            == 0
}

fn refused(detail: &str) -> Problem {
    Problem::new(Code::Unauthenticated, detail).header("www-authenticate", "Bearer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_of_our_keys_is_looked_up() {
        assert!(looks_like_a_key(&format!("opk_{}", "0a".repeat(24))));
        for wrong in ["", "opk_", "opk_ABC", &format!("opk_{}", "0A".repeat(24))] {
            assert!(!looks_like_a_key(wrong), "{wrong}");
        }
    }

    #[test]
    fn digests_are_compared_whole() {
        assert!(same("abc", "abc"));
        assert!(!same("abc", "abd"));
        assert!(!same("abc", "ab"));
    }
}
