//! `/wordpress`: posts of the REST API, with the silent `-2` of a slug that is taken.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::clock;
use super::fault::Fault;
use super::http::Request;
use super::reply::Reply;
use super::state::{State, number_key};

/// Answers a call of the posts API.
pub(crate) fn answer(state: &mut State, request: &Request, rest: &str, fault: &Fault) -> Reply {
    let Some(rest) = rest.strip_prefix("/wp-json/wp/v2/posts") else {
        return error(
            404,
            "rest_no_route",
            "No route was found matching the URL and request method.",
        );
    };
    let known = match who(state, request) {
        Ok(known) => known,
        Err(refusal) => return refusal,
    };
    let id: Option<u64> = rest.trim_matches('/').parse().ok();
    match (request.method.as_str(), id) {
        ("GET", None) => list(state, request, known),
        ("GET", Some(id)) => match find(state, id) {
            Some(post) => Reply::json(
                200,
                &shown(&post, request.query("context") == Some("edit") && known),
            ),
            None => no_post(),
        },
        _ if !known => error(
            401,
            "rest_cannot_create",
            "Sorry, you are not allowed to create posts as this user.",
        ),
        ("POST", None) => create(state, request, fault),
        ("POST" | "PUT" | "PATCH", Some(id)) => update(state, request, id),
        ("DELETE", Some(id)) => delete(state, request, id),
        _ => error(
            404,
            "rest_no_route",
            "No route was found matching the URL and request method.",
        ),
    }
}

/// Whether the caller is logged in; wrong credentials are refused.
fn who(state: &State, request: &Request) -> Result<bool, Reply> {
    let Some(header) = request.header("authorization") else {
        return Ok(false);
    };
    let given = header
        .strip_prefix("Basic ")
        .and_then(|text| STANDARD.decode(text).ok());
    let given = given
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    let (user, password) = given.split_once(':').unwrap_or((&given, ""));
    let setting = |name: &str| {
        state
            .setting(&format!("/wordpress/{name}"))
            .and_then(Value::as_str)
    };
    // An application password counts without its blanks.
    let bare = |password: &str| password.replace(' ', "");
    let message = "The provided password is an invalid application password.";
    let wrong = || Err(error(401, "incorrect_password", message));
    match (setting("user"), setting("password")) {
        (Some(name), _) if name != user => Err(error(
            401,
            "invalid_username",
            "Unknown username. Check again or try your email address.",
        )),
        (_, Some(word)) if bare(word) != bare(password) => wrong(),
        _ if user.is_empty() || password.is_empty() => wrong(),
        _ => Ok(true),
    }
}

fn list(state: &State, request: &Request, known: bool) -> Reply {
    let query = |name: &str| request.query(name);
    let statuses = query("status").unwrap_or("publish");
    if !known && statuses != "publish" {
        return error(400, "rest_invalid_param", "Invalid parameter(s): status");
    }
    if !known && query("context") == Some("edit") {
        return error(
            401,
            "rest_forbidden_context",
            "Sorry, you are not allowed to edit posts in this post type.",
        );
    }
    let has = |name: &str, value: &str| {
        query(name).is_none_or(|wanted| wanted.split(',').any(|one| one == value))
    };
    let any = statuses == "any";
    let fits = |post: &&Value| {
        let word = |name: &str| post[name].as_str().unwrap_or_default();
        let found = query("search").is_none_or(|search| {
            let search = search.to_lowercase();
            [word("title"), word("content")]
                .iter()
                .any(|text| text.to_lowercase().contains(&search))
        });
        let status = word("status");
        let visible = if any {
            status != "trash"
        } else {
            statuses.split(',').any(|s| s == status)
        };
        visible && has("slug", word("slug")) && found
    };
    let mut posts: Vec<&Value> = state
        .all("wordpress/posts")
        .map(|(_, post)| post)
        .filter(fits)
        .collect();
    posts.reverse();
    let number =
        |name: &str, default: usize| query(name).and_then(|n| n.parse().ok()).unwrap_or(default);
    let (per_page, page) = (
        number("per_page", 10).clamp(1, 100),
        number("page", 1).max(1),
    );
    let edit = query("context") == Some("edit");
    let total = posts.len();
    let page: Vec<Value> = posts
        .into_iter()
        .skip(per_page * (page - 1))
        .take(per_page)
        .map(|post| shown(post, edit))
        .collect();
    Reply::json(200, &json!(page))
        .with_header("x-wp-total", &total.to_string())
        .with_header("x-wp-totalpages", &total.div_ceil(per_page).to_string())
}

fn create(state: &mut State, request: &Request, fault: &Fault) -> Reply {
    let Ok(body @ Value::Object(_)) = request.json() else {
        return invalid_json();
    };
    if body.get("id").is_some_and(|id| !id.is_null()) {
        return error(400, "rest_post_exists", "Cannot create existing post.");
    }
    let text = |name: &str| text_of(&body[name]);
    if ["title", "content", "excerpt"]
        .iter()
        .all(|name| text(name).is_none_or(|t| t.is_empty()))
    {
        return error(
            400,
            "empty_content",
            "Content, title, and excerpt are empty.",
        );
    }
    if let Some(refusal) = bad_status(&body) {
        return refusal;
    }
    if fault.has("duplicate-suffix") {
        // Someone else takes the slug between the caller's look and this call.
        let mut theirs = json!({"title": body["title"], "slug": body["slug"], "status": "publish",
            "content": "someone else's post"});
        if fault.text("duplicate-suffix") == Some("same") {
            theirs["content"] = body["content"].clone();
        }
        insert(state, &theirs);
    }
    let post = insert(state, &body);
    let location = format!(
        "http://{}/wordpress/wp-json/wp/v2/posts/{}",
        request.header("host").unwrap_or("localhost"),
        post["id"]
    );
    Reply::json(201, &shown(&post, true)).with_header("location", &location)
}

fn insert(state: &mut State, body: &Value) -> Value {
    let id = state
        .all("wordpress/posts")
        .last()
        .map_or(1, |(_, post)| post["id"].as_u64().unwrap_or(0) + 1);
    let now = clock::date_time(clock::now_ms() / 1000);
    let mut post = json!({"id": id, "date_gmt": now, "modified_gmt": now, "status": "draft",
        "slug": "", "title": "", "content": "", "excerpt": ""});
    write(state, &mut post, body);
    state.put("wordpress/posts", &number_key(id), post.clone());
    post
}

fn update(state: &mut State, request: &Request, id: u64) -> Reply {
    let Some(mut post) = find(state, id) else {
        return no_post();
    };
    let body = if request.body.is_empty() {
        Ok(json!({}))
    } else {
        request.json()
    };
    let Ok(body @ Value::Object(_)) = body else {
        return invalid_json();
    };
    if let Some(refusal) = bad_status(&body) {
        return refusal;
    }
    write(state, &mut post, &body);
    post["modified_gmt"] = Value::from(clock::date_time(clock::now_ms() / 1000));
    state.put("wordpress/posts", &number_key(id), post.clone());
    Reply::json(200, &shown(&post, true))
}

/// Trashing frees the slug: the post keeps it with a suffix.
fn delete(state: &mut State, request: &Request, id: u64) -> Reply {
    let Some(mut post) = find(state, id) else {
        return no_post();
    };
    if request.query("force") == Some("true") {
        state.remove("wordpress/posts", &number_key(id));
        return Reply::json(
            200,
            &json!({"deleted": true, "previous": shown(&post, true)}),
        );
    }
    if state.setting("/wordpress/trash") == Some(&Value::Bool(false)) {
        let message = "The post does not support trashing. Set 'force=true' to delete.";
        return error(501, "rest_trash_not_supported", message);
    }
    if post["status"] == "trash" {
        return error(
            410,
            "rest_already_trashed",
            "The post has already been deleted.",
        );
    }
    post["status"] = Value::from("trash");
    post["slug"] = Value::from(format!(
        "{}__trashed",
        post["slug"].as_str().unwrap_or_default()
    ));
    state.put("wordpress/posts", &number_key(id), post.clone());
    Reply::json(200, &shown(&post, true))
}

/// Takes over what the body names; the slug is made unique whatever the status.
fn write(state: &State, post: &mut Value, body: &Value) {
    for name in ["title", "content", "excerpt"] {
        if let Some(text) = text_of(&body[name]) {
            post[name] = Value::from(text);
        }
    }
    for name in [
        "status",
        "date",
        "date_gmt",
        "categories",
        "tags",
        "meta",
        "featured_media",
        "author",
        "format",
        "comment_status",
    ] {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            post[name] = value.clone();
        }
    }
    let given = body["slug"].as_str().map(sanitize);
    let published = matches!(
        post["status"].as_str(),
        Some("publish" | "future" | "private")
    );
    let has_none = post["slug"].as_str().is_none_or(str::is_empty);
    let wanted = match given {
        Some(slug) if !slug.is_empty() => slug,
        _ if has_none && published => sanitize(post["title"].as_str().unwrap_or_default()),
        _ => return,
    };
    let id = post["id"].as_u64().unwrap_or(0);
    post["slug"] = Value::from(unique(state, &wanted, id));
}

fn unique(state: &State, wanted: &str, id: u64) -> String {
    let taken = |slug: &str| {
        state
            .all("wordpress/posts")
            .any(|(_, post)| post["slug"] == slug && post["id"] != id)
    };
    if !taken(wanted) {
        return wanted.to_owned();
    }
    let numbered = (2_u64..).map(|n| format!("{wanted}-{n}"));
    numbered
        .into_iter()
        .find(|slug| !taken(slug))
        .unwrap_or_default()
}

/// Lower case, dashes for the rest; what isn't ASCII is percent-encoded, cut at 200 characters.
fn sanitize(text: &str) -> String {
    let mut slug = String::new();
    for c in text.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' | '_' | '-' => slug.push(c),
            _ if c.is_ascii() => slug.push('-'),
            _ => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| {
                slug.push('%');
                slug.push_str(&hex::encode([byte]));
            }),
        }
    }
    let words: Vec<&str> = slug.split('-').filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(200).collect()
}

fn bad_status(body: &Value) -> Option<Reply> {
    let known = ["publish", "future", "draft", "pending", "private"];
    let status = body.get("status").filter(|status| !status.is_null())?;
    let fits = status
        .as_str()
        .is_some_and(|status| known.contains(&status));
    (!fits).then(|| error(400, "rest_invalid_param", "Invalid parameter(s): status"))
}

fn shown(post: &Value, edit: bool) -> Value {
    let text = |name: &str, paragraphs: bool| {
        let raw = post[name].as_str().unwrap_or_default();
        let rendered = if paragraphs {
            format!("<p>{raw}</p>\n")
        } else {
            raw.to_owned()
        };
        let mut value = json!({ "rendered": rendered });
        if edit {
            value["raw"] = Value::from(raw);
        }
        if paragraphs {
            value["protected"] = Value::from(false);
        }
        value
    };
    let slug = post["slug"].as_str().unwrap_or_default();
    let link = match post["status"].as_str() {
        Some("publish") => format!("https://blog.example/{slug}/"),
        _ => format!("https://blog.example/?p={}", post["id"]),
    };
    let mut shown = json!({
        "id": post["id"], "date": post["date_gmt"], "date_gmt": post["date_gmt"],
        "guid": {"rendered": format!("https://blog.example/?p={}", post["id"])},
        "modified": post["modified_gmt"], "modified_gmt": post["modified_gmt"],
        "slug": slug, "status": post["status"], "type": "post", "link": link,
        "title": text("title", false), "content": text("content", true),
        "excerpt": text("excerpt", true), "author": 1, "featured_media": 0,
        "comment_status": "open", "format": "standard", "meta": {"footnotes": ""},
        "categories": [1], "tags": [], "sticky": false, "template": "",
    });
    for name in ["categories", "tags", "meta", "featured_media", "author"] {
        if !post[name].is_null() {
            shown[name] = post[name].clone();
        }
    }
    if edit {
        shown["generated_slug"] = Value::from(sanitize(post["title"].as_str().unwrap_or_default()));
        shown["permalink_template"] = Value::from("https://blog.example/%postname%/");
    }
    shown
}

/// A text, plain or as `{"raw":…}`.
fn text_of(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value["raw"].as_str())
        .map(str::to_owned)
}

fn find(state: &State, id: u64) -> Option<Value> {
    state.find("wordpress/posts", &number_key(id)).cloned()
}

fn no_post() -> Reply {
    error(404, "rest_post_invalid_id", "Invalid post ID.")
}

fn invalid_json() -> Reply {
    error(400, "rest_invalid_json", "Invalid JSON body passed.")
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(
        status,
        &json!({"code": code, "message": message, "data": {"status": status}}),
    )
}
