//! Templates: what an output is turned into before it is sent.
//!
//! A template of one's own is text with `{{places}}`, each filled with a value and, after a bar,
//! escaped for where it stands: `{{topic|html}}`, `{{text|json}}`. There is no logic in it, so a
//! template that was read can't fail later. (A template engine was measured and left out: the
//! smallest well-known one adds 121 KiB, gzip, to a bundle that may have 350.)

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Parcel, title};

/// How an output is turned into what is sent.
///
/// ```
/// use oncepress::publish::template::Template;
/// use serde_json::json;
/// assert!(Template::parse(&json!("markdown")).is_ok());
/// let own = json!({ "body": "<h1>{{title|html}}</h1>{{text}}", "content_type": "text/html" });
/// assert!(Template::parse(&own).is_ok());
/// let typo = Template::parse(&json!({ "body": "{{titel}}", "content_type": "text/html" }));
/// assert!(typo.unwrap_err().starts_with("body: `titel` is not known"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Template {
    /// The output's text, byte for byte.
    #[default]
    Text,
    /// A JSON object with the text and where it comes from.
    Json,
    /// The text as Markdown, after a YAML front matter.
    Markdown,
    /// The operator's own.
    Own(OwnTemplate),
}

/// A template of the operator's own, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTemplate {
    pieces: Vec<Piece>,
    content_type: String,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The content.
    pub content: String,
    /// Its media type.
    pub content_type: String,
}

impl Template {
    /// Reads a template of the configuration: `"text"`, `"json"`, `"markdown"`, or a table with
    /// `body` and `content_type`. Says what is wrong with it.
    pub fn parse(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(name) => match name.as_str() {
                "text" => Ok(Self::Text),
                "json" => Ok(Self::Json),
                "markdown" => Ok(Self::Markdown),
                _ => Err(KINDS.to_owned()),
            },
            Value::Object(table) => {
                let known = ["body", "content_type"];
                if let Some(name) = table.keys().find(|name| !known.contains(&name.as_str())) {
                    return Err(format!(
                        "`{name}` is not known here (known: body, content_type)"
                    ));
                }
                let text = |name| table.get(name).and_then(Value::as_str).unwrap_or_default();
                OwnTemplate::parse(text("body"), text("content_type")).map(Self::Own)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Err(KINDS.to_owned())
            }
        }
    }

    /// Turns an output into what is sent.
    pub fn render(&self, parcel: &Parcel) -> Rendered {
        let (content, content_type) = match self {
            Self::Text => (parcel.text.clone(), "text/plain; charset=utf-8"),
            Self::Json => (as_json(parcel), "application/json"),
            Self::Markdown => (as_markdown(parcel), "text/markdown; charset=utf-8"),
            Self::Own(own) => (own.fill(parcel), own.content_type.as_str()),
        };
        Rendered {
            content,
            content_type: content_type.to_owned(),
        }
    }
}

impl OwnTemplate {
    fn parse(body: &str, content_type: &str) -> Result<Self, String> {
        if body.is_empty() {
            return Err("body: must be a text that is not empty".to_owned());
        }
        let visible = content_type
            .bytes()
            .all(|byte| (b' '..=b'~').contains(&byte));
        if !visible || !content_type.contains('/') {
            return Err("content_type: must be a media type such as `text/html`".to_owned());
        }
        let pieces = read_pieces(body).map_err(|problem| format!("body: {problem}"))?;
        if !pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Place(Place::Text, _)))
        {
            return Err("body: never says {{text}}, so that nothing would be published".to_owned());
        }
        Ok(Self {
            pieces,
            content_type: content_type.to_owned(),
        })
    }

    fn fill(&self, parcel: &Parcel) -> String {
        let mut filled = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => filled.push_str(text),
                Piece::Place(place, escape) => {
                    filled.push_str(&escape.apply(&place.value(parcel)));
                }
            }
        }
        filled
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Place(Place, Escape),
}

fn read_pieces(body: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = body;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((inside, tail)) = after.split_once("}}") else {
            return Err("a `{{` has no `}}`".to_owned());
        };
        pieces.push(Piece::Literal(before.to_owned()));
        let (name, escape) = inside.split_once('|').unwrap_or((inside, ""));
        let (name, escape) = (name.trim(), escape.trim());
        let place = Place::ALL.iter().find(|(known, _)| *known == name);
        let escape_kind = Escape::ALL.iter().find(|(known, _)| *known == escape);
        match (place, escape_kind) {
            (Some((_, place)), Some((_, escape))) => pieces.push(Piece::Place(*place, *escape)),
            (None, _) => return Err(unknown(name, &Place::ALL.map(|(known, _)| known))),
            (_, None) => return Err(unknown(escape, &["json", "html"])),
        }
        rest = tail;
    }
    pieces.push(Piece::Literal(rest.to_owned()));
    Ok(pieces)
}

fn unknown(word: &str, known: &[&str]) -> String {
    format!("`{word}` is not known (known: {})", known.join(", "))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Text,
    Title,
    Topic,
    Account,
    Site,
    Pipeline,
    Model,
    GenerationId,
    DeliveryId,
    Fingerprint,
    Target,
    CreatedAt,
    CompletedAt,
    Date,
}

impl Place {
    const ALL: [(&'static str, Self); 14] = [
        ("text", Self::Text),
        ("title", Self::Title),
        ("topic", Self::Topic),
        ("account", Self::Account),
        ("site", Self::Site),
        ("pipeline", Self::Pipeline),
        ("model", Self::Model),
        ("generationId", Self::GenerationId),
        ("deliveryId", Self::DeliveryId),
        ("fingerprint", Self::Fingerprint),
        ("target", Self::Target),
        ("createdAt", Self::CreatedAt),
        ("completedAt", Self::CompletedAt),
        ("date", Self::Date),
    ];

    fn value(self, parcel: &Parcel) -> String {
        match self {
            Self::Text => parcel.text.clone(),
            Self::Title => title(parcel.topic.as_deref(), &parcel.text),
            Self::Topic => parcel.topic.clone().unwrap_or_default(),
            Self::Account => parcel.account.clone(),
            Self::Site => parcel.site.clone(),
            Self::Pipeline => parcel.pipeline.clone(),
            Self::Model => parcel.model.clone(),
            Self::GenerationId => parcel.generation_id.clone(),
            Self::DeliveryId => parcel.delivery_id.clone(),
            Self::Fingerprint => parcel.fingerprint.clone(),
            Self::Target => parcel.target.clone(),
            Self::CreatedAt => parcel.created_at.to_rfc3339(),
            Self::CompletedAt => parcel.completed_at.to_rfc3339(),
            Self::Date => parcel.completed_at.to_date_string(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    /// A whole JSON string with its quotes; YAML reads it too.
    Json,
    /// Text or an attribute's value in HTML.
    Html,
}

impl Escape {
    const ALL: [(&'static str, Self); 3] =
        [("", Self::None), ("json", Self::Json), ("html", Self::Html)];

    fn apply(self, text: &str) -> String {
        match self {
            Self::None => text.to_owned(),
            Self::Json => quoted(text),
            Self::Html => text
                .replace('&', "&amp;")
                .replace('<', "&lt;")
                .replace('>', "&gt;")
                .replace('"', "&quot;")
                .replace('\'', "&#39;"),
        }
    }
}

fn as_json(parcel: &Parcel) -> String {
    let mut text = json!({
        "title": title(parcel.topic.as_deref(), &parcel.text),
        "text": parcel.text,
        "topic": parcel.topic,
        "account": parcel.account,
        "site": parcel.site,
        "pipeline": parcel.pipeline,
        "model": parcel.model,
        "generationId": parcel.generation_id,
        "deliveryId": parcel.delivery_id,
        "fingerprint": parcel.fingerprint,
        "createdAt": parcel.created_at.to_rfc3339(),
        "completedAt": parcel.completed_at.to_rfc3339(),
    })
    .to_string();
    text.push('\n');
    text
}

fn as_markdown(parcel: &Parcel) -> String {
    format!(
        "---\ntitle: {}\ndate: {}\nsite: {}\npipeline: {}\nmodel: {}\ngeneration: {}\n---\n\n{}\n",
        quoted(&title(parcel.topic.as_deref(), &parcel.text)),
        quoted(&parcel.completed_at.to_rfc3339()),
        quoted(&parcel.site),
        quoted(&parcel.pipeline),
        quoted(&parcel.model),
        quoted(&parcel.generation_id),
        parcel.text.trim_end_matches('\n'),
    )
}

/// A JSON string, which is a double-quoted scalar of YAML as well: no topic ends the front matter.
fn quoted(text: &str) -> String {
    // YAML's line breaks beyond ASCII are escaped, and what it does not take as a character.
    let json = Value::from(text).to_string();
    json.chars()
        .fold(String::with_capacity(json.len()), |mut escaped, c| {
            match c {
                '\u{7f}'..='\u{9f}'
                | '\u{2028}'
                | '\u{2029}'
                | '\u{feff}'
                | '\u{fffe}'
                | '\u{ffff}' => {
                    // Writing into a string can't fail.
                    let _ = write!(escaped, "\\u{:04x}", u32::from(c));
                }
                _ => escaped.push(c),
            }
            escaped
        })
}

const KINDS: &str = "must be text, json or markdown, or a table with body and content_type";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn parcel(text: &str, topic: Option<&str>) -> Parcel {
        Parcel {
            delivery_id: "dlv_1".to_owned(),
            generation_id: "gen_1".to_owned(),
            account: "default".to_owned(),
            site: "blog".to_owned(),
            pipeline: "daily".to_owned(),
            topic: topic.map(str::to_owned),
            model: "gemini-3.8-flash".to_owned(),
            key: "k".to_owned(),
            fingerprint: "f00".to_owned(),
            created_at: Timestamp::from_millis(0),
            completed_at: Timestamp::from_millis(1_000),
            target: "a.md".to_owned(),
            text: text.to_owned(),
            content: String::new(),
            content_type: String::new(),
            maybe_sent: false,
            progress: None,
        }
    }

    fn own(body: &str) -> Result<Template, String> {
        Template::parse(&json!({ "body": body, "content_type": "text/html" }))
    }

    #[test]
    fn a_title_is_the_topic_as_it_is_or_the_first_line_without_its_marks() {
        for (topic, text, wanted) in [
            (Some(" Learning C# "), "x", "Learning C#"),
            (Some("Why `<b>`?\u{3000}"), "x", "Why `<b>`?"),
            (Some(" "), "# Hello", "Hello"),
            (None, "\n===\n## Learning C# ##\nmore", "Learning C#"),
            (None, "> **Dogs** & __cats__", "Dogs** & __cats"),
        ] {
            assert_eq!(title(topic, text), wanted);
        }
    }

    #[test]
    fn the_text_template_changes_no_byte() {
        let text = "\u{feff}  a\r\n\u{0}b\n\n";
        assert_eq!(Template::Text.render(&parcel(text, None)).content, text);
    }

    #[test]
    fn markdown_keeps_its_front_matter_whatever_the_topic_says() {
        let topic = "a\"b\n---\nadmin: true\u{2028}# c";
        let rendered = Template::Markdown.render(&parcel("# Hello\n", Some(topic)));
        insta::assert_snapshot!(rendered.content, @r#"
        ---
        title: "a\"b\n---\nadmin: true\u2028# c"
        date: "1970-01-01T00:00:01.000Z"
        site: "blog"
        pipeline: "daily"
        model: "gemini-3.8-flash"
        generation: "gen_1"
        ---

        # Hello
        "#);
    }

    #[test]
    fn json_carries_the_text_and_its_origin() {
        let rendered = Template::Json.render(&parcel("**Dogs** & cats\nmore", None));
        let json: Value = serde_json::from_str(&rendered.content).unwrap();
        assert_eq!(json["text"], "**Dogs** & cats\nmore");
        assert_eq!(json["title"], "Dogs** & cats");
        assert_eq!(json["topic"], Value::Null);
        assert_eq!(rendered.content_type, "application/json");
    }

    #[test]
    fn a_template_of_ones_own_is_filled_and_escaped_where_it_says_so() {
        let template = own("<h1 title={{ topic | json }}>{{title|html}}</h1>{{text}}{ }}").unwrap();
        let rendered = template.render(&parcel("{{topic}} <b>", Some("<i>\"&'")));
        assert_eq!(
            rendered.content,
            r#"<h1 title="<i>\"&'">&lt;i&gt;&quot;&amp;&#39;</h1>{{topic}} <b>{ }}"#
        );
        assert_eq!(rendered.content_type, "text/html");
    }

    #[test]
    fn a_bad_template_is_found_when_it_is_read() {
        for (value, problem) in [
            (json!("html"), "must be text, json or markdown"),
            (json!(7), "must be text, json or markdown"),
            (json!({ "body": "{{text}}" }), "content_type: must be"),
            (
                json!({ "body": "", "content_type": "a/b" }),
                "body: must be a text",
            ),
            (
                json!({ "body": "{{text}}", "content_type": "a/b\r\nx: y" }),
                "content_type: must be",
            ),
            (
                json!({ "body": "{{text}}", "content_type": "a/b", "x": 1 }),
                "`x` is not known",
            ),
        ] {
            let found = Template::parse(&value).unwrap_err();
            assert!(found.starts_with(problem), "{value}: {found}");
        }
        for (body, problem) in [
            ("{{text", "a `{{` has no `}}`"),
            ("{{}}{{text}}", "`` is not known"),
            ("{{text|upper}}", "`upper` is not known"),
            ("{{Text}}", "`Text` is not known"),
            ("{{#if x}}{{text}}", "`#if x` is not known"),
            ("hello", "never says {{text}}"),
        ] {
            assert_eq!(
                own(body)
                    .unwrap_err()
                    .strip_prefix("body: ")
                    .map(|p| p.starts_with(problem)),
                Some(true),
                "{body}"
            );
        }
    }
}
