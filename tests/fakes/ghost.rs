//! `/ghost`: posts of the Admin API, with its short-lived tokens and its `updated_at` guard.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::clock;
use super::fault::Fault;
use super::http::{Request, percent_decode};
use super::reply::Reply;
use super::state::State;

/// Answers a call of the posts API; the site's root may or may not be part of the base URL.
pub(crate) fn answer(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Reply {
    let rest = rest.strip_prefix("/ghost").unwrap_or(rest);
    let Some(rest) = rest.strip_prefix("/api/admin/posts") else {
        return error(404, "NotFoundError", "Resource not found", None);
    };
    if let Err(refusal) = check_token(state, request) {
        return refusal;
    }
    let words: Vec<String> = rest
        .split('/')
        .filter(|word| !word.is_empty())
        .map(percent_decode)
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match (request.method.as_str(), words.as_slice()) {
        ("GET", []) => list(state, request),
        ("GET", ["slug", slug]) => one(request, find(state, "slug", slug)),
        ("GET", [id]) => one(request, find(state, "id", id)),
        ("POST", []) => create(state, request, fault),
        ("PUT", [id]) => update(state, request, id, fault),
        ("DELETE", [id]) if find(state, "id", id).is_some() => {
            state.remove("ghost/posts", id);
            Reply::empty(204)
        }
        _ => not_found(),
    }
}

fn list(state: &State, request: &Request) -> Reply {
    let filter = request.query("filter").unwrap_or_default();
    let fits = |post: &&Value| {
        let mut clauses = filter.split('+').filter(|clause| !clause.is_empty());
        clauses.all(|clause| clause_fits(post, clause))
    };
    let posts: Vec<Value> = state
        .all("ghost/posts")
        .map(|(_, post)| post)
        .filter(fits)
        .map(|post| shown(post, request))
        .collect();
    let total = posts.len();
    Reply::json(
        200,
        &json!({"posts": posts, "meta": {"pagination": {"page": 1, "limit": 15, "pages": 1,
            "total": total, "next": null, "prev": null}}}),
    )
}

/// One `field:value` of a filter; `~` searches, `[…]` is a list.
fn clause_fits(post: &Value, clause: &str) -> bool {
    let Some((field, wanted)) = clause.split_once(':') else {
        return false;
    };
    let own = post[field].as_str().unwrap_or_default();
    let bare = |text: &str| text.trim_matches(['\'', '"']).to_owned();
    if let Some(part) = wanted.strip_prefix('~') {
        return own.contains(&bare(part));
    }
    wanted
        .trim_matches(['[', ']'])
        .split(',')
        .any(|one| bare(one) == own)
}

fn create(state: &mut State, request: &Request, fault: &Fault) -> Reply {
    let body = match given_post(request) {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    if body["title"].as_str().is_none_or(str::is_empty) {
        let context = "Validation (isEmpty) failed for title";
        return error(
            422,
            "ValidationError",
            "Validation error, cannot save post.",
            Some(context),
        );
    }
    if fault.has("duplicate-suffix") {
        let mut theirs = json!({"title": body["title"], "slug": body["slug"], "status": "draft"});
        if fault.text("duplicate-suffix") == Some("same") {
            theirs = body.clone();
        }
        insert(state, request, &theirs);
    }
    let post = insert(state, request, &body);
    let location = format!(
        "http://{}/ghost/api/admin/posts/{}/",
        request.header("host").unwrap_or("localhost"),
        post["id"].as_str().unwrap_or_default()
    );
    Reply::json(201, &json!({"posts": [shown(&post, request)]})).with_header("location", &location)
}

fn insert(state: &mut State, request: &Request, body: &Value) -> Value {
    let n = state
        .find("ghost/counter", "posts")
        .and_then(Value::as_u64)
        .unwrap_or(0)
        + 1;
    state.put("ghost/counter", "posts", Value::from(n));
    let now = clock::now_rfc3339();
    let mut post = json!({"id": format!("{:08x}{n:016x}", 0x6567_0000), "uuid":
        format!("00000000-0000-4000-8000-{n:012x}"), "status": "draft", "created_at": now,
        "updated_at": now, "published_at": null, "email": null, "visibility": "public"});
    write(state, request, &mut post, body);
    state.put(
        "ghost/posts",
        post["id"].as_str().unwrap_or_default(),
        post.clone(),
    );
    post
}

/// Needs `updated_at` as it was served: what another changed meanwhile is not overwritten.
fn update(state: &mut State, request: &Request, id: &str, fault: &Fault) -> Reply {
    let Some(mut post) = find(state, "id", id) else {
        return not_found();
    };
    let body = match given_post(request) {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    if fault.has("update-collision") {
        post["updated_at"] = Value::from(later_than(&post));
        state.put("ghost/posts", id, post.clone());
    }
    if body["updated_at"].as_str().is_none() {
        let context = "The updated_at field is required.";
        return error(
            422,
            "ValidationError",
            "Validation error, cannot edit post.",
            Some(context),
        );
    }
    if body["updated_at"] != post["updated_at"] {
        let details = json!({"clientUpdatedAt": body["updated_at"],
            "serverUpdatedAt": post["updated_at"]});
        let message = "Saving failed! Someone else is editing this post.";
        return Reply::json(
            409,
            &json!({"errors": [{"message": message, "context": message,
                "type": "UpdateCollisionError", "details": details, "property": null,
                "help": null, "code": "UPDATE_COLLISION", "id": error_id(message),
                "ghostErrorCode": null}]}),
        );
    }
    write(state, request, &mut post, &body);
    post["updated_at"] = Value::from(later_than(&post));
    state.put("ghost/posts", id, post.clone());
    Reply::json(200, &json!({"posts": [shown(&post, request)]}))
}

fn write(state: &State, request: &Request, post: &mut Value, body: &Value) {
    let members = body.as_object().into_iter().flatten();
    for (name, value) in members.filter(|(name, _)| TAKEN_OVER.contains(&name.as_str())) {
        post[name] = value.clone();
    }
    if let (Some("html"), Some(html)) = (request.query("source"), body["html"].as_str()) {
        post["html"] = Value::from(without_comments(html));
    }
    let wanted = body["slug"].as_str().filter(|slug| !slug.is_empty());
    if wanted.is_some() || post["slug"].is_null() {
        let title = post["title"].as_str().unwrap_or_default();
        let slug = slugify(wanted.unwrap_or(title));
        post["slug"] = Value::from(unique(state, &slug, post));
    }
    if post["status"] == "published" && post["published_at"].is_null() {
        post["published_at"] = Value::from(clock::now_rfc3339());
    }
}

/// HTML turned into Lexical keeps no comments, unless they stand in an HTML card.
fn without_comments(html: &str) -> String {
    let mut kept = String::new();
    let mut rest = html;
    while let Some((before, from_comment)) = rest.split_once("<!--") {
        kept.push_str(before);
        let (comment, after) = from_comment.split_once("-->").unwrap_or((from_comment, ""));
        rest = after;
        if comment.trim() == "kg-card-begin: html" {
            let (card, after) = after.split_once(CARD_END).unwrap_or((after, ""));
            kept.push_str(CARD_BEGIN);
            kept.push_str(card);
            kept.push_str(CARD_END);
            rest = after;
        }
    }
    kept.push_str(rest);
    kept
}

fn unique(state: &State, wanted: &str, post: &Value) -> String {
    let taken = |slug: &str| {
        state
            .all("ghost/posts")
            .any(|(_, other)| other["slug"] == slug && other["id"] != post["id"])
    };
    if !taken(wanted) {
        return wanted.to_owned();
    }
    let mut numbered = (2_u64..).map(|n| format!("{wanted}-{n}"));
    numbered.find(|slug| !taken(slug)).unwrap_or_default()
}

/// ASCII letters and digits with dashes; cut at 185 characters.
fn slugify(text: &str) -> String {
    let plain: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    let slug: String = words.join("-").chars().take(185).collect();
    if slug.is_empty() {
        "untitled".to_owned()
    } else {
        slug
    }
}

fn shown(post: &Value, request: &Request) -> Value {
    let mut shown = post.clone();
    let html = post["html"].as_str().unwrap_or_default();
    let formats = request.query("formats").unwrap_or("lexical");
    if !formats.contains("html") {
        shown.as_object_mut().map(|members| members.remove("html"));
    }
    if formats.contains("lexical") && shown["lexical"].is_null() {
        let lexical = json!({"root": {"children": [{"type": "html", "html": html}]}});
        shown["lexical"] = Value::from(lexical.to_string());
    }
    let slug = post["slug"].as_str().unwrap_or_default();
    shown["url"] = Value::from(match post["status"].as_str() {
        Some("published") => format!("https://ghost.example/{slug}/"),
        _ => format!(
            "https://ghost.example/p/{}/",
            post["uuid"].as_str().unwrap_or_default()
        ),
    });
    shown
}

/// A JWT by HS256 with the hex-decoded secret, for `/admin/`, at most 5 minutes long.
fn check_token(state: &State, request: &Request) -> Result<(), Reply> {
    let refuse = |message: &str| error(401, "UnauthorizedError", message, None);
    let header = request.header("authorization").unwrap_or_default();
    let token = header.strip_prefix("Ghost ");
    let token =
        token.ok_or_else(|| error(403, "NoPermissionError", "Authorization failed", None))?;
    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signature] = parts.as_slice() else {
        return Err(refuse("Invalid token: jwt malformed"));
    };
    let decode = |text: &str| {
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .or_else(|_| STANDARD_NO_PAD.decode(text));
        bytes
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok())
    };
    let malformed = || refuse("Invalid token: invalid token");
    let (about, payload) = (
        decode(head).ok_or_else(malformed)?,
        decode(claims).ok_or_else(malformed)?,
    );
    if about["alg"] != "HS256" || payload["aud"] != "/admin/" {
        return Err(refuse(
            "Invalid token: jwt audience invalid. expected: /admin/",
        ));
    }
    let now = clock::now_ms() / 1000;
    let seconds = |name: &str| payload[name].as_u64();
    let (Some(issued), Some(expires)) = (seconds("iat"), seconds("exp")) else {
        return Err(malformed());
    };
    if expires <= now || now.saturating_sub(issued) > 5 * 60 {
        return Err(refuse("Invalid token: jwt expired"));
    }
    if expires > issued + 5 * 60 {
        return Err(refuse("Invalid token: maxAge exceeded"));
    }
    let Some(key) = state.setting("/ghost/key").and_then(Value::as_str) else {
        return Ok(());
    };
    let (id, secret) = key.split_once(':').unwrap_or((key, ""));
    if about["kid"] != id {
        return Err(refuse("Unknown Admin API Key"));
    }
    let secret = hex::decode(secret).unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret).expect("any length is a key");
    mac.update(format!("{head}.{claims}").as_bytes());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
    mac.verify_slice(&signature)
        .map_err(|_| refuse("Invalid token: invalid signature"))
}

fn given_post(request: &Request) -> Result<Value, Reply> {
    let body = request
        .json()
        .ok()
        .and_then(|body| body["posts"].get(0).cloned());
    let message = "Validation failed for posts[0]";
    body.ok_or_else(|| error(422, "ValidationError", message, None))
}

fn find(state: &State, field: &str, value: &str) -> Option<Value> {
    state
        .all("ghost/posts")
        .map(|(_, post)| post)
        .find(|post| post[field] == value)
        .cloned()
}

fn one(request: &Request, post: Option<Value>) -> Reply {
    post.map_or_else(not_found, |post| {
        Reply::json(200, &json!({"posts": [shown(&post, request)]}))
    })
}

/// A moment after the post's last, whatever the clock says.
fn later_than(post: &Value) -> String {
    let now = clock::now_rfc3339();
    if post["updated_at"] == now.as_str() {
        clock::rfc3339_ms(clock::now_ms() + 1)
    } else {
        now
    }
}

fn not_found() -> Reply {
    error(
        404,
        "NotFoundError",
        "Resource not found error, cannot read post.",
        Some("Post not found."),
    )
}

fn error(status: u16, kind: &str, message: &str, context: Option<&str>) -> Reply {
    Reply::json(
        status,
        &json!({"errors": [{"message": message, "context": context, "type": kind,
            "details": null, "property": null, "help": null, "code": null,
            "id": error_id(message), "ghostErrorCode": null}]}),
    )
}

fn error_id(message: &str) -> String {
    let digest = hex::encode(Sha256::digest(message));
    format!(
        "{}-{}-11f0-9999-{}",
        &digest[..8],
        &digest[8..12],
        &digest[12..24]
    )
}

const CARD_BEGIN: &str = "<!--kg-card-begin: html-->";
const CARD_END: &str = "<!--kg-card-end: html-->";

/// What a caller may set besides slug and html.
#[rustfmt::skip]
const TAKEN_OVER: [&str; 17] = [
    "title", "status", "lexical", "tags", "authors", "custom_excerpt", "feature_image",
    "featured", "visibility", "meta_title", "meta_description", "canonical_url",
    "codeinjection_head", "codeinjection_foot", "published_at", "custom_template", "email_only",
];
