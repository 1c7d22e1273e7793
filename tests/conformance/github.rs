//! A model of GitHub's contents API: one repository, one branch.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oncepress::ports::HttpRequest;
use oncepress::publish::Parcel;
use oncepress::time::Timestamp;
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use crate::destination::{Answered, Destination, header, route, value};

const BASE: &str = "https://api.github.com/repos/owner/site/";

#[derive(Default)]
pub(crate) struct Github {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// (path, message), oldest first.
    pub(crate) commits: Vec<(String, String)>,
    /// So many writes still find that the head has moved.
    pub(crate) head_moves: u32,
    /// Answered to every write.
    pub(crate) refuse_writes: Option<fn() -> Answered>,
    pub(crate) revoked: bool,
    pub(crate) removed: bool,
}

impl Github {
    fn put(&mut self, path: &str, request: &HttpRequest) -> Answered {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["branch"], "main");
        assert!(body.get("sha").is_none(), "a creation names no version");
        if let Some(refusal) = self.refuse_writes {
            return refusal();
        }
        if self.files.contains_key(path) {
            return says(422, "Invalid request.\n\n\"sha\" wasn't supplied.");
        }
        if self.head_moves > 0 {
            self.head_moves -= 1;
            return says(409, "refs/heads/main is at 1111111 but expected 2222222");
        }
        let content = STANDARD.decode(body["content"].as_str().unwrap()).unwrap();
        self.files.insert(path.to_owned(), content);
        let message = body["message"].as_str().unwrap().to_owned();
        self.commits.push((path.to_owned(), message));
        Answered::json(
            201,
            &json!({ "content": { "html_url": html_url(path), "sha": "x" }, "commit": {} }),
        )
    }

    fn get(&self, path: &str) -> Answered {
        let Some(content) = self.files.get(path) else {
            return says(404, "Not Found");
        };
        Answered::json(
            200,
            &json!({
                "name": path, "path": path, "sha": blob_name(content), "size": content.len(),
                "type": "file", "html_url": html_url(path), "encoding": "base64",
                "content": STANDARD.encode(content),
            }),
        )
    }

    fn history(&self, path: &str) -> Answered {
        let commits = self
            .commits
            .iter()
            .rev()
            .filter(|(changed, _)| changed == path);
        let commits: Vec<Value> = commits
            .map(|(path, message)| {
                json!({ "sha": "c", "html_url": html_url(path), "commit": { "message": message } })
            })
            .collect();
        Answered::json(200, &json!(commits))
    }
}

impl Destination for Github {
    fn table(&self) -> Value {
        json!({ "kind": "github", "repository": "owner/site", "token": "GITHUB_TOKEN" })
    }

    fn http(&mut self, request: &HttpRequest, _now: Timestamp) -> Answered {
        assert!(
            header(request, "user-agent").is_some(),
            "GitHub wants to know who asks"
        );
        assert_eq!(header(request, "x-github-api-version"), Some("2022-11-28"));
        assert_eq!(
            header(request, "authorization"),
            Some("Bearer ghp_s3cretToken")
        );
        if self.revoked {
            return says(401, "Bad credentials");
        }
        if self.removed {
            return says(404, "Not Found");
        }
        let (path, query) = route(request, BASE);
        match (request.method, path.split_once('/')) {
            ("PUT", Some(("contents", path))) => self.put(path, request),
            ("GET", Some(("contents", path))) => {
                assert_eq!(value(&query, "ref"), Some("main"));
                self.get(path)
            }
            ("GET", None) if path == "commits" => {
                assert_eq!(value(&query, "sha"), Some("main"));
                self.history(value(&query, "path").unwrap())
            }
            (method, _) => panic!("unexpected {method} {path}"),
        }
    }

    fn shown(&self, text: &str) -> usize {
        self.files
            .values()
            .filter(|content| *content == text.as_bytes())
            .count()
    }

    fn occupy(&mut self, parcel: &Parcel, text: &str) {
        self.files
            .insert(parcel.target.clone(), text.as_bytes().to_vec());
        self.commits
            .push((parcel.target.clone(), "Write by hand".to_owned()));
    }

    fn revoke(&mut self) {
        self.revoked = true;
    }

    fn remove(&mut self) {
        self.removed = true;
    }
}

/// GitHub's error body: the status is a string in it.
pub(crate) fn says(status: u16, message: &str) -> Answered {
    let body = json!({ "message": message, "documentation_url": "https://docs.github.com",
        "status": status.to_string() });
    Answered::json(status, &body)
}

fn html_url(path: &str) -> String {
    format!("https://github.com/owner/site/blob/main/{path}")
}

fn blob_name(content: &[u8]) -> String {
    let header = format!("blob {}\0", content.len());
    hex::encode(
        Sha1::new()
            .chain_update(header)
            .chain_update(content)
            .finalize(),
    )
}
