//! Stand-ins for Gemini and every destination, in one server whose faults reach down to the socket.
//!
//! `main.rs` makes a command of it; a test takes it in by
//! `#[path = "../fakes/mod.rs"] mod fakes;` and calls [`start`].

#![allow(
    clippy::arithmetic_side_effects,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a tool for tests: it may read the clock, and a fault of its own shall be loud"
)]

mod clock;
mod control;
mod fault;
mod gemini;
mod ghost;
mod github;
mod http;
mod ledger;
mod reply;
mod script;
mod slack;
mod state;
mod webhook;
mod wordpress;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use fault::Fault;
use http::Request;
use reply::{Reply, Sent};
use state::Shared;

/// A running server; it stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Fakes {
    port: u16,
    task: JoinHandle<()>,
}

impl Fakes {
    /// The port it listens on, on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Fakes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens on 127.0.0.1, taking up what an earlier run left in the state file.
pub(crate) async fn start(port: u16, state_file: Option<&Path>) -> io::Result<Fakes> {
    let shared = Arc::new(Shared::open(state_file)?);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let port = listener.local_addr()?.port();
    let task = tokio::spawn(async move {
        loop {
            if let Ok((stream, _peer)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&shared)));
            }
        }
    });
    Ok(Fakes { port, task })
}

/// Answers the requests of one connection until either side is done with it.
async fn converse(mut stream: TcpStream, shared: Arc<Shared>) {
    let _nodelay = stream.set_nodelay(true);
    let mut unread = Vec::new();
    while let Ok(Some(request)) = http::read_request(&mut stream, &mut unread).await {
        // What a prompt asks for by mistake is answered with a 400, not passed over.
        let found = shared.lock().fault_for(&request);
        let (fault, mistake) = match found {
            Ok(fault) => (fault, None),
            Err(problem) => (Fault::default(), Some(gemini::mistake(&problem))),
        };
        if let Some(wait_ms) = fault.number("late-commit") {
            // The effect comes even where the caller has left meanwhile.
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        let reply = mistake.unwrap_or_else(|| answer(&shared, &request, &fault));
        let sent = reply::send(&mut stream, &reply, &shared, request.method == "HEAD").await;
        if let Some(entry) = reply
            .ledger_entry
            .filter(|_| reply.denied || sent == Sent::Cut)
        {
            shared.lock().ledger_cut(entry);
        }
        if matches!(sent, Sent::Cut) || !request.keep_alive {
            return;
        }
    }
}

/// Routes by the first path segment; a fault that stands in front of the service comes first.
fn answer(shared: &Shared, request: &Request, fault: &Fault) -> Reply {
    let mut state = shared.lock();
    let (service, rest) = split_service(&request.path);
    let mut reply = match (service, fault.instead_of_service(service)) {
        (Service::Control, _) => control::answer(&mut state, shared, request, rest),
        (_, Some(reply)) => {
            if service == Service::Gemini {
                let status = if reply.plan.cut.is_some() {
                    0
                } else {
                    reply.status
                };
                gemini::note_refused(&mut state, request, fault, status);
            }
            reply
        }
        (Service::Gemini, None) => gemini::answer(&mut state, request, fault),
        (Service::Webhook, None) => webhook::answer(&mut state, request, rest),
        (Service::Github, None) => github::answer(&mut state, request, rest, fault),
        (Service::Wordpress, None) => wordpress::answer(&mut state, request, rest, fault),
        (Service::Ghost, None) => ghost::answer(&mut state, request, rest, fault),
        (Service::Slack, None) => slack::answer(&mut state, request, rest, fault),
    };
    fault.dress(&mut reply);
    reply
}

/// What answers, by the first segment of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// `/__fakes`: scripts, ledgers, dumps.
    Control,
    /// Everything else: Gemini lives at the root.
    Gemini,
    /// `/webhook/{name}`.
    Webhook,
    /// `/github`.
    Github,
    /// `/wordpress`.
    Wordpress,
    /// `/ghost`.
    Ghost,
    /// `/slack`.
    Slack,
}

impl Service {
    /// The word scripts and configuration use for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Gemini => "gemini",
            Self::Webhook => "webhook",
            Self::Github => "github",
            Self::Wordpress => "wordpress",
            Self::Ghost => "ghost",
            Self::Slack => "slack",
        }
    }
}

/// The service a path belongs to, and what is left of the path for it.
pub(crate) fn split_service(path: &str) -> (Service, &str) {
    let found = [
        ("/__fakes", Service::Control),
        ("/webhook", Service::Webhook),
        ("/github", Service::Github),
        ("/wordpress", Service::Wordpress),
        ("/ghost", Service::Ghost),
        ("/slack", Service::Slack),
    ]
    .into_iter()
    .find_map(|(prefix, service)| Some((service, path.strip_prefix(prefix)?)));
    match found {
        Some((service, rest)) if rest.is_empty() || rest.starts_with('/') => (service, rest),
        _ => (Service::Gemini, path),
    }
}
