//! A drain's dealing with one row: try it, decide, record.

use serde_json::json;

use crate::idempotency::record::Generation;
use crate::idempotency::recovery::output_body;
use crate::metrics::{Point, Scope};
use crate::outbox::attempt::{INTERRUPTED, carry_out, output_text, parcel};
use crate::outbox::budget::Share;
use crate::outbox::circuit::Health;
use crate::outbox::decide::{Attempt, Ending, Tally, decide};
use crate::outbox::drain::Pass;
use crate::publish::settings::{Ambiguous, PublisherSettings};
use crate::publish::{Failure, IdempotencyClass, Outcome, failure};
use crate::store::deliveries::{Candidate, Leased};
use crate::store::leases::{self, Finish, Lease};

/// How a try ended, and what it says about the destination where that was asked.
struct Tried {
    ending: Ending,
    progress: Option<String>,
    health: Option<Health>,
}

impl Tried {
    /// It ended before the destination was asked.
    fn unasked(delivery: &Leased, outcome: Outcome) -> Self {
        Self {
            ending: Ending::Over(outcome),
            progress: delivery.progress.clone(),
            health: None,
        }
    }
}

impl Pass<'_> {
    /// One attempt, recorded under the lease's token.
    pub(super) async fn attempt(&self, candidate: &Candidate, lease: &Lease, share: Share<'_>) {
        let delivery = &candidate.delivery;
        let started_at = self.app.now();
        let settings = self.app.config().publishers.get(&delivery.publisher);
        let (class, policy) = settings.map_or(
            (IdempotencyClass::None, Ambiguous::AtLeastOnce),
            |settings| (settings.class(), settings.ambiguous()),
        );
        let tried = self.attempted(settings, candidate, lease, &share).await;
        let attempt = Attempt {
            started_at,
            ended_at: self.app.now(),
            progress: tried.progress,
            random: self.random(),
        };
        if let Some(health) = tried.health {
            let publisher = &delivery.publisher;
            self.circuits.note(publisher, health, attempt.ended_at);
        }
        let (tally, finish) = decide(delivery, &tried.ending, class, policy, &attempt);
        let generation = candidate.generation.as_ref().ok();
        let model = generation.map(|generation| generation.model.as_str());
        self.log(delivery, model, tally, &tried.ending, &attempt);
        // What was kept for it goes into recording the outcome.
        drop(share);
        if self.record(delivery, lease, &finish, &attempt).await {
            self.drained.borrow_mut().add(tally);
        } else {
            let mut drained = self.drained.borrow_mut();
            drained.lost = drained.lost.saturating_add(1);
        }
    }

    async fn attempted(
        &self,
        settings: Option<&PublisherSettings>,
        candidate: &Candidate,
        lease: &Lease,
        share: &Share<'_>,
    ) -> Tried {
        let delivery = &candidate.delivery;
        let permanent = |code, why: &str| Outcome::Permanent(Failure::new(code, why));
        if delivery.interrupted {
            // An ambiguous failure like any other: it is counted and waited for, so that a row that
            // brings its drain down neither does so for ever nor takes the others along.
            let why = "an attempt was begun and its drain never came back";
            let outcome = Outcome::Ambiguous(Failure::new(INTERRUPTED, why));
            return Tried::unasked(delivery, outcome);
        }
        let Some(settings) = settings else {
            let why = "no publisher of this name is configured";
            return Tried::unasked(delivery, permanent("publisher_missing", why));
        };
        if !settings.is_open_to(&delivery.account) {
            let why = "this publisher is not open to the account any more";
            return Tried::unasked(delivery, permanent("publisher_closed", why));
        }
        let Ok(generation) = &candidate.generation else {
            let why = "the generation is gone or can't be read";
            return Tried::unasked(delivery, permanent(failure::STORE_FAILED, why));
        };
        match self
            .text_of(generation, candidate.body.as_deref(), share)
            .await
        {
            Ok(text) => {
                self.publish(settings, delivery, generation, text, lease, share)
                    .await
            }
            Err(outcome) => Tried::unasked(delivery, outcome),
        }
    }

    async fn publish(
        &self,
        settings: &PublisherSettings,
        delivery: &Leased,
        generation: &Generation,
        text: String,
        lease: &Lease,
        share: &Share<'_>,
    ) -> Tried {
        let config = self.app.config();
        let pipeline = config.pipeline(&generation.account, &generation.site, &generation.pipeline);
        let template = pipeline.and_then(|pipeline| pipeline.template.as_ref());
        let parcel = parcel(settings, template, delivery, generation, text);
        let publication = settings.begin(parcel);
        let (ending, progress) = carry_out(self.app, publication, delivery, lease, share).await;
        let health = match &ending {
            Ending::Over(outcome) => Some(Health::of(outcome)),
            Ending::BrokenOff => None,
        };
        Tried {
            ending,
            progress,
            health,
        }
    }

    /// The text to publish, from the row or from where the output lies.
    async fn text_of(
        &self,
        generation: &Generation,
        body: Option<&str>,
        share: &Share<'_>,
    ) -> Result<String, Outcome> {
        let loaded;
        let body = if let Some(body) = body {
            body
        } else {
            share.spend(1);
            let failed = |error: crate::ports::DbError| {
                Outcome::Transient(Failure::new(failure::STORE_FAILED, error.to_string()))
            };
            loaded = output_body(self.app, generation).await.map_err(failed)?;
            &loaded
        };
        output_text(generation.surface, body, self.app.now()).ok_or_else(|| {
            let why = "the output can't be read";
            Outcome::Permanent(Failure::new(failure::STORE_FAILED, why))
        })
    }

    /// Records how an attempt ended; `false` where the lease had passed on or nobody can tell. The
    /// lease then runs out, and the row is looked at again as one that may have arrived.
    async fn record(
        &self,
        delivery: &Leased,
        lease: &Lease,
        finish: &Finish,
        attempt: &Attempt,
    ) -> bool {
        let statement = leases::finish(&delivery.id, &lease.token, finish, attempt.ended_at);
        match self.app.run_within(self.budget, vec![statement]).await {
            Ok(results) => results.first().is_some_and(|result| result.changes > 0),
            Err(error) => {
                let error = error.to_string();
                self.app.log(
                    "delivery_not_recorded",
                    json!({"deliveryId": delivery.id, "error": error}),
                );
                false
            }
        }
    }

    fn random(&self) -> u64 {
        let bytes = self.app.random.bytes16();
        u64::from_be_bytes(bytes.first_chunk::<8>().copied().unwrap_or_default())
    }

    fn log(
        &self,
        delivery: &Leased,
        model: Option<&str>,
        tally: Tally,
        ending: &Ending,
        attempt: &Attempt,
    ) {
        let code = match ending {
            Ending::Over(Outcome::Published { .. }) | Ending::BrokenOff => None,
            Ending::Over(Outcome::Transient(f) | Outcome::Ambiguous(f) | Outcome::Permanent(f)) => {
                Some(f.code)
            }
        };
        let latency = attempt.ended_at.since(attempt.started_at).millis();
        self.app.log(
            "delivery_attempt",
            json!({"deliveryId": delivery.id,
            "generationId": delivery.generation_id, "publisher": delivery.publisher,
            "tally": tally.as_str(), "code": code, "latencyMs": latency}),
        );
        Point::Delivery {
            scope: Scope {
                account: &delivery.account,
                site: &delivery.site,
                pipeline: &delivery.pipeline,
                model: model.unwrap_or_default(),
            },
            publisher: &delivery.publisher,
            tally: tally.as_str(),
            code: code.unwrap_or_default(),
            took_ms: latency,
        }
        .write(&*self.app.telemetry);
    }
}
