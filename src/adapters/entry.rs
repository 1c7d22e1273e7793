//! The Worker's events: requests, the cron trigger, queue messages.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::StreamExt;
use web_sys::ResponseInit;
use worker::js_sys::futures::JsFuture;
use worker::js_sys::{Array, Uint8Array};
use worker::wasm_bindgen::JsValue;
use worker::{
    Context, Env, MessageBatch, MessageExt, QueueRetryOptionsBuilder, RawMessage, ResponseBuilder,
    ScheduleContext, ScheduledEvent, event,
};

use super::fetch::Forwarder;
use super::js::{fields, read as read_js, written};
use super::settings::{app, guard};
use crate::app::App;
use crate::cron::tick;
use crate::http::dropin::pass::is_upload;
use crate::http::message::{self, Body};
use crate::http::routes::{body_limit, handle, refuse_broken, refuse_early, refuse_size};
use crate::idempotency::queue::{Disposition, work};
use crate::ports::Task;
use crate::time::Timestamp;
use crate::together;

#[event(start)]
fn start() {
    console_error_panic_hook::set_once();
}

#[event(fetch)]
async fn fetch(
    request: web_sys::Request,
    env: Env,
    context: Context,
) -> worker::Result<web_sys::Response> {
    let context = Rc::new(context);
    let mut app = app(&env, Rc::new(move |task| context.wait_until(task)));
    let head = head(&request);
    let body = request.body();
    if is_upload(&head.path) {
        app.outbound = Rc::new(Forwarder(RefCell::new(body.map(JsValue::from))));
        return respond(handle(&app, &guard(), &head).await);
    }
    if body.is_some()
        && let Some(refusal) = refuse_early(&app, &head).await
    {
        return respond(refusal);
    }
    let answer = match read(request, &head).await {
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
    let handled = messages
        .iter()
        .map(|message| -> Task<'_, ()> { Box::pin(handle_message(message, &app, &name)) });
    together::all(handled.collect()).await;
    Ok(())
}

async fn handle_message(message: &RawMessage, app: &App, queue: &str) {
    let body = written(&message.body());
    match work(app, &guard(), queue, &body).await {
        Disposition::Ack => message.ack(),
        Disposition::Retry(wait) => {
            let seconds = u32::try_from(wait.seconds_up()).unwrap_or(u32::MAX);
            let options = QueueRetryOptionsBuilder::new()
                .with_delay_seconds(seconds)
                .build();
            message.retry_with_options(&options);
        }
    }
}

/// Reads a body up to what its path takes; `None` where it is larger. A body whose length was said,
/// and found to be small enough, comes in one piece.
async fn read(
    request: web_sys::Request,
    head: &message::Request,
) -> worker::Result<Option<Vec<u8>>> {
    let limit = body_limit(&head.path);
    if request.body().is_none() {
        return Ok(Some(Vec::new()));
    }
    if head.header("content-length").is_some() {
        let buffer = JsFuture::from(request.array_buffer()?).await?;
        let body = Uint8Array::new(&buffer).to_vec();
        return Ok((body.len() <= limit).then_some(body));
    }
    let mut body: Vec<u8> = Vec::new();
    let mut stream = worker::Request::from(request).stream()?;
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        if body.len().saturating_add(piece.len()) > limit {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

/// A request without its body.
fn head(request: &web_sys::Request) -> message::Request {
    let url = request.url();
    let (path, query) = target(&url);
    // As JSON, they cross from JavaScript at once. The platform gives names in lower case.
    let headers = read_js(&Array::from(&request.headers()));
    message::Request {
        method: request.method(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: headers
            .as_array()
            .map(|pairs| pairs.iter().filter_map(field).collect())
            .unwrap_or_default(),
        body: Vec::new(),
    }
}

fn field(pair: &serde_json::Value) -> Option<(String, String)> {
    let text = |at: usize| pair.get(at)?.as_str().map(str::to_owned);
    Some((text(0)?, text(1)?))
}

/// Path and query of a URL that the platform has parsed: to parse it again would take the tables of
/// international host names along.
pub(super) fn target(url: &str) -> (&str, &str) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/");
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    rest.split_once('?').unwrap_or((rest, ""))
}

fn respond(answer: message::Response) -> worker::Result<web_sys::Response> {
    let headers = fields(&answer.headers);
    let init = ResponseInit::new();
    init.set_status(answer.status);
    init.set_headers(&headers);
    // These have no body: the platform throws where one is given, were it empty.
    let body = match answer.body {
        Body::Stream(_) if matches!(answer.status, 204 | 205 | 304) => Body::Bytes(Vec::new()),
        body => body,
    };
    match body {
        Body::Bytes(bytes) => {
            // Copied: the view would be of memory that moves as it grows.
            let body = (!bytes.is_empty()).then(|| Uint8Array::from(bytes.as_slice()));
            let made =
                web_sys::Response::new_with_opt_buffer_source_and_init(body.as_deref(), &init);
            Ok(made?)
        }
        Body::Stream(source) => {
            let stream = futures_util::stream::unfold(Some(source), |source| async {
                let mut source = source?;
                match source.next().await {
                    Ok(Some(piece)) => Some((Ok(piece), Some(source))),
                    Ok(None) => None,
                    Err(error) => Some((Err(worker::Error::RustError(error.to_string())), None)),
                }
            });
            // The worker crate panics where the platform does not take status or headers.
            let carrier = ResponseBuilder::new().from_stream(Box::pin(stream))?;
            let body = web_sys::Response::from(carrier).body();
            Ok(web_sys::Response::new_with_opt_readable_stream_and_init(
                body.as_ref(),
                &init,
            )?)
        }
    }
}
