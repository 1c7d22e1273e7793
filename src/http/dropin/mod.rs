//! The Gemini API under our roof: a client whose base URL points here pays once for what it asks
//! twice, and gets Gemini's own answers and errors.
//!
//! `:generateContent` and `:streamGenerateContent` are one operation where their bodies are the
//! same, whichever version of the API they name: the method shapes the form of the answer, not the
//! answer. Whoever asks in the form of the purchase gets its bytes; the other form is made of it.
//! What generates nothing, and what generates in ways that are not served here, passes through
//! ([`pass`]).

mod ask;
mod form;
mod live;
pub mod pass;
mod path;

use crate::app::App;
use crate::error::{Code, Problem};
use crate::http::auth::{Anywhere, Principal, authenticate};
use crate::http::generations::{plain_content, stored_response};
use crate::http::message::{Body, Request, Response};
use crate::http::query;
use crate::idempotency::gateway::{Reply, ask, failure};
use crate::idempotency::output::credits;
use crate::idempotency::record::{Settlement, Stored};
use crate::store::accounts::Access;

use form::Form;
use path::{Generating, Target};

/// Answers a call of the Gemini API.
pub async fn handle(app: &App, request: &Request, request_id: &str) -> Result<Response, Problem> {
    let target = path::parse(&request.method, &request.path)?;
    let access = enter(app, request).await?;
    plain_content(request)?;
    match target {
        Target::Generating(call) => generate(app, &access, request, &call, request_id).await,
        Target::Passing(passing) => pass::through(app, &access, request, &passing).await,
    }
}

/// A refusal in Google's shape. Where a growing list was asked for it is the list's one item.
pub fn refused(request: &Request, problem: &Problem) -> Response {
    let mut response = problem.to_google_response();
    let path = query::decode(&request.path).unwrap_or_default();
    let list = path.ends_with(":streamGenerateContent")
        && query::value(&request.query, "alt").as_deref() != Some("sse");
    if let Body::Bytes(bytes) = &mut response.body
        && list
    {
        bytes.insert(0, b'[');
        bytes.push(b']');
    }
    response
}

/// Who asks, if it may.
async fn enter(app: &App, request: &Request) -> Result<Access, Problem> {
    let Principal::Key(access) = authenticate(app, request, Anywhere::Yes).await? else {
        return Err(Problem::new(
            Code::Forbidden,
            "Generations belong to an account; use one of its API keys.",
        ));
    };
    if app.limiter.allow(&access.account).await {
        return Ok(access);
    }
    Err(Problem::new(
        Code::RateLimited,
        "This account sends too many requests.",
    ))
}

async fn generate(
    app: &App,
    access: &Access,
    request: &Request,
    call: &Generating,
    request_id: &str,
) -> Result<Response, Problem> {
    let form = Form::of(call.method, &request.query)?;
    let asked = ask::read(app, access, request, call, request_id)?;
    match ask(app, asked).await? {
        Reply::Made(stored) => Ok(whole(form, stored, true)),
        Reply::Replayed(stored) => Ok(whole(form, stored, false)),
        Reply::Held {
            reason,
            stored,
            made,
        } => Ok(held(form, stored, &reason, made)),
        Reply::Running {
            generation_id,
            request_id,
            mark,
            made,
            live,
        } => {
            let run = live::Run {
                generation_id,
                request_id,
                mark,
                zone: access.timezone.clone(),
                made,
            };
            live::answer(app, form, run, live).await
        }
        Reply::Accepted { generation_id } => Err(Problem::new(
            Code::GenerationInProgress,
            "The same request waits in the queue.",
        )
        .generation(generation_id)),
    }
}

/// The answer of a run that has ended, whole.
fn ended(form: Form, run: &live::Run, end: Settlement) -> Result<Response, Problem> {
    match end {
        Settlement::Generated { stored } => Ok(whole(form, stored, run.made)),
        Settlement::Held { reason, stored } => Ok(held(form, stored, &reason, run.made)),
        end @ (Settlement::Unknown { .. } | Settlement::Failed { .. }) => {
            Err(failed(&run.generation_id, end))
        }
    }
}

/// A failure; an unknown outcome with what is known of it.
fn failed(generation_id: &str, end: Settlement) -> Problem {
    let detail = match &end {
        Settlement::Unknown { detail } => detail.clone(),
        _ => String::new(),
    };
    let mut problem = failure(generation_id, end);
    if !detail.is_empty() {
        problem.detail = format!("{} ({detail})", problem.detail);
    }
    problem
}

/// A stored answer in the form that was asked for.
fn whole(form: Form, mut stored: Box<Stored>, made: bool) -> Response {
    form.shape(&mut stored);
    let cost_nano = stored.cost_nano;
    let response = stored_response(200, *stored);
    if !made {
        return response
            .with("x-idempotency-replayed", "true")
            .with("x-oncepress-credits", "0");
    }
    match form {
        // A live stream can't name its cost in its header, so no stream does.
        Form::Events | Form::List => response,
        Form::Unary => response.with("x-oncepress-credits", credits(cost_nano).to_string()),
    }
}

/// An answer that is not published by itself; the client gets it all the same.
fn held(form: Form, stored: Box<Stored>, reason: &str, made: bool) -> Response {
    whole(form, stored, made).with("x-oncepress-held", reason)
}
