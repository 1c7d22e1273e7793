//! Publishing to WordPress over its REST API.

use serde_json::{Value, json};

use super::answer::Answer;
use super::cms::{Dialect, Owner, Post, Posting, Visibility};
use super::fields::{Fields, Secret};
use super::slug::Slug;
use super::ssrf::Endpoint;
use super::url::encode;
use super::{Parcel, title};
use crate::base64::Base64;
use crate::limits::PUBLISH_TIMEOUT;
use crate::ports::HttpRequest;
use crate::time::Timestamp;

/// The settings of a `wordpress` publisher.
#[derive(Clone, Debug)]
pub struct WordpressSettings {
    url: Endpoint,
    user: String,
    /// An application password.
    password: Secret,
}

impl WordpressSettings {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let url = fields.endpoint("url");
        let url = fields.base("url", url);
        let user = fields.required("user");
        let password = fields.secret("password");
        if user.as_ref().is_some_and(|user| user.contains(':')) {
            fields.fault("user", "must not hold a colon");
        }
        Some(Self {
            url: url?,
            user: user?,
            password: password?,
        })
    }

    pub(crate) fn begin(&self, parcel: &Parcel) -> Posting<Wordpress> {
        let pair = format!("{}:{}", self.user, self.password.expose());
        let basic = Base64::Standard.encode(pair.as_bytes());
        let secrets = vec![self.password.expose().to_owned(), basic.clone()];
        let slug = Slug::of(parcel);
        let dialect = Wordpress {
            posts_url: format!("{}/wp-json/wp/v2/posts", self.url.as_str()),
            authorization: format!("Basic {basic}"),
            slug: slug.clone(),
            marker: marker(&parcel.delivery_id),
            parcel: parcel.clone(),
        };
        Posting::new(dialect, slug, parcel, secrets)
    }
}

/// The mark that makes a post recognisable: a comment that no reader sees.
pub(crate) fn marker(delivery_id: &str) -> String {
    format!("<!-- oncepress:{delivery_id} -->")
}

/// WordPress's requests and answers.
pub(crate) struct Wordpress {
    posts_url: String,
    authorization: String,
    slug: Slug,
    marker: String,
    parcel: Parcel,
}

impl std::fmt::Debug for Wordpress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wordpress")
            .field("slug", &self.slug)
            .finish_non_exhaustive()
    }
}

impl Wordpress {
    fn request(&self, method: &'static str, tail: &str, body: Option<&Value>) -> HttpRequest {
        let mut headers = vec![
            ("authorization".to_owned(), self.authorization.clone()),
            ("accept".to_owned(), "application/json".to_owned()),
            ("user-agent".to_owned(), "oncepress".to_owned()),
        ];
        if body.is_some() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        HttpRequest {
            method,
            url: format!("{}{tail}", self.posts_url),
            headers,
            body: body
                .map(|body| body.to_string().into_bytes())
                .unwrap_or_default(),
            timeout: PUBLISH_TIMEOUT,
        }
    }

    fn read_post(&self, json: &Value) -> Option<Post> {
        let slug = json.get("slug")?.as_str()?.to_owned();
        let raw = json
            .pointer("/content/raw")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let ours =
            raw.contains(&self.marker) || (self.slug.keyed && slug.starts_with(&self.slug.text));
        Some(Post {
            id: json.get("id")?.as_u64()?.to_string(),
            slug,
            visibility: match json.get("status")?.as_str()? {
                "draft" | "auto-draft" => Visibility::Draft,
                "trash" => Visibility::Trashed,
                _ => Visibility::Settled,
            },
            link: json.get("link").and_then(Value::as_str).map(str::to_owned),
            version: None,
            owner: if ours { Owner::Ours } else { Owner::Other },
        })
    }
}

impl Dialect for Wordpress {
    fn look(&self, _now: Timestamp) -> HttpRequest {
        let content = if self.slug.keyed { "" } else { ",content.raw" };
        let slugs = self.slug.with_suffixed();
        self.request(
            "GET",
            &format!(
                "?slug={slugs}&status=publish,future,draft,pending,private&context=edit\
                 &per_page=10&{FIELDS}{content}"
            ),
            None,
        )
    }

    fn read(&self, id: &str, _now: Timestamp) -> HttpRequest {
        self.request(
            "GET",
            &format!("/{}?context=edit&{FIELDS}", encode(id)),
            None,
        )
    }

    fn create(&self, _now: Timestamp) -> HttpRequest {
        let body = json!({
            "title": title(self.parcel.topic.as_deref(), &self.parcel.text),
            "content": format!("{}\n{}", self.parcel.content, self.marker),
            "slug": self.slug.text,
            "status": "draft",
        });
        self.request("POST", &format!("?{FIELDS}"), Some(&body))
    }

    fn publish(&self, post: &Post, _now: Timestamp) -> HttpRequest {
        let body = json!({ "status": "publish" });
        self.request(
            "POST",
            &format!("/{}?{FIELDS}", encode(&post.id)),
            Some(&body),
        )
    }

    fn take_back(&self, post: &Post, _now: Timestamp) -> HttpRequest {
        self.request("DELETE", &format!("/{}?{FIELDS}", encode(&post.id)), None)
    }

    fn take_back_for_good(&self, post: &Post, _now: Timestamp) -> HttpRequest {
        self.request(
            "DELETE",
            &format!("/{}?force=true&{FIELDS}", encode(&post.id)),
            None,
        )
    }

    fn posts(&self, answer: &Answer) -> Option<Vec<Post>> {
        answer
            .json()?
            .as_array()?
            .iter()
            .map(|post| self.read_post(post))
            .collect()
    }

    fn post(&self, answer: &Answer) -> Option<Post> {
        self.read_post(&answer.json()?)
    }
}

/// All that is needed of a post, so that an answer stays small however long the text is.
const FIELDS: &str = "_fields=id,slug,status,link";
