//! Cloudflare Queues as the queue port.

use worker::Env;
use worker::js_sys::JSON;

use super::js::{ask, found, message, object};
use crate::ports::{QueueError, Queues, Task};
use crate::time::Span;

/// The queues of the Worker's environment.
pub(super) struct Bindings(pub(super) Env);

impl Queues for Bindings {
    fn send<'a>(
        &'a self,
        binding: &'a str,
        body: String,
        delay: Span,
    ) -> Task<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let queue = found(&self.0, binding)
                .ok_or_else(|| QueueError(format!("no queue is bound as {binding}")))?;
            let body =
                JSON::parse(&body).map_err(|_| QueueError("the message is not JSON".to_owned()))?;
            let seconds = u32::try_from(delay.seconds_up()).unwrap_or(u32::MAX);
            let json = ("contentType", "json".into());
            let options = if seconds > 0 {
                object(&[json, ("delaySeconds", seconds.into())])
            } else {
                object(&[json])
            };
            let sent = ask(&queue, "send", &[body, options]).await;
            sent.map(|_| ())
                .map_err(|error| QueueError(message(&error)))
        })
    }
}
