//! One attempt at one delivery: steps its publication and carries the effects out.

use crate::app::App;
use crate::gemini::exchange::reread;
use crate::idempotency::record::{Generation, Surface};
use crate::outbox::budget::Share;
use crate::outbox::decide::Ending;
use crate::ports::{HttpError, HttpRequest};
use crate::publish::settings::PublisherSettings;
use crate::publish::template::Template;
use crate::publish::{Effect, Failure, Outcome, Parcel, Publication, Reply, Step, failure};
use crate::store::deliveries::Leased;
use crate::store::leases::{Lease, remember};
use crate::time::Timestamp;

/// The text of a stored answer, without thoughts; `None` where the answer can't be read.
pub fn output_text(surface: Surface, body: &str, now: Timestamp) -> Option<String> {
    match surface {
        Surface::Api => {
            let document: serde_json::Value = serde_json::from_str(body).ok()?;
            document
                .pointer("/output/text")?
                .as_str()
                .map(str::to_owned)
        }
        Surface::Generate | Surface::Stream => reread(body, now).map(|answer| answer.text),
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

/// Steps a publication to its end, inside its lease and its share of the budget, of which one is
/// kept for recording the outcome.
pub async fn carry_out(
    app: &App,
    mut publication: Box<dyn Publication>,
    delivery: &Leased,
    lease: &Lease,
    share: &Share<'_>,
) -> (Ending, Option<String>) {
    let over = Ending::Over;
    let mut known = delivery.progress.clone();
    let mut reply = None;
    for _ in 0..STEPS_MAX {
        let step = publication.step(reply.take(), app.now());
        let progress = publication.progress();
        if progress != known {
            known = progress;
            // Recorded before the next step; the outcome of the last one is recorded with it.
            if let (Some(text), Step::Do(_)) = (&known, &step)
                && share.spend(1)
            {
                // Where this fails the attempt goes on: a later one looks before it writes.
                let _ = app
                    .run(vec![remember(&delivery.id, &lease.token, text)])
                    .await;
            }
        }
        let effect = match step {
            Step::Done(outcome) => return (over(outcome), known),
            Step::Do(effect) => effect,
        };
        if !lease.is_live(app.now()) {
            let late = Failure::new(failure::TIMED_OUT, "the attempt outlived its lease");
            return (over(Outcome::Ambiguous(late)), known);
        }
        if !share.spend(1) {
            return (Ending::BrokenOff, known);
        }
        reply = Some(perform(app, effect, lease.until).await);
    }
    let endless = Failure::new(failure::UNEXPECTED_REPLY, "the attempt took too many steps");
    (over(Outcome::Ambiguous(endless)), known)
}

/// What an attempt at this publisher spends in the ordinary case, recording its outcome included.
pub fn usual_cost(settings: &PublisherSettings) -> u32 {
    match settings.kind() {
        // A put, and a look where something is there already.
        "r2" => 3,
        // A put, and a look at what is in its way.
        "github" => 4,
        // A look, a draft, its id remembered, the publication.
        "wordpress" | "ghost" => 6,
        // A single call.
        _ => 2,
    }
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
                match queues
                    .send(&binding, body, crate::time::Span::default())
                    .await
                {
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
    Reply::Http {
        status: answer.status,
        headers: answer.headers,
        body,
    }
}

/// The code of an attempt whose drain never came back.
pub const INTERRUPTED: &str = "interrupted";
/// No publisher needs more steps for one attempt.
const STEPS_MAX: u32 = 20;
/// How much of a destination's answer is read.
const ANSWER_MAX_BYTES: usize = 1_048_576;
