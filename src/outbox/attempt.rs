//! One attempt at one delivery: steps its publication and carries the effects out.

use crate::app::App;
use crate::gemini::exchange::Exchange;
use crate::idempotency::record::{Generation, Surface};
use crate::outbox::budget::Budget;
use crate::ports::{HttpError, HttpRequest};
use crate::publish::settings::PublisherSettings;
use crate::publish::template::Template;
use crate::publish::{Effect, Failure, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::store::deliveries::{Leased, remember};
use crate::time::Timestamp;

/// The text of a stored answer, without thoughts; `None` where the answer can't be read.
pub fn output_text(surface: Surface, body: &str, now: Timestamp) -> Option<String> {
    match surface {
        Surface::Api => {
            let document: serde_json::Value = serde_json::from_str(body).ok()?;
            document.pointer("/output/text")?.as_str().map(str::to_owned)
        }
        Surface::Generate | Surface::Stream => {
            let mut exchange = Exchange::begin(200, &[]);
            exchange.push(body.as_bytes());
            exchange.end(None, now).ok().map(|answer| answer.text)
        }
    }
}

/// A delivery and what it delivers, as its publisher sees it.
pub fn parcel(
    settings: &PublisherSettings,
    template: Option<&Template>,
    delivery: &Leased,
    generation: &Generation,
    text: String,
) -> Parcel {
    let completed_at = generation.completed_at.unwrap_or(generation.created_at);
    let mut parcel = Parcel {
        delivery_id: delivery.id.clone(),
        generation_id: generation.id.clone(),
        account: generation.account.clone(),
        site: generation.site.clone(),
        pipeline: generation.pipeline.clone(),
        topic: generation.topic.clone(),
        model: generation.model.clone(),
        key: generation.key.clone(),
        fingerprint: generation.fingerprint.clone(),
        created_at: generation.created_at,
        completed_at,
        target: delivery.target.clone(),
        content: String::new(),
        content_type: String::new(),
        text,
        maybe_sent: delivery.maybe_sent,
        progress: delivery.progress.clone(),
    };
    let template = settings.template().or(template).unwrap_or(&Template::Text);
    let rendered = template.render(&parcel);
    parcel.content = rendered.content;
    parcel.content_type = rendered.content_type;
    parcel
}

/// Steps a publication to its end, inside its lease and the budget.
pub async fn carry_out(
    app: &App,
    mut publication: Box<dyn Publication>,
    delivery: &Leased,
    token: &str,
    lease_until: Timestamp,
    budget: &Budget,
) -> (Outcome, Option<String>) {
    let mut known = delivery.progress.clone();
    let mut reply = None;
    for _ in 0..STEPS_MAX {
        let step = publication.step(reply.take(), app.now());
        let progress = publication.progress();
        if progress != known {
            if let Some(text) = &progress {
                budget.force(1);
                // Where this fails the attempt goes on: a later one looks before it writes.
                let _ = app.run(vec![remember(&delivery.id, token, text)]).await;
            }
            known = progress;
        }
        match step {
            Step::Done(outcome) => return (outcome, known),
            Step::Do(effect) if app.now() < lease_until => {
                budget.force(1);
                reply = Some(perform(app, effect, lease_until).await);
            }
            Step::Do(_) => {
                let late = Failure::new(failure::TIMED_OUT, "the attempt outlived its lease");
                return (Outcome::Ambiguous(late), known);
            }
        }
    }
    let endless = Failure::new(failure::UNEXPECTED_REPLY, "the attempt took too many steps");
    (Outcome::Ambiguous(endless), known)
}

/// Carries one effect out.
async fn perform(app: &App, effect: Effect, lease_until: Timestamp) -> Reply {
    match effect {
        Effect::Http(request) => send(app, request, lease_until).await,
        Effect::PutNew { key, object } => match &app.objects {
            Some(objects) => match objects.put_new(&key, object).await {
                Ok(outcome) => Reply::Put(outcome),
                Err(error) => Reply::Failed(error.to_string()),
            },
            None => Reply::Failed("no R2 bucket is bound as BUCKET".to_owned()),
        },
        Effect::GetObject { key } => match &app.objects {
            Some(objects) => match objects.get(&key).await {
                Ok(object) => Reply::Object(object),
                Err(error) => Reply::Failed(error.to_string()),
            },
            None => Reply::Failed("no R2 bucket is bound as BUCKET".to_owned()),
        },
        Effect::Send { binding, body } => match &app.queues {
            Some(queues) => {
                match queues.send(&binding, body, crate::time::Span::default()).await {
                    Ok(()) => Reply::Sent,
                    Err(error) => Reply::Failed(error.to_string()),
                }
            }
            None => Reply::Failed("no queue is bound".to_owned()),
        },
    }
}

/// Sends a request and reads its answer, up to a bound.
async fn send(app: &App, mut request: HttpRequest, lease_until: Timestamp) -> Reply {
    request.timeout = request.timeout.min(lease_until.since(app.now()));
    let mut answer = match app.outbound.send(request).await {
        Ok(answer) => answer,
        Err(error) => return Reply::HttpFailed(error),
    };
    let mut body: Vec<u8> = Vec::new();
    loop {
        match answer.body.next().await {
            Ok(Some(piece)) => {
                let room = ANSWER_MAX_BYTES.saturating_sub(body.len());
                body.extend(piece.into_iter().take(room));
                if body.len() >= ANSWER_MAX_BYTES {
                    break;
                }
            }
            Ok(None) => break,
            Err(HttpError::NotSent(why)) => return Reply::HttpFailed(HttpError::Lost(why)),
            Err(error) => return Reply::HttpFailed(error),
        }
    }
    Reply::Http { status: answer.status, headers: answer.headers, body }
}

/// No publisher needs more steps for one attempt.
const STEPS_MAX: u32 = 20;
/// How much of a destination's answer is read.
const ANSWER_MAX_BYTES: usize = 1_048_576;
