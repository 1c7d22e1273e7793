//! Commits: one, a list, and how two of them lie to each other.

use serde_json::{Value, json};

use super::super::reply::Reply;
use super::super::state::State;
use super::objects::{self, DEFAULT_BRANCH};
use super::{Call, error};

/// A commit and all before it, newest first, along first parents.
pub(super) fn walk<'a>(state: &'a State, from: &str) -> Vec<&'a Value> {
    let mut commits = Vec::new();
    let mut next = Some(from.to_owned());
    while let Some(commit) = next.and_then(|sha| state.find("github/commits", &sha)) {
        commits.push(commit);
        next = commit["parents"][0].as_str().map(str::to_owned);
    }
    commits
}

/// `commits?sha=&path=&per_page=&page=`.
pub(super) fn list(state: &State, call: &Call<'_>) -> Result<Reply, Reply> {
    let query = |name: &str| call.request.query(name);
    let number = |name: &str, default| query(name).and_then(|n| n.parse().ok()).unwrap_or(default);
    let name = query("sha").unwrap_or(DEFAULT_BRANCH);
    let Some(from) = objects::resolve(state, &call.repo, name) else {
        let empty = objects::head(state, &call.repo, DEFAULT_BRANCH).is_none();
        return Err(if empty {
            error(409, "Git Repository is empty.")
        } else {
            error(404, "Not Found")
        });
    };
    let touches = |commit: &&Value| match query("path") {
        Some(path) => touches(state, commit, path),
        None => true,
    };
    let (per_page, page): (usize, usize) = (number("per_page", 30), number("page", 1));
    let commits: Vec<Value> = walk(state, &from)
        .into_iter()
        .filter(touches)
        .skip(per_page * page.saturating_sub(1))
        .take(per_page.min(100))
        .map(|commit| {
            listed(
                state,
                &call.repo,
                commit["sha"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    Ok(Reply::json(200, &json!(commits)))
}

/// `commits/{branch or sha}`.
pub(super) fn one(state: &State, call: &Call<'_>, name: &str) -> Result<Reply, Reply> {
    match objects::resolve(state, &call.repo, name) {
        Some(sha) => Ok(Reply::json(200, &listed(state, &call.repo, &sha))),
        None => Err(error(422, &format!("No commit found for SHA: {name}"))),
    }
}

/// `compare/{base}...{head}`.
pub(super) fn compare(state: &State, call: &Call<'_>, range: &str) -> Result<Reply, Reply> {
    let found = range.split_once("...").and_then(|(base, head)| {
        let resolve = |name: &str| objects::resolve(state, &call.repo, name);
        Some((resolve(base)?, resolve(head)?))
    });
    let (base, head) = found.ok_or_else(|| error(404, "Not Found"))?;
    let shas = |from: &str| -> Vec<&str> {
        walk(state, from)
            .into_iter()
            .filter_map(|commit| commit["sha"].as_str())
            .collect()
    };
    let (of_base, of_head) = (shas(&base), shas(&head));
    let ahead: Vec<&str> = of_head
        .iter()
        .copied()
        .filter(|sha| !of_base.contains(sha))
        .collect();
    let behind_by = of_base.iter().filter(|sha| !of_head.contains(sha)).count();
    let status = match (ahead.len(), behind_by) {
        (0, 0) => "identical",
        (_, 0) => "ahead",
        (0, _) => "behind",
        _ => "diverged",
    };
    let merge_base = of_head.iter().find(|sha| of_base.contains(sha));
    let commits: Vec<_> = ahead
        .iter()
        .rev()
        .map(|sha| listed(state, &call.repo, sha))
        .collect();
    Ok(Reply::json(
        200,
        &json!({"status": status, "ahead_by": ahead.len(), "behind_by": behind_by,
            "total_commits": ahead.len(), "commits": commits,
            "base_commit": listed(state, &call.repo, &base),
            "merge_base_commit": merge_base.map(|sha| listed(state, &call.repo, sha))}),
    ))
}

/// A commit as the Git Data API shows it.
pub(super) fn commit_json(state: &State, repo: &str, sha: &str) -> Value {
    let commit = state
        .find("github/commits", sha)
        .cloned()
        .unwrap_or_default();
    let api = format!("https://api.github.com/repos/{repo}/git");
    let web = format!("https://github.com/{repo}/commit");
    let parents: Vec<Value> = commit["parents"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|parent| {
            json!({"sha": parent, "url": format!("{api}/commits/{parent}"),
                "html_url": format!("{web}/{parent}")})
        })
        .collect();
    let tree = commit["tree"].as_str().unwrap_or_default();
    json!({
        "sha": sha, "node_id": format!("C_{sha}"), "url": format!("{api}/commits/{sha}"),
        "html_url": format!("{web}/{sha}"), "author": commit["author"],
        "committer": commit["committer"], "message": commit["message"],
        "tree": {"sha": tree, "url": format!("{api}/trees/{tree}")}, "parents": parents,
        "verification": {"verified": false, "reason": "unsigned", "signature": null,
            "payload": null},
    })
}

/// A commit as the commits API shows it: the Git part is one level deeper.
fn listed(state: &State, repo: &str, sha: &str) -> Value {
    let inner = commit_json(state, repo, sha);
    json!({
        "sha": sha, "node_id": inner["node_id"], "parents": inner["parents"],
        "url": format!("https://api.github.com/repos/{repo}/commits/{sha}"),
        "html_url": inner["html_url"], "author": null, "committer": null,
        "commit": {"message": inner["message"], "tree": inner["tree"], "author": inner["author"],
            "committer": inner["committer"], "url": inner["url"], "comment_count": 0},
    })
}

fn touches(state: &State, commit: &Value, path: &str) -> bool {
    let files = |sha: &str| objects::files_of_commit(state, sha);
    let folder = format!("{path}/");
    let inside = |files: objects::Files| -> objects::Files {
        let kept = files.into_iter();
        kept.filter(|(known, _)| known == path || known.starts_with(&folder))
            .collect()
    };
    let own = files(commit["sha"].as_str().unwrap_or_default());
    let parent = commit["parents"][0].as_str().map(files).unwrap_or_default();
    inside(own) != inside(parent)
}
