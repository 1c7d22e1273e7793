//! Publishing to Ghost over its Admin API.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::answer::Answer;
use super::cms::{Dialect, Owner, Post, Posting, Visibility};
use super::fields::{Fields, Secret};
use super::slug::Slug;
use super::ssrf::Endpoint;
use super::url::encode;
use super::wordpress::marker;
use super::{Parcel, title};
use crate::base64::Base64;
use crate::limits::PUBLISH_TIMEOUT;
use crate::ports::HttpRequest;
use crate::time::Timestamp;

/// The settings of a `ghost` publisher.
#[derive(Clone, Debug)]
pub struct GhostSettings {
    url: Endpoint,
    key: AdminKey,
}

impl GhostSettings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let url = fields.endpoint("url");
        let url = fields.base("url", url);
        let key = fields.secret("key").and_then(|secret| {
            let key = AdminKey::parse(&secret);
            if key.is_none() {
                fields.fault(
                    "key",
                    "the secret must be an Admin API key: `id:` and hex digits",
                );
            }
            key
        });
        Some(Self {
            url: url?,
            key: key?,
        })
    }

    pub(crate) fn begin(&self, parcel: &Parcel) -> Posting<Ghost> {
        let slug = Slug::of(parcel);
        let whole = self.key.secret.expose();
        let half = whole.split_once(':').map_or(whole, |(_, half)| half);
        let secrets = vec![whole.to_owned(), half.to_owned()];
        let dialect = Ghost {
            posts_url: format!("{}/ghost/api/admin/posts/", self.url.as_str()),
            key: self.key.clone(),
            slug: slug.clone(),
            marker: marker(&parcel.delivery_id),
            parcel: parcel.clone(),
        };
        Posting::new(dialect, slug, parcel, secrets)
    }
}

/// An Admin API key: whose it is, and what signs.
#[derive(Clone)]
struct AdminKey {
    id: String,
    secret: Secret,
    mac: Hmac<Sha256>,
}

impl AdminKey {
    fn parse(secret: &Secret) -> Option<Self> {
        let (id, digits) = secret.expose().split_once(':')?;
        let id_ok = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let bytes = hex::decode(digits).ok().filter(|bytes| !bytes.is_empty())?;
        let mac = Hmac::new_from_slice(&bytes).ok()?;
        id_ok.then(|| Self {
            id: id.to_owned(),
            secret: secret.clone(),
            mac,
        })
    }

    /// A token for one request. It is dated back a little, since Ghost refuses one from its future.
    fn token(&self, now: Timestamp) -> String {
        let issued_at = now.seconds().saturating_sub(CLOCK_SKEW_SECONDS);
        let header = json!({ "alg": "HS256", "typ": "JWT", "kid": self.id });
        let claims = json!({
            "iat": issued_at,
            "exp": issued_at.saturating_add(TOKEN_LIFE_SECONDS),
            "aud": "/admin/",
        });
        let [header, claims] =
            [header, claims].map(|part| Base64::Url.encode(part.to_string().as_bytes()));
        let signed = format!("{header}.{claims}");
        let tag = self
            .mac
            .clone()
            .chain_update(&signed)
            .finalize()
            .into_bytes();
        format!("{signed}.{}", Base64::Url.encode(&tag))
    }
}

impl std::fmt::Debug for AdminKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminKey(…)")
    }
}

/// Ghost's requests and answers.
#[derive(Debug)]
pub(crate) struct Ghost {
    posts_url: String,
    key: AdminKey,
    slug: Slug,
    marker: String,
    parcel: Parcel,
}

impl Ghost {
    fn request(
        &self,
        method: &'static str,
        tail: &str,
        post: Option<&Value>,
        now: Timestamp,
    ) -> HttpRequest {
        let mut headers = vec![
            (
                "authorization".to_owned(),
                format!("Ghost {}", self.key.token(now)),
            ),
            ("accept-version".to_owned(), "v5.0".to_owned()),
            ("user-agent".to_owned(), "oncepress".to_owned()),
        ];
        if post.is_some() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        let body = post.map(|post| json!({ "posts": [post] }).to_string().into_bytes());
        HttpRequest {
            method,
            url: format!("{}{tail}", self.posts_url),
            headers,
            body: body.unwrap_or_default(),
            timeout: PUBLISH_TIMEOUT,
        }
    }

    fn read_post(&self, json: &Value) -> Option<Post> {
        let text = |name| json.get(name).and_then(Value::as_str).map(str::to_owned);
        let slug = text("slug")?;
        let marked = text("html").is_some_and(|html| html.contains(&self.marker));
        let ours = marked || (self.slug.keyed && slug.starts_with(&self.slug.text));
        Some(Post {
            id: text("id")?,
            slug,
            visibility: match text("status")?.as_str() {
                "draft" => Visibility::Draft,
                _ => Visibility::Settled,
            },
            link: text("url"),
            version: text("updated_at"),
            owner: if ours { Owner::Ours } else { Owner::Other },
        })
    }
}

impl Dialect for Ghost {
    fn look(&self, now: Timestamp) -> HttpRequest {
        let formats = if self.slug.keyed { "" } else { "&formats=html" };
        let filter = encode(&format!("slug:[{}]", self.slug.with_suffixed()));
        self.request(
            "GET",
            &format!("?filter={filter}&limit=10&{FIELDS}{formats}"),
            None,
            now,
        )
    }

    fn read(&self, id: &str, now: Timestamp) -> HttpRequest {
        self.request("GET", &format!("{}/?{FIELDS}", encode(id)), None, now)
    }

    fn create(&self, now: Timestamp) -> HttpRequest {
        // The card keeps the HTML as it is; anything else is converted, and loses what Ghost's
        // editor does not know. No newsletter is ever named: an e-mail can't be taken back.
        let html = format!(
            "<!--kg-card-begin: html-->\n{}\n{}\n<!--kg-card-end: html-->",
            self.parcel.content, self.marker
        );
        let post = json!({
            "title": title(self.parcel.topic.as_deref(), &self.parcel.text),
            "slug": self.slug.text,
            "html": html,
            "status": "draft",
        });
        self.request("POST", "?source=html", Some(&post), now)
    }

    fn publish(&self, post: &Post, now: Timestamp) -> HttpRequest {
        let change = json!({ "status": "published", "updated_at": post.version });
        self.request("PUT", &format!("{}/", encode(&post.id)), Some(&change), now)
    }

    fn take_back(&self, post: &Post, now: Timestamp) -> HttpRequest {
        self.request("DELETE", &format!("{}/", encode(&post.id)), None, now)
    }

    fn take_back_for_good(&self, post: &Post, now: Timestamp) -> HttpRequest {
        self.take_back(post, now)
    }

    fn posts(&self, answer: &Answer) -> Option<Vec<Post>> {
        let json = answer.json()?;
        json.get("posts")?
            .as_array()?
            .iter()
            .map(|post| self.read_post(post))
            .collect()
    }

    fn post(&self, answer: &Answer) -> Option<Post> {
        self.read_post(answer.json()?.pointer("/posts/0")?)
    }
}

/// All that is needed of a post, so that an answer stays small however long the text is.
const FIELDS: &str = "fields=id,slug,status,url,updated_at";
const CLOCK_SKEW_SECONDS: i64 = 5;
/// Ghost refuses tokens that live longer than five minutes.
const TOKEN_LIFE_SECONDS: i64 = 300;
