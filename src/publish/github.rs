//! Publishing to GitHub: one new file, one commit.
//!
//! The file is put without naming a version, which GitHub takes for a creation only: it refuses one
//! where a file exists. A lost answer is looked up in the path's history, where our commit carries
//! the delivery's id.

use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::answer::{Answer, Judge, Sent, unexpected};
use super::excerpt::cut;
use super::fields::{Fields, Secret};
use super::ssrf::Endpoint;
use super::url::{encode, encode_path};
use super::{Effect, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::base64::Base64;
use crate::limits::PUBLISH_TIMEOUT;
use crate::ports::HttpRequest;
use crate::time::Timestamp;

/// The settings of a `github` publisher.
#[derive(Clone, Debug)]
pub struct GithubSettings {
    api_base: Endpoint,
    /// `owner/name`
    repository: String,
    branch: String,
    token: Secret,
}

impl GithubSettings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let api_base = fields.endpoint_or("api_base", "https://api.github.com");
        let api_base = fields.base("api_base", api_base);
        let repository = fields.required("repository");
        if repository.as_ref().is_some_and(|name| !is_repository(name)) {
            fields.fault("repository", "must be `owner/name`");
        }
        let branch = fields.text("branch").unwrap_or_else(|| "main".to_owned());
        let token = fields.secret("token");
        Some(Self {
            api_base: api_base?,
            repository: repository?,
            branch,
            token: token?,
        })
    }

    /// One writer a branch: two commits at once on one head would refuse each other.
    pub(crate) fn serial_lane(&self) -> String {
        let repository = self.repository.to_ascii_lowercase();
        format!("{}/{repository}@{}", self.api_base.as_str(), self.branch)
    }

    pub(crate) fn begin(&self, parcel: Parcel) -> Commit {
        Commit {
            settings: self.clone(),
            judge: Judge::new(parcel.maybe_sent, vec![self.token.expose().to_owned()]),
            state: State::Start,
            tries: 0,
            parcel,
        }
    }
}

/// One attempt at one commit.
#[derive(Debug)]
pub(crate) struct Commit {
    settings: GithubSettings,
    judge: Judge,
    state: State,
    tries: u32,
    parcel: Parcel,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    /// Looking for our commit in the path's history.
    Searching(IfAbsent),
    Putting,
    Comparing,
    Over,
}

/// What it means that our commit is not in the history.
#[derive(Clone, Copy, Debug)]
enum IfAbsent {
    /// Nothing of ours was ever there.
    Put,
    /// The file that is there is somebody else's.
    Taken,
}

impl Publication for Commit {
    fn step(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match self.advance(reply, now) {
            Ok(request) => Step::Do(Effect::Http(request)),
            Err(outcome) => Step::Done(outcome),
        }
    }
}

impl Commit {
    fn advance(&mut self, reply: Option<Reply>, now: Timestamp) -> Result<HttpRequest, Outcome> {
        let state = std::mem::replace(&mut self.state, State::Over);
        match (state, reply) {
            (State::Start, _) if self.parcel.maybe_sent => Ok(self.search(IfAbsent::Put)),
            (State::Start, _) => Ok(self.put()),
            (State::Searching(if_absent), Some(reply)) => {
                self.searched(&self.judge.answer(reply, Sent::Look)?, if_absent, now)
            }
            (State::Putting, Some(reply)) => {
                self.put_done(&self.judge.answer(reply, Sent::Write)?, now)
            }
            (State::Comparing, Some(reply)) => {
                self.compared(&self.judge.answer(reply, Sent::Look)?, now)
            }
            (State::Searching(_) | State::Putting | State::Comparing, None) | (State::Over, _) => {
                Err(unexpected())
            }
        }
    }

    fn search(&mut self, if_absent: IfAbsent) -> HttpRequest {
        self.state = State::Searching(if_absent);
        let (branch, path) = (encode(&self.settings.branch), encode(&self.parcel.target));
        self.request(
            "GET",
            &format!("commits?sha={branch}&path={path}&per_page=30"),
            ACCEPT,
            None,
        )
    }

    fn searched(
        &mut self,
        answer: &Answer,
        if_absent: IfAbsent,
        now: Timestamp,
    ) -> Result<HttpRequest, Outcome> {
        if answer.is_success() {
            let json = answer.json();
            let Some(commits) = json.as_ref().and_then(Value::as_array) else {
                return Err(self.judge.unreadable(answer, Sent::Look));
            };
            if let Some(ours) = commits.iter().find(|commit| self.is_ours(commit)) {
                return Err(self.published(answer_url(ours, "/html_url"), true));
            }
            return match if_absent {
                IfAbsent::Put => Ok(self.put()),
                IfAbsent::Taken => Err(self.judge.permanent(answer, failure::TARGET_TAKEN, TAKEN)),
            };
        }
        match (answer.status, if_absent) {
            // An empty repository or a missing branch has no history; the put will say why.
            (404 | 409, IfAbsent::Put) => Ok(self.put()),
            _ => Err(self.refused(answer, Sent::Look, now)),
        }
    }

    fn is_ours(&self, commit: &Value) -> bool {
        let message = commit.pointer("/commit/message").and_then(Value::as_str);
        message.is_some_and(|message| message.lines().any(|line| line == self.trailer()))
    }

    fn trailer(&self) -> String {
        format!("Idempotency-Key: {}", self.parcel.delivery_id)
    }

    fn put(&mut self) -> HttpRequest {
        self.state = State::Putting;
        self.tries = self.tries.saturating_add(1);
        let about = self.parcel.topic.as_deref().unwrap_or(&self.parcel.target);
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = format!(
            "Publish {}\n\nOncepress-Generation: {}\n{}",
            cut(&about, SUBJECT_MAX_BYTES),
            self.parcel.generation_id,
            self.trailer()
        );
        let body = json!({
            "message": message,
            "branch": self.settings.branch,
            "content": Base64::Standard.encode(self.parcel.content.as_bytes()),
        });
        let tail = format!("contents/{}", encode_path(&self.parcel.target));
        self.request("PUT", &tail, ACCEPT, Some(&body))
    }

    fn put_done(&mut self, answer: &Answer, now: Timestamp) -> Result<HttpRequest, Outcome> {
        let message = answer.message();
        let says = |words: &str| message.contains(words);
        match answer.status {
            200..=299 => {
                let json = answer.json().unwrap_or_default();
                Err(self.published(answer_url(&json, "/content/html_url"), false))
            }
            422 if says("\"sha\" wasn't supplied") => {
                self.state = State::Comparing;
                let path = encode_path(&self.parcel.target);
                let branch = encode(&self.settings.branch);
                let tail = format!("contents/{path}?ref={branch}");
                Ok(self.request("GET", &tail, ACCEPT_OBJECT, None))
            }
            409 | 422 if says("rule violation") || PROTECTED.iter().any(|words| says(words)) => {
                let why = "a rule of the repository forbids this commit; allow it for this token";
                Err(self.judge.permanent(answer, failure::RULE_VIOLATED, why))
            }
            409 if says("Git Repository is empty") => {
                let why = "the repository is empty; give the branch a first commit, then requeue";
                Err(self.judge.permanent(answer, failure::TARGET_MISSING, why))
            }
            409 | 422
                if answer.status == 409 || says("but expected") || says("expected to be at") =>
            {
                if self.tries < PUTS_MAX {
                    return Ok(self.put());
                }
                let why = "the branch moved while it was written to";
                Err(self
                    .judge
                    .again(self.judge.failure(answer, failure::TARGET_MOVED, why)))
            }
            422 if says("too large") => {
                let why = "the text is larger than GitHub takes";
                Err(self
                    .judge
                    .permanent(answer, failure::CONTENT_TOO_LARGE, why))
            }
            _ => Err(self.refused(answer, Sent::Write, now)),
        }
    }

    fn compared(&mut self, answer: &Answer, now: Timestamp) -> Result<HttpRequest, Outcome> {
        match answer.status {
            200..=299
                if blob_in(&answer.body) == Some(blob_name(self.parcel.content.as_bytes())) =>
            {
                let json = answer.json().unwrap_or_default();
                Err(self.published(answer_url(&json, "/html_url"), true))
            }
            // Another text: ours all the same, if it was ours before somebody edited it.
            200..=299 => Ok(self.search(IfAbsent::Taken)),
            404 => {
                let why = "the file was there and then gone";
                Err(self
                    .judge
                    .again(self.judge.failure(answer, failure::TARGET_MOVED, why)))
            }
            _ => Err(self.refused(answer, Sent::Look, now)),
        }
    }

    /// GitHub answers 403 both to a token without the right and to one that asks too often.
    fn refused(&self, answer: &Answer, sent: Sent, now: Timestamp) -> Outcome {
        let limited = answer.header("retry-after").is_some()
            || answer.header("x-ratelimit-remaining") == Some("0")
            || ["rate limit", "abuse detection"]
                .iter()
                .any(|words| answer.message().contains(words));
        match answer.status {
            403 | 429 if limited => self.judge.rate_limited(answer, now),
            _ => self.judge.refused(answer, sent, now),
        }
    }

    fn published(&self, reference: Option<String>, replayed: bool) -> Outcome {
        let reference = reference.unwrap_or_else(|| self.parcel.target.clone());
        Outcome::Published {
            reference: self.judge.reference(&reference),
            replayed,
        }
    }

    fn request(
        &self,
        method: &'static str,
        tail: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> HttpRequest {
        let headers = [
            (
                "authorization",
                format!("Bearer {}", self.settings.token.expose()),
            ),
            ("accept", accept.to_owned()),
            ("x-github-api-version", "2022-11-28".to_owned()),
            ("user-agent", "oncepress".to_owned()),
            ("content-type", "application/json".to_owned()),
        ];
        let (base, repository) = (self.settings.api_base.as_str(), &self.settings.repository);
        HttpRequest {
            method,
            url: format!("{base}/repos/{repository}/{tail}"),
            headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
            body: body
                .map(|body| body.to_string().into_bytes())
                .unwrap_or_default(),
            timeout: PUBLISH_TIMEOUT,
        }
    }
}

fn is_repository(name: &str) -> bool {
    let part_ok = |part: &str| {
        let plain = part
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        plain && !matches!(part, "" | "." | "..")
    };
    name.split_once('/')
        .is_some_and(|(owner, name)| part_ok(owner) && part_ok(name))
}

fn answer_url(json: &Value, pointer: &str) -> Option<String> {
    json.pointer(pointer)
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// The name that git gives to a file's content.
fn blob_name(content: &[u8]) -> String {
    let header = format!("blob {}\0", content.len());
    hex::encode(
        Sha1::new()
            .chain_update(header)
            .chain_update(content)
            .finalize(),
    )
}

/// The blob's name in an answer, which may have been cut within the file's content after it.
///
/// The member is found by its spelling: quotes within other members' texts are escaped there.
fn blob_in(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let (_, rest) = text.split_once("\"sha\"")?;
    let value = rest
        .trim_start()
        .strip_prefix(':')?
        .trim_start()
        .strip_prefix('"')?;
    let (name, _) = value.split_once('"')?;
    Some(name.to_owned())
}

/// What a protected branch answers to a commit that it does not take, with the status of a moved head.
const PROTECTED: [&str; 4] = [
    "status check",
    "approving review",
    "through a pull request",
    "protected branch",
];
const TAKEN: &str = "another file has this path; choose another target, or move that one away";
const ACCEPT: &str = "application/vnd.github+json";
/// The media type that gives a blob's name for files over 1 MB too.
const ACCEPT_OBJECT: &str = "application/vnd.github.object+json";
/// A moved head is tried once more at once: the next attempt may be half a minute away.
const PUTS_MAX: u32 = 2;
/// Git's custom for the first line, in bytes of a text that may be in any script.
const SUBJECT_MAX_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_named_as_git_names_it() {
        assert_eq!(blob_name(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(
            blob_name(b"hello\n"),
            "ce013625030ba8dba906f756967f9e9ca394464a"
        );
    }

    #[test]
    fn a_blobs_name_is_found_in_an_answer_that_was_cut() {
        let cut = br#"{"name":"a\"sha\":\"b","path":"x","sha": "abc","content":"AAAA"#;
        assert_eq!(blob_in(cut).as_deref(), Some("abc"));
        assert_eq!(blob_in(b"[]"), None);
    }
}
