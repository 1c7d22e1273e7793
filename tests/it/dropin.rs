//! The drop-in endpoints: Gemini's own answers, bought once, in any form and whatever happens.

use std::rc::Rc;

use oncepress::http::message::Request;
use oncepress::limits::GEMINI_ANSWER_MAX_BYTES;
use oncepress::time::Span;
use serde_json::{Value, json};

use crate::calm;
use crate::util::world::Isolate;
use crate::util::{Act, Answer, Rest, Setup, World, assert_sound, at_rest, world::key_of};

const UNARY: &str = "generateContent";
const EVENTS: &str = "streamGenerateContent?alt=sse";
const LIST: &str = "streamGenerateContent";

fn request(method: &str, body: &Value, headers: &[(&str, &str)]) -> Request {
    let (method, query) = method.split_once('?').unwrap_or((method, ""));
    let mut all = vec![("x-goog-api-key".to_owned(), key_of("default"))];
    all.extend(
        headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned())),
    );
    Request {
        method: "POST".to_owned(),
        path: format!("/v1beta/models/gemini-3.8-flash:{method}"),
        query: query.to_owned(),
        headers: all,
        body: body.to_string().into_bytes(),
    }
}

fn body(prompt: &str) -> Value {
    json!({"contents": [{"parts": [{"text": prompt}]}]})
}

fn ask(world: &World, isolate: &Rc<Isolate>, method: &str, prompt: &str) -> Answer {
    ask_with(world, isolate, method, &body(prompt), &[])
}

fn ask_with(
    world: &World,
    isolate: &Rc<Isolate>,
    method: &str,
    body: &Value,
    headers: &[(&str, &str)],
) -> Answer {
    let handle = world.send(isolate, "client", request(method, body, headers));
    world.exec.finish(&handle).expect("the isolate lives")
}

/// The documents of a stream.
fn events(answer: &Answer) -> Vec<Value> {
    answer
        .body
        .split("\r\n\r\n")
        .map(|event| event.trim_start_matches('\n'))
        .filter(|event| !event.is_empty())
        .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

fn said(documents: &[Value]) -> String {
    let text = |document: &Value| {
        let text = document.pointer("/candidates/0/content/parts/0/text")?;
        text.as_str().map(str::to_owned)
    };
    documents.iter().filter_map(text).collect()
}

#[test]
fn every_form_of_one_request_is_one_purchase_and_each_replay_is_the_same() {
    for setup in [Setup::default(), Setup::default().inline()] {
        let world = setup.build();
        let isolate = world.isolate(1);
        let first = ask(&world, &isolate, EVENTS, "article 1");
        assert_eq!(first.status, 200, "{}", first.body);
        assert_eq!(first.header("content-type"), Some("text/event-stream"));
        assert_eq!(first.header("x-oncepress-credits"), None);
        assert!(!first.is_replay());
        let words = said(&events(&first));
        assert!(words.starts_with("text-0000"), "{words}");
        for place in [1, 2] {
            let elsewhere = world.isolate(place);
            let again = ask(&world, &elsewhere, EVENTS, "article 1");
            assert_eq!(again.body, first.body);
            assert!(again.is_replay());
            assert_eq!(again.header("x-request-id"), first.header("x-request-id"));
            let list = ask(&world, &elsewhere, LIST, "article 1");
            assert_eq!(list.json(), json!(events(&first)));
            let unary = ask(&world, &elsewhere, UNARY, "article 1");
            assert_eq!(said(&[unary.json()]), words);
            assert_eq!(unary.text("/candidates/0/finishReason"), "STOP");
        }
        assert_eq!(world.gemini.billed(), 1);
        world.pass_minutes(1);
        calm(&world);
    }
}

#[test]
fn a_unary_answer_is_given_as_it_came_and_as_a_stream_of_one_event() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let first = ask(&world, &isolate, UNARY, "article 1");
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(first.header("x-oncepress-credits"), Some("2625"));
    let again = ask(&world, &isolate, UNARY, "article 1");
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(again.header("x-oncepress-credits"), Some("0"));
    let stream = ask(&world, &world.isolate(2), EVENTS, "article 1");
    assert_eq!(events(&stream), [first.json()]);
    assert_eq!(world.gemini.billed(), 1);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn callers_of_a_running_generation_follow_it_in_their_own_form() {
    let world = Setup::default().build();
    let (here, there) = (world.isolate(1), world.isolate(2));
    let callers: Vec<_> = [
        (&here, EVENTS),
        (&there, EVENTS),
        (&there, UNARY),
        (&here, LIST),
    ]
    .into_iter()
    .map(|(isolate, form)| {
        let handle = world.send(isolate, form, request(form, &body("article 1"), &[]));
        world.pass_ms(100);
        handle
    })
    .collect();
    let answers: Vec<Answer> = callers
        .iter()
        .map(|handle| world.exec.finish(handle).unwrap())
        .collect();
    let replays: Vec<bool> = answers.iter().map(Answer::is_replay).collect();
    assert_eq!(replays, [false, true, true, true]);
    assert_eq!(answers[1].body, answers[0].body);
    assert_eq!(said(&[answers[2].json()]), said(&events(&answers[0])));
    assert_eq!(answers[3].json(), json!(events(&answers[0])));
    let ids: Vec<_> = answers.iter().map(|a| a.header("x-request-id")).collect();
    assert!(
        ids.iter().all(|id| *id == ids[0] && id.is_some()),
        "{ids:?}"
    );
    assert_eq!(world.gemini.billed(), 1);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_definite_failure_has_its_own_status_and_the_next_try_is_fresh() {
    for form in [UNARY, EVENTS, LIST] {
        let world = Setup::default().build();
        let isolate = world.isolate(1);
        world.gemini.then(&[
            Act::Refuse(429, "RESOURCE_EXHAUSTED"),
            Act::DayQuota,
            Act::Refuse(400, "FAILED_PRECONDITION"),
            Act::ErrorBefore,
        ]);
        for (status, code) in [
            (429, "gemini_rate_limited"),
            (429, "gemini_quota_exhausted"),
            (400, "gemini_rejected"),
            (503, "gemini_unavailable"),
        ] {
            let refused = ask(&world, &isolate, form, "article 1");
            assert_eq!(refused.status, status, "{form} {}", refused.body);
            assert_eq!(refused.header("x-oncepress-error-code"), Some(code));
            assert_eq!(refused.header("x-oncepress-error-source"), Some("gemini"));
            assert_eq!(refusal(form, &refused)["error"]["code"], status);
        }
        assert_eq!(ask(&world, &isolate, form, "article 1").status, 200);
        assert_eq!(world.gemini.billed(), 1);
        world.pass_minutes(1);
        calm(&world);
    }
}

/// The error that a form of answer carries: in a list it is the one item.
fn refusal(form: &str, refused: &Answer) -> Value {
    match (form, refused.json()) {
        (LIST, Value::Array(list)) if list.len() == 1 => list[0].clone(),
        (UNARY | EVENTS, object @ Value::Object(_)) => object,
        (form, other) => panic!("{form} {other}"),
    }
}

#[test]
fn a_refusal_of_ours_has_the_shape_of_its_form_and_spends_nothing() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    for form in [UNARY, EVENTS, LIST] {
        for (headers, status) in [
            ([("content-encoding", "gzip")], 415),
            ([("content-encoding", "identity, br")], 415),
            ([("idempotency-key", "-")], 400),
            ([("x-oncepress-publish", "nobody=x")], 400),
        ] {
            let refused = ask_with(&world, &isolate, form, &body("article 1"), &headers);
            assert_eq!(refused.status, status, "{form} {}", refused.body);
            assert_eq!(refusal(form, &refused)["error"]["code"], status);
        }
        let mut nobody = request(form, &body("article 1"), &[]);
        nobody.headers.clear();
        let handle = world.send(&isolate, "nobody", nobody);
        let refused = world.exec.finish(&handle).unwrap();
        assert_eq!(
            refusal(form, &refused)["error"]["status"],
            "UNAUTHENTICATED"
        );
    }
    assert_eq!(world.gemini.asked(), 0);
    assert_eq!(world.db.integers("SELECT COUNT(*) FROM generations"), [0]);
    let plain = [("content-encoding", "identity")];
    let made = ask_with(&world, &isolate, LIST, &body("article 1"), &plain);
    assert_eq!(made.status, 200, "{}", made.body);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_failure_after_the_first_byte_is_one_event_and_binds_the_key() {
    for act in [Act::CutMiddle, Act::ErrorAfterOutput] {
        let world = Setup::default().var("ON_UNKNOWN", "hold").build();
        let isolate = world.isolate(1);
        world.gemini.then(&[act]);
        let cut = ask(&world, &isolate, EVENTS, "article 1");
        assert_eq!(cut.status, 200);
        let documents = events(&cut);
        let last = documents.last().unwrap();
        assert_eq!(last.pointer("/error/status").unwrap(), "UNAVAILABLE");
        let reason = last.pointer("/error/details/0/reason").unwrap();
        assert_eq!(reason, "REQUEST_RECONCILIATION_PENDING");
        let next = ask(&world, &isolate, EVENTS, "article 1");
        assert_eq!(next.status, 503, "{}", next.body);
        assert_eq!(world.gemini.asked(), 1);
        let unknown = Rest {
            owed: false,
            unknown: true,
        };
        at_rest(&world, unknown);
        assert_sound(&world);
    }
}

#[test]
fn a_silent_gemini_is_bridged_by_blank_lines_and_a_late_failure_is_an_event() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.gemini.latency_ms.set(60_000);
    let slow = ask(&world, &isolate, EVENTS, "article 1");
    assert_eq!(slow.status, 200);
    assert!(slow.body.starts_with("\n\n\ndata: "), "{}", slow.body);
    let again = ask(&world, &isolate, EVENTS, "article 1");
    assert_eq!(events(&again), events(&slow));
    assert!(again.body.starts_with("data: "));
    world.gemini.then(&[Act::Refuse(429, "RESOURCE_EXHAUSTED")]);
    let late = ask(&world, &isolate, LIST, "article 2");
    assert_eq!(late.status, 200);
    assert_eq!(late.json()[0]["error"]["code"], 429);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_stream_outlives_its_caller_and_a_broken_connection_is_taken_up_again() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let gone = world.send(&isolate, "gone", request(EVENTS, &body("article 1"), &[]));
    world.pass_ms(1_000);
    world.kill(isolate.home);
    assert!(!gone.is_done());
    world.pass_ms(5_000);
    let retry = ask(&world, &world.isolate(2), EVENTS, "article 1");
    assert_eq!((retry.status, retry.is_replay()), (200, true));
    assert_eq!(world.gemini.billed(), 1);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_runner_that_dies_leaves_its_caller_an_answer() {
    for form in [UNARY, EVENTS] {
        let world = Setup::default().build();
        let isolate = world.isolate(1);
        let handle = world.send(&isolate, "client", request(form, &body("article 1"), &[]));
        world.pass_ms(1_000);
        world.evict_all();
        let answer = world.exec.finish(&handle).unwrap();
        assert_eq!(answer.status, 503, "{}", answer.body);
        let code = answer.header("x-oncepress-error-code");
        assert_eq!(code, Some("request_reconciliation_pending"));
        let next = ask(&world, &isolate, form, "article 1");
        assert_eq!(
            next.status, 200,
            "the policy frees it at once: {}",
            next.body
        );
        world.pass_minutes(1);
        assert_sound(&world);
    }
}

#[test]
fn destinations_come_by_header_and_a_held_output_is_given_all_the_same() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let headers = [
        ("x-oncepress-publish", "archive=a.md"),
        ("x-oncepress-site", "blog"),
    ];
    let made = ask_with(&world, &isolate, EVENTS, &body("article 1"), &headers);
    assert_eq!(made.status, 200, "{}", made.body);
    world.gemini.then(&[Act::Ends("MAX_TOKENS")]);
    let headers = [("x-oncepress-publish", "archive=b.md")];
    let held = ask_with(&world, &isolate, UNARY, &body("article 2"), &headers);
    assert_eq!(held.status, 200, "{}", held.body);
    assert_eq!(held.header("x-oncepress-held"), Some("max_tokens"));
    let again = ask_with(&world, &isolate, UNARY, &body("article 2"), &headers);
    assert_eq!((again.status, &again.body), (200, &held.body));
    world.pass_minutes(2);
    assert_eq!(world.r2.list("articles/"), ["articles/a.md"]);
    assert_eq!(world.gemini.billed(), 2);
    assert_sound(&world);
}

#[test]
fn hops_of_a_long_answer_are_bought_each_once_and_a_lone_last_hop_is_not_published() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let hop = |token: &str| {
        let mut body = body("article 1");
        body["continuationToken"] = token.into();
        body
    };
    // The ledger knows prompts, not tokens.
    world.allowed.borrow_mut().push("article 1".to_owned());
    world
        .gemini
        .then(&[Act::Ends("CONTINUATION"), Act::Ends("CONTINUATION")]);
    for round in 0..2 {
        for asked in [body("article 1"), hop("AA=="), hop("BB==")] {
            let answer = ask_with(&world, &isolate, EVENTS, &asked, &[]);
            assert_eq!(answer.status, 200);
            assert_eq!(answer.header("x-oncepress-held"), None);
            assert_eq!(answer.is_replay(), round == 1);
        }
    }
    assert_eq!(world.gemini.billed(), 3);
    let headers = [("x-oncepress-publish", "archive=rest.md")];
    let last = ask_with(&world, &isolate, UNARY, &hop("CC=="), &headers);
    assert_eq!(last.status, 200);
    assert_eq!(last.header("x-oncepress-held"), Some("partial_hop"));
    world.pass_minutes(2);
    assert!(world.r2.list("articles/").is_empty());
}

#[test]
fn a_duplicate_may_have_published_what_is_fit_and_nothing_else() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let headers = [("x-oncepress-publish", "archive=later.md")];
    ask(&world, &isolate, EVENTS, "article 1");
    let fit = ask_with(&world, &isolate, EVENTS, &body("article 1"), &headers);
    assert_eq!((fit.status, fit.is_replay()), (200, true));
    assert_eq!(fit.header("x-oncepress-held"), None);
    world
        .gemini
        .then(&[Act::Ends("CONTINUATION"), Act::Ends("CONTINUATION")]);
    let headers = [("x-oncepress-publish", "archive=part.md")];
    let whole = ask(&world, &isolate, UNARY, "article 2");
    let part = ask_with(&world, &isolate, UNARY, &body("article 2"), &headers);
    assert_eq!((part.status, &part.body), (200, &whole.body));
    assert_eq!(part.header("x-oncepress-held"), Some("continuation"));
    // The same while it is still running.
    let first = world.send(&isolate, "first", request(EVENTS, &body("article 3"), &[]));
    world.pass_ms(500);
    let second = world.send(
        &isolate,
        "second",
        request(EVENTS, &body("article 3"), &headers),
    );
    let first = world.exec.finish(&first).unwrap();
    let second = world.exec.finish(&second).unwrap();
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert_eq!(second.header("x-oncepress-held"), Some("continuation"));
    world.pass_minutes(2);
    assert_eq!(world.r2.list("articles/"), ["articles/later.md"]);
    assert_eq!(world.gemini.billed(), 3);
    calm(&world);
}

#[test]
fn a_large_body_lies_in_r2_only_while_it_is_needed() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let mut large = body("article 1");
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "A".repeat(3_000_000)}});
    large["contents"][0]["parts"]
        .as_array_mut()
        .unwrap()
        .push(image);
    let handle = world.send(&isolate, "client", request(UNARY, &large, &[]));
    world.pass_ms(1_000);
    assert_eq!(world.r2.list("_oncepress/requests/").len(), 1);
    let answer = world.exec.finish(&handle).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(world.r2.list("_oncepress/requests/").is_empty());
    let again = ask_with(&world, &isolate, UNARY, &large, &[]);
    assert_eq!(again.body, answer.body);
    assert_eq!(world.gemini.billed(), 1);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn an_answer_over_the_limit_is_unknown_and_keeps_its_key_and_its_credits() {
    for form in [UNARY, EVENTS] {
        let world = Setup::default().var("ON_UNKNOWN", "hold").build();
        let isolate = world.isolate(1);
        world.gemini.text_bytes.set(GEMINI_ANSWER_MAX_BYTES);
        let over = ask(&world, &isolate, form, "article 1");
        let error = match form {
            UNARY => over.json(),
            _ => events(&over).pop().unwrap(),
        };
        assert_eq!(error["error"]["code"], 503, "{form}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("too large to be stored"), "{message}");
        let states = "SELECT state || ' ' || reason FROM generations";
        assert_eq!(
            world.db.texts(states),
            ["unknown request_reconciliation_pending"]
        );
        let reserved = world.db.integers("SELECT reserved FROM credit_days");
        assert!(reserved.iter().all(|sum| *sum > 0), "{reserved:?}");
        assert_eq!(world.db.integers("SELECT spent FROM credit_days"), [0]);
        world.gemini.text_bytes.set(0);
        assert_eq!(ask(&world, &isolate, form, "article 1").status, 503);
        assert_eq!(world.gemini.asked(), 1, "it is not bought again");
        assert_eq!(ask(&world, &isolate, form, "article 2").status, 200);
        assert_sound(&world);
    }
}

#[test]
fn who_follows_a_run_before_it_begins_gets_nothing_of_what_the_cut_one_streamed() {
    let world = Setup::default().var("ON_UNKNOWN", "hold").build();
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::CutMiddle]);
    ask(&world, &isolate, EVENTS, "article 1");
    let (id, job) = world.further_job();
    let _started = world.call_actor(&id, |actor, app| {
        Box::pin(async move { actor.start(&app, job, String::new(), Span::default()).await })
    });
    let mut follower = world.follow_actor(&id, 0);
    world.pass_ms(1);
    let steps: Vec<_> = std::iter::from_fn(|| follower.try_recv().ok()).collect();
    assert_eq!(steps, [Ok(None)], "it follows, and nothing has come");
}
