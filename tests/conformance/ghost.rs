//! A model of Ghost's Admin API: tokens, update collisions, silent slug suffixes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use oncepress::ports::HttpRequest;
use oncepress::publish::Parcel;
use oncepress::time::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::destination::{Answered, Destination, header, route, secret, value};

const BASE: &str = "https://news.example.com/ghost/api/admin/posts/";

#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) id: String,
    pub(crate) slug: String,
    pub(crate) status: String,
    pub(crate) html: String,
    version: u64,
}

#[derive(Default)]
pub(crate) struct Ghost {
    pub(crate) posts: Vec<Post>,
    pub(crate) next_id: u64,
    /// So many updates still find that the post was changed in between.
    pub(crate) collisions: u32,
    pub(crate) revoked: bool,
    pub(crate) removed: bool,
}

impl Ghost {
    pub(crate) fn insert(&mut self, slug: &str, status: &str, html: &str) -> Post {
        self.next_id += 1;
        let taken = |name: &str| self.posts.iter().any(|post| post.slug == name);
        let free = (2..1_000).map(|n| format!("{slug}-{n}"));
        let slug = std::iter::once(slug.to_owned())
            .chain(free)
            .find(|name| !taken(name))
            .unwrap();
        let post = Post {
            id: format!("{:024x}", self.next_id),
            slug,
            status: status.to_owned(),
            html: html.to_owned(),
            version: 1,
        };
        self.posts.push(post.clone());
        post
    }

    fn update(&mut self, id: &str, change: &Value) -> Answered {
        let Some(post) = self.posts.iter_mut().find(|post| post.id == id) else {
            return error(404, "NotFoundError");
        };
        if self.collisions > 0 {
            self.collisions -= 1;
            post.version += 1;
        }
        if change["updated_at"] != json!(updated_at(post)) {
            return error(409, "UpdateCollisionError");
        }
        post.version += 1;
        change["status"]
            .as_str()
            .unwrap()
            .clone_into(&mut post.status);
        Answered::json(200, &json!({ "posts": [view(post, &[])] }))
    }

    fn browse(&self, query: &[(String, String)]) -> Answered {
        let filter = value(query, "filter").unwrap();
        let slugs = filter
            .strip_prefix("slug:[")
            .unwrap()
            .strip_suffix(']')
            .unwrap();
        let slugs: Vec<&str> = slugs.split(',').collect();
        let posts = self
            .posts
            .iter()
            .filter(|post| slugs.contains(&post.slug.as_str()));
        let posts: Vec<Value> = posts.map(|post| view(post, query)).collect();
        Answered::json(200, &json!({ "posts": posts, "meta": {} }))
    }
}

impl Destination for Ghost {
    fn table(&self) -> Value {
        json!({ "kind": "ghost", "url": "https://news.example.com", "key": "GHOST_KEY" })
    }

    fn http(&mut self, request: &HttpRequest, now: Timestamp) -> Answered {
        check_token(header(request, "authorization").unwrap(), now);
        assert_eq!(header(request, "accept-version"), Some("v5.0"));
        if self.removed {
            return error(404, "NotFoundError");
        }
        if self.revoked {
            return error(401, "UnauthorizedError");
        }
        let (path, query) = route(request, BASE);
        assert!(
            value(&query, "newsletter").is_none(),
            "an e-mail can't be taken back"
        );
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let id = path.trim_end_matches('/');
        match (request.method, id.is_empty()) {
            ("GET", true) => self.browse(&query),
            ("GET", false) => match self.posts.iter().find(|post| post.id == id) {
                Some(post) => Answered::json(200, &json!({ "posts": [view(post, &query)] })),
                None => error(404, "NotFoundError"),
            },
            ("POST", true) => {
                assert_eq!(value(&query, "source"), Some("html"));
                let post = &body["posts"][0];
                assert_eq!(post["status"], "draft", "what can't be undone comes last");
                let text = |name: &str| post[name].as_str().unwrap().to_owned();
                assert!(text("slug").len() <= 185);
                let post = self.insert(&text("slug"), "draft", &text("html"));
                Answered::json(201, &json!({ "posts": [view(&post, &[])] }))
            }
            ("PUT", false) => self.update(id, &body["posts"][0]),
            ("DELETE", false) => {
                let before = self.posts.len();
                self.posts.retain(|post| post.id != id);
                if self.posts.len() < before {
                    Answered::empty(204)
                } else {
                    error(404, "NotFound")
                }
            }
            (method, _) => panic!("unexpected {method} {path}"),
        }
    }

    fn shown(&self, text: &str) -> usize {
        let public = self.posts.iter().filter(|post| post.status == "published");
        public.filter(|post| post.html.contains(text)).count()
    }

    fn occupy(&mut self, parcel: &Parcel, text: &str) {
        self.insert(&parcel.target, "published", text);
    }

    fn revoke(&mut self) {
        self.revoked = true;
    }

    fn remove(&mut self) {
        self.removed = true;
    }
}

fn updated_at(post: &Post) -> String {
    format!("2026-11-30T00:00:{:02}.000Z", post.version)
}

/// The whole post, its text included, unless fields are named; then the HTML on demand only.
fn view(post: &Post, query: &[(String, String)]) -> Value {
    let mut view = json!({
        "id": post.id, "slug": post.slug, "status": post.status, "updated_at": updated_at(post),
        "url": format!("https://news.example.com/{}/", post.slug),
    });
    if value(query, "fields").is_none() {
        view["lexical"] = json!(post.html);
    }
    if value(query, "formats").is_some_and(|formats| formats.contains("html")) {
        view["html"] = json!(post.html);
    }
    view
}

fn check_token(authorization: &str, now: Timestamp) {
    let token = authorization.strip_prefix("Ghost ").unwrap();
    let parts: Vec<&str> = token.split('.').collect();
    let read = |part: &str| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    let key = secret("GHOST_KEY").unwrap();
    let (id, digits) = key.split_once(':').unwrap();
    assert_eq!(
        read(parts[0]),
        json!({ "alg": "HS256", "typ": "JWT", "kid": id })
    );
    let claims = read(parts[1]);
    let (issued, ends) = (
        claims["iat"].as_i64().unwrap(),
        claims["exp"].as_i64().unwrap(),
    );
    assert_eq!(
        (issued, claims["aud"].as_str()),
        (now.seconds() - 5, Some("/admin/"))
    );
    assert!(ends <= issued + 300 && ends > now.seconds());
    let mac = Hmac::<Sha256>::new_from_slice(&hex::decode(digits).unwrap()).unwrap();
    let mac = mac.chain_update(format!("{}.{}", parts[0], parts[1]));
    mac.verify_slice(&URL_SAFE_NO_PAD.decode(parts[2]).unwrap())
        .unwrap();
}

fn error(status: u16, kind: &str) -> Answered {
    Answered::json(
        status,
        &json!({ "errors": [{ "message": "Sorry.", "type": kind }] }),
    )
}
