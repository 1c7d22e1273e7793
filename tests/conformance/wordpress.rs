//! A model of WordPress's posts API: silent slug suffixes, drafts, trash.

use oncepress::ports::HttpRequest;
use oncepress::publish::Parcel;
use oncepress::time::Timestamp;
use serde_json::{Value, json};

use crate::destination::{Answered, Destination, header, route, value};

const BASE: &str = "https://blog.example.com/wp-json/wp/v2/posts";

#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub(crate) id: u64,
    pub(crate) slug: String,
    pub(crate) status: String,
    pub(crate) content: String,
}

#[derive(Default)]
pub(crate) struct Wordpress {
    pub(crate) posts: Vec<Post>,
    pub(crate) next_id: u64,
    pub(crate) trash_disabled: bool,
    /// Slugs that the site keeps to itself (`feed` and the like).
    pub(crate) reserved: Vec<String>,
    /// Answered to every write.
    pub(crate) refuse_writes: Option<fn() -> Answered>,
    pub(crate) revoked: bool,
    pub(crate) removed: bool,
}

impl Wordpress {
    fn unique(&self, slug: &str, but: u64) -> String {
        let taken = |name: &str| {
            let used = self
                .posts
                .iter()
                .any(|post| post.slug == name && post.id != but);
            used || self.reserved.iter().any(|reserved| reserved == name)
        };
        if !taken(slug) {
            return slug.to_owned();
        }
        (2..1_000)
            .map(|n| format!("{slug}-{n}"))
            .find(|name| !taken(name))
            .unwrap()
    }

    pub(crate) fn insert(&mut self, slug: &str, status: &str, content: &str) -> Post {
        self.next_id += 1;
        let slug = self.unique(slug, 0);
        let (status, content) = (status.to_owned(), content.to_owned());
        let post = Post {
            id: self.next_id,
            slug,
            status,
            content,
        };
        self.posts.push(post.clone());
        post
    }

    fn list(&self, query: &[(String, String)]) -> Answered {
        let slugs: Vec<&str> = value(query, "slug").unwrap().split(',').collect();
        let statuses: Vec<&str> = value(query, "status")
            .unwrap_or("publish")
            .split(',')
            .collect();
        let posts = self.posts.iter().filter(|post| {
            slugs.contains(&post.slug.as_str()) && statuses.contains(&post.status.as_str())
        });
        let posts: Vec<Value> = posts.map(|post| view(post, query)).collect();
        Answered::json(200, &json!(posts))
    }

    fn change(&mut self, id: u64, request: &HttpRequest, query: &[(String, String)]) -> Answered {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let Some(at) = self
            .posts
            .iter()
            .position(|post| post.id == id && post.status != "trash")
        else {
            return error(404, "rest_post_invalid_id");
        };
        if let Some(status) = body["status"].as_str() {
            let slug = self.unique(&self.posts[at].slug, id);
            self.posts[at].slug = slug;
            status.clone_into(&mut self.posts[at].status);
        }
        Answered::json(200, &view(&self.posts[at], query))
    }

    fn delete(&mut self, id: u64, query: &[(String, String)]) -> Answered {
        let Some(at) = self.posts.iter().position(|post| post.id == id) else {
            return error(404, "rest_post_invalid_id");
        };
        if value(query, "force") == Some("true") {
            self.posts.remove(at);
            return Answered::json(200, &json!({ "deleted": true }));
        }
        if self.trash_disabled {
            return error(501, "rest_trash_not_supported");
        }
        if self.posts[at].status == "trash" {
            return error(410, "rest_already_trashed");
        }
        let post = &mut self.posts[at];
        "trash".clone_into(&mut post.status);
        post.slug.push_str("__trashed");
        Answered::json(200, &view(post, query))
    }
}

impl Destination for Wordpress {
    fn table(&self) -> Value {
        json!({ "kind": "wordpress", "url": "https://blog.example.com/", "user": "press",
            "password": "WP_PASSWORD" })
    }

    fn http(&mut self, request: &HttpRequest, _now: Timestamp) -> Answered {
        let basic = "Basic cHJlc3M6YWJjZCBlZmdoIGlqa2wgbW5vcA==";
        assert_eq!(header(request, "authorization"), Some(basic));
        if self.removed {
            return error(404, "rest_no_route");
        }
        if self.revoked {
            return error(401, "incorrect_password");
        }
        if let Some(refusal) = self.refuse_writes.filter(|_| request.method == "POST") {
            return refusal();
        }
        let (path, query) = route(request, BASE);
        let id = path.strip_prefix('/').map(|id| id.parse::<u64>().unwrap());
        match (request.method, id) {
            ("GET", None) => self.list(&query),
            ("GET", Some(id)) => match self.posts.iter().find(|post| post.id == id) {
                Some(post) => Answered::json(200, &view(post, &query)),
                None => error(404, "rest_post_invalid_id"),
            },
            ("POST", None) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap();
                assert_eq!(body["status"], "draft", "what can't be undone comes last");
                let text = |name: &str| body[name].as_str().unwrap().to_owned();
                let post = self.insert(&text("slug"), "draft", &text("content"));
                Answered::json(201, &view(&post, &query))
            }
            ("POST", Some(id)) => self.change(id, request, &query),
            ("DELETE", Some(id)) => self.delete(id, &query),
            (method, _) => panic!("unexpected {method} {path}"),
        }
    }

    fn shown(&self, text: &str) -> usize {
        let public = self.posts.iter().filter(|post| post.status == "publish");
        public.filter(|post| post.content.starts_with(text)).count()
    }

    fn occupy(&mut self, parcel: &Parcel, text: &str) {
        self.insert(&parcel.target, "publish", text);
    }

    fn revoke(&mut self) {
        self.revoked = true;
    }

    fn remove(&mut self) {
        self.removed = true;
    }
}

fn view(post: &Post, query: &[(String, String)]) -> Value {
    let mut view = json!({
        "id": post.id, "slug": post.slug, "status": post.status,
        "link": format!("https://blog.example.com/{}/", post.slug),
    });
    let raw = value(query, "_fields").is_none_or(|fields| fields.contains("content.raw"));
    if raw && value(query, "context") == Some("edit") {
        view["content"] = json!({ "raw": post.content });
    }
    view
}

fn error(status: u16, code: &str) -> Answered {
    let body = json!({ "code": code, "message": "Sorry.", "data": { "status": status } });
    Answered::json(status, &body)
}
