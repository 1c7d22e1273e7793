//! What is known of a generation: the row, the job that runs it, and how it was settled.

use serde_json::Value;

use crate::idempotency::state::State;
use crate::json_form::{self, JsonForm, json_form, member, object};
use crate::ports::DbError;
use crate::store::row::{Columns, Row};
use crate::time::Timestamp;

/// Which of our endpoints a request came in by, and so the form of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Surface {
    /// `POST /api/v1/generations`: the answer is our generation object.
    Api,
    /// `:generateContent`: the answer is Gemini's own JSON.
    Generate,
    /// `:streamGenerateContent`: the answer is Gemini's own stream.
    Stream,
}

impl Surface {
    /// The word in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Generate => "generate",
            Self::Stream => "stream",
        }
    }

    /// The surface of that word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Api, Self::Generate, Self::Stream]
            .into_iter()
            .find(|s| s.as_str() == word)
    }
}

impl JsonForm for Surface {
    fn to_json(&self) -> Value {
        Value::from(self.as_str())
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        let read = value.and_then(Value::as_str).and_then(Self::parse);
        *sound &= read.is_some();
        read.unwrap_or(Self::Api)
    }
}

/// A generation as a runner knows it: everything but the request's body.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a column, or a fact of the request"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The generation's id.
    pub generation_id: String,
    /// The fencing token: only its holder may settle the generation.
    pub token: String,
    /// Whose it is.
    pub account: String,
    /// Its site.
    pub site: String,
    /// Its pipeline.
    pub pipeline: String,
    /// What it is about, for people.
    pub topic: Option<String>,
    /// How the request came in.
    pub surface: Surface,
    /// The key as shown.
    pub key: String,
    /// The key as claimed.
    pub claim_key: String,
    /// Whether the key is the caller's own.
    pub operation: bool,
    /// The fingerprint, 64 hex digits.
    pub fingerprint: String,
    /// The first request's id.
    pub request_id: String,
    /// The model that was asked for.
    pub model: String,
    /// Whether JSON was asked for.
    pub json_mode: bool,
    /// The path at Gemini.
    pub upstream: String,
    /// When it was claimed first.
    pub created_at: Timestamp,
    /// Where its window starts.
    pub anchor_at: Timestamp,
    /// Where its window, or its operation key, ends.
    pub expires_at: Timestamp,
    /// When the runner's lease ends.
    pub lease_until: Timestamp,
    /// Its destinations, as `publisher=target` in the order given.
    pub destinations: Vec<String>,
    /// Upper estimate of its cost, in credits: what is reserved for it.
    pub credits: i64,
    /// Whether it continues an earlier answer, by Gemini's continuation token.
    pub continues: bool,
    /// Whether a queue message stands behind it, which tries again after a passing failure.
    pub from_queue: bool,
}

json_form!(Job {
    generation_id,
    token,
    account,
    site,
    pipeline,
    topic,
    surface,
    key,
    claim_key,
    operation,
    fingerprint,
    request_id,
    model,
    json_mode,
    upstream,
    created_at,
    anchor_at,
    expires_at,
    lease_until,
    destinations,
    credits,
    continues,
    from_queue,
});

impl Job {
    /// The job of a row; destinations are looked up apart.
    pub fn of(row: &Generation) -> Self {
        Self {
            generation_id: row.id.clone(),
            token: row.token.clone(),
            account: row.account.clone(),
            site: row.site.clone(),
            pipeline: row.pipeline.clone(),
            topic: row.topic.clone(),
            surface: row.surface,
            key: row.key.clone(),
            claim_key: row.claim_key.clone(),
            operation: row.operation,
            fingerprint: row.fingerprint.clone(),
            request_id: row.request_id.clone(),
            model: row.model.clone(),
            json_mode: row.json_mode,
            upstream: row.upstream.clone(),
            created_at: row.created_at,
            anchor_at: row.anchor_at,
            expires_at: row.expires_at,
            lease_until: row.lease_until,
            destinations: row.destinations.clone(),
            credits: row.credits_reserved,
            continues: row.continues,
            from_queue: row.from_queue,
        }
    }
}

/// Token counts as Gemini reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Prompt tokens, cached ones included.
    pub prompt: u64,
    /// The cached part of the prompt.
    pub cached: u64,
    /// Tokens of the answer, without thoughts.
    pub output: u64,
    /// Tokens of thoughts, billed as output.
    pub thought: u64,
    /// All of them, as Gemini adds them up.
    pub total: u64,
}

json_form!(Tokens {
    prompt,
    cached,
    output,
    thought,
    total,
});

/// A row of `generations`.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a column, or a fact of the request"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns are described in the migration")]
pub struct Generation {
    pub id: String,
    pub account: String,
    pub site: String,
    pub pipeline: String,
    pub topic: Option<String>,
    pub surface: Surface,
    pub key: String,
    pub claim_key: String,
    pub operation: bool,
    pub fingerprint: String,
    pub leaves: String,
    pub state: State,
    pub reason: Option<String>,
    pub detail: Option<String>,
    pub token: String,
    pub lease_until: Timestamp,
    pub anchor_at: Timestamp,
    pub expires_at: Timestamp,
    pub request_id: String,
    pub model: String,
    pub model_version: Option<String>,
    pub json_mode: bool,
    pub continues: bool,
    pub from_queue: bool,
    pub upstream: String,
    pub created_at: Timestamp,
    pub completed_at: Option<Timestamp>,
    pub updated_at: Timestamp,
    pub credit_day: String,
    pub credits_reserved: i64,
    pub credits_spent: i64,
    pub output_id: Option<String>,
    pub output_where: Option<String>,
    pub output_parts: i64,
    pub output_type: Option<String>,
    pub output_headers: Option<String>,
    pub finish_reason: Option<String>,
    pub tokens: Tokens,
    pub cost_nano: i64,
    pub evidence_of: Option<String>,
    /// Whether a delivery of it is still owed.
    pub owed: bool,
    /// Its destinations, as `publisher=target`.
    pub destinations: Vec<String>,
}

impl Generation {
    /// The columns that [`Generation::read`] wants, of `generations g`.
    pub const COLUMNS: &'static str = "g.*, \
        (SELECT json_group_array(d.publisher || '=' || d.target) FROM deliveries d \
          WHERE d.generation_id = g.id) AS destinations";

    /// Reads a row that was selected with [`Generation::COLUMNS`].
    pub fn read(row: Row<'_>) -> Result<Self, DbError> {
        let unknown = || unknown_word("state");
        let state = State::parse(&row.text("state")?).ok_or_else(unknown)?;
        let unknown = || unknown_word("surface");
        let surface = Surface::parse(&row.text("surface")?).ok_or_else(unknown)?;
        let unknown = || unknown_word("destinations");
        let destinations = json_form::read(&row.text("destinations")?).ok_or_else(unknown)?;
        let mut columns = Columns::of(row);
        let read = Self {
            id: columns.text("id"),
            account: columns.text("account"),
            site: columns.text("site"),
            pipeline: columns.text("pipeline"),
            topic: columns.optional_text("topic"),
            surface,
            key: columns.text("key"),
            claim_key: columns.text("claim_key"),
            operation: columns.flag("operation"),
            fingerprint: columns.text("fingerprint"),
            leaves: columns.text("leaves"),
            state,
            reason: columns.optional_text("reason"),
            detail: columns.optional_text("detail"),
            token: columns.text("token"),
            lease_until: columns.time("lease_until"),
            anchor_at: columns.time("anchor_at"),
            expires_at: columns.time("expires_at"),
            request_id: columns.text("request_id"),
            model: columns.text("model"),
            model_version: columns.optional_text("model_version"),
            json_mode: columns.flag("json_mode"),
            continues: columns.flag("continues"),
            from_queue: columns.flag("from_queue"),
            upstream: columns.text("upstream"),
            created_at: columns.time("created_at"),
            completed_at: columns.optional_time("completed_at"),
            updated_at: columns.time("updated_at"),
            credit_day: columns.text("credit_day"),
            credits_reserved: columns.integer("credits_reserved"),
            credits_spent: columns.integer("credits_spent"),
            output_id: columns.optional_text("output_id"),
            output_where: columns.optional_text("output_where"),
            output_parts: columns.integer("output_parts"),
            output_type: columns.optional_text("output_type"),
            output_headers: columns.optional_text("output_headers"),
            finish_reason: columns.optional_text("finish_reason"),
            tokens: Tokens {
                prompt: columns.count("prompt_tokens"),
                cached: columns.count("cached_tokens"),
                output: columns.count("output_tokens"),
                thought: columns.count("thought_tokens"),
                total: columns.count("total_tokens"),
            },
            cost_nano: columns.integer("cost_nano"),
            evidence_of: columns.optional_text("evidence_of"),
            owed: columns.flag("owed"),
            destinations,
        };
        columns.end(read)
    }
}

fn unknown_word(column: &str) -> DbError {
    DbError::Fatal(format!(
        "column {column} holds a word that this version does not know"
    ))
}

/// A paid-for result, as it is stored and replayed. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The generation's id.
    pub generation_id: String,
    /// The first request's id: a replay carries it.
    pub request_id: String,
    /// Whose it is.
    pub account: String,
    /// Its site.
    pub site: String,
    /// Its pipeline.
    pub pipeline: String,
    /// What it is about, for people.
    pub topic: Option<String>,
    /// The model that was asked for.
    pub model: String,
    /// The key as claimed: it holds the whole digest.
    pub claim_key: String,
    /// The fingerprint, 64 hex digits.
    pub fingerprint: String,
    /// When it was claimed first.
    pub created_at: Timestamp,
    /// Where its window starts.
    pub anchor_at: Timestamp,
    /// Where its window, or its operation key, ends.
    pub expires_at: Timestamp,
    /// Its destinations, as `publisher=target`.
    pub destinations: Vec<String>,
    /// What it cost, in nano-USD: what each replay saves.
    pub cost_nano: i64,
    /// The media type of the body.
    pub content_type: String,
    /// Gemini's own tracing headers.
    pub headers: Vec<(String, String)>,
    /// Its name in R2, where the answer is too large for a row.
    pub object: Option<String>,
    /// The answer, byte for byte.
    pub body: String,
}

json_form!(Stored {
    generation_id,
    request_id,
    account,
    site,
    pipeline,
    topic,
    model,
    claim_key,
    fingerprint,
    created_at,
    anchor_at,
    expires_at,
    destinations,
    cost_nano,
    content_type,
    headers,
    object,
} without { body });

impl Stored {
    /// Whether the answer is kept as a stream of events.
    pub fn is_stream(&self) -> bool {
        self.content_type == EVENT_STREAM
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The output is committed (or safe in the fallback store).
    Generated {
        /// The result.
        stored: Box<Stored>,
    },
    /// The output is stored but not fit to publish.
    Held {
        /// Why: a stable code.
        reason: String,
        /// The result; drop-in callers get it all the same.
        stored: Box<Stored>,
    },
    /// It failed for sure; the key is free.
    Failed {
        /// The error's code.
        code: String,
        /// Why, for people.
        detail: String,
        /// When to come back, in milliseconds.
        retry_after_ms: Option<i64>,
        /// Gemini's own error, for drop-in callers: status code and JSON body.
        google: Option<(u16, String)>,
    },
    /// Nobody knows; nothing may be bought until that is settled.
    Unknown {
        /// Why, for people.
        detail: String,
    },
}

impl JsonForm for Settlement {
    fn to_json(&self) -> Value {
        let word = |word: &str| word.to_owned();
        match self {
            Self::Generated { stored } => object(&[(KIND, &word("generated")), ("stored", stored)]),
            Self::Held { reason, stored } => object(&[
                (KIND, &word("held")),
                ("reason", reason),
                ("stored", stored),
            ]),
            Self::Failed {
                code,
                detail,
                retry_after_ms,
                google,
            } => object(&[
                (KIND, &word("failed")),
                ("code", code),
                ("detail", detail),
                ("retry_after_ms", retry_after_ms),
                ("google", google),
            ]),
            Self::Unknown { detail } => object(&[(KIND, &word("unknown")), ("detail", detail)]),
        }
    }

    fn read_json(value: Option<&Value>, sound: &mut bool) -> Self {
        let kind: String = member(value, KIND, sound);
        match kind.as_str() {
            "generated" => Self::Generated {
                stored: member(value, "stored", sound),
            },
            "held" => Self::Held {
                reason: member(value, "reason", sound),
                stored: member(value, "stored", sound),
            },
            "failed" => Self::Failed {
                code: member(value, "code", sound),
                detail: member(value, "detail", sound),
                retry_after_ms: member(value, "retry_after_ms", sound),
                google: member(value, "google", sound),
            },
            word => {
                *sound &= word == "unknown";
                Self::Unknown {
                    detail: member(value, "detail", sound),
                }
            }
        }
    }
}

const KIND: &str = "settlement";

/// The media type of server-sent events.
pub const EVENT_STREAM: &str = "text/event-stream";

#[cfg(test)]
pub(crate) mod tests {
    use super::Stored;
    use crate::time::Timestamp;

    /// A stored result like any other.
    pub(crate) fn stored() -> Stored {
        Stored {
            generation_id: "gen_1".to_owned(),
            request_id: "req_1".to_owned(),
            account: "a".to_owned(),
            site: "s".to_owned(),
            pipeline: "p".to_owned(),
            topic: Some("a\nb".to_owned()),
            model: "m".to_owned(),
            claim_key: "k".to_owned(),
            fingerprint: "f".to_owned(),
            created_at: Timestamp::from_millis(5),
            anchor_at: Timestamp::from_millis(5),
            expires_at: Timestamp::from_millis(10),
            destinations: vec!["r2=a".to_owned()],
            cost_nano: 7,
            content_type: "application/json".to_owned(),
            headers: vec![("server-timing".to_owned(), "x".to_owned())],
            object: None,
            body: "{\n \"text\": \"日本\"\n}\n".to_owned(),
        }
    }
}
