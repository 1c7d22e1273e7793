//! Answers a caller whose generation is still running.
//!
//! The head of the answer waits for the first byte or the end, so that a failure before it has its
//! own status. Once the head is out a failure can only be an event in the stream. The chunk with
//! the `finishReason` comes after the commit.

use futures_util::future::{Either, select};
use serde_json::json;

use crate::app::{App, RunnerError};
use crate::error::Problem;
use crate::gemini::sse::event;
use crate::http::dropin::form::{Form, Writer};
use crate::http::dropin::{ended, failed};
use crate::http::message::{Body, Response};
use crate::idempotency::follow::Lasting;
use crate::idempotency::gateway::{followed, pending};
use crate::idempotency::live::{Feed, Live, Step};
use crate::idempotency::record::Settlement;
use crate::limits::{
    FIRST_BYTE_PATIENCE, HEARTBEAT, OUTPUT_INLINE_MAX_BYTES, STREAM_KEPT_MAX_BYTES,
};
use crate::ports::{ByteSource, HttpError, Task};
use crate::time::Span;

/// A run whose caller is here.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) generation_id: String,
    /// The first request's id.
    pub(super) request_id: String,
    /// The key's mark in the caches.
    pub(super) mark: String,
    /// The account's time zone.
    pub(super) zone: String,
    /// Whether this caller's request made it.
    pub(super) made: bool,
}

/// Answers with the run's stream as it comes, or with its whole answer once it is there.
pub(super) async fn answer(
    app: &App,
    form: Form,
    run: Run,
    live: Option<Live>,
) -> Result<Response, Problem> {
    let feed: Box<dyn Feed> = match live {
        Some(live) => Box::new(live.follow(0)),
        None => Box::new(Lasting::new(app, &run.generation_id)),
    };
    let stream = Stream {
        app: app.clone(),
        run,
        feed,
        writer: Writer::new(form),
        kept: Some(String::new()),
        ready: String::new(),
        over: false,
    };
    match form {
        Form::Unary => stream.whole().await,
        Form::Events | Form::List => stream.begin(form).await,
    }
}

/// A stream on its way to its caller.
struct Stream {
    app: App,
    run: Run,
    feed: Box<dyn Feed>,
    writer: Writer,
    /// What has come, as it is stored; `None` once it is too much to keep.
    kept: Option<String>,
    /// What is to be sent first.
    ready: String,
    over: bool,
}

/// What happened next.
enum Next {
    Step(Result<Step, RunnerError>),
    Silence,
}

impl Stream {
    /// The account's time zone, where this caller's request was a duplicate.
    fn caught(&self) -> Option<&str> {
        (!self.run.made).then_some(self.run.zone.as_str())
    }

    /// A unary caller gets the answer whole. Its connection waits as long as that takes: nothing
    /// can be sent before the status is known.
    async fn whole(mut self) -> Result<Response, Problem> {
        let mut came = String::new();
        loop {
            match self.feed.next().await {
                Ok(Step::Piece(text)) => came.push_str(&text),
                Ok(Step::End(mut end)) => {
                    complete(&mut end, &came);
                    return self.ended(Form::Unary, end);
                }
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    async fn begin(mut self, form: Form) -> Result<Response, Problem> {
        match self.next_within(FIRST_BYTE_PATIENCE).await {
            Next::Step(Ok(Step::End(end))) => return self.ended(form, end),
            Next::Step(Err(error)) => return Err(self.lost(&error)),
            Next::Step(Ok(Step::Piece(text))) => self.ready = self.piece(&text),
            Next::Silence => SIGN_OF_LIFE.clone_into(&mut self.ready),
        }
        let mut response = Response {
            status: 200,
            headers: Vec::new(),
            body: Body::Bytes(Vec::new()),
        }
        .with("content-type", form.content_type())
        .with("cache-control", "no-store")
        .with("x-request-id", self.run.request_id.as_str())
        .with("x-oncepress-generation-id", self.run.generation_id.as_str());
        if !self.run.made {
            response = response
                .with("x-idempotency-replayed", "true")
                .with("x-oncepress-credits", "0");
        }
        response.body = Body::Stream(Box::new(self));
        Ok(response)
    }

    /// The run is over and its whole answer is here.
    fn ended(&self, form: Form, end: Settlement) -> Result<Response, Problem> {
        let body = match &end {
            Settlement::Generated { stored } if stored.body.len() <= OUTPUT_INLINE_MAX_BYTES => {
                Some(stored.body.clone())
            }
            _ => None,
        };
        followed(&self.app, &self.run.mark, self.caught(), &end, body);
        ended(form, &self.run, end)
    }

    async fn next_within(&mut self, patience: Span) -> Next {
        match select(self.feed.next(), self.app.clock.sleep(patience)).await {
            Either::Left((step, _)) => Next::Step(step),
            Either::Right(((), _)) => Next::Silence,
        }
    }

    fn piece(&mut self, text: &str) -> String {
        self.keep(text);
        self.writer.events(text)
    }

    fn keep(&mut self, text: &str) {
        let room = |kept: &String| kept.len().saturating_add(text.len()) <= STREAM_KEPT_MAX_BYTES;
        self.kept = self.kept.take().filter(room).map(|kept| kept + text);
    }

    /// The last that is sent: what the commit held back, or why there is no more.
    fn last(&mut self, end: Settlement) -> String {
        let rest = match &end {
            Settlement::Generated { stored } | Settlement::Held { stored, .. } => {
                Some(if stored.is_stream() {
                    self.keep(&stored.body);
                    self.writer.events(&stored.body)
                } else {
                    self.kept = None;
                    self.writer.events(&event(&stored.body))
                })
            }
            Settlement::Failed { .. } | Settlement::Unknown { .. } => None,
        };
        let kept = self.kept.take();
        followed(&self.app, &self.run.mark, self.caught(), &end, kept);
        rest.unwrap_or_else(|| self.error(&failed(&self.run.generation_id, end)))
    }

    fn error(&mut self, problem: &Problem) -> String {
        self.app.log(
            "stream_failed",
            json!({"generationId": self.run.generation_id, "requestId": self.run.request_id,
                "code": problem.code.as_str()}),
        );
        match problem.to_google_response().body {
            Body::Bytes(bytes) => self.writer.error(&bytes),
            Body::Stream(_) => String::new(),
        }
    }

    /// Nobody can say how the run stands.
    fn lost(&self, error: &RunnerError) -> Problem {
        self.app.log(
            "runner_unreachable",
            json!({"generationId": self.run.generation_id, "error": error.to_string()}),
        );
        pending(&self.run.generation_id)
    }

    async fn advance(&mut self) -> Option<Vec<u8>> {
        loop {
            if !self.ready.is_empty() {
                return Some(std::mem::take(&mut self.ready).into_bytes());
            }
            if self.over {
                return None;
            }
            self.ready = match self.next_within(HEARTBEAT).await {
                Next::Silence => SIGN_OF_LIFE.to_owned(),
                Next::Step(Ok(Step::Piece(text))) => self.piece(&text),
                Next::Step(Ok(Step::End(end))) => {
                    self.over = true;
                    self.last(end) + self.writer.end()
                }
                Next::Step(Err(error)) => {
                    self.over = true;
                    let problem = self.lost(&error);
                    self.error(&problem) + self.writer.end()
                }
            };
        }
    }
}

impl ByteSource for Stream {
    fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>> {
        Box::pin(async move { Ok(self.advance().await) })
    }
}

/// Puts before the rest of a stream what had come of it.
fn complete(end: &mut Settlement, came: &str) {
    if let Settlement::Generated { stored } | Settlement::Held { stored, .. } = end
        && stored.is_stream()
    {
        stored.body.insert_str(0, came);
    }
}

/// The one sign of life that every SDK takes for nothing: a blank line between events, and white
/// space in a list.
const SIGN_OF_LIFE: &str = "\n";
