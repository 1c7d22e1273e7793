//! What only one kind of destination does.

use oncepress::publish::Outcome;
use oncepress::publish::settings::PublisherSettings;
use oncepress::time::Span;

use crate::destination::{Answered, Destination, secret, settings};
use crate::driver::{Fault, TEXT, delivery};
use crate::ghost::Ghost;
use crate::github::{Github, says};
use crate::receivers::Receiver;
use crate::suite::{TARGET, permanent, published};
use crate::wordpress::Wordpress;

/// What a model answers to every write.
type Refusal = fn() -> Answered;

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
    let cases: [(Refusal, &str); 8] = [
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
        (
            || {
                says(
                    409,
                    "Could not create file: 2 of 2 required status checks are expected.",
                )
            },
            "rule_violated",
        ),
        (
            || {
                says(
                    409,
                    "Could not create file: Changes must be made through a pull request.",
                )
            },
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
    let limits: [(Refusal, Option<Span>); 4] = [
        (
            || says(403, "You have exceeded a secondary rate limit"),
            None,
        ),
        (
            || says(403, "You have triggered an abuse detection mechanism."),
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
        PublisherSettings::parse("under_test", &table, &secret, "production").unwrap()
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

#[test]
fn a_look_that_fails_after_a_creation_leaves_the_outcome_open() {
    let mut world = Wordpress::default();
    let settings = settings(&world);
    let mut delivery = delivery(&settings, TARGET);
    // The slug is kept by the site, so that the creation is followed by a second look.
    world.reserved = vec![TARGET.to_owned()];
    let outcome = delivery
        .attempt(&mut world, &[(2, Fault::LostBefore)])
        .outcome;
    assert!(
        matches!(outcome, Some(Outcome::Ambiguous(_))),
        "{outcome:?}"
    );
}

#[test]
fn a_draft_that_a_person_renamed_and_published_is_left_as_it_is() {
    let mut world = Wordpress::default();
    let settings = settings(&world);
    let mut delivery = delivery(&settings, TARGET);
    delivery.attempt(&mut world, &[(2, Fault::CrashBefore)]);
    "a-better-name".clone_into(&mut world.posts[0].slug);
    "publish".clone_into(&mut world.posts[0].status);
    let outcome = delivery.finish(&mut world);
    assert_eq!(
        published(&outcome),
        (true, "https://blog.example.com/a-better-name/")
    );
    assert_eq!(world.posts.len(), 1);
}
