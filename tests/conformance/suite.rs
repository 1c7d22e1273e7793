//! What every publisher must do, whatever it publishes to.

use oncepress::publish::{Failure, IdempotencyClass, Outcome, Reply, Step};
use oncepress::time::Span;

use crate::destination::{Answered, Destination, SECRETS, perform, settings};
use crate::driver::{Delivery, Fault, TEXT, delivery, parcel};
use crate::ghost::Ghost;
use crate::github::Github;
use crate::receivers::{Bucket, Queue, Receiver};
use crate::wordpress::Wordpress;

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) new: fn() -> Box<dyn Destination>,
    /// It is no plain receiver: it can tell that it has the text already.
    pub(crate) tells_repeats: bool,
    over_http: bool,
}

pub(crate) const ALL: [Kind; 6] = [
    Kind {
        name: "r2",
        new: || Box::<Bucket>::default(),
        tells_repeats: true,
        over_http: false,
    },
    Kind {
        name: "queue",
        new: || Box::<Queue>::default(),
        tells_repeats: false,
        over_http: false,
    },
    Kind {
        name: "webhook",
        new: || Box::<Receiver>::default(),
        tells_repeats: false,
        over_http: true,
    },
    Kind {
        name: "github",
        new: || Box::<Github>::default(),
        tells_repeats: true,
        over_http: true,
    },
    Kind {
        name: "wordpress",
        new: || Box::<Wordpress>::default(),
        tells_repeats: true,
        over_http: true,
    },
    Kind {
        name: "ghost",
        new: || Box::<Ghost>::default(),
        tells_repeats: true,
        over_http: true,
    },
];

pub(crate) const TARGET: &str = "dogs-and-cats";

pub(crate) fn published(outcome: &Outcome) -> (bool, &str) {
    match outcome {
        Outcome::Published {
            reference,
            replayed,
        } => (*replayed, reference.as_deref().unwrap_or_default()),
        other => panic!("not published: {other:?}"),
    }
}

pub(crate) fn permanent(outcome: Option<Outcome>) -> Failure {
    match outcome {
        Some(Outcome::Permanent(failure)) => failure,
        other => panic!("not permanent: {other:?}"),
    }
}

#[test]
fn a_new_text_is_published_once_and_says_where() {
    for kind in &ALL {
        let mut world = (kind.new)();
        let settings = settings(world.as_ref());
        let attempt = delivery(&settings, TARGET).attempt(world.as_mut(), &[]);
        let outcome = attempt.outcome.unwrap();
        let (replayed, reference) = published(&outcome);
        assert!(
            !replayed && !reference.is_empty(),
            "{}: {outcome:?}",
            kind.name
        );
        assert_eq!(world.shown(TEXT), 1, "{}", kind.name);
        let class = settings.class();
        assert_eq!(
            kind.tells_repeats,
            class != IdempotencyClass::None,
            "{}",
            kind.name
        );
    }
}

#[test]
fn a_replay_is_recognised_and_changes_nothing() {
    for kind in &ALL {
        for maybe_sent in [false, true] {
            let mut world = (kind.new)();
            let settings = settings(world.as_ref());
            let mut first = delivery(&settings, TARGET);
            let one = first.attempt(world.as_mut(), &[]).outcome.unwrap();
            let mut again = delivery(&settings, TARGET);
            again.parcel.maybe_sent = maybe_sent;
            let two = again.attempt(world.as_mut(), &[]).outcome.unwrap();
            assert_eq!(
                published(&two).0,
                kind.tells_repeats,
                "{}: {two:?}",
                kind.name
            );
            if kind.tells_repeats {
                assert_eq!(published(&one).1, published(&two).1, "{}", kind.name);
            }
            assert_eq!(world.shown(TEXT), 1, "{}", kind.name);
        }
    }
}

#[test]
fn a_write_whose_answer_is_lost_is_ambiguous_and_then_found() {
    for kind in &ALL {
        let mut world = (kind.new)();
        let settings = settings(world.as_ref());
        let mut delivery = delivery(&settings, TARGET);
        let clean = delivery.attempt((kind.new)().as_mut(), &[]).effects;
        delivery.parcel.progress = None;
        delivery.parcel.maybe_sent = false;
        let last = clean - 1;
        let attempt = delivery.attempt(world.as_mut(), &[(last, Fault::LostAfter)]);
        assert!(
            matches!(attempt.outcome, Some(Outcome::Ambiguous(_))),
            "{}",
            kind.name
        );
        let outcome = delivery.finish(world.as_mut());
        assert_eq!(published(&outcome).0, kind.tells_repeats, "{}", kind.name);
        assert_eq!(world.shown(TEXT), 1, "{}", kind.name);
    }
}

#[test]
fn a_race_lost_to_another_text_leaves_that_one_alone_and_takes_ours_back() {
    for kind in ALL.iter().filter(|kind| kind.tells_repeats) {
        for at in 0..3 {
            let mut world = (kind.new)();
            let settings = settings(world.as_ref());
            let delivery = delivery(&settings, TARGET);
            let mut publication = settings.begin(delivery.parcel.clone());
            let (mut reply, mut occupied) = (None, 0);
            let outcome = (0..20).find_map(|effects| {
                let step = publication.step(reply.take(), delivery.now);
                if effects == at && world.shown(TEXT) == 0 {
                    world.occupy(&delivery.parcel, "Somebody else's text");
                    occupied = 1;
                }
                match step {
                    Step::Do(effect) => {
                        reply = Some(perform(world.as_mut(), &effect, delivery.now));
                        None
                    }
                    Step::Done(outcome) => Some(outcome),
                }
            });
            assert_eq!(
                world.shown("Somebody else's text"),
                occupied,
                "{} {at}",
                kind.name
            );
            match outcome.unwrap() {
                Outcome::Permanent(failure) => {
                    assert_eq!(failure.code, "target_taken", "{} {at}", kind.name);
                    assert_eq!(world.shown(TEXT), 0, "{} {at}", kind.name);
                }
                // The other came too late: the name was ours already.
                outcome => {
                    published(&outcome);
                    assert!(at > 0, "{}", kind.name);
                    assert_eq!(world.shown(TEXT), 1, "{} {at}", kind.name);
                }
            }
        }
    }
}

#[test]
fn a_text_of_1_9_megabytes_is_published_and_found_again() {
    // Japanese, so that escaping as JSON doubles it.
    let text = "長い記事。".repeat(1_900_000 / 15);
    for kind in &ALL {
        let mut world = (kind.new)();
        let settings = settings(world.as_ref());
        let mut delivery = Delivery {
            parcel: parcel(TARGET, &text),
            ..delivery(&settings, TARGET)
        };
        let outcome = delivery.finish(world.as_mut());
        published(&outcome);
        // A queue's message can't hold it: the consumer fetches it by its id.
        let shown = usize::from(kind.name != "queue");
        assert_eq!(world.shown(&text), shown, "{}", kind.name);
        let mut again = Delivery {
            parcel: parcel(TARGET, &text),
            ..crate::driver::delivery(&settings, TARGET)
        };
        again.parcel.maybe_sent = true;
        published(&again.finish(world.as_mut()));
        assert_eq!(world.shown(&text), shown, "{}", kind.name);
    }
}

#[test]
fn a_path_of_any_script_is_written_and_found_again() {
    let target = "ブログ/犬 と 猫+100%?#&.md";
    for kind in &ALL {
        let mut world = (kind.new)();
        let settings = settings(world.as_ref());
        published(&delivery(&settings, target).finish(world.as_mut()));
        let mut again = delivery(&settings, target);
        again.parcel.maybe_sent = true;
        assert_eq!(
            published(&again.finish(world.as_mut())).0,
            kind.tells_repeats,
            "{}",
            kind.name
        );
        assert_eq!(world.shown(TEXT), 1, "{}", kind.name);
    }
}

/// The outcome of an attempt whose first effect is answered with this.
fn answered(kind: &Kind, maybe_sent: bool, answer: Answered) -> Outcome {
    let world = (kind.new)();
    let settings = settings(world.as_ref());
    let mut delivery = delivery(&settings, TARGET);
    delivery.parcel.maybe_sent = maybe_sent;
    let mut publication = settings.begin(delivery.parcel.clone());
    assert!(matches!(publication.step(None, delivery.now), Step::Do(_)));
    let reply = Reply::Http {
        status: answer.status,
        headers: answer.headers,
        body: answer.body,
    };
    match publication.step(Some(reply), delivery.now) {
        Step::Done(outcome) => outcome,
        Step::Do(effect) => panic!("{} goes on with {effect:?}", kind.name),
    }
}

#[test]
fn a_request_to_come_back_later_is_kept_to() {
    for kind in ALL.iter().filter(|kind| kind.over_http) {
        for status in [429, 503] {
            let answer = || Answered::empty(status).with("retry-after", "120");
            let outcome = answered(kind, false, answer());
            let Outcome::Transient(failure) = outcome else {
                panic!("{}: {outcome:?}", kind.name)
            };
            assert_eq!(
                failure.retry_after,
                Some(Span::from_seconds(120)),
                "{}",
                kind.name
            );
            assert_eq!(failure.status, Some(status));
            // What an earlier attempt may have done stays open.
            let outcome = answered(kind, true, answer());
            assert!(
                matches!(outcome, Outcome::Ambiguous(_)),
                "{}: {outcome:?}",
                kind.name
            );
        }
    }
}

#[test]
fn refused_credentials_wait_for_a_person() {
    for kind in ALL.iter().filter(|kind| kind.over_http) {
        let mut world = (kind.new)();
        let settings = settings(world.as_ref());
        world.revoke();
        let failure = permanent(
            delivery(&settings, TARGET)
                .attempt(world.as_mut(), &[])
                .outcome,
        );
        assert_eq!(failure.code, "credentials_refused", "{}", kind.name);
        assert_eq!(failure.status, Some(401));
    }
}

#[test]
fn a_destination_that_is_gone_waits_for_a_person() {
    for kind in ALL.iter().filter(|kind| kind.over_http) {
        for maybe_sent in [false, true] {
            let mut world = (kind.new)();
            let settings = settings(world.as_ref());
            world.remove();
            let mut delivery = delivery(&settings, TARGET);
            delivery.parcel.maybe_sent = maybe_sent;
            let failure = permanent(delivery.attempt(world.as_mut(), &[]).outcome);
            assert!(
                ["target_missing", "endpoint_gone"].contains(&failure.code),
                "{failure:?}"
            );
        }
    }
}

#[test]
fn a_redirect_is_a_failure_and_is_never_followed() {
    for kind in ALL.iter().filter(|kind| kind.over_http) {
        for status in [301, 302, 303, 307, 308] {
            let answer = Answered::empty(status).with("location", "http://169.254.169.254/");
            let outcome = answered(kind, false, answer);
            let Outcome::Transient(failure) = outcome else {
                panic!("{}: {outcome:?}", kind.name)
            };
            assert_eq!(
                (failure.code, failure.status),
                ("redirect_refused", Some(status))
            );
        }
    }
}

#[test]
fn no_secret_that_an_answer_echoes_is_kept() {
    let echo: String = SECRETS.map(|(_, value)| value).join(" ");
    for kind in ALL.iter().filter(|kind| kind.over_http) {
        let outcome = answered(kind, false, Answered::json(400, &serde_json::json!(echo)));
        let kept = format!("{outcome:?}");
        let own: Vec<&str> = SECRETS
            .iter()
            .filter(|(name, _)| (kind.new)().table().to_string().contains(name))
            .map(|(_, value)| *value)
            .collect();
        assert!(!own.is_empty());
        assert!(
            own.iter().all(|secret| !kept.contains(secret)),
            "{}: {kept}",
            kind.name
        );
        assert!(kept.contains("[secret]"), "{}: {kept}", kind.name);
    }
}

#[test]
fn a_target_that_leads_elsewhere_is_refused_before_anything_is_sent() {
    for kind in &ALL {
        let world = (kind.new)();
        let settings = settings(world.as_ref());
        let mut publication = settings.begin(parcel("../elsewhere", TEXT));
        let step = publication.step(None, delivery(&settings, TARGET).now);
        let Step::Done(outcome) = step else {
            panic!("{} sends it", kind.name)
        };
        assert_eq!(permanent(Some(outcome)).code, "target_refused");
    }
}
