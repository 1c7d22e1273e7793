//! Cloudflare Queues as the queue port.

use worker::js_sys::JSON;
use worker::{Env, QueueContentType, RawMessageBuilder};

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
            let queue = self.0.queue(binding).map_err(|error| failed(&error))?;
            let body =
                JSON::parse(&body).map_err(|_| QueueError("the message is not JSON".to_owned()))?;
            let mut message = RawMessageBuilder::new(body);
            if delay > Span::default() {
                let seconds = u32::try_from(delay.seconds_up()).unwrap_or(u32::MAX);
                message = message.delay_seconds(seconds);
            }
            let message = message.build_with_content_type(QueueContentType::Json);
            queue
                .send_raw(message)
                .await
                .map_err(|error| failed(&error))
        })
    }
}

fn failed(error: &worker::Error) -> QueueError {
    QueueError(error.to_string().chars().take(200).collect())
}
