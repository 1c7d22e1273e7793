//! Callers of the service.

use std::rc::Rc;

use oncepress::http::message::{Body, Request, Response};
use oncepress::http::routes::handle;
use serde_json::{Value, json};

use super::exec::Handle;
use super::mutant::Mutant;
use super::world::{ADMIN, Isolate, World, key_of};

/// An answer, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    async fn read(response: Response) -> Self {
        let bytes = match response.body {
            Body::Bytes(bytes) => bytes,
            Body::Stream(mut source) => {
                let mut all = Vec::new();
                while let Ok(Some(piece)) = source.next().await {
                    all.extend(piece);
                }
                all
            }
        };
        Self {
            status: response.status,
            headers: response.headers,
            body: String::from_utf8(bytes).unwrap(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub fn text(&self, pointer: &str) -> String {
        let value = self.json();
        value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// The stable code of an error.
    pub fn code(&self) -> String {
        self.text("/code")
    }

    pub fn id(&self) -> String {
        let id = self.text("/id");
        if id.is_empty() {
            self.text("/generationId")
        } else {
            id
        }
    }

    pub fn is_replay(&self) -> bool {
        self.header("x-idempotency-replayed") == Some("true")
    }
}

/// A request for a generation.
#[derive(Clone, Debug)]
pub struct Call {
    pub account: String,
    pub name: String,
    pub body: Value,
    pub headers: Vec<(String, String)>,
    /// Another path than the API's own, with its query.
    pub path: Option<String>,
}

impl Call {
    /// Asks for content that other accounts ask for too: a label, which is no part of the content,
    /// and the topic tell them apart in the ledgers.
    pub fn shared(content: &str, account: &str) -> Self {
        let topic = format!("{content} of {account}");
        Self::of(content)
            .by(account)
            .with("topic", topic.into())
            .with("labels", json!({"who": account}))
    }

    /// The same in the form of Gemini's own API.
    #[must_use]
    pub fn in_gemini_form(mut self, method: &str) -> Self {
        let text = self.body["userPrompt"].take();
        self.body = json!({"contents": [{"parts": [{"text": text}]}],
            "labels": self.body["labels"].take()});
        self.path = Some(format!("/v1beta/models/gemini-3.8-flash:{method}"));
        self
    }

    /// What the ledger of Gemini says was asked for.
    pub fn prompt(&self) -> String {
        let plain = self.body["userPrompt"].as_str().map(str::to_owned);
        let who = self.body.pointer("/labels/who").and_then(Value::as_str);
        let text =
            plain.unwrap_or_else(|| super::gemini::prompt_of(self.body.to_string().as_bytes()));
        match who {
            Some(who) if self.path.is_none() => format!("{text} of {who}"),
            _ => text,
        }
    }

    /// Asks for a prompt, which is its topic too, so that ledgers can be matched.
    pub fn of(prompt: &str) -> Self {
        Self {
            account: "default".to_owned(),
            name: "caller".to_owned(),
            body: json!({"site": "blog", "pipeline": "daily", "userPrompt": prompt,
                "topic": prompt}),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            path: None,
        }
    }

    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    #[must_use]
    pub fn by(mut self, account: &str) -> Self {
        account.clone_into(&mut self.account);
        self
    }

    #[must_use]
    pub fn with(mut self, member: &str, value: Value) -> Self {
        self.body[member] = value;
        self
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same, waiting for its answer.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.headers.retain(|(name, _)| name != "prefer");
        self
    }

    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    #[must_use]
    pub fn to(self, destinations: &[(&str, &str)]) -> Self {
        let list: Vec<Value> = destinations
            .iter()
            .map(|(publisher, target)| json!({"publisher": publisher, "target": target}))
            .collect();
        self.with("publish", list.into())
    }

    fn request(&self) -> Request {
        let mut headers = self.headers.clone();
        headers.push((
            "authorization".to_owned(),
            format!("Bearer {}", key_of(&self.account)),
        ));
        let path = self.path.as_deref().unwrap_or("/api/v1/generations");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Request {
            method: "POST".to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: self.body.to_string().into_bytes(),
        }
    }
}

impl World {
    /// Sends a request to an isolate; the handle stays empty where the isolate dies.
    pub fn send(&self, isolate: &Rc<Isolate>, name: &str, request: Request) -> Handle<Answer> {
        let app = isolate.app.borrow().clone().expect("the isolate lives");
        let guard = Rc::clone(&isolate.guard);
        let silent = matches!(self.mutant, Some(Mutant::NoRetryAfter));
        self.exec.spawn(isolate.home, name, async move {
            let mut answer = Answer::read(handle(&app, &guard, &request).await).await;
            answer
                .headers
                .retain(|(n, _)| !silent || n != "retry-after");
            answer
        })
    }

    /// Starts a call.
    pub fn begin(&self, isolate: &Rc<Isolate>, call: &Call) -> Handle<Answer> {
        self.send(isolate, &call.name, call.request())
    }

    /// Makes a call and waits for its answer.
    pub fn ask(&self, isolate: &Rc<Isolate>, call: &Call) -> Answer {
        let handle = self.begin(isolate, call);
        let answer = self.exec.finish(&handle).expect("the isolate lives");
        self.note(format!(
            "{} <- {} {}",
            call.name,
            answer.status,
            answer.code()
        ));
        answer
    }

    /// Another call of the API.
    pub fn api(&self, isolate: &Rc<Isolate>, who: &str, method: &str, path: &str) -> Answer {
        self.api_with(isolate, who, method, path, &Value::Null)
    }

    /// Another call of the API, with a body.
    pub fn api_with(
        &self,
        isolate: &Rc<Isolate>,
        who: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Answer {
        let handle = self.send(isolate, "api", api_request(who, method, path, body));
        let answer = self.exec.finish(&handle).expect("the isolate lives");
        self.note(format!(
            "{method} {path} <- {} {}",
            answer.status,
            answer.code()
        ));
        answer
    }

    /// An operator's decision.
    pub fn resolve(&self, isolate: &Rc<Isolate>, id: &str, action: &str) -> Answer {
        let body = json!({"action": action, "reason": "a person looked"});
        let path = format!("/api/v1/generations/{id}/resolve");
        self.api_with(isolate, "default", "POST", &path, &body)
    }
}

/// A request of an account, or of `admin`.
pub fn api_request(who: &str, method: &str, path: &str, body: &Value) -> Request {
    let key = if who == "admin" {
        ADMIN.to_owned()
    } else {
        key_of(who)
    };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("authorization".to_owned(), format!("Bearer {key}")),
        ],
        body,
    }
}
