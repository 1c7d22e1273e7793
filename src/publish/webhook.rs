//! Publishing to a webhook, after Standard Webhooks 1.0.
//!
//! The receiver can't be asked what it has, so a lost answer means sending again: with the same
//! `webhook-id` and the same body, so that a receiver that remembers ids acts once.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

use super::answer::{Answer, Judge, Sent};
use super::envelope::envelope;
use super::fields::{Fields, Secret};
use super::ssrf::Endpoint;
use super::{Effect, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::base64::Base64;
use crate::limits::PUBLISH_TIMEOUT;
use crate::ports::HttpRequest;
use crate::time::Timestamp;

/// The settings of a `webhook` publisher.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    url: Endpoint,
    /// One, or two while keys are changed over.
    signers: Vec<Signer>,
    expect: Expect,
    reference: Option<Place>,
}

impl WebhookSettings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let url = fields.endpoint("url");
        let signers = read_signers(fields);
        let expect = fields
            .table("expect", |inner| Some(Expect::read(inner)))
            .unwrap_or_default();
        let reference = fields.table("reference", Place::read);
        Some(Self {
            url: url?,
            signers: signers?,
            expect,
            reference,
        })
    }

    pub(crate) fn begin(&self, parcel: &Parcel) -> Post {
        Post {
            settings: self.clone(),
            judge: Judge::new(parcel.maybe_sent, self.secrets()),
            id: parcel.delivery_id.clone(),
            body: Some(envelope(parcel)),
        }
    }

    pub(crate) fn secrets(&self) -> Vec<String> {
        let values = self.signers.iter().map(|signer| signer.secret.expose());
        values
            .flat_map(|value| [value, value.trim_start_matches(PREFIX)])
            .map(str::to_owned)
            .collect()
    }
}

/// One attempt at one webhook call.
#[derive(Debug)]
pub(crate) struct Post {
    settings: WebhookSettings,
    judge: Judge,
    id: String,
    body: Option<String>,
}

impl Publication for Post {
    fn step(&mut self, reply: Option<Reply>, now: Timestamp) -> Step {
        match (self.body.take(), reply) {
            (Some(body), _) => Step::Do(Effect::Http(self.request(body, now))),
            (None, Some(reply)) => Step::Done(match self.judge.answer(reply, Sent::Write) {
                Ok(answer) => self.read(&answer, now),
                Err(outcome) => outcome,
            }),
            (None, None) => Step::Done(super::answer::unexpected()),
        }
    }
}

impl Post {
    fn request(&self, body: String, now: Timestamp) -> HttpRequest {
        let timestamp = now.seconds().to_string();
        let signers = self.settings.signers.iter();
        let signatures: Vec<String> = signers
            .map(|signer| signer.sign(&self.id, &timestamp, body.as_bytes()))
            .collect();
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("user-agent", "oncepress".to_owned()),
            ("webhook-id", self.id.clone()),
            ("webhook-timestamp", timestamp),
            ("webhook-signature", signatures.join(" ")),
            ("idempotency-key", self.id.clone()),
        ];
        HttpRequest {
            method: "POST",
            url: self.settings.url.as_str().to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value)).into(),
            body: body.into_bytes(),
            timeout: PUBLISH_TIMEOUT,
        }
    }

    fn read(&self, answer: &Answer, now: Timestamp) -> Outcome {
        if !answer.is_success() {
            return self.judge.refused(answer, Sent::Write, now);
        }
        if let Some(unmet) = self.settings.expect.unmet(answer) {
            return self
                .judge
                .again(self.judge.failure(answer, failure::ASSERTION_FAILED, unmet));
        }
        let place = self.settings.reference.as_ref();
        let reference = place.and_then(|place| self.judge.reference(&place.read_from(answer)?));
        Outcome::Published {
            reference,
            replayed: false,
        }
    }
}

/// What the answer must look like, beyond a status of 200 to 299, to count as a success.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expect {
    status: Option<u16>,
    member: Option<(String, Value)>,
    text: Option<String>,
}

impl Expect {
    fn read(fields: &mut Fields<'_>) -> Self {
        let status = fields.value("status").and_then(|value| {
            let status = value.as_u64().and_then(|status| u16::try_from(status).ok());
            let status = status.filter(|status| (200..300).contains(status));
            if status.is_none() {
                fields.fault("status", "must be a number from 200 to 299");
            }
            status
        });
        let pointer = read_pointer(fields);
        let member = match (pointer, fields.value("equals")) {
            (Some(pointer), Some(value)) => Some((pointer, value)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                fields.fault("equals", "goes together with `json_pointer`");
                None
            }
        };
        Self {
            status,
            member,
            text: fields.text("text"),
        }
    }

    fn unmet(&self, answer: &Answer) -> Option<&'static str> {
        if self.status.is_some_and(|status| status != answer.status) {
            return Some("the answer's status is not the expected one");
        }
        let member_is = |(pointer, value): &(String, Value)| {
            answer
                .json()
                .is_some_and(|json| json.pointer(pointer) == Some(value))
        };
        if !self.member.as_ref().is_none_or(member_is) {
            return Some("the answer's JSON does not hold the expected value");
        }
        let text_is = |text: &String| answer.body.trim_ascii() == text.trim().as_bytes();
        if !self.text.as_ref().is_none_or(text_is) {
            return Some("the answer's text is not the expected one");
        }
        None
    }
}

/// Where in the answer the receiver's own id or URL is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Header(String),
    Member(String),
}

impl Place {
    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let header = fields.text("header").map(|name| name.to_ascii_lowercase());
        match (header, read_pointer(fields)) {
            (Some(name), None) => Some(Self::Header(name)),
            (None, Some(pointer)) => Some(Self::Member(pointer)),
            (Some(_), Some(_)) | (None, None) => {
                fields.fault(
                    "header",
                    "exactly one of `header` and `json_pointer` is wanted",
                );
                None
            }
        }
    }

    fn read_from(&self, answer: &Answer) -> Option<String> {
        match self {
            Self::Header(name) => answer.header(name).map(str::to_owned),
            Self::Member(pointer) => match answer.json()?.pointer(pointer)? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
            },
        }
    }
}

fn read_pointer(fields: &mut Fields<'_>) -> Option<String> {
    let pointer = fields.text("json_pointer")?;
    if !pointer.starts_with('/') {
        fields.fault("json_pointer", "must be a JSON pointer such as `/data/id`");
        return None;
    }
    Some(pointer)
}

/// A secret made ready for signing.
#[derive(Clone)]
struct Signer {
    secret: Secret,
    mac: Hmac<Sha256>,
}

impl Signer {
    fn new(secret: Secret) -> Result<Self, &'static str> {
        let encoded = secret.expose();
        let encoded = encoded.strip_prefix(PREFIX).unwrap_or(encoded);
        let bytes = Base64::Standard.decode(encoded).unwrap_or_default();
        if !SECRET_BYTES.contains(&bytes.len()) {
            return Err("must be `whsec_` and the base64 of 24 to 64 random bytes");
        }
        let mac = Hmac::new_from_slice(&bytes).map_err(|_| "can't be used as a key")?;
        Ok(Self { secret, mac })
    }

    /// `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
    fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mac = self.mac.clone();
        let mac = mac
            .chain_update(id)
            .chain_update(".")
            .chain_update(timestamp);
        let tag = mac
            .chain_update(".")
            .chain_update(body)
            .finalize()
            .into_bytes();
        format!("v1,{}", Base64::Standard.encode(&tag))
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer(…)")
    }
}

fn read_signers(fields: &mut Fields<'_>) -> Option<Vec<Signer>> {
    let names = fields.texts("secrets").unwrap_or_default();
    if !(1..=SECRETS_MAX).contains(&names.len()) {
        fields.fault(
            "secrets",
            "must name one secret, or two while keys are changed over",
        );
        return None;
    }
    let mut signers = Vec::new();
    for name in &names {
        let Some(secret) = fields.look_up("secrets", name) else {
            continue;
        };
        match Signer::new(secret) {
            Ok(signer) => signers.push(signer),
            Err(problem) => fields.fault("secrets", format_args!("the secret `{name}` {problem}")),
        }
    }
    (signers.len() == names.len()).then_some(signers)
}

const PREFIX: &str = "whsec_";
/// The old key and the new one.
const SECRETS_MAX: usize = 2;
/// What Standard Webhooks 1.0 asks of a symmetric secret.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publish::ssrf::Loopback;

    #[test]
    fn the_signature_is_that_of_the_specifications_example() {
        let value = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let secret = move |_: &str| Some(value.clone());
        let table = serde_json::json!({});
        let mut fields = Fields::new(&table, &secret, Loopback::Refused);
        let signer = Signer::new(fields.look_up("secrets", "HOOK").unwrap()).unwrap();
        let signature = signer.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
