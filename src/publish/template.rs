//! Templates: what an output is turned into before it is sent.

use serde_json::{Value, json};

/// How an output is turned into what is sent.
///
/// ```
/// use oncepress::publish::template::Template;
/// assert!(Template::parse(&"markdown".into()).is_ok());
/// assert!(Template::parse(&"makrdown".into()).is_err());
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
}

/// What a template can speak of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The output's text.
    pub text: &'a str,
    /// What it is about.
    pub topic: Option<&'a str>,
    /// The account.
    pub account: &'a str,
    /// The site.
    pub site: &'a str,
    /// The pipeline.
    pub pipeline: &'a str,
    /// The model.
    pub model: &'a str,
    /// The generation's id.
    pub generation_id: &'a str,
    /// The delivery's id.
    pub delivery_id: &'a str,
    /// The generation's fingerprint.
    pub fingerprint: &'a str,
    /// The idempotency key.
    pub key: &'a str,
    /// Where it goes.
    pub target: &'a str,
    /// When the generation was created.
    pub created_at: crate::time::Timestamp,
    /// When its output was committed.
    pub completed_at: crate::time::Timestamp,
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
    /// Reads a template of the configuration: `"text"`, `"json"` or `"markdown"`.
    pub fn parse(value: &Value) -> Result<Self, String> {
        match value.as_str() {
            Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            Some("markdown") => Ok(Self::Markdown),
            _ => Err("must be text, json or markdown".to_owned()),
        }
    }

    /// Turns an output into what is sent.
    pub fn render(&self, subject: &Subject<'_>) -> Rendered {
        let (content, content_type) = match self {
            Self::Text => (subject.text.to_owned(), "text/plain; charset=utf-8"),
            Self::Json => (as_json(subject), "application/json"),
            Self::Markdown => (as_markdown(subject), "text/markdown; charset=utf-8"),
        };
        Rendered {
            content,
            content_type: content_type.to_owned(),
        }
    }
}

impl Subject<'_> {
    /// The topic, else the first line of the text that says something, without Markdown's marks.
    pub fn title(&self) -> String {
        super::title(self.topic, self.text)
    }
}

fn as_json(subject: &Subject<'_>) -> String {
    let mut text = json!({
        "title": subject.title(),
        "text": subject.text,
        "topic": subject.topic,
        "account": subject.account,
        "site": subject.site,
        "pipeline": subject.pipeline,
        "model": subject.model,
        "generationId": subject.generation_id,
        "deliveryId": subject.delivery_id,
        "fingerprint": subject.fingerprint,
        "createdAt": subject.created_at.to_rfc3339(),
        "completedAt": subject.completed_at.to_rfc3339(),
    })
    .to_string();
    text.push('\n');
    text
}

fn as_markdown(subject: &Subject<'_>) -> String {
    // A JSON string is a YAML double-quoted scalar, so that no topic can end the front matter.
    let quoted = |text: &str| Value::from(text).to_string();
    format!(
        "---\ntitle: {}\ndate: {}\nsite: {}\npipeline: {}\nmodel: {}\ngeneration: {}\n---\n\n{}\n",
        quoted(&subject.title()),
        quoted(&subject.completed_at.to_rfc3339()),
        quoted(subject.site),
        quoted(subject.pipeline),
        quoted(subject.model),
        quoted(subject.generation_id),
        subject.text.trim_end_matches('\n'),
    )
}
