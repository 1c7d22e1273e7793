//! Models of what only receives or stores: a bucket, a queue, a webhook's receiver.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use oncepress::ports::{HttpRequest, Object, PutNew};
use oncepress::publish::Parcel;
use oncepress::time::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::destination::{Answered, Destination, header, secret};

/// An R2 bucket.
#[derive(Default)]
pub(crate) struct Bucket {
    pub(crate) objects: BTreeMap<String, Object>,
}

impl Destination for Bucket {
    fn table(&self) -> Value {
        json!({ "kind": "r2", "prefix": "articles/" })
    }

    fn put_new(&mut self, key: &str, object: &Object) -> PutNew {
        if self.objects.contains_key(key) {
            return PutNew::Exists;
        }
        self.objects.insert(key.to_owned(), object.clone());
        PutNew::Created
    }

    fn object(&mut self, key: &str) -> Option<Object> {
        self.objects.get(key).cloned()
    }

    fn shown(&self, text: &str) -> usize {
        self.objects
            .values()
            .filter(|object| object.bytes == text.as_bytes())
            .count()
    }

    fn occupy(&mut self, parcel: &Parcel, text: &str) {
        let object = Object {
            bytes: text.as_bytes().to_vec(),
            ..Object::default()
        };
        self.objects
            .insert(format!("articles/{}", parcel.target), object);
    }
}

/// A Cloudflare Queue.
#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) messages: Vec<String>,
}

impl Destination for Queue {
    fn table(&self) -> Value {
        json!({ "kind": "queue", "binding": "ARTICLES" })
    }

    fn send(&mut self, binding: &str, body: &str) {
        assert_eq!(binding, "ARTICLES");
        assert!(body.len() <= 128_000, "the platform takes 128 KB a message");
        self.messages.push(body.to_owned());
    }

    fn shown(&self, text: &str) -> usize {
        distinct(self.messages.iter().cloned(), text)
    }
}

/// A receiver of webhooks that checks everything the specification asks it to.
#[derive(Default)]
pub(crate) struct Receiver {
    /// `webhook-id` and body of each message that was accepted.
    pub(crate) messages: Vec<(String, String)>,
    pub(crate) revoked: bool,
    pub(crate) removed: bool,
}

impl Destination for Receiver {
    fn table(&self) -> Value {
        json!({
            "kind": "webhook",
            "url": "https://hooks.example.com/in",
            "secrets": ["HOOK_NEW", "HOOK_OLD"],
            "reference": { "json_pointer": "/id" },
        })
    }

    fn http(&mut self, request: &HttpRequest, now: Timestamp) -> Answered {
        assert_eq!(
            (request.method, request.url.as_str()),
            ("POST", "https://hooks.example.com/in")
        );
        if self.removed {
            return Answered::empty(410);
        }
        if self.revoked {
            return Answered::empty(401);
        }
        let id = header(request, "webhook-id").unwrap();
        let timestamp = header(request, "webhook-timestamp").unwrap();
        assert_eq!(
            timestamp,
            now.seconds().to_string(),
            "the time of the attempt is signed"
        );
        assert!(!id.contains('.'));
        assert_eq!(header(request, "idempotency-key"), Some(id));
        let signed = [
            id.as_bytes(),
            b".",
            timestamp.as_bytes(),
            b".",
            &request.body,
        ]
        .concat();
        let signatures: Vec<&str> = header(request, "webhook-signature")
            .unwrap()
            .split(' ')
            .collect();
        let wanted = ["HOOK_NEW", "HOOK_OLD"].map(|name| sign(name, &signed));
        assert_eq!(
            signatures, wanted,
            "receivers with the old and the new key both accept it"
        );
        let body = String::from_utf8(request.body.clone()).unwrap();
        self.messages.push((id.to_owned(), body));
        Answered::json(202, &json!({ "id": self.messages.len() }))
    }

    fn shown(&self, text: &str) -> usize {
        distinct(
            self.messages.iter().map(|(id, body)| format!("{id}{body}")),
            text,
        )
    }

    fn revoke(&mut self) {
        self.revoked = true;
    }

    fn remove(&mut self) {
        self.removed = true;
    }
}

/// How many different messages hold the text, as a JSON string.
fn distinct(messages: impl Iterator<Item = String>, text: &str) -> usize {
    let text = json!(text).to_string();
    messages
        .filter(|message| message.contains(&text))
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

fn sign(name: &str, signed: &[u8]) -> String {
    let secret = secret(name).unwrap();
    let key = STANDARD
        .decode(secret.trim_start_matches("whsec_"))
        .unwrap();
    let mac = Hmac::<Sha256>::new_from_slice(&key)
        .unwrap()
        .chain_update(signed);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
