use insta::assert_snapshot;
use serde_json::Value;

use super::*;
use crate::testing::World;

const AT: &str = "2026-11-30T08:03:10Z";

fn bundle(kind: &str) -> Bundle {
    let at = Timestamp::parse_rfc3339(AT).unwrap();
    Bundle {
        id: 1,
        kind: kind.to_owned(),
        account: "default".to_owned(),
        site: "kominka-journal".to_owned(),
        pipeline: "daily".to_owned(),
        count: 1,
        topic: Some("Why old beams stay straight".to_owned()),
        detail: None,
        original_at: None,
        opened_at: at,
        newest_at: at.plus(Span::from_minutes(2)),
        attempts: 1,
    }
}

/// A payload's texts, one a line: what a person reads.
fn shown(payload: &Value) -> String {
    let mut lines = vec![format!("plain: {}", payload["text"].as_str().unwrap())];
    for block in payload["blocks"].as_array().unwrap() {
        let kind = block["type"].as_str().unwrap();
        let mut text = |value: &Value| {
            let text = value["text"].as_str().unwrap().replace('\n', " | ");
            lines.push(format!("{kind}: {text}"));
        };
        if !block["text"].is_null() {
            text(&block["text"]);
        }
        for list in ["fields", "elements"] {
            block[list]
                .as_array()
                .into_iter()
                .flatten()
                .for_each(&mut text);
        }
    }
    lines.join("\n")
}

fn told_as(bundle: &Bundle) -> String {
    let world = World::new(AT, &[]);
    shown(&alert(bundle, world.app.config()))
}

#[test]
fn a_caught_duplicate_says_what_it_was_and_how_old_its_original_is() {
    let mut caught = bundle("duplicate");
    caught.count = 11;
    caught.original_at = Some(caught.newest_at.minus(Span::from_seconds(1_145)));
    assert_snapshot!(told_as(&caught), @r"
    plain: 11 duplicates caught (default/kominka-journal/daily)
    header: 11 duplicates caught
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 11
    section: *Newest topic* | Why old beams stay straight
    section: *Age of the original* | 19 min 5 s
    section: *What to do* | Nothing: the stored answer was given and nothing was bought. If it goes on, two layers retry the same call, or a time-out is shorter than a generation takes.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn a_stale_delivery_says_the_threshold() {
    let stale = Bundle {
        count: 3,
        ..bundle("stale")
    };
    assert_snapshot!(told_as(&stale), @r"
    plain: 3 deliveries are owed for over 60 minutes (default/kominka-journal/daily)
    header: 3 deliveries are owed for over 60 minutes
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 3
    section: *Newest topic* | Why old beams stay straight
    section: *What to do* | Look at the last answer of its destination in the outbox and repair that; what is owed goes out by itself then.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn a_dead_delivery_says_its_last_error_and_that_requeueing_buys_nothing() {
    let detail = Some("401 rest_cannot_create".to_owned());
    assert_snapshot!(told_as(&Bundle { detail, ..bundle("dead") }), @r"
    plain: 1 delivery is not tried again (default/kominka-journal/daily)
    header: 1 delivery is not tried again
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 1
    section: *Newest topic* | Why old beams stay straight
    section: *Last error* | 401 rest_cannot_create
    section: *What to do* | Repair the cause, then requeue it in the outbox. The text is stored: requeueing buys nothing.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn a_delivery_of_unknown_outcome_sends_a_person_to_the_destination() {
    let detail = Some("the connection was lost".to_owned());
    assert_snapshot!(told_as(&Bundle { detail, ..bundle("outcome_unknown") }), @r"
    plain: 1 delivery of unknown outcome (default/kominka-journal/daily)
    header: 1 delivery of unknown outcome
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 1
    section: *Newest topic* | Why old beams stay straight
    section: *Last error* | the connection was lost
    section: *What to do* | Look at the destination: cancel the delivery if the text is there, requeue it if it is not.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn a_held_output_says_why() {
    let detail = Some("max_tokens".to_owned());
    assert_snapshot!(told_as(&Bundle { detail, ..bundle("held") }), @r"
    plain: 1 output is held (default/kominka-journal/daily)
    header: 1 output is held
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 1
    section: *Newest topic* | Why old beams stay straight
    section: *Newest reason* | max_tokens
    section: *What to do* | It is paid for and stored, and nothing is published. Read it in the dashboard, then publish, abandon or regenerate it.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn a_generation_of_unknown_outcome_says_who_decides() {
    let detail = Some("lease_over".to_owned());
    assert_snapshot!(told_as(&Bundle { detail, ..bundle("unknown") }), @r"
    plain: 1 generation of unknown outcome (default/kominka-journal/daily)
    header: 1 generation of unknown outcome
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 1
    section: *Newest topic* | Why old beams stay straight
    section: *Newest reason* | lease_over
    section: *What to do* | Gemini may have done and billed the work. Under a derived key `ON_UNKNOWN` decides after 15 minutes; under an operation key abandon or regenerate it.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn credits_that_run_out_are_shown_in_the_currency_of_reports() {
    let detail = r#"{"day":"2026-11-30","spent":7900000,"reserved":300000,"limit":10000000}"#;
    let credits = Bundle {
        site: String::new(),
        pipeline: String::new(),
        topic: None,
        detail: Some(detail.to_owned()),
        ..bundle("credits")
    };
    assert_snapshot!(told_as(&credits), @r"
    plain: Over 80 % of the day's credits are used (default)
    header: Over 80 % of the day's credits are used
    section: *Account* | default
    section: *Day* | 2026-11-30
    section: *Spent* | $7.90
    section: *Reserved* | $0.30
    section: *Limit* | $10.00
    section: *What to do* | Raise `dailyCredits` of the account, or leave it: what might pass the limit is answered with 402 until the account's midnight.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn kv_errors_are_shown_as_a_share() {
    let errors = Bundle {
        account: String::new(),
        site: String::new(),
        pipeline: String::new(),
        topic: None,
        detail: Some(r#"{"operations":42000,"errors":61}"#.to_owned()),
        ..bundle("kv_errors")
    };
    assert_snapshot!(told_as(&errors), @r#"
    plain: KV failed in over 0.1 % of the week's calls
    header: KV failed in over 0.1 % of the week's calls
    section: *Error rate* | 0.15 %
    section: *Errors* | 61
    section: *Calls* | 42000
    section: *What to do* | Nothing is bought twice by it. Look at Cloudflare's status page; if it lasts, let `KV_FAILURE_POLICY = "arbiter"` answer while KV can't be read.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    "#);
}

#[test]
fn a_queue_message_that_was_given_up_says_that_its_key_is_free() {
    let detail = Some("every delivery of its queue message failed".to_owned());
    assert_snapshot!(told_as(&Bundle { detail, ..bundle("dead_message") }), @r"
    plain: 1 queue message was given up (default/kominka-journal/daily)
    header: 1 queue message was given up
    section: *Account* | default
    section: *Site* | kominka-journal
    section: *Pipeline* | daily
    section: *Count* | 1
    section: *Newest topic* | Why old beams stay straight
    section: *Newest reason* | every delivery of its queue message failed
    section: *What to do* | Its generation has failed and its key is free: repair the cause, then send the request again.
    context: Oncepress, development · 2026-11-30 08:03 to 08:05 UTC
    ");
}

#[test]
fn a_kind_of_a_newer_version_is_told_as_it_is() {
    assert!(told_as(&bundle("brand_new")).starts_with("plain: Alert: brand_new"));
}

#[test]
fn the_payload_is_block_kit_with_markup_that_calls_nobody() {
    let world = World::new(AT, &[]);
    let topic = Some("<!channel> & <https://evil.example|click>\u{7}".to_owned());
    let held = Bundle {
        topic,
        site: "<a>".to_owned(),
        ..bundle("held")
    };
    let payload = alert(&held, world.app.config());
    assert_snapshot!(serde_json::to_string_pretty(&payload).unwrap(), @r#"
    {
      "text": "1 output is held (default/&lt;a&gt;/daily)",
      "blocks": [
        {
          "type": "header",
          "text": {
            "type": "plain_text",
            "text": "1 output is held"
          }
        },
        {
          "type": "section",
          "fields": [
            {
              "type": "mrkdwn",
              "text": "*Account*\ndefault",
              "verbatim": true
            },
            {
              "type": "mrkdwn",
              "text": "*Site*\n&lt;a&gt;",
              "verbatim": true
            },
            {
              "type": "mrkdwn",
              "text": "*Pipeline*\ndaily",
              "verbatim": true
            },
            {
              "type": "mrkdwn",
              "text": "*Count*\n1",
              "verbatim": true
            },
            {
              "type": "mrkdwn",
              "text": "*Newest topic*\n&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt; ",
              "verbatim": true
            }
          ]
        },
        {
          "type": "section",
          "text": {
            "type": "mrkdwn",
            "text": "*What to do*\nIt is paid for and stored, and nothing is published. Read it in the dashboard, then publish, abandon or regenerate it.",
            "verbatim": true
          }
        },
        {
          "type": "context",
          "elements": [
            {
              "type": "mrkdwn",
              "text": "Oncepress, development · 2026-11-30 08:03 to 08:05 UTC",
              "verbatim": true
            }
          ]
        }
      ],
      "unfurl_links": false,
      "unfurl_media": false
    }
    "#);
}

#[test]
fn whatever_comes_from_outside_stays_below_slacks_limits() {
    let world = World::new(AT, &[]);
    let long = "<".repeat(5_000);
    for kind in Kind::ALL {
        let mut loud = bundle(kind.as_str());
        (loud.topic, loud.detail) = (Some(long.clone()), Some(long.clone()));
        (loud.site, loud.pipeline) = (long.clone(), long.clone());
        let payload = alert(&loud, world.app.config());
        for block in payload["blocks"].as_array().unwrap() {
            let chars = |value: &Value| value["text"].as_str().unwrap_or_default().chars().count();
            let fields = block["fields"].as_array().cloned().unwrap_or_default();
            assert!(fields.len() <= 10);
            assert!(fields.iter().all(|field| chars(field) <= 2_000));
            let max = if block["type"] == "header" {
                150
            } else {
                3_000
            };
            assert!(chars(&block["text"]) <= max, "{block}");
        }
    }
}

#[test]
fn a_digest_is_one_readable_block() {
    let world = World::new(AT, &[]);
    let stored = StoredDigest {
        day: "2026-11-30".to_owned(),
        made_at: Timestamp::default(),
        figures: "{}".to_owned(),
        body: "2026-11-29: generated 41\nOwed: 1 <b>".to_owned(),
        attempts: 1,
    };
    assert_snapshot!(shown(&digest(&stored, world.app.config())), @r"
    plain: Oncepress, development: 2026-11-30
    header: Oncepress, development: 2026-11-30
    section: ```2026-11-29: generated 41 | Owed: 1 &lt;b&gt;```
    ");
}

#[test]
fn a_span_is_told_in_its_two_largest_units() {
    let of = |seconds| span(Span::from_seconds(seconds));
    assert_eq!(
        [of(7), of(1_145), of(7_260)],
        ["7 s", "19 min 5 s", "2 h 1 min"]
    );
    assert_eq!(of(100_000), "1 d 3 h");
}
