//! Git's objects with their real names: blobs, trees, commits, and the refs that point at them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::super::clock;
use super::super::state::State;

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// `100644` and its like.
    pub(super) mode: String,
    /// The blob.
    pub(super) sha: String,
}

/// The files of a tree by path, all levels.
pub(super) type Files = BTreeMap<String, File>;

/// Who wrote a commit, and when.
#[derive(Debug, Clone)]
pub(super) struct Person {
    /// Their name.
    pub(super) name: String,
    /// Their address.
    pub(super) email: String,
    /// Seconds since 1970.
    pub(super) seconds: u64,
}

impl Person {
    /// From `{"name","email","date"}`, with defaults; `None` where the date can't be read.
    pub(super) fn read(value: Option<&Value>) -> Option<Self> {
        let word = |name: &str| value?.get(name)?.as_str();
        let seconds = match word("date") {
            Some(date) => clock::parse_seconds(date)?,
            None => clock::now_ms() / 1000,
        };
        let name = word("name").unwrap_or("Octo Cat").to_owned();
        Some(Self {
            name,
            email: word("email").unwrap_or("octo@example.com").to_owned(),
            seconds,
        })
    }

    fn to_json(&self) -> Value {
        let date = format!("{}Z", clock::date_time(self.seconds));
        json!({"name": self.name, "email": self.email, "date": date})
    }

    fn line(&self) -> String {
        format!("{} <{}> {} +0000", self.name, self.email, self.seconds)
    }
}

/// Gives a repository its first commit, unless it has a branch already.
pub(super) fn ensure_repository(state: &mut State, repo: &str) {
    if head(state, repo, DEFAULT_BRANCH).is_none() {
        let readme = write_blob(state, format!("# {repo}\n").as_bytes());
        let file = File {
            mode: "100644".to_owned(),
            sha: readme,
        };
        let files = Files::from([("README.md".to_owned(), file)]);
        let tree = write_tree(state, &files);
        let who = Person {
            name: "Octo Cat".into(),
            email: "octo@example.com".into(),
            seconds: 1 << 30,
        };
        let first = write_commit(state, &tree, &[], "Initial commit", &who, &who);
        set_head(state, repo, DEFAULT_BRANCH, &first);
    }
}

/// The commit a branch points at.
pub(super) fn head(state: &State, repo: &str, branch: &str) -> Option<String> {
    let document = state.find("github/refs", &format!("{repo}/heads/{branch}"))?;
    document["sha"].as_str().map(str::to_owned)
}

/// Points a branch at a commit.
pub(super) fn set_head(state: &mut State, repo: &str, branch: &str, sha: &str) {
    let document = json!({"repo": repo, "branch": branch, "sha": sha});
    state.put("github/refs", &format!("{repo}/heads/{branch}"), document);
}

/// A branch's or a commit's own name as a commit.
pub(super) fn resolve(state: &State, repo: &str, name: &str) -> Option<String> {
    let branch = name.strip_prefix("heads/").unwrap_or(name);
    head(state, repo, branch).or_else(|| {
        state
            .find("github/commits", name)
            .is_some()
            .then(|| name.to_owned())
    })
}

/// Stores a blob under its name.
pub(super) fn write_blob(state: &mut State, bytes: &[u8]) -> String {
    let sha = object_name("blob", bytes);
    if state.find("github/blobs", &sha).is_none() {
        let document = json!({"sha": sha, "size": bytes.len(), "base64": STANDARD.encode(bytes)});
        state.put("github/blobs", &sha, document);
    }
    sha
}

/// A blob's bytes; none where it isn't there.
pub(super) fn blob_bytes(state: &State, sha: &str) -> Vec<u8> {
    let document = state.find("github/blobs", sha);
    let base64 = document.and_then(|document| document["base64"].as_str());
    base64
        .and_then(|base64| STANDARD.decode(base64).ok())
        .unwrap_or_default()
}

/// Stores a tree with its subtrees under their names.
pub(super) fn write_tree(state: &mut State, files: &Files) -> String {
    let mut subtrees: BTreeMap<&str, Files> = BTreeMap::new();
    // Git sorts a folder as if its name ended with a slash.
    let mut entries: BTreeMap<String, (String, String, String)> = BTreeMap::new();
    for (path, file) in files {
        if let Some((folder, rest)) = path.split_once('/') {
            subtrees
                .entry(folder)
                .or_default()
                .insert(rest.to_owned(), file.clone());
        } else {
            let entry = (file.mode.clone(), path.clone(), file.sha.clone());
            entries.insert(path.clone(), entry);
        }
    }
    for (folder, files) in subtrees {
        let sha = write_tree(state, &files);
        entries.insert(
            format!("{folder}/"),
            ("40000".to_owned(), folder.to_owned(), sha),
        );
    }
    let mut bytes = Vec::new();
    for (mode, name, sha) in entries.values() {
        bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        bytes.extend(hex::decode(sha).unwrap_or_default());
    }
    let sha = object_name("tree", &bytes);
    if state.find("github/trees", &sha).is_none() {
        let files: serde_json::Map<_, _> = files
            .iter()
            .map(|(path, file)| (path.clone(), json!({"mode": file.mode, "sha": file.sha})))
            .collect();
        state.put("github/trees", &sha, json!({"sha": sha, "files": files}));
    }
    sha
}

/// A tree's files; `None` where it isn't there.
pub(super) fn files_of_tree(state: &State, sha: &str) -> Option<Files> {
    let files = state.find("github/trees", sha)?["files"].as_object()?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let file = |value: &Value| File {
        mode: word(&value["mode"]),
        sha: word(&value["sha"]),
    };
    Some(
        files
            .iter()
            .map(|(path, value)| (path.clone(), file(value)))
            .collect(),
    )
}

/// A commit's files.
pub(super) fn files_of_commit(state: &State, sha: &str) -> Files {
    let commit = state.find("github/commits", sha);
    let tree = commit.and_then(|commit| commit["tree"].as_str());
    tree.and_then(|tree| files_of_tree(state, tree))
        .unwrap_or_default()
}

/// Stores a commit under its name: the same words, dates and parents make the same commit.
pub(super) fn write_commit(
    state: &mut State,
    tree: &str,
    parents: &[String],
    message: &str,
    author: &Person,
    committer: &Person,
) -> String {
    let mut lines = vec![format!("tree {tree}")];
    lines.extend(parents.iter().map(|sha| format!("parent {sha}")));
    lines.push(format!("author {}", author.line()));
    lines.push(format!("committer {}\n", committer.line()));
    let text = format!("{}\n{message}", lines.join("\n"));
    let sha = object_name("commit", text.as_bytes());
    if state.find("github/commits", &sha).is_none() {
        let document = json!({"sha": sha, "tree": tree, "parents": parents, "message": message,
            "author": author.to_json(), "committer": committer.to_json()});
        state.put("github/commits", &sha, document);
    }
    sha
}

/// Commits changed files on top of a branch's head and moves it.
pub(super) fn commit_file(
    state: &mut State,
    repo: &str,
    branch: &str,
    (path, bytes): (&str, &[u8]),
    message: &str,
    (author, committer): (&Person, &Person),
) -> String {
    let parent = head(state, repo, branch);
    let mut files = parent
        .as_ref()
        .map(|parent| files_of_commit(state, parent))
        .unwrap_or_default();
    let sha = write_blob(state, bytes);
    files.insert(
        path.to_owned(),
        File {
            mode: "100644".to_owned(),
            sha,
        },
    );
    let tree = write_tree(state, &files);
    let parents: Vec<String> = parent.into_iter().collect();
    let commit = write_commit(state, &tree, &parents, message, author, committer);
    set_head(state, repo, branch, &commit);
    commit
}

/// Another's commit to another file: the head has moved.
pub(super) fn move_head(state: &mut State, repo: &str, branch: &str) {
    let count = state.all("github/commits").count();
    let who = Person {
        name: "Someone Else".into(),
        email: "else@example.com".into(),
        seconds: 1,
    };
    let path = format!("elsewhere/{count}.txt");
    let file = (path.as_str(), b"someone else was faster\n".as_slice());
    commit_file(
        state,
        repo,
        branch,
        file,
        "Someone else's change",
        (&who, &who),
    );
}

/// SHA-1 over kind, length and bytes.
pub(super) fn object_name(kind: &str, bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("{kind} {}\0", bytes.len()));
    hasher.update(bytes);
    hex::encode(hasher.finalize())
}

/// The branch a repository is made with.
pub(super) const DEFAULT_BRANCH: &str = "main";
