//! KV that errs and lags, and a database that loses replies.

use std::rc::Rc;

use oncepress::ports::DbError;

use crate::calm;
use crate::util::{Call, Fate, Kind, Setup, Sight};

#[test]
fn where_kv_cannot_be_read_a_request_is_denied_and_nothing_is_spent() {
    let world = Setup::default().build();
    world.kv.down.set(true);
    let isolate = world.isolate(1);
    for n in 0..50 {
        let denied = world.ask(&isolate, &Call::of("article 1").named(&format!("c{n}")));
        assert_eq!(
            (denied.status, denied.code().as_str()),
            (503, "dedup_unavailable")
        );
        assert!(denied.header("retry-after").is_some());
    }
    assert_eq!(world.gemini.asked(), 0);
    assert_eq!(world.db.integers("SELECT COUNT(*) FROM generations"), [0]);
    world.pass_ms(5_000);
    let errors = "SELECT SUM(count) FROM counters WHERE name = 'kv_read_error'";
    assert_eq!(world.db.integers(errors), [50]);
    world.kv.down.set(false);
    assert_eq!(world.ask(&isolate, &Call::of("article 1")).status, 201);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn under_the_policy_arbiter_the_database_decides() {
    let world = Setup::default().var("KV_FAILURE_POLICY", "arbiter").build();
    world.kv.down.set(true);
    let callers: Vec<_> = (0..50)
        .map(|n| {
            let isolate = world.isolate(n);
            world.begin(&isolate, &Call::of("article 1").named(&format!("c{n}")))
        })
        .collect();
    world.pass_ms(30_000);
    let answers: Vec<_> = callers
        .iter()
        .map(|caller| caller.take().unwrap())
        .collect();
    assert!(answers.iter().all(|answer| answer.body == answers[0].body));
    assert_eq!(world.gemini.billed(), 1);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn what_the_isolate_knows_outlives_a_failing_kv() {
    let world = Setup::default().build();
    let isolate = world.isolate(1);
    let call = Call::of("article 1");
    let first = world.ask(&isolate, &call);
    world.kv.down.set(true);
    let again = world.ask(&isolate, &call);
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(
        world.ask(&world.isolate(1), &call).code(),
        "dedup_unavailable"
    );
    world.kv.down.set(false);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn an_instance_that_takes_over_from_one_that_died_needs_no_store_for_what_its_isolate_knows() {
    let world = Setup::default().build();
    let isolate = world.cold_isolate(1);
    let call = Call::of("article 1");
    let first = world.ask(&isolate, &call);
    assert_eq!(first.status, 201);
    // What the WebAssembly instance remembered is gone with it.
    *isolate.guard.borrow_mut() = false;
    world.kv.down.set(true);
    world.refuse(|_| Some(DbError::Overloaded("D1 DB is overloaded.".to_owned())));
    let again = world.ask(&isolate, &call);
    assert_eq!((again.status, &again.body), (200, &first.body));
    world.kv.down.set(false);
    world.refuse_nothing();
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn stale_and_missing_marks_cost_speed_and_nothing_else() {
    for sight in [Sight::Cached, Sight::Any] {
        for seed in 0..20 {
            let world = Setup::default().seed(seed).build();
            world.kv.sight.set(sight);
            let call = Call::of("article 1").to(&[("hook", "in")]);
            let mut bodies = Vec::new();
            for n in 0..6 {
                let isolate = world.isolate(n % 3);
                bodies.push(world.ask(&isolate, &call).body);
                world.pass_ms(7_000);
            }
            assert!(bodies.iter().all(|body| *body == bodies[0]));
            assert_eq!(world.gemini.billed(), 1);
            world.pass_minutes(2);
            calm(&world);
        }
    }
}

#[test]
fn a_lost_reply_of_any_statement_changes_no_answer() {
    for lost in 0..40_u64 {
        let world = Setup::default().build();
        let seen = Rc::new(std::cell::Cell::new(0_u64));
        let counter = Rc::clone(&seen);
        world.plan_by(move |call| {
            if call.kind != Kind::Db {
                return Fate::Fine;
            }
            let number = counter.get();
            counter.set(number + 1);
            if number == lost {
                Fate::LostReply
            } else {
                Fate::Fine
            }
        });
        let isolate = world.isolate(1);
        let call = Call::of("article 1").key("order-1").to(&[("hook", "in")]);
        let first = world.ask(&isolate, &call);
        assert_eq!(first.status, 201, "{lost}: {}", first.body);
        world.pass_minutes(2);
        assert_eq!(world.ask(&world.isolate(2), &call).body, first.body);
        assert_eq!(world.gemini.billed(), 1);
        world.pass_minutes(3);
        calm(&world);
        if seen.get() < lost {
            return;
        }
    }
}

#[test]
fn a_database_that_cannot_be_reached_refuses_before_anything_is_spent() {
    let world = Setup::default().build();
    world.refuse(|_| Some(DbError::Overloaded("D1 DB is overloaded.".to_owned())));
    let isolate = world.isolate(1);
    let refused = world.ask(&isolate, &Call::of("article 1"));
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (503, "store_unavailable")
    );
    assert!(refused.header("retry-after").is_some());
    assert_eq!(world.gemini.asked(), 0);
    world.refuse_nothing();
    assert_eq!(world.ask(&isolate, &Call::of("article 1")).status, 201);
    world.pass_minutes(1);
    calm(&world);
}

#[test]
fn an_isolate_that_knows_nothing_asks_each_store_for_its_environment_once() {
    let world = Setup::default().build();
    let isolate = world.cold_isolate(1);
    assert_eq!(world.ask(&isolate, &Call::of("article 1")).status, 201);
    world
        .db
        .query("UPDATE meta SET value = 'production' WHERE name = 'environment'");
    let foreign = world.ask(&world.cold_isolate(1), &Call::of("article 2"));
    assert_eq!(
        (foreign.status, foreign.code().as_str()),
        (500, "misconfigured")
    );
    assert_eq!(world.gemini.asked(), 1);
}
