//! What every publisher must do, whatever it publishes to.

use oncepress::publish::{Failure, IdempotencyClass, Outcome, Reply, Step};
use oncepress::time::Span;

use crate::destination::{Answered, Destination, SECRETS, perform, settings};
use crate::driver::{Delivery, Fault, TEXT, delivery, parcel};
use crate::ghost::Ghost;
use crate::github::{Github, says};
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

/// What a model answers to every write.
type Refusal = fn() -> Answered;

pub(crate) const TARGET: &str = "dogs-and-cats";

fn published(outcome: &Outcome) -> (bool, &str) {
    match outcome {
        Outcome::Published {
            reference,
            replayed,
        } => (*replayed, reference.as_deref().unwrap_or_default()),
        other => panic!("not published: {other:?}"),
    }
}

fn permanent(outcome: Option<Outcome>) -> Failure {
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

#[test]
fn github_tries_a_moved_head_once_more_and_then_later() {
    let mut world = Github {
        head_moves: 1,
        ..Github::default()
    };
    let settings = settings(&world);
    published(
        &delivery(&settings, TARGET)
            .attempt(&mut world, &[])
            .outcome
            .unwrap(),
    );
    let mut world = Github {
        head_moves: 2,
        ..Github::default()
    };
    let outcome = delivery(&settings, TARGET).attempt(&mut world, &[]).outcome;
    let Some(Outcome::Transient(failure)) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.code, "target_moved");
}

#[test]
fn githubs_refusals_are_told_apart() {
    let cases: [(Refusal, &str); 6] = [
        (
            || {
                says(
                    409,
                    "Repository rule violations found\n\nChanges must be signed",
                )
            },
            "rule_violated",
        ),
        (
            || says(422, "Repository rule violations found"),
            "rule_violated",
        ),
        (|| says(409, "Git Repository is empty."), "target_missing"),
        (|| says(404, "Branch main not found"), "target_missing"),
        (
            || says(422, "Sorry, the file is too large to be processed."),
            "content_too_large",
        ),
        (
            || says(403, "Resource not accessible by personal access token"),
            "credentials_refused",
        ),
    ];
    for (refuse, code) in cases {
        let mut world = Github {
            refuse_writes: Some(refuse),
            ..Github::default()
        };
        let settings = settings(&world);
        let outcome = delivery(&settings, TARGET).attempt(&mut world, &[]).outcome;
        assert_eq!(permanent(outcome).code, code);
    }
    let limits: [(Refusal, Option<Span>); 3] = [
        (
            || says(403, "You have exceeded a secondary rate limit"),
            None,
        ),
        (
            || says(403, "Slow").with("retry-after", "60"),
            Some(Span::from_seconds(60)),
        ),
        (
            || {
                let answer = says(403, "API").with("x-ratelimit-remaining", "0");
                answer.with("x-ratelimit-reset", "1796000000")
            },
            Some(Span::from_seconds(1_796_000_000 - 1_795_996_860)),
        ),
    ];
    for (refuse, wait) in limits {
        let mut world = Github {
            refuse_writes: Some(refuse),
            ..Github::default()
        };
        let settings = settings(&world);
        let outcome = delivery(&settings, TARGET).attempt(&mut world, &[]).outcome;
        let Some(Outcome::Transient(failure)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((failure.code, failure.retry_after), ("rate_limited", wait));
    }
}

#[test]
fn a_file_that_a_person_edited_or_removed_meanwhile_is_not_written_again() {
    for edited in [true, false] {
        let mut world = Github::default();
        let settings = settings(&world);
        let mut delivery = delivery(&settings, TARGET);
        delivery.attempt(&mut world, &[(0, Fault::LostAfter)]);
        if edited {
            world.files.insert(TARGET.to_owned(), b"edited".to_vec());
        } else {
            world.files.remove(TARGET);
        }
        assert!(published(&delivery.finish(&mut world)).0);
        assert_eq!(world.commits.len(), 1);
    }
}

#[test]
fn a_slug_that_wordpress_keeps_to_itself_is_a_persons_matter_and_nothing_is_left() {
    for trash_disabled in [false, true] {
        let reserved = vec![TARGET.to_owned()];
        let mut world = Wordpress {
            trash_disabled,
            reserved,
            ..Wordpress::default()
        };
        let settings = settings(&world);
        let failure = permanent(delivery(&settings, TARGET).attempt(&mut world, &[]).outcome);
        assert_eq!(failure.code, "target_renamed");
        assert!(
            world.posts.iter().all(|post| post.status == "trash"),
            "{:?}",
            world.posts
        );
    }
}

#[test]
fn a_ghost_post_changed_while_it_was_published_is_read_again() {
    let mut world = Ghost {
        collisions: 1,
        ..Ghost::default()
    };
    let settings = settings(&world);
    published(
        &delivery(&settings, TARGET)
            .attempt(&mut world, &[])
            .outcome
            .unwrap(),
    );
    assert_eq!(world.shown(TEXT), 1);
    let mut world = Ghost {
        collisions: 9,
        ..Ghost::default()
    };
    let outcome = delivery(&settings, TARGET).attempt(&mut world, &[]).outcome;
    assert!(
        matches!(outcome, Some(Outcome::Ambiguous(_))),
        "{outcome:?}"
    );
    world.collisions = 0;
    published(&delivery(&settings, TARGET).finish(&mut world));
    assert_eq!((world.shown(TEXT), world.posts.len()), (1, 1));
}

#[test]
fn a_webhooks_answer_must_be_what_the_configuration_expects() {
    let expecting = |expect: serde_json::Value| {
        let mut table = Receiver::default().table();
        table["expect"] = expect;
        oncepress::publish::settings::PublisherSettings::parse(
            "under_test",
            &table,
            &crate::destination::secret,
            "production",
        )
        .unwrap()
    };
    for (expect, met) in [
        (serde_json::json!({ "status": 202 }), true),
        (serde_json::json!({ "status": 200 }), false),
        (
            serde_json::json!({ "json_pointer": "/id", "equals": 1 }),
            true,
        ),
        (
            serde_json::json!({ "json_pointer": "/id", "equals": "1" }),
            false,
        ),
        (
            serde_json::json!({ "json_pointer": "/ok", "equals": true }),
            false,
        ),
        (serde_json::json!({ "text": "{\"id\":1}" }), true),
        (serde_json::json!({ "text": "ok" }), false),
    ] {
        let settings = expecting(expect.clone());
        let outcome = delivery(&settings, TARGET)
            .attempt(&mut Receiver::default(), &[])
            .outcome;
        match outcome.unwrap() {
            Outcome::Published { reference, .. } => {
                assert!(met, "{expect}");
                assert_eq!(reference.as_deref(), Some("1"));
            }
            Outcome::Transient(failure) => {
                assert!(!met, "{expect}");
                assert_eq!(failure.code, "assertion_failed");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_receivers_message_is_the_same_at_every_attempt() {
    let mut world = Receiver::default();
    let settings = settings(&world);
    let mut delivery = delivery(&settings, TARGET);
    for _ in 0..3 {
        delivery.attempt(&mut world, &[(0, Fault::LostAfter)]);
    }
    assert_eq!(world.messages.len(), 3);
    assert!(
        world
            .messages
            .iter()
            .all(|message| *message == world.messages[0])
    );
    let message: serde_json::Value = serde_json::from_str(&world.messages[0].1).unwrap();
    insta::assert_snapshot!(format!("{message:#}"), @r##"
    {
      "type": "generation.published",
      "timestamp": "2026-11-30T00:00:20.000Z",
      "data": {
        "deliveryId": "dlv_0123456789abcdef0123456789abcdef",
        "generationId": "gen_fedcba9876543210fedcba9876543210",
        "key": "idem:default:blog:daily:00112233445566778899aabbccddeeff",
        "fingerprint": "abababababababababababababababababababababababababababababababab",
        "account": "default",
        "site": "blog",
        "pipeline": "daily",
        "model": "gemini-3.8-flash",
        "target": "dogs-and-cats",
        "topic": "Dogs & cats",
        "createdAt": "2026-11-30T00:00:00.000Z",
        "completedAt": "2026-11-30T00:00:20.000Z",
        "contentType": "text/plain; charset=utf-8",
        "contentBytes": 60,
        "content": "# Dogs & cats\n\n犬と猫についての長い記事です。"
      }
    }
    "##);
}
