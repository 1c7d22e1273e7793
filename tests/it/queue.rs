//! Work that goes through the queue.

use oncepress::idempotency::queue::Disposition;
use oncepress::time::Span;

use crate::calm;
use crate::util::{Act, Answer, Call, Setup, World};

fn accepted(world: &World, call: &Call) -> Answer {
    let call = call.clone().header("prefer", "respond-async");
    let answer = world.ask(&world.isolate(1), &call);
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert!(answer.header("location").unwrap().ends_with(&answer.id()));
    answer
}

#[test]
fn a_job_is_done_by_the_queue_and_replayed_to_its_caller() {
    for durable in [true, false] {
        let world = Setup {
            durable,
            ..Setup::default()
        }
        .build();
        world.gemini.latency_ms.set(10 * 60_000);
        let call = Call::of("article 1");
        let answer = accepted(&world, &call);
        world.pass_ms(1_000);
        let path = format!("/api/v1/generations/{}", answer.id());
        let running = world.api(&world.isolate(2), "default", "GET", &path);
        assert_eq!(running.text("/state"), "running");
        world.pass_minutes(11);
        let done = world.ask(&world.isolate(2), &call);
        assert_eq!((done.status, done.id()), (200, answer.id()));
        assert_eq!(world.gemini.billed(), 1);
        calm(&world);
    }
}

#[test]
fn a_message_that_comes_twice_late_or_out_of_order_is_the_same_operation() {
    let world = Setup::default().build();
    world.queue.by_hand.set(true);
    accepted(&world, &Call::of("article 1"));
    accepted(&world, &Call::of("article 2"));
    let messages: Vec<String> = world
        .queue
        .waiting
        .borrow()
        .iter()
        .map(|(_, body)| body.clone())
        .collect();
    assert_eq!(messages.len(), 2);
    let order = [1, 1, 0, 1, 0];
    let isolate = world.isolate(3);
    let works: Vec<_> = order
        .iter()
        .map(|&n| world.deliver(&isolate, "jobs", &messages[n]))
        .collect();
    world.pass_ms(20_000);
    assert!(
        works
            .iter()
            .all(|work| work.take() == Some(Disposition::Ack))
    );
    world.pass_minutes(20);
    let late = world.deliver(&isolate, "jobs", &messages[0]);
    assert_eq!(world.exec.finish(&late), Some(Disposition::Ack));
    assert_eq!(world.gemini.billed(), 2);
    calm(&world);
}

#[test]
fn a_passing_failure_goes_back_into_the_queue_with_its_delay() {
    let world = Setup::default().build();
    world.gemini.then(&[
        Act::Refuse(503, "UNAVAILABLE"),
        Act::Refuse(429, "RESOURCE_EXHAUSTED"),
    ]);
    let answer = accepted(&world, &Call::of("article 1"));
    world.pass_minutes(5);
    assert_eq!(world.gemini.asked(), 3);
    let done = world.ask(&world.isolate(1), &Call::of("article 1"));
    assert_eq!((done.status, done.id()), (200, answer.id()));
    calm(&world);
}

#[test]
fn a_job_whose_gemini_call_was_cut_is_run_again_where_the_policy_allows_it() {
    for durable in [true, false] {
        let world = Setup {
            durable,
            ..Setup::default()
        }
        .build();
        world.gemini.then(&[Act::CutMiddle]);
        accepted(&world, &Call::of("article 1"));
        world.pass_minutes(25);
        let done = world.ask(
            &world.isolate(1),
            &Call::of("article 1").to(&[("hook", "in")]),
        );
        assert_eq!(done.status, 200, "{} {}", done.body, world.story());
        assert_eq!(world.gemini.billed(), 2);
        world.pass_minutes(1);
        calm(&world);
    }
}

#[test]
fn a_message_of_the_dead_letters_becomes_a_failure_that_people_see() {
    let world = Setup::default().build();
    world.queue.by_hand.set(true);
    let answer = accepted(&world, &Call::of("article 1"));
    let body = world.queue.waiting.borrow()[0].1.clone();
    let isolate = world.isolate(3);
    let buried = world.deliver(&isolate, "jobs-dead", &body);
    assert_eq!(world.exec.finish(&buried), Some(Disposition::Ack));
    let path = format!("/api/v1/generations/{}", answer.id());
    assert_eq!(
        world.api(&isolate, "default", "GET", &path).text("/state"),
        "failed"
    );
    assert_eq!(world.db.texts("SELECT kind FROM alerts"), ["dead_message"]);
    assert_eq!(world.db.integers("SELECT reserved FROM credit_days"), [0]);
    // A message that comes after all finds it failed.
    let late = world.deliver(&isolate, "jobs", &body);
    assert_eq!(world.exec.finish(&late), Some(Disposition::Ack));
    assert_eq!(world.gemini.asked(), 0);
    assert_eq!(world.ask(&isolate, &Call::of("article 1")).status, 201);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn a_lost_message_is_sent_again_by_the_cron_trigger() {
    let world = Setup::default().build();
    world.queue.by_hand.set(true);
    accepted(&world, &Call::of("article 1"));
    world.queue.waiting.borrow_mut().clear();
    world.queue.by_hand.set(false);
    world.pass_minutes(20);
    assert_eq!(world.gemini.billed(), 1);
    calm(&world);
}

#[test]
fn a_store_that_fails_brings_the_message_again() {
    let world = Setup::default().build();
    world.queue.by_hand.set(true);
    accepted(&world, &Call::of("article 1"));
    let body = world.queue.waiting.borrow()[0].1.clone();
    world.refuse(|_| Some(oncepress::ports::DbError::Transient("lost".to_owned())));
    let isolate = world.isolate(3);
    let work = world.deliver(&isolate, "jobs", &body);
    let disposition = world.exec.finish(&work);
    assert_eq!(
        disposition,
        Some(Disposition::Retry(Span::from_seconds(60)))
    );
    let garbage = world.deliver(&isolate, "jobs", "{\"generationId\": 7}");
    assert_eq!(world.exec.finish(&garbage), Some(Disposition::Ack));
    world.refuse_nothing();
    world.carry("jobs", &body, 0);
    world.pass_minutes(1);
    calm(&world);
}
