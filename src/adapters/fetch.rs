//! Outgoing HTTP through `fetch`. Redirects are never followed.

use std::cell::RefCell;
use std::slice::from_ref;

use futures_util::StreamExt;
use worker::js_sys::{Array, Function, Reflect, Uint8Array, global};
use worker::wasm_bindgen::{JsCast, JsValue};
use worker::{ByteStream, Response};

use super::js::{ask, call, fields, get, message, object};

use crate::ports::{ByteSource, HttpAnswer, HttpError, HttpRequest, Outbound, Task};
use crate::time::Span;

/// The platform's `fetch`.
pub(super) struct Fetcher;

impl Outbound for Fetcher {
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>> {
        Box::pin(send(request, None))
    }
}

/// The platform's `fetch` for one request whose body is passed on as it comes and never read here.
pub(super) struct Forwarder(pub(super) RefCell<Option<JsValue>>);

impl Outbound for Forwarder {
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>> {
        let body = self.0.borrow_mut().take();
        Box::pin(send(request, body))
    }
}

async fn send(request: HttpRequest, body: Option<JsValue>) -> Result<HttpAnswer, HttpError> {
    let not_sent = |error: JsValue| HttpError::NotSent(text(&error));
    let deadline = Deadline::after(request.timeout).map_err(not_sent)?;
    let request = build(&request, body).map_err(not_sent)?;
    let options = object(&[("signal", deadline.signal.clone())]);
    let sent = ask(&global(), "fetch", &[request, options]).await;
    let sent = sent.and_then(JsCast::dyn_into::<web_sys::Response>);
    let response = sent.map_err(|error| failed(text(&error), &deadline))?;
    Ok(answer(response.into(), deadline))
}

/// Aborts a request that takes too long. The timer of `AbortSignal.timeout` runs on after the
/// answer, and keeps the Durable Object that asked in memory till then; this one ends with it.
struct Deadline {
    signal: JsValue,
    timer: JsValue,
}

impl Deadline {
    fn after(span: Span) -> Result<Self, JsValue> {
        let class: Function = get(&global(), "AbortController").dyn_into()?;
        let controller = Reflect::construct(&class, &Array::new())?;
        let abort = call(&get(&controller, "abort"), "bind", from_ref(&controller))?;
        let millis = i32::try_from(span.millis().max(1)).unwrap_or(i32::MAX);
        let timer = call(&global(), "setTimeout", &[abort, millis.into()])?;
        Ok(Self {
            signal: get(&controller, "signal"),
            timer,
        })
    }

    fn is_over(&self) -> bool {
        get(&self.signal, "aborted").is_truthy()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // One that has fired is unknown, which is no error.
        let _ = call(&global(), "clearTimeout", from_ref(&self.timer));
    }
}

fn build(request: &HttpRequest, body: Option<JsValue>) -> Result<JsValue, JsValue> {
    let headers = fields(&request.headers);
    let own = || Uint8Array::from(request.body.as_slice()).into();
    let body = body.or_else(|| (!request.body.is_empty()).then(own));
    let options = object(&[
        ("method", request.method.into()),
        ("headers", headers),
        ("redirect", "manual".into()),
        ("body", body.unwrap_or(JsValue::UNDEFINED)),
    ]);
    let class: Function = get(&global(), "Request").dyn_into()?;
    Reflect::construct(&class, &Array::of2(&request.url.as_str().into(), &options))
}

fn answer(mut response: Response, deadline: Deadline) -> HttpAnswer {
    let headers: Vec<(String, String)> = response
        .headers()
        .entries()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    // A body that can't be read has ended.
    let stream = response.stream().ok();
    HttpAnswer {
        status: response.status_code(),
        headers,
        body: Box::new(Source { stream, deadline }),
    }
}

struct Source {
    stream: Option<ByteStream>,
    deadline: Deadline,
}

impl ByteSource for Source {
    fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>> {
        Box::pin(async move {
            let Some(stream) = &mut self.stream else {
                return Ok(None);
            };
            match stream.next().await {
                Some(Ok(piece)) => Ok(Some(piece)),
                Some(Err(error)) => {
                    let failed = failed(
                        error.to_string().chars().take(120).collect(),
                        &self.deadline,
                    );
                    self.stream = None;
                    Err(failed)
                }
                None => {
                    self.stream = None;
                    Ok(None)
                }
            }
        })
    }
}

/// `fetch` does not say whether anything was sent, so a failure may have taken effect.
fn failed(text: String, deadline: &Deadline) -> HttpError {
    if deadline.is_over() {
        HttpError::TimedOut
    } else {
        HttpError::Lost(text)
    }
}

/// The error's text, cut: the platform's texts name no URL, header or body.
fn text(error: &JsValue) -> String {
    message(error).chars().take(120).collect()
}
