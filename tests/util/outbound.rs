//! Outbound HTTP: Gemini, receivers, sites and Slack, each by its model.

use std::collections::VecDeque;

use oncepress::ports::{ByteSource, HttpAnswer, HttpError, HttpRequest, Outbound, Task};
use oncepress::time::Timestamp;

use super::fate::Kind;
use super::gemini::{Act, Entry, answer, prompt_of};
use super::hooks::{HookAct, Receipt};
use super::mutant::Mutant;
use super::ports::{Port, short};
use super::world::World;

/// Where Slack's webhook is.
pub const SLACK_HOST: &str = "slack.test";

impl Outbound for Port {
    fn send(&self, request: HttpRequest) -> Task<'_, Result<HttpAnswer, HttpError>> {
        Box::pin(async move {
            let host = request.url.trim_start_matches("https://");
            let host = host.split(['/', '?']).next().unwrap_or_default().to_owned();
            let is_site = self.world.sites.borrow().contains_key(&host);
            if host == "gemini.test" {
                self.ask_gemini(request).await
            } else if is_site || host.ends_with(".test") {
                self.ask_receiver(&host, request).await
            } else {
                Err(HttpError::NotSent(format!("no route to {host}")))
            }
        })
    }
}

fn lost() -> HttpError {
    HttpError::Lost("reset by peer".to_owned())
}

fn header(request: &HttpRequest, name: &str) -> String {
    let found = request.headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

impl Port {
    async fn ask_gemini(&self, request: HttpRequest) -> Result<HttpAnswer, HttpError> {
        let prompt = prompt_of(&request.body);
        let fate = self
            .gate(Kind::Gemini, &format!("generate {prompt:?}"))
            .await;
        if !fate.acts() {
            return Err(lost());
        }
        let act = self.world.gemini.next_act();
        let number = self.enter(&prompt, act);
        let text = self.world.gemini.ledger.borrow()[number].text.clone();
        self.after(fate, &format!("{act:?}{number}")).await;
        if fate.is_error() {
            return Err(lost());
        }
        let timeout = request.timeout.millis();
        let wait = if act == Act::Hang {
            timeout
        } else {
            self.world.gemini.latency_ms.get()
        };
        self.world.exec.sleep(wait.min(timeout)).await;
        if act == Act::Hang || wait >= timeout {
            return Err(HttpError::TimedOut);
        }
        match act {
            Act::NotSent => return Err(HttpError::NotSent("no connection".to_owned())),
            Act::LostHead => return Err(lost()),
            _ => {}
        }
        let stream = request.url.contains("streamGenerateContent");
        let (status, pieces) = answer(act, &text, stream);
        Ok(HttpAnswer {
            status,
            headers: vec![
                ("content-type".to_owned(), "text/event-stream".to_owned()),
                ("server-timing".to_owned(), format!("gfet4t7; dur={number}")),
            ],
            body: self.body(Kind::GeminiBody, pieces.into(), Some(number)),
        })
    }

    /// Enters a request in the ledger, after the check that it may be billed at all.
    fn enter(&self, prompt: &str, act: Act) -> usize {
        let world = &self.world;
        let (generation, token) = self.asking(prompt);
        if act.bills() {
            super::check::purchase_is_allowed(world, prompt, &generation);
            super::check::purchase_is_claimed(world, prompt, &generation);
        }
        let number = world.gemini.ledger.borrow().len();
        let entry = Entry {
            at: self.now_ms(),
            prompt: prompt.to_owned(),
            act,
            home: self.home(),
            generation,
            text: world.gemini.text(number),
            token,
            whole: false,
            kept: false,
            excuse: None,
        };
        world.note(format!("   Gemini #{number}: {act:?} for {prompt:?}"));
        world.gemini.ledger.borrow_mut().push(entry);
        number
    }

    /// Which generation asks, and under which fencing token.
    fn asking(&self, prompt: &str) -> (String, Option<String>) {
        if let Some(asking) = self.world.actors.job_of(self.home()) {
            return (asking.0, Some(asking.1));
        }
        let (text, account) = prompt.rsplit_once(" of ").unwrap_or((prompt, "default"));
        let running = self.world.db.texts(&format!(
            "SELECT g.id || ' ' || g.token FROM generations g WHERE g.state = 'running' \
               AND (g.topic = '{prompt}' OR g.topic IS NULL AND g.account = '{account}' \
                 AND EXISTS (SELECT 1 FROM request_bodies b WHERE b.generation_id = g.id \
                   AND instr(b.body, char(34) || '{text}' || char(34)) > 0)) LIMIT 1"
        ));
        let running = running.first().and_then(|line| line.split_once(' '));
        running.map_or_else(Default::default, |(id, token)| {
            (id.to_owned(), Some(token.to_owned()))
        })
    }

    /// A webhook's receiver, a site, or Slack.
    async fn ask_receiver(
        &self,
        host: &str,
        request: HttpRequest,
    ) -> Result<HttpAnswer, HttpError> {
        let mut id = header(&request, "webhook-id");
        if self.breaks(Mutant::FreshWebhookId) && !id.is_empty() {
            id = format!("{id}-{}", self.world.hooks.receipts.borrow().len());
        }
        let fate = self
            .gate(
                Kind::Hook,
                &format!("{} {host} {}", request.method, short(&id)),
            )
            .await;
        if !fate.acts() {
            return Err(lost());
        }
        let act = self.world.hooks.next_act(host);
        self.world.note(format!("   {host}: {act:?}"));
        let told = act.takes().then(|| self.take(host, &request));
        if act != HookAct::NotSent && !id.is_empty() {
            self.receive(host, &request, id, act);
        }
        self.after(fate, &format!("{act:?}")).await;
        if fate.is_error() {
            return Err(lost());
        }
        self.reply(act, told.unwrap_or_default(), request.timeout.millis())
            .await
    }

    /// What a site or Slack says to what it takes.
    fn take(&self, host: &str, request: &HttpRequest) -> (u16, Vec<(String, String)>, Vec<u8>) {
        if host == SLACK_HOST {
            let line = String::from_utf8_lossy(&request.body).into_owned();
            self.world.told.borrow_mut().push(line);
            return (200, Vec::new(), b"ok".to_vec());
        }
        if request.method == "GET" && self.breaks(Mutant::ProbeBlind) {
            let nothing = if request.url.contains("/ghost/") {
                (200, br#"{"posts": [], "meta": {}}"#.to_vec())
            } else if request.url.contains("/posts?") {
                (200, b"[]".to_vec())
            } else {
                (404, b"{}".to_vec())
            };
            return (nothing.0, Vec::new(), nothing.1);
        }
        let now = Timestamp::from_millis(self.now_ms() + self.isolate.skew_ms.get());
        match self.world.sites.borrow_mut().get_mut(host) {
            Some(site) => site(request, now),
            None => (200, Vec::new(), b"{}".to_vec()),
        }
    }

    fn receive(&self, host: &str, request: &HttpRequest, id: String, act: HookAct) {
        let later = match act {
            HookAct::Later(seconds) => i64::from(seconds) * 1_000,
            _ => 0,
        };
        self.world.hooks.enter(Receipt {
            at: self.now_ms(),
            host: host.to_owned(),
            id,
            body: String::from_utf8_lossy(&request.body).into_owned(),
            took: act.takes(),
            signed: header(request, "webhook-signature").starts_with("v1,"),
            later_until: self.now_ms() + later,
            sooner_than_asked_at: None,
        });
    }

    async fn reply(
        &self,
        act: HookAct,
        (status, headers, body): (u16, Vec<(String, String)>, Vec<u8>),
        timeout: i64,
    ) -> Result<HttpAnswer, HttpError> {
        let whole = |status: u16, headers, body: Vec<u8>| {
            Ok(HttpAnswer {
                status,
                headers,
                body: self.body(Kind::HookBody, VecDeque::from([Some(body)]), None),
            })
        };
        match act {
            HookAct::Take => whole(status, headers, body),
            HookAct::TakeThenReset => Err(lost()),
            HookAct::TakeThenGateway => whole(502, Vec::new(), b"{}".to_vec()),
            HookAct::TakeThenHang => {
                self.world.exec.sleep(timeout).await;
                Err(HttpError::TimedOut)
            }
            HookAct::Refuse(status) => whole(status, Vec::new(), b"{}".to_vec()),
            HookAct::Later(seconds) => {
                let asked = ("retry-after".to_owned(), seconds.to_string());
                let deaf = self.breaks(Mutant::RetryAfterDeaf);
                let headers = Some(asked).filter(|_| !deaf).into_iter().collect();
                whole(503, headers, b"{}".to_vec())
            }
            HookAct::NotSent => Err(HttpError::NotSent("no connection".to_owned())),
        }
    }

    fn body(
        &self,
        kind: Kind,
        pieces: VecDeque<Option<Vec<u8>>>,
        entry: Option<usize>,
    ) -> Box<dyn ByteSource> {
        Box::new(Pieces {
            world: self.world.clone(),
            home: self.home(),
            kind,
            pieces,
            entry,
        })
    }
}

/// A body whose every piece is a port call.
struct Pieces {
    world: World,
    home: u64,
    kind: Kind,
    pieces: VecDeque<Option<Vec<u8>>>,
    entry: Option<usize>,
}

impl ByteSource for Pieces {
    fn next(&mut self) -> Task<'_, Result<Option<Vec<u8>>, HttpError>> {
        Box::pin(async move {
            let fate = self.world.gate(self.home, self.kind, "read").await;
            let piece = self.pieces.pop_front();
            let seen = format!("{:?}", piece.as_ref().map(|p| p.as_ref().map(Vec::len)));
            self.world.after(self.home, fate, &seen).await;
            if fate.is_error() || piece == Some(None) {
                self.pieces.clear();
                return Err(lost());
            }
            let piece = piece.flatten();
            // Whole as soon as no further output can follow.
            if !matches!(self.pieces.front(), Some(Some(_)))
                && let Some(entry) = self.entry
            {
                self.world.gemini.ledger.borrow_mut()[entry].whole = true;
            }
            Ok(piece)
        })
    }
}
