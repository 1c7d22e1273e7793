//! Reads a generating call: Gemini's body as it is, everything of ours from header fields, and from
//! the defaults of the API key where they say nothing.

use crate::app::App;
use crate::config::Destination;
use crate::error::{Code, Fault, Problem};
use crate::gemini::request::{Method, either, json_requested, upstream_path};
use crate::http::dropin::path::Generating;
use crate::http::generations::{
    check_destinations, estimate, key_defaults, operation_key, parse_json, scope, too_large,
};
use crate::http::message::Request;
use crate::http::query;
use crate::http::validate::{GenerationRequest, KeyDefaults};
use crate::idempotency::body;
use crate::idempotency::gateway::Asked;
use crate::idempotency::record::Surface;
use crate::key::identity::{self, Beside, IdentityInput, identify};
use crate::key::json::{Json, Number};
use crate::limits::{DROP_IN_BODY_MAX_BYTES, LEASE};
use crate::store::accounts::Access;
use crate::time::Timestamp;

/// Parses and checks everything; nothing of it touches a store or consumes a key.
pub(super) fn read(
    app: &App,
    access: &Access,
    request: &Request,
    call: &Generating,
    request_id: &str,
) -> Result<Asked, Problem> {
    if request.body.len() > DROP_IN_BODY_MAX_BYTES {
        return Err(too_large(DROP_IN_BODY_MAX_BYTES));
    }
    body::check(app, request.body.len())?;
    let operation = operation_key(request)?;
    let now = app.now();
    let ours = Ours::read(request, access, now)?;
    let GenerationRequest { site, pipeline, .. } = &ours.valid;
    let body = object(&request.body)?;
    let model = call.model.as_str();
    let credits = credits(app, access, model, &body, request.body.len())?;
    let configured = app.config().pipeline(&access.account, site, pipeline);
    let destinations: Vec<Destination> = ours
        .valid
        .publish
        .clone()
        .or_else(|| configured.map(|pipeline| pipeline.publish.clone()))
        .unwrap_or_default();
    check_destinations(app, &access.account, &destinations)?;
    let identity = identify(&IdentityInput {
        scope: &scope(&access.account, site, pipeline)?,
        surface: identity::Surface::DropIn,
        model,
        request: &body,
        beside: Beside {
            variant: ours.valid.variant.as_deref(),
            publish: ours.publish.as_ref(),
        },
        ignores: &app.config().identity_ignores,
    })
    .map_err(|repeated| Problem::invalid(vec![Fault::new("", repeated.to_string())]))?;
    Ok(Asked {
        access: access.clone(),
        surface: match call.method {
            Method::Unary => Surface::Generate,
            Method::Stream => Surface::Stream,
        },
        topic: None,
        model: model.to_owned(),
        json_mode: json_requested(&body),
        continues: either(&body, "continuationToken", "continuation_token").is_some(),
        operation,
        identity,
        anchor: ours.valid.requested_at.unwrap_or(now),
        anchor_given: ours.valid.requested_at.is_some(),
        window: ours.valid.window,
        destinations,
        destinations_named: ours.valid.publish.is_some(),
        upstream: upstream_path(call.version, &call.model, call.method),
        body: text(&request.body)?,
        credits,
        request_id: request_id.to_owned(),
        wait: LEASE,
        background: false,
        site: ours.valid.site,
        pipeline: ours.valid.pipeline,
    })
}

/// What is ours of a request.
struct Ours {
    valid: GenerationRequest,
    /// The destinations that the request itself names.
    publish: Option<Json>,
}

impl Ours {
    /// Puts the header fields into the form of our own API's body, whose rules they follow.
    fn read(request: &Request, access: &Access, now: Timestamp) -> Result<Self, Problem> {
        let defaults = key_defaults(access);
        let mut faults = Vec::new();
        let mut members = vec![("userPrompt".to_owned(), Json::from("-"))];
        for (header, member) in HEADERS {
            let name = header.to_ascii_lowercase();
            let mut values = request.header_values(&name);
            match (values.next(), values.next()) {
                (None, _) => {}
                (Some(value), None) => {
                    members.push(((*member).to_owned(), json(member, value.trim())));
                }
                // It says two things at once.
                _ => faults.push(Fault::new(*header, "must be given once")),
            }
        }
        let publish = destinations(request, &mut faults);
        members.extend(publish.clone().map(|list| ("publish".to_owned(), list)));
        if !faults.is_empty() {
            return Err(Problem::invalid(faults));
        }
        let valid = GenerationRequest::parse(
            &Json::Object(members),
            &KeyDefaults {
                site: defaults.site.or_else(|| Some(DEFAULT_NAME.to_owned())),
                pipeline: defaults.pipeline.or_else(|| Some(DEFAULT_NAME.to_owned())),
                ..defaults
            },
            now,
        )
        .map_err(|faults| Problem::invalid(faults.into_iter().map(by_header).collect()))?;
        Ok(Self { valid, publish })
    }
}

/// A member of our API's body from a header's text.
fn json(member: &str, value: &str) -> Json {
    match Number::parse(value) {
        Some(number) if member == "windowMinutes" => Json::Number(number),
        _ => Json::from(value),
    }
}

/// `name=target, …`; a target with characters that a header can't hold is percent-encoded. Present
/// and empty means that nothing is published.
fn destinations(request: &Request, faults: &mut Vec<Fault>) -> Option<Json> {
    let name = PUBLISH.to_ascii_lowercase();
    let mut given = request.header_values(&name).peekable();
    given.peek()?;
    let mut list = Vec::new();
    for item in given.flat_map(|value| value.split(',')).map(str::trim) {
        if item.is_empty() {
            continue;
        }
        let target = |text: &str| query::decode(&text.replace('+', "%2B"));
        match item
            .split_once('=')
            .and_then(|(name, to)| Some((name.trim(), target(to.trim())?)))
        {
            Some((name, to)) => list.push(Json::Object(vec![
                ("publisher".to_owned(), Json::from(name)),
                ("target".to_owned(), Json::from(to.as_str())),
            ])),
            None => faults.push(Fault::new(PUBLISH, "must be a list of name=target")),
        }
    }
    Some(Json::Array(list))
}

/// A fault in the form of our body, named by the header that it came from.
fn by_header(fault: Fault) -> Fault {
    let member = fault.pointer.trim_start_matches('/');
    let member = member.split('/').next().unwrap_or_default();
    let known = HEADERS
        .iter()
        .chain(&[(PUBLISH, "publish")])
        .find(|(_, name)| *name == member);
    Fault {
        pointer: known.map_or(fault.pointer.clone(), |(header, _)| (*header).to_owned()),
        ..fault
    }
}

/// The body as JSON. Its content type does not matter: curl names a wrong one by default.
fn object(bytes: &[u8]) -> Result<Json, Problem> {
    let body = parse_json(bytes)?;
    if body.as_object().is_none() {
        let fault = Fault::new("", "The body must be a JSON object.");
        return Err(Problem::invalid(vec![fault]));
    }
    Ok(body)
}

/// The body for Gemini: the caller's bytes.
fn text(bytes: &[u8]) -> Result<String, Problem> {
    String::from_utf8(bytes.to_vec())
        .map_err(|_| Problem::new(Code::InvalidRequest, "The body is not UTF-8."))
}

/// The upper estimate of the cost. A model without a price is refused only where credits are
/// limited: clients name new models before anybody has entered their price.
fn credits(
    app: &App,
    access: &Access,
    model: &str,
    body: &Json,
    bytes: usize,
) -> Result<i64, Problem> {
    match estimate(app, model, body, bytes) {
        Err(_) if access.daily_credits.is_none() => Ok(0),
        estimated => estimated,
    }
}

/// Our header fields, and the members of our API's body that they stand for.
const HEADERS: &[(&str, &str)] = &[
    ("X-Oncepress-Site", "site"),
    ("X-Oncepress-Pipeline", "pipeline"),
    ("X-Oncepress-Variant", "variant"),
    ("X-Oncepress-Requested-At", "requestedAt"),
    ("X-Oncepress-Window-Minutes", "windowMinutes"),
];
const PUBLISH: &str = "X-Oncepress-Publish";
/// Site and pipeline where neither the request nor its key names one.
const DEFAULT_NAME: &str = "default";

#[cfg(test)]
mod tests {
    use super::*;

    fn access(defaults: &str) -> Access {
        Access {
            key_id: "key_1".to_owned(),
            hash: String::new(),
            account: "acme".to_owned(),
            daily_credits: None,
            timezone: "UTC".to_owned(),
            defaults: defaults.to_owned(),
        }
    }

    fn ours(headers: &[(&str, &str)], defaults: &str) -> Result<Ours, Problem> {
        let request = Request {
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Request::default()
        };
        let now = Timestamp::parse_rfc3339("2026-11-30T08:00:00Z").unwrap();
        Ours::read(&request, &access(defaults), now)
    }

    #[test]
    fn a_client_that_knows_nothing_of_us_has_a_scope_and_publishes_nothing() {
        let ours = ours(&[], "{}").unwrap();
        let valid = ours.valid;
        assert_eq!(
            (valid.site.as_str(), valid.pipeline.as_str()),
            ("default", "default")
        );
        assert_eq!((valid.publish, ours.publish), (None, None));
    }

    #[test]
    fn headers_come_before_the_defaults_of_the_key() {
        let defaults = r#"{"site":"blog","pipeline":"daily",
            "publish":[{"publisher":"archive","target":"a.md"}]}"#;
        let by_key = ours(&[], defaults).unwrap().valid;
        assert_eq!(
            (by_key.site.as_str(), by_key.pipeline.as_str()),
            ("blog", "daily")
        );
        assert_eq!(by_key.publish.map(|list| list.len()), Some(1));
        let headers = [
            ("x-oncepress-site", "shop"),
            (
                "x-oncepress-publish",
                "archive={date}/%E7%8A%AC.md, hook=x=y",
            ),
            ("x-oncepress-variant", "B"),
            ("x-oncepress-window-minutes", "5"),
            ("x-oncepress-requested-at", "2026-11-30T07:55:00Z"),
        ];
        let named = ours(&headers, defaults).unwrap().valid;
        assert_eq!(
            (named.site.as_str(), named.pipeline.as_str()),
            ("shop", "daily")
        );
        let targets: Vec<_> = named
            .publish
            .unwrap()
            .into_iter()
            .map(|d| d.target)
            .collect();
        assert_eq!(targets, ["{date}/犬.md", "x=y"]);
        assert_eq!(named.window.millis(), 300_000);
        assert!(named.requested_at.is_some());
        let none = ours(&[("x-oncepress-publish", "")], defaults).unwrap();
        assert_eq!(none.valid.publish, Some(Vec::new()));
    }

    #[test]
    fn each_fault_names_its_header() {
        let headers = [
            ("x-oncepress-site", "Bad Name"),
            ("x-oncepress-window-minutes", "soon"),
            ("x-oncepress-requested-at", "yesterday"),
        ];
        let refused = ours(&headers, "{}").err().unwrap();
        let named: Vec<_> = refused.faults.iter().map(|f| f.pointer.as_str()).collect();
        assert_eq!(
            named,
            [
                "X-Oncepress-Site",
                "X-Oncepress-Window-Minutes",
                "X-Oncepress-Requested-At"
            ]
        );
        let twice = [("x-oncepress-site", "a"), ("x-oncepress-site", "b")];
        let refused = ours(&twice, "{}").err().unwrap();
        assert_eq!(refused.detail, "X-Oncepress-Site: must be given once");
        let refused = ours(&[("x-oncepress-publish", "archive")], "{}")
            .err()
            .unwrap();
        assert_eq!(
            refused.detail,
            "X-Oncepress-Publish: must be a list of name=target"
        );
    }
}
