//! `git/…`: blobs, trees, commits and refs, each made by a call of its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::reply::Reply;
use super::super::state::State;
use super::objects::{self, DEFAULT_BRANCH, File, Person};
use super::{Call, body_of, error, history, validation_failed};

/// Answers a call below `git/`.
pub(super) fn route(
    state: &mut State,
    call: &Call<'_>,
    method: &str,
    rest: &[&str],
) -> Result<Reply, Reply> {
    if objects::head(state, &call.repo, DEFAULT_BRANCH).is_none() {
        return Err(error(409, "Git Repository is empty."));
    }
    match (method, rest) {
        ("GET", ["ref" | "refs", "heads", branch @ ..]) => get_ref(state, call, &branch.join("/")),
        ("POST", ["refs"]) => create_ref(state, call),
        ("PATCH", ["refs", "heads", branch @ ..]) => update_ref(state, call, &branch.join("/")),
        ("GET", ["commits", sha]) => get_commit(state, call, sha),
        ("POST", ["commits"]) => create_commit(state, call),
        ("GET", ["blobs", sha]) => get_blob(state, sha),
        ("POST", ["blobs"]) => create_blob(state, call),
        ("GET", ["trees", sha]) => get_tree(state, call, sha),
        ("POST", ["trees"]) => create_tree(state, call),
        _ => Err(error(404, "Not Found")),
    }
}

fn get_ref(state: &State, call: &Call<'_>, branch: &str) -> Result<Reply, Reply> {
    let head = objects::head(state, &call.repo, branch);
    head.map(|_| Reply::json(200, &ref_json(state, call, branch)))
        .ok_or_else(|| error(404, "Not Found"))
}

fn create_ref(state: &mut State, call: &Call<'_>) -> Result<Reply, Reply> {
    let body = body_of(call.request)?;
    let name = body["ref"]
        .as_str()
        .and_then(|name| name.strip_prefix("refs/heads/"));
    let name = name.ok_or_else(|| error(422, "Reference name must start with 'refs/'."))?;
    if objects::head(state, &call.repo, name).is_some() {
        return Err(error(422, "Reference already exists"));
    }
    let sha = known_commit(state, &body)?;
    objects::set_head(state, &call.repo, name, &sha);
    Ok(Reply::json(201, &ref_json(state, call, name)))
}

/// Moves a branch, forwards only unless forced.
fn update_ref(state: &mut State, call: &Call<'_>, branch: &str) -> Result<Reply, Reply> {
    let body = body_of(call.request)?;
    if objects::head(state, &call.repo, branch).is_none() {
        return Err(error(422, "Reference does not exist"));
    }
    if call.fault.has("ruleset") {
        return Err(error(
            422,
            "Repository rule violations found\n\nCannot update this protected \
                               ref.\n\n",
        ));
    }
    if call.fault.has("head-moves") {
        objects::move_head(state, &call.repo, branch);
    }
    let sha = known_commit(state, &body)?;
    let head = objects::head(state, &call.repo, branch).unwrap_or_default();
    let forwards = history::walk(state, &sha)
        .iter()
        .any(|commit| commit["sha"] == head.as_str());
    if !forwards && body["force"] != true {
        return Err(error(422, "Update is not a fast forward"));
    }
    objects::set_head(state, &call.repo, branch, &sha);
    Ok(Reply::json(200, &ref_json(state, call, branch)))
}

fn get_commit(state: &State, call: &Call<'_>, sha: &str) -> Result<Reply, Reply> {
    match state.find("github/commits", sha) {
        Some(_) => Ok(Reply::json(
            200,
            &history::commit_json(state, &call.repo, sha),
        )),
        None => Err(error(404, "Not Found")),
    }
}

fn create_commit(state: &mut State, call: &Call<'_>) -> Result<Reply, Reply> {
    let body = body_of(call.request)?;
    let message = body["message"].as_str();
    let message = message.ok_or_else(|| validation_failed("Commit", "message", "missing_field"))?;
    let tree = body["tree"].as_str().unwrap_or_default();
    if state.find("github/trees", tree).is_none() {
        return Err(error(422, "Tree SHA does not exist"));
    }
    let parents: Vec<String> = body["parents"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|parent| parent.as_str().unwrap_or_default().to_owned())
        .collect();
    if parents
        .iter()
        .any(|parent| state.find("github/commits", parent).is_none())
    {
        return Err(error(
            422,
            "Parent SHA does not exist or is not a commit object",
        ));
    }
    let author = Person::read(body.get("author"));
    let author = author.ok_or_else(|| validation_failed("Commit", "date", "invalid"))?;
    let committer = match body.get("committer") {
        Some(committer) => Person::read(Some(committer)),
        None => Some(author.clone()),
    };
    let committer = committer.ok_or_else(|| validation_failed("Commit", "date", "invalid"))?;
    let sha = objects::write_commit(state, tree, &parents, message, &author, &committer);
    Ok(Reply::json(
        201,
        &history::commit_json(state, &call.repo, &sha),
    ))
}

fn get_blob(state: &State, sha: &str) -> Result<Reply, Reply> {
    let blob = state
        .find("github/blobs", sha)
        .ok_or_else(|| error(404, "Not Found"))?;
    let shown = json!({"sha": sha, "size": blob["size"], "encoding": "base64",
        "content": blob["base64"]});
    Ok(Reply::json(200, &shown))
}

fn create_blob(state: &mut State, call: &Call<'_>) -> Result<Reply, Reply> {
    let body = body_of(call.request)?;
    let content = body["content"].as_str();
    let content = content.ok_or_else(|| validation_failed("Blob", "content", "missing_field"))?;
    let bytes = match body["encoding"].as_str() {
        Some("base64") => STANDARD.decode(content).ok(),
        _ => Some(content.as_bytes().to_vec()),
    };
    let bytes = bytes.ok_or_else(|| error(422, "content is not valid Base64."))?;
    let sha = objects::write_blob(state, &bytes);
    let url = format!("https://api.github.com/repos/{}/git/blobs/{sha}", call.repo);
    Ok(Reply::json(201, &json!({"sha": sha, "url": url})))
}

fn get_tree(state: &State, call: &Call<'_>, name: &str) -> Result<Reply, Reply> {
    let commit = objects::resolve(state, &call.repo, name);
    let tree = commit.and_then(|sha| {
        state.find("github/commits", &sha)?["tree"]
            .as_str()
            .map(str::to_owned)
    });
    let sha = tree.unwrap_or_else(|| name.to_owned());
    let files = objects::files_of_tree(state, &sha).ok_or_else(|| error(404, "Not Found"))?;
    Ok(Reply::json(200, &tree_json(&sha, &files)))
}

/// Takes the base's files and adds, replaces, or (`"sha": null`) deletes.
fn create_tree(state: &mut State, call: &Call<'_>) -> Result<Reply, Reply> {
    let body = body_of(call.request)?;
    let mut files = match body["base_tree"].as_str() {
        Some(base) => objects::files_of_tree(state, base)
            .ok_or_else(|| error(404, "base_tree is not a valid tree oid"))?,
        None => objects::Files::new(),
    };
    let entries = body["tree"].as_array();
    let entries = entries.ok_or_else(|| error(422, "Invalid tree info"))?;
    for entry in entries {
        let path = entry["path"]
            .as_str()
            .ok_or_else(|| error(422, "tree.path is missing"))?;
        let mode = entry["mode"].as_str().unwrap_or("100644").to_owned();
        let sha = match (entry.get("sha"), entry["content"].as_str()) {
            (Some(Value::String(_)), Some(_)) => {
                return Err(error(
                    422,
                    "Must supply either tree.sha or tree.content, not both.",
                ));
            }
            (Some(Value::String(sha)), None) => sha.clone(),
            (_, Some(content)) => objects::write_blob(state, content.as_bytes()),
            (Some(Value::Null), None) => {
                files.remove(path);
                continue;
            }
            _ => return Err(error(422, "Must supply tree.sha or tree.content.")),
        };
        if state.find("github/blobs", &sha).is_none() {
            return Err(error(422, &format!("tree.sha {sha} is not a valid blob")));
        }
        files.insert(path.to_owned(), File { mode, sha });
    }
    let sha = objects::write_tree(state, &files);
    Ok(Reply::json(201, &tree_json(&sha, &files)))
}

fn tree_json(sha: &str, files: &objects::Files) -> Value {
    let entries: Vec<Value> = files
        .iter()
        .map(|(path, file)| {
            json!({"path": path, "mode": file.mode, "type": "blob", "sha": file.sha})
        })
        .collect();
    json!({"sha": sha, "tree": entries, "truncated": false})
}

fn ref_json(state: &State, call: &Call<'_>, branch: &str) -> Value {
    let sha = objects::head(state, &call.repo, branch);
    json!({"ref": format!("refs/heads/{branch}"),
        "url": format!("https://api.github.com/repos/{}/git/refs/heads/{branch}", call.repo),
        "object": {"sha": sha, "type": "commit"}})
}

fn known_commit(state: &State, body: &Value) -> Result<String, Reply> {
    let sha = body["sha"].as_str().unwrap_or_default();
    match state.find("github/commits", sha) {
        Some(_) => Ok(sha.to_owned()),
        None => Err(error(422, "Object does not exist")),
    }
}
