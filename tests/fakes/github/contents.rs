//! `contents/{path}`: read a file, or write one as a commit of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::reply::Reply;
use super::super::state::State;
use super::objects::{self, DEFAULT_BRANCH, Person};
use super::{Call, body_of, error, validation_failed};

/// A file with its content, or a folder as a list.
pub(super) fn get(state: &State, call: &Call<'_>, path: &str) -> Result<Reply, Reply> {
    let name = call.request.query("ref").unwrap_or(DEFAULT_BRANCH);
    let Some(commit) = objects::resolve(state, &call.repo, name) else {
        let empty = objects::head(state, &call.repo, DEFAULT_BRANCH).is_none();
        let missing = format!("No commit found for the ref {name}");
        return Err(error(
            404,
            if empty {
                "This repository is empty."
            } else {
                &missing
            },
        ));
    };
    let files = objects::files_of_commit(state, &commit);
    let Some(file) = files.get(path) else {
        let folder = if path.is_empty() {
            String::new()
        } else {
            format!("{path}/")
        };
        let inside: Vec<Value> = files
            .iter()
            .filter(|(known, _)| known.starts_with(&folder))
            .map(|(known, file)| entry(state, &call.repo, known, &file.sha))
            .collect();
        let found = !inside.is_empty();
        return if found {
            Ok(Reply::json(200, &json!(inside)))
        } else {
            Err(error(404, "Not Found"))
        };
    };
    let etag = format!("W/\"{}\"", file.sha);
    if call.request.header("if-none-match") == Some(etag.as_str()) {
        return Ok(Reply::empty(304).with_header("etag", &etag));
    }
    let bytes = objects::blob_bytes(state, &file.sha);
    let accept = call.request.header("accept").unwrap_or_default();
    if accept.contains("raw") {
        let content_type = "application/vnd.github.raw+json; charset=utf-8";
        return Ok(Reply::new(200, content_type, bytes).with_header("etag", &etag));
    }
    let mut shown = entry(state, &call.repo, path, &file.sha);
    let inline = bytes.len() <= INLINE_BYTES_MAX;
    shown["encoding"] = Value::from(if inline { "base64" } else { "none" });
    shown["content"] = Value::from(if inline {
        wrapped(&bytes)
    } else {
        String::new()
    });
    Ok(Reply::json(200, &shown).with_header("etag", &etag))
}

/// Creates a file, or replaces the one whose blob is named.
pub(super) fn put(state: &mut State, call: &Call<'_>, path: &str) -> Result<Reply, Reply> {
    let body = body_of(call.request)?;
    let word = |name: &str| body.get(name).and_then(Value::as_str);
    let branch = word("branch").unwrap_or(DEFAULT_BRANCH);
    let head = objects::head(state, &call.repo, branch);
    let empty = objects::head(state, &call.repo, DEFAULT_BRANCH).is_none();
    if head.is_none() && !empty {
        return Err(error(404, &format!("Branch {branch} not found")));
    }
    let message = word("message").ok_or_else(|| missing_field("message"))?;
    let content = word("content").ok_or_else(|| missing_field("content"))?;
    let content: String = content
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .collect();
    let bytes = STANDARD.decode(content);
    let bytes = bytes.map_err(|_| error(422, "content is not valid Base64."))?;
    if path.is_empty() || path.starts_with('/') || path.contains("//") || path.contains("..") {
        return Err(error(422, "path contains a malformed path component"));
    }
    let files = head
        .as_ref()
        .map(|head| objects::files_of_commit(state, head))
        .unwrap_or_default();
    let existed = files.get(path);
    match (existed, word("sha")) {
        (Some(_), None) => {
            return Err(error(422, "Invalid request.\n\n\"sha\" wasn't supplied."));
        }
        (Some(file), Some(sha)) if file.sha != sha => {
            return Err(error(409, &format!("{path} does not match {sha}")));
        }
        _ => {}
    }
    stumble(state, call, branch)?;
    let committer = Person::read(body.get("committer"));
    let committer = committer.ok_or_else(|| validation_failed("Commit", "date", "invalid"))?;
    let author = match body.get("author") {
        Some(author) => Person::read(Some(author)),
        None => Some(committer.clone()),
    };
    let author = author.ok_or_else(|| validation_failed("Commit", "date", "invalid"))?;
    let file = (path, bytes.as_slice());
    let who = (&author, &committer);
    let commit = objects::commit_file(state, &call.repo, branch, file, message, who);
    let status = if existed.is_some() { 200 } else { 201 };
    let blob = objects::object_name("blob", &bytes);
    let content = entry(state, &call.repo, path, &blob);
    let commit = super::history::commit_json(state, &call.repo, &commit);
    Ok(Reply::json(
        status,
        &json!({"content": content, "commit": commit}),
    ))
}

/// A scripted ruleset, or a head that moves just before the commit is made.
fn stumble(state: &mut State, call: &Call<'_>, branch: &str) -> Result<(), Reply> {
    let status = |knob: &str| {
        let number = call.fault.number_or(knob, 409)?;
        u16::try_from(number).ok()
    };
    if let Some(status) = status("ruleset") {
        let message = "Repository rule violations found\n\nChanges must be made through a pull \
                       request.\n\n";
        return Err(error(status, message));
    }
    if let Some(status) = status("head-moves") {
        let before = objects::head(state, &call.repo, branch).unwrap_or_default();
        objects::move_head(state, &call.repo, branch);
        let after = objects::head(state, &call.repo, branch).unwrap_or_default();
        let message = format!("refs/heads/{branch} is at {after} but expected {before}");
        return Err(error(status, &message));
    }
    Ok(())
}

fn missing_field(name: &str) -> Reply {
    error(
        422,
        &format!("Invalid request.\n\n\"{name}\" wasn't supplied."),
    )
}

fn entry(state: &State, repo: &str, path: &str, sha: &str) -> Value {
    let name = path.rsplit('/').next().unwrap_or(path);
    let size = state
        .find("github/blobs", sha)
        .map(|blob| blob["size"].clone());
    let api = format!("https://api.github.com/repos/{repo}");
    json!({
        "name": name, "path": path, "sha": sha, "size": size, "type": "file",
        "url": format!("{api}/contents/{path}?ref={DEFAULT_BRANCH}"),
        "html_url": format!("https://github.com/{repo}/blob/{DEFAULT_BRANCH}/{path}"),
        "git_url": format!("{api}/git/blobs/{sha}"),
        "download_url":
            format!("https://raw.githubusercontent.com/{repo}/{DEFAULT_BRANCH}/{path}"),
    })
}

/// Base64 in lines of 60, the last one ended too.
fn wrapped(bytes: &[u8]) -> String {
    let base64: Vec<char> = STANDARD.encode(bytes).chars().collect();
    base64
        .chunks(60)
        .flat_map(|line| line.iter().copied().chain(['\n']))
        .collect()
}

/// Larger files are there, but not in the JSON.
const INLINE_BYTES_MAX: usize = 1024 * 1024;
