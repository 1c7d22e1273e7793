//! What every model of a destination can do, and what a test can do to it.

use oncepress::ports::{HttpRequest, Object, PutNew};
use oncepress::publish::settings::PublisherSettings;
use oncepress::publish::{Effect, Parcel, Reply};
use oncepress::time::Timestamp;
use serde_json::Value;

/// An HTTP answer of a model.
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answered {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A small model of a destination that is true to what the real one is known to do.
pub(crate) trait Destination {
    /// The publisher's table in the configuration.
    fn table(&self) -> Value;
    /// Answers an HTTP request.
    fn http(&mut self, _request: &HttpRequest, _now: Timestamp) -> Answered {
        panic!("no HTTP is expected")
    }
    fn put_new(&mut self, _key: &str, _object: &Object) -> PutNew {
        panic!("no put is expected")
    }
    fn object(&mut self, _key: &str) -> Option<Object> {
        panic!("no get is expected")
    }
    fn send(&mut self, _binding: &str, _body: &str) {
        panic!("no message is expected")
    }
    /// How often readers meet this text; for receivers, how many different messages hold it.
    fn shown(&self, text: &str) -> usize;
    /// Somebody else publishes `text` where the parcel should go.
    fn occupy(&mut self, _parcel: &Parcel, _text: &str) {}
    /// Credentials are revoked.
    fn revoke(&mut self) {}
    /// The site, repository or endpoint goes away.
    fn remove(&mut self) {}
}

pub(crate) const SECRETS: [(&str, &str); 5] = [
    ("HOOK_NEW", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    (
        "HOOK_OLD",
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    ),
    ("GITHUB_TOKEN", "ghp_s3cretToken"),
    ("WP_PASSWORD", "abcd efgh ijkl mnop"),
    (
        "GHOST_KEY",
        "6487f1a2b3c4d5e6f7a8b9c0:00112233445566778899aabbccddeeff",
    ),
];

pub(crate) fn secret(name: &str) -> Option<String> {
    SECRETS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| (*value).to_owned())
}

pub(crate) fn settings(destination: &dyn Destination) -> PublisherSettings {
    let table = destination.table();
    PublisherSettings::parse("under_test", &table, &secret, "production").unwrap()
}

/// Carries an effect out.
pub(crate) fn perform(world: &mut dyn Destination, effect: &Effect, now: Timestamp) -> Reply {
    match effect {
        Effect::Http(request) => {
            let mut answer = world.http(request, now);
            answer.body.truncate(BODY_READ_MAX_BYTES);
            Reply::Http {
                status: answer.status,
                headers: answer.headers,
                body: answer.body,
            }
        }
        Effect::PutNew { key, object } => Reply::Put(world.put_new(key, object)),
        Effect::GetObject { key } => Reply::Object(world.object(key)),
        Effect::Send { binding, body } => {
            world.send(binding, body);
            Reply::Sent
        }
    }
}

/// As much of an answer as the real driver reads.
const BODY_READ_MAX_BYTES: usize = 1_048_576;

pub(crate) fn header<'a>(request: &'a HttpRequest, name: &str) -> Option<&'a str> {
    request
        .headers
        .iter()
        .find(|(n, _)| n == name)
        .map(|(_, value)| value.as_str())
}

/// The path and the decoded query of a request's URL, with the base taken off.
pub(crate) fn route(request: &HttpRequest, base: &str) -> (String, Vec<(String, String)>) {
    let rest = request
        .url
        .strip_prefix(base)
        .expect("the request goes to the configured address");
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    (
        decode(path),
        query
            .map(|(name, value)| (decode(name), decode(value)))
            .collect(),
    )
}

pub(crate) fn value<'a>(query: &'a [(String, String)], name: &str) -> Option<&'a str> {
    query
        .iter()
        .find(|(n, _)| n == name)
        .map(|(_, value)| value.as_str())
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        assert!(byte.is_ascii_graphic(), "a URL must be ASCII: {text:?}");
        if byte == b'%' {
            let hex = [rest.next().unwrap(), rest.next().unwrap()];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}
