//! The lifecycle table, row by row.

use crate::util::{Act, Call, Rest, Setup, assert_sound, at_rest};

const CALM: Rest = Rest {
    owed: false,
    unknown: false,
};

#[test]
fn a_fresh_request_is_generated_published_and_replayed() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let call = Call::of("article 1");
    let first = world.ask(&isolate, &call);
    assert_eq!(first.status, 201, "{}", first.body);
    let second = world.ask(&isolate, &call);
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert!(second.is_replay());
    assert_eq!(second.header("x-request-id"), first.header("x-request-id"));
    let elsewhere = world.ask(&world.isolate(2), &call);
    assert_eq!((elsewhere.status, &elsewhere.body), (200, &first.body));
    world.pass_minutes(2);
    assert_eq!(world.gemini.billed(), 1);
    assert_eq!(world.r2.list("articles/").len(), 1);
    at_rest(&world, CALM);
    assert_sound(&world);
}

#[test]
fn a_definite_failure_frees_its_key() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    world.gemini.then(&[Act::Refuse(429, "RESOURCE_EXHAUSTED")]);
    let call = Call::of("article 1");
    let refused = world.ask(&isolate, &call);
    assert_eq!((refused.status, refused.code().as_str()), (503, "gemini_rate_limited"));
    assert_eq!(world.ask(&isolate, &call).status, 201);
    world.pass_minutes(1);
    at_rest(&world, CALM);
    assert_sound(&world);
}
