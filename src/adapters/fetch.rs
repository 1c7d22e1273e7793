//! Outgoing HTTP through `fetch`. Redirects are never followed.

use std::cell::RefCell;

use futures_util::StreamExt;
use worker::js_sys::{Array, Function, Reflect, Uint8Array, global};
use worker::wasm_bindgen::{JsCast, JsValue};
use worker::{AbortSignal, ByteStream, Response};

use super::js::{ask, fields, get, message, object};

use crate::ports::{ByteSource, HttpAnswer, HttpError, HttpRequest, Outbound, Task};

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
    let timeout = u32::try_from(request.timeout.millis().max(1)).unwrap_or(u32::MAX);
    let signal: AbortSignal = web_sys::AbortSignal::timeout_with_u32(timeout).into();
    let request = build(&request, body).map_err(|e| HttpError::NotSent(text(&e)))?;
    let abort: &web_sys::AbortSignal = &signal;
    let options = object(&[("signal", abort.into())]);
    let sent = ask(&global(), "fetch", &[request, options]).await;
    let sent = sent.and_then(JsCast::dyn_into::<web_sys::Response>);
    let response = sent.map_err(|error| failed(text(&error), &signal))?;
    Ok(answer(response.into(), signal))
}

fn build(request: &HttpRequest, body: Option<JsValue>) -> Result<JsValue, JsValue> {
    let pairs = request.headers.iter();
    let headers = fields(pairs.map(|(name, value)| (name.as_ref(), value.as_ref())));
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

fn answer(mut response: Response, signal: AbortSignal) -> HttpAnswer {
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
        body: Box::new(Source { stream, signal }),
    }
}

struct Source {
    stream: Option<ByteStream>,
    signal: AbortSignal,
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
                    let failed =
                        failed(error.to_string().chars().take(120).collect(), &self.signal);
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
fn failed(text: String, signal: &AbortSignal) -> HttpError {
    if signal.aborted() {
        HttpError::TimedOut
    } else {
        HttpError::Lost(text)
    }
}

/// The error's text, cut: the platform's texts name no URL, header or body.
fn text(error: &JsValue) -> String {
    message(error).chars().take(120).collect()
}
