//! Outgoing HTTP through `fetch`. Redirects are never followed.

use futures_util::StreamExt;
use worker::js_sys::Uint8Array;
use worker::wasm_bindgen::JsValue;
use worker::{
    AbortSignal, ByteStream, Fetch, Headers, Method, Request, RequestInit, RequestRedirect,
    Response,
};

use crate::ports::{ByteSource, HttpAnswer, HttpError, HttpRequest, Outbound, Task};

/// The platform's `fetch`.
pub(super) struct Fetcher;

impl Outbound for Fetcher {
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>> {
        Box::pin(async move {
            let timeout = u32::try_from(request.timeout.millis().max(1)).unwrap_or(u32::MAX);
            let signal: AbortSignal = web_sys::AbortSignal::timeout_with_u32(timeout).into();
            let request = build(&request).map_err(|e| HttpError::NotSent(text(&e)))?;
            let sent = Fetch::Request(request).send_with_signal(&signal).await;
            let response = sent.map_err(|error| failed(&error, &signal))?;
            Ok(answer(response, signal))
        })
    }
}

fn build(request: &HttpRequest) -> Result<Request, worker::Error> {
    let headers = Headers::new();
    for (name, value) in &request.headers {
        headers.append(name, value)?;
    }
    let mut init = RequestInit::new();
    init.with_method(Method::from(request.method.to_owned()))
        .with_headers(headers)
        .with_redirect(RequestRedirect::Manual);
    if !request.body.is_empty() {
        let body: JsValue = Uint8Array::from(request.body.as_slice()).into();
        init.with_body(Some(body));
    }
    Request::new_with_init(&request.url, &init)
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
                    let failed = failed(&error, &self.signal);
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
fn failed(error: &worker::Error, signal: &AbortSignal) -> HttpError {
    if signal.aborted() {
        HttpError::TimedOut
    } else {
        HttpError::Lost(text(error))
    }
}

/// The error's text, cut: the platform's texts name no URL, header or body.
fn text(error: &worker::Error) -> String {
    error.to_string().chars().take(120).collect()
}
