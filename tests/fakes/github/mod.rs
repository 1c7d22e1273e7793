//! `/github`: the REST API of repositories that come to be when they are first named.
//!
//! A repository called `missing` isn't there; one called `empty` has no commit yet.

mod contents;
mod data;
mod history;
mod objects;

use serde_json::{Map, Value, json};

use super::clock;
use super::fault::Fault;
use super::http::{Request, percent_decode};
use super::reply::Reply;
use super::state::State;

/// Answers one call.
pub(crate) fn answer(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Reply {
    let reply = check_caller(state, request)
        .and_then(|()| limits(fault))
        .and_then(|()| route(state, request, rest, fault))
        .unwrap_or_else(|refusal| refusal);
    github_headers(reply, fault)
}

/// Every repository with its branches: head, commits (newest first), files.
pub(crate) fn dump(state: &State) -> Value {
    let mut repos = Map::new();
    for (_, document) in state.all("github/refs") {
        let word = |name: &str| document[name].as_str().unwrap_or_default();
        let (repo, branch, head) = (word("repo"), word("branch"), word("sha"));
        let commits: Vec<Value> = history::walk(state, head).into_iter().cloned().collect();
        let mut files = Map::new();
        for (path, file) in objects::files_of_commit(state, head) {
            let blob = state
                .find("github/blobs", &file.sha)
                .cloned()
                .unwrap_or_default();
            let bytes = objects::blob_bytes(state, &file.sha);
            let mut shown = json!({"sha": file.sha, "size": blob["size"]});
            match String::from_utf8(bytes) {
                Ok(text) => shown["text"] = Value::from(text),
                Err(_) => shown["base64"] = blob["base64"].clone(),
            }
            files.insert(path, shown);
        }
        let shown = json!({"head": head, "commits": commits, "files": files});
        repos.entry(repo).or_insert_with(|| json!({}))[branch] = shown;
    }
    json!({"repos": repos, "commitsWritten": state.all("github/commits").count()})
}

/// Which repository a call is about, and by whom it is asked.
#[derive(Debug)]
struct Call<'a> {
    request: &'a Request,
    fault: &'a Fault,
    /// `owner/name`.
    repo: String,
}

fn route(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Result<Reply, Reply> {
    let decoded: Vec<String> = rest
        .split('/')
        .filter(|word| !word.is_empty())
        .map(percent_decode)
        .collect();
    let words: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let ["repos", owner, name, rest @ ..] = words.as_slice() else {
        return Err(error(404, "Not Found"));
    };
    let call = Call {
        request,
        fault,
        repo: format!("{owner}/{name}"),
    };
    if *name == "missing" {
        return Err(error(404, "Not Found"));
    }
    if *name != "empty" {
        objects::ensure_repository(state, &call.repo);
    }
    if fault.has("empty-repository") {
        return Err(error(409, "Git Repository is empty."));
    }
    match (request.method.as_str(), rest) {
        ("GET", []) => Ok(Reply::json(200, &repository(&call.repo))),
        ("GET", ["contents", path @ ..]) => contents::get(state, &call, &path.join("/")),
        ("PUT", ["contents", path @ ..]) => contents::put(state, &call, &path.join("/")),
        ("GET", ["commits"]) => history::list(state, &call),
        ("GET", ["commits", name @ ..]) => history::one(state, &call, &name.join("/")),
        ("GET", ["compare", range @ ..]) => history::compare(state, &call, &range.join("/")),
        (method, ["git", rest @ ..]) => data::route(state, &call, method, rest),
        _ => Err(error(404, "Not Found")),
    }
}

fn repository(repo: &str) -> Value {
    let (owner, name) = repo.split_once('/').unwrap_or((repo, ""));
    json!({"id": 1, "name": name, "full_name": repo, "private": true,
        "owner": {"login": owner}, "default_branch": objects::DEFAULT_BRANCH,
        "permissions": {"pull": true, "push": true}})
}

/// GitHub wants a User-Agent and a token; which token only where one is configured.
fn check_caller(state: &State, request: &Request) -> Result<(), Reply> {
    if request.header("user-agent").is_none_or(str::is_empty) {
        return Err(Reply::new(
            403,
            "text/html",
            "Request forbidden by administrative rules. Please make sure your request has a \
             User-Agent header (https://docs.github.com/en/rest/overview/resources-in-the-rest-api\
             #user-agent-required). Check https://developer.github.com for other possible causes.",
        ));
    }
    let given = request.header("authorization").unwrap_or_default();
    let given = given
        .strip_prefix("Bearer ")
        .or_else(|| given.strip_prefix("token "));
    match (
        given,
        state.setting("/github/token").and_then(Value::as_str),
    ) {
        (None | Some(""), _) => Err(error(401, "Requires authentication")),
        (Some(given), Some(token)) if given != token => Err(error(401, "Bad credentials")),
        _ => Ok(()),
    }
}

/// The primary and the secondary limit, as they are announced.
fn limits(fault: &Fault) -> Result<(), Reply> {
    let status = fault
        .number("status")
        .and_then(|status| u16::try_from(status).ok());
    let status = status.unwrap_or(403);
    if fault.has("rate-limited") {
        return Err(error(status, "API rate limit exceeded for user ID 1."));
    }
    if let Some(seconds) = fault.number_or("secondary-limit", 60) {
        let message = "You have exceeded a secondary rate limit. Please wait a few minutes before \
                       you try again.";
        return Err(error(status, message).with_header("retry-after", &seconds.to_string()));
    }
    Ok(())
}

fn github_headers(reply: Reply, fault: &Fault) -> Reply {
    let wait = fault.number_or("rate-limited", 60);
    let reset = clock::now_ms() / 1000 + wait.unwrap_or(3600);
    reply
        .with_header("server", "github.com")
        .with_header("x-github-media-type", "github.v3; format=json")
        .with_header("x-github-api-version-selected", "2022-11-28")
        .with_header("x-github-request-id", "F4CE:1A2B3C:4D5E6F:708192:6A7B8C9D")
        .with_header("x-ratelimit-limit", "5000")
        .with_header(
            "x-ratelimit-remaining",
            if wait.is_some() { "0" } else { "4987" },
        )
        .with_header(
            "x-ratelimit-used",
            if wait.is_some() { "5000" } else { "13" },
        )
        .with_header("x-ratelimit-resource", "core")
        .with_header("x-ratelimit-reset", &reset.to_string())
}

/// An error in GitHub's shape: the status is a string there.
fn error(status: u16, message: &str) -> Reply {
    Reply::json(
        status,
        &json!({"message": message, "documentation_url": "https://docs.github.com/rest",
            "status": status.to_string()}),
    )
}

/// A body's fault by GitHub's model rules, which name the field.
fn validation_failed(resource: &str, field: &str, code: &str) -> Reply {
    Reply::json(
        422,
        &json!({"message": "Validation Failed",
            "errors": [{"resource": resource, "field": field, "code": code}],
            "documentation_url": "https://docs.github.com/rest", "status": "422"}),
    )
}

fn body_of(request: &Request) -> Result<Value, Reply> {
    request
        .json()
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| error(400, "Problems parsing JSON"))
}
