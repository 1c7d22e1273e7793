//! Lists: query parameters, cursors and pages.

use serde_json::{Value, json};

use crate::base64::Base64;
use crate::error::{Code, Fault, Problem};
use crate::http::auth::Principal;
use crate::http::message::Response;
use crate::http::query;
use crate::key::scope::Name;
use crate::sorted::SortedMap;
use crate::time::Timestamp;

/// The parameters of a query: each known, each given once.
pub fn parameters(text: &str, known: &[&str]) -> Result<SortedMap<String, String>, Problem> {
    let pairs = query::pairs(text)
        .ok_or_else(|| Problem::new(Code::InvalidRequest, "The query string is broken."))?;
    let mut parameters = SortedMap::new();
    let mut faults = Vec::new();
    for (name, value) in pairs {
        if !known.contains(&name.as_str()) {
            faults.push(Fault::new(
                pointer(&name),
                "is not a parameter of this call",
            ));
        } else if parameters.insert(name.clone(), value).is_some() {
            faults.push(Fault::new(pointer(&name), "is given twice"));
        }
    }
    if faults.is_empty() {
        Ok(parameters)
    } else {
        Err(Problem::invalid(faults))
    }
}

/// The pointer of a parameter; a name from outside is cut, and its escapes are RFC 6901's.
fn pointer(name: &str) -> String {
    let short: String = name.chars().take(64).collect();
    format!("/{}", short.replace('~', "~0").replace('/', "~1"))
}

/// Whose rows are asked for: an API key's own; an administrator's choice, or everybody's.
pub fn account_of(
    principal: &Principal,
    parameters: &SortedMap<String, String>,
) -> Result<Option<String>, Problem> {
    match (principal, parameters.get("account")) {
        (Principal::Key(access), None) => Ok(Some(access.account.clone())),
        (Principal::Key(_), Some(_)) => Err(Problem::new(
            Code::Forbidden,
            "Only the administrator may name an account.",
        )),
        (Principal::Admin, None) => Ok(None),
        (Principal::Admin, Some(account)) if Name::parse(account).is_some() => {
            Ok(Some(account.clone()))
        }
        (Principal::Admin, Some(_)) => Err(Problem::invalid(vec![Fault::new(
            "/account",
            "is not a name",
        )])),
    }
}

/// One page, newest first. A cursor names the last row that was seen, so rows that are added
/// meanwhile neither repeat nor hide one.
#[derive(Clone, Debug)]
pub struct Page {
    /// Only rows before this time…
    pub before: Timestamp,
    /// …and, at the same time, before this id.
    pub before_id: String,
    /// At most so many.
    pub limit: usize,
}

impl Page {
    /// Reads `cursor` and `limit`.
    pub fn read(parameters: &SortedMap<String, String>) -> Result<Self, Problem> {
        let limit = match parameters.get("limit") {
            None => LIMIT_DEFAULT,
            Some(text) => text
                .parse::<usize>()
                .ok()
                .filter(|limit| (1..=LIMIT_MAX).contains(limit) && !text.starts_with('+'))
                .ok_or_else(|| Problem::invalid(vec![Fault::new("/limit", "must be 1 to 200")]))?,
        };
        let (before, before_id) = match parameters.get("cursor") {
            None => (Timestamp::from_millis(MAX_TIME_MS), String::new()),
            Some(cursor) => decode(cursor).ok_or_else(|| {
                Problem::invalid(vec![Fault::new("/cursor", "is not a cursor of this list")])
            })?,
        };
        Ok(Self {
            before,
            before_id,
            limit,
        })
    }

    /// The answer with the items; one more than `limit` says that there is a next page.
    pub fn answer<T>(
        &self,
        items: &[T],
        key: impl Fn(&T) -> (Timestamp, String),
        show: impl Fn(&T) -> Value,
    ) -> Response {
        let shown = items.get(..self.limit).unwrap_or(items);
        let next = (items.len() > self.limit).then(|| shown.last().map(|item| encode(&key(item))));
        let items: Vec<Value> = shown.iter().map(show).collect();
        let document = json!({"items": items, "nextCursor": next.flatten()});
        Response::json(200, document.to_string()).with("cache-control", "no-store")
    }
}

fn encode(key: &(Timestamp, String)) -> String {
    Base64::Url.encode(format!("{}.{}", key.0.millis(), key.1).as_bytes())
}

fn decode(cursor: &str) -> Option<(Timestamp, String)> {
    let bytes = Base64::Url.decode(cursor)?;
    let text = String::from_utf8(bytes).ok()?;
    let (time, id) = text.split_once('.')?;
    let time = time
        .parse::<i64>()
        .ok()
        .filter(|ms| (0..=MAX_TIME_MS).contains(ms))?;
    (id.len() <= 64).then(|| (Timestamp::from_millis(time), id.to_owned()))
}

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 200;
/// The largest integer that a double holds exactly.
const MAX_TIME_MS: i64 = 9_007_199_254_740_991;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_nothing_else_is_one() {
        let key = (
            Timestamp::from_millis(1_800_000_000_123),
            "gen_a.b".to_owned(),
        );
        assert_eq!(decode(&encode(&key)), Some(key));
        for wrong in ["", "x", "MTIz", "LTEuYQ", "日本"] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_parameter_that_is_unknown_or_repeated_is_named() {
        let problem = parameters("a=1&b=2&a=3", &["a"]).unwrap_err();
        let pointers: Vec<&str> = problem.faults.iter().map(|f| f.pointer.as_str()).collect();
        assert_eq!(pointers, ["/b", "/a"]);
    }
}
