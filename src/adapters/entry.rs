//! The Worker's events: requests, the cron trigger, queue messages.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::StreamExt;
use futures_util::future::join_all;
use worker::js_sys::JSON;
use worker::wasm_bindgen::JsValue;
use worker::{
    Context, Env, Headers, MessageBatch, MessageExt, QueueRetryOptionsBuilder, Request, Response,
    ResponseBuilder, ScheduleContext, ScheduledEvent, event,
};

use super::fetch::Forwarder;
use super::settings::{app, guard};
use crate::cron::tick;
use crate::http::dropin::pass::is_upload;
use crate::http::message::{self, Body};
use crate::http::routes::{body_limit, handle, refuse_broken, refuse_early, refuse_size};
use crate::idempotency::queue::{Disposition, work};
use crate::time::Timestamp;

#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    let context = Rc::new(context);
    let mut app = app(&env, Rc::new(move |task| context.wait_until(task)));
    if is_upload(&request.path()) {
        let body = request.inner().body().map(JsValue::from);
        app.outbound = Rc::new(Forwarder(RefCell::new(body)));
        return respond(handle(&app, &guard(), &head(&request)).await);
    }
    let head = head(&request);
    if request.inner().body().is_some()
        && let Some(refusal) = refuse_early(&app, &head).await
    {
        return respond(refusal);
    }
    let answer = match read(request, body_limit(&head.path)).await {
        Ok(Some(body)) => handle(&app, &guard(), &message::Request { body, ..head }).await,
        Ok(None) => refuse_size(&app, &head),
        Err(_) => refuse_broken(&app, &head),
    };
    respond(answer)
}

#[event(scheduled)]
async fn scheduled(event: ScheduledEvent, env: Env, context: ScheduleContext) {
    let app = app(&env, Rc::new(move |task| context.wait_until(task)));
    #[expect(
        clippy::cast_possible_truncation,
        reason = "milliseconds since 1970 are whole"
    )]
    tick(
        &app,
        &guard(),
        Timestamp::from_millis(event.schedule() as i64),
    )
    .await;
}

/// Never fails: an error from here would panic, and take every request of the isolate with it.
#[event(queue)]
async fn queue(
    batch: MessageBatch<serde_json::Value>,
    env: Env,
    context: Context,
) -> worker::Result<()> {
    let context = Rc::new(context);
    let app = app(&env, Rc::new(move |task| context.wait_until(task)));
    let name = batch.queue();
    let messages: Vec<_> = batch.raw_iter().collect();
    let works = messages.iter().map(|message| async {
        let body = JSON::stringify(&message.body()).map_or_else(|_| String::new(), String::from);
        match work(&app, &guard(), &name, &body).await {
            Disposition::Ack => message.ack(),
            Disposition::Retry(wait) => {
                let seconds = u32::try_from(wait.seconds_up()).unwrap_or(u32::MAX);
                let options = QueueRetryOptionsBuilder::new()
                    .with_delay_seconds(seconds)
                    .build();
                message.retry_with_options(&options);
            }
        }
    });
    join_all(works).await;
    Ok(())
}

/// Reads a body up to `limit`; `None` where it is larger.
async fn read(mut request: Request, limit: usize) -> worker::Result<Option<Vec<u8>>> {
    let mut body: Vec<u8> = Vec::new();
    if request.inner().body().is_some() {
        let mut stream = request.stream()?;
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            if body.len().saturating_add(piece.len()) > limit {
                return Ok(None);
            }
            body.extend_from_slice(&piece);
        }
    }
    Ok(Some(body))
}

/// A request without its body.
fn head(request: &Request) -> message::Request {
    let headers = request.headers().entries();
    message::Request {
        method: request.method().to_string(),
        path: request.path(),
        query: query(request),
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect(),
        body: Vec::new(),
    }
}

/// The query of a URL that the platform has parsed: to parse it again would take the tables of
/// international host names along.
pub(super) fn query(request: &Request) -> String {
    let url = request.inner().url();
    let target = url
        .split_once('#')
        .map_or(url.as_str(), |(target, _)| target);
    target
        .split_once('?')
        .map(|(_, query)| query.to_owned())
        .unwrap_or_default()
}

fn respond(answer: message::Response) -> worker::Result<Response> {
    let headers = Headers::new();
    for (name, value) in &answer.headers {
        headers.append(name, value)?;
    }
    let builder = ResponseBuilder::new()
        .with_status(answer.status)
        .with_headers(headers);
    match answer.body {
        Body::Bytes(bytes) if bytes.is_empty() => Ok(builder.empty()),
        Body::Bytes(bytes) => Ok(builder.fixed(bytes)),
        Body::Stream(source) => {
            let stream = futures_util::stream::unfold(Some(source), |source| async {
                let mut source = source?;
                match source.next().await {
                    Ok(Some(piece)) => Some((Ok(piece), Some(source))),
                    Ok(None) => None,
                    Err(error) => Some((Err(worker::Error::RustError(error.to_string())), None)),
                }
            });
            builder.from_stream(Box::pin(stream))
        }
    }
}
