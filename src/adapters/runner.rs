//! The runner as a Durable Object per generation, and the handler's way to it.

use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::stream::unfold;
use worker::js_sys::Date;
use worker::wasm_bindgen::{JsCast, JsValue};
use worker::{ByteStream, DurableObject, Env, Request, Response, State, durable_object};

use super::entry::target;
use super::js::{Binding, ask, call, get, message, object};
use super::settings::app;
use crate::app::{Runner as RunnerPort, RunnerError};
use crate::http::query::value;
use crate::idempotency::actor::{Actor, ActorStorage};
use crate::idempotency::live::{Feed, Follower, Step};
use crate::idempotency::record::{Job, Settlement};
use crate::idempotency::wire::{
    StepReader, read_end, read_start, write_end, write_start, write_step,
};
use crate::ports::Task;
use crate::time::Span;

/// The namespace bound as `RUNNER`.
pub(super) struct Remote(pub(super) Binding);

impl Remote {
    async fn send(
        &self,
        id: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<Response, RunnerError> {
        let stub = call(&self.0.value(), "getByName", &[id.into()]).map_err(lost)?;
        let options = object(&[
            ("method", "POST".into()),
            ("body", body.map_or(JsValue::UNDEFINED, JsValue::from)),
        ]);
        let url = format!("https://runner{path}");
        let sent = ask(&stub, "fetch", &[url.into(), options]).await;
        let sent = sent.and_then(JsCast::dyn_into::<web_sys::Response>);
        let response = Response::from(sent.map_err(lost)?);
        match response.status_code() {
            200 => Ok(response),
            404 => Err(RunnerError::NotHere),
            status => Err(RunnerError::Unreachable(format!(
                "the runner answered {status}"
            ))),
        }
    }

    async fn call(
        &self,
        id: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<Option<Settlement>, RunnerError> {
        let mut response = self.send(id, path, body).await?;
        let text = response.text().await.map_err(unreachable)?;
        read_end(text).ok_or_else(|| RunnerError::Unreachable("the answer is damaged".to_owned()))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn unreachable(error: worker::Error) -> RunnerError {
    RunnerError::Unreachable(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what map_err gives")]
fn lost(error: JsValue) -> RunnerError {
    RunnerError::Unreachable(message(&error))
}

/// The runner's steps as they arrive.
struct Steps {
    stream: ByteStream,
    reader: StepReader,
}

impl Steps {
    async fn step(&mut self) -> Result<Step, RunnerError> {
        loop {
            let step = self.reader.step();
            if let Some(step) = step.map_err(|e| RunnerError::Unreachable(e.to_string()))? {
                return Ok(step);
            }
            let Some(bytes) = self.stream.next().await else {
                let cut = "the runner's stream ended before the run";
                return Err(RunnerError::Unreachable(cut.to_owned()));
            };
            self.reader.push(&bytes.map_err(unreachable)?);
        }
    }
}

impl Feed for Steps {
    fn next(&mut self) -> Task<'_, Result<Step, RunnerError>> {
        Box::pin(self.step())
    }
}

impl RunnerPort for Remote {
    fn start(
        &self,
        job: Job,
        body: String,
        wait: Span,
    ) -> Task<'_, Result<Option<Settlement>, RunnerError>> {
        Box::pin(async move {
            let text = write_start(&job, wait, &body);
            self.call(&job.generation_id, "/start", Some(text)).await
        })
    }

    fn attach<'a>(
        &'a self,
        generation_id: &'a str,
        wait: Span,
    ) -> Task<'a, Result<Option<Settlement>, RunnerError>> {
        Box::pin(async move {
            let path = format!("/attach?wait={}", wait.millis());
            self.call(generation_id, &path, None).await
        })
    }

    fn follow<'a>(
        &'a self,
        generation_id: &'a str,
        given: usize,
    ) -> Task<'a, Result<Box<dyn Feed>, RunnerError>> {
        Box::pin(async move {
            let path = format!("/follow?from={given}");
            let mut response = self.send(generation_id, &path, None).await?;
            Ok(Box::new(Steps {
                stream: response.stream().map_err(unreachable)?,
                reader: StepReader::default(),
            }) as Box<dyn Feed>)
        })
    }
}

/// The Durable Object. Its `fetch` stores and joins, its alarm works; one object a generation.
#[durable_object(alarm)]
pub struct Runner {
    state: Rc<State>,
    env: Env,
    actor: Actor,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runner")
    }
}

impl DurableObject for Runner {
    fn new(state: State, env: Env) -> Self {
        let storage = Rc::new(Durable(get(state.as_raw(), "storage")));
        Self {
            state: Rc::new(state),
            env,
            actor: Actor::new(storage),
        }
    }

    async fn fetch(&self, mut request: Request) -> worker::Result<Response> {
        let app = self.app();
        let url = request.inner().url();
        let (path, query) = target(&url);
        let number = |wanted: &str| {
            value(query, wanted)
                .and_then(|value| value.parse::<u32>().ok())
                .unwrap_or_default()
        };
        let answer = match path {
            "/follow" => {
                let given = usize::try_from(number("from")).unwrap_or(usize::MAX);
                match self.actor.follow(&app, given).await {
                    Ok(follower) => return streamed(follower),
                    Err(error) => Err(error),
                }
            }
            "/start" => {
                let text = request.text().await?;
                match read_start(text) {
                    Some((job, wait, body)) => self.actor.start(&app, job, body, wait).await,
                    None => Err(RunnerError::Unreachable("the start is damaged".to_owned())),
                }
            }
            _ => {
                let wait = Span::from_millis(i64::from(number("wait")));
                self.actor.attach(&app, wait).await
            }
        };
        match answer {
            Ok(settlement) => Response::ok(write_end(settlement.as_ref())),
            Err(RunnerError::NotHere) => Response::error("not here", 404),
            Err(RunnerError::Unreachable(why)) => Response::error(why, 503),
        }
    }

    async fn alarm(&self) -> worker::Result<Response> {
        let app = self.app();
        match self.actor.alarm(&app).await {
            Ok(()) => Response::ok(""),
            // The platform runs a failed alarm again, with growing pauses.
            Err(error) => Err(worker::Error::RustError(error.to_string())),
        }
    }
}

impl Runner {
    fn app(&self) -> crate::app::App {
        let state = Rc::clone(&self.state);
        app(&self.env, Rc::new(move |task| state.wait_until(task)))
    }
}

/// The steps of a run, as they come; the end is the last.
fn streamed(follower: Follower) -> worker::Result<Response> {
    let steps = unfold(Some(follower), |follower| async {
        let mut follower = follower?;
        match follower.next().await {
            Ok(step) => {
                let more = matches!(step, Step::Piece(_)).then_some(follower);
                Some((Ok(write_step(&step).into_bytes()), more))
            }
            Err(error) => Some((Err(worker::Error::RustError(error.to_string())), None)),
        }
    });
    Response::from_stream(Box::pin(steps))
}

/// The object's own storage: one record under one key.
struct Durable(JsValue);

impl Durable {
    async fn ask(&self, method: &str, args: &[JsValue]) -> Result<JsValue, String> {
        let answer = ask(&self.0, method, args).await;
        answer.map_err(|error| message(&error))
    }
}

impl ActorStorage for Durable {
    fn read(&self) -> Task<'_, Result<Option<String>, String>> {
        Box::pin(async move { Ok(self.ask("get", &[RECORD.into()]).await?.as_string()) })
    }

    fn write(&self, record: String) -> Task<'_, Result<(), String>> {
        Box::pin(async move {
            let args = [RECORD.into(), record.into()];
            self.ask("put", &args).await.map(|_| ())
        })
    }

    fn clear(&self) -> Task<'_, Result<(), String>> {
        Box::pin(async move { self.ask("deleteAll", &[]).await.map(|_| ()) })
    }

    fn wake(&self, after: Span) -> Task<'_, Result<(), String>> {
        Box::pin(async move {
            #[expect(
                clippy::cast_precision_loss,
                reason = "milliseconds are exact in a double"
            )]
            let at = Date::now() + after.millis() as f64;
            self.ask("setAlarm", &[at.into()]).await.map(|_| ())
        })
    }
}

const RECORD: &str = "record";
