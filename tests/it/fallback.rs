//! What happens to a paid-for output that the database does not take.

use oncepress::app::RunnerError;
use oncepress::idempotency::record::Settlement;
use oncepress::ports::{DbError, Statement};
use oncepress::time::Span;

use crate::calm;
use crate::util::{Act, Call, Setup, World};

/// The database takes claims and refuses commits.
fn refuse_commits(world: &World) {
    world.refuse(|batch: &[Statement]| {
        let commit = batch.first().is_some_and(|s| {
            s.sql
                .contains("SET state = ?3, reason = ?4, detail = ?5, output_where")
                || s.sql.contains("output_where = ?7")
        });
        commit.then(|| DbError::Fatal("database or disk is full".to_owned()))
    });
}

#[test]
fn an_output_that_the_database_refuses_is_kept_and_brought_in_by_the_next_tick() {
    for durable in [true, false] {
        for r2_works in [true, false] {
            let world = Setup {
                durable,
                ..Setup::default()
            }
            .build();
            refuse_commits(&world);
            world.r2.down.set(!r2_works);
            let call = Call::of("article 1").to(&[("hook", "in")]);
            let first = world.ask(&world.isolate(1), &call);
            assert_eq!(first.status, 201, "{}", first.body);
            world.pass_ms(10_000);
            world.refuse_nothing();
            world.r2.down.set(false);
            world.pass_minutes(6);
            let again = world.ask(&world.isolate(2), &call);
            assert_eq!((again.status, &again.body), (200, &first.body));
            assert_eq!(world.gemini.billed(), 1);
            calm(&world);
        }
    }
}

#[test]
fn a_duplicate_before_the_output_is_brought_in_buys_nothing() {
    let world = Setup::default().build();
    refuse_commits(&world);
    let call = Call::of("article 1");
    let first = world.ask(&world.isolate(1), &call);
    assert_eq!(first.status, 201);
    // The object that ran it is gone from memory, and KV shows no mark.
    world.evict_all();
    world.kv.down.set(true);
    let isolate = world.isolate(2);
    world.kv.down.set(false);
    world.pass_ms(5_000);
    let other = Call::of("article 1").named("second");
    // Another destination makes the caches useless, so that the arbiter is asked.
    let again = world.ask(&isolate, &other.to(&[("hook", "in")]));
    assert_ne!(again.status, 201, "{}", again.body);
    assert_eq!(world.gemini.billed(), 1);
    world.refuse_nothing();
    world.pass_minutes(6);
    assert_eq!(world.ask(&isolate, &call).body, first.body);
    calm(&world);
}

#[test]
fn a_bucket_that_cannot_be_read_is_no_sign_that_nothing_was_bought() {
    let world = Setup::default().build();
    refuse_commits(&world);
    let call = Call::of("article 1");
    let first = world.ask(&world.isolate(1), &call);
    assert_eq!(first.status, 201);
    world.r2.down.set(true);
    world.refuse_nothing();
    world.pass_minutes(31);
    let again = world.ask(&world.isolate(3), &call);
    assert_ne!(again.status, 201, "{}", again.body);
    world.r2.down.set(false);
    world.pass_minutes(6);
    assert_eq!(world.gemini.billed(), 1);
    calm(&world);
}

#[test]
fn what_no_store_takes_is_unknown_and_never_guessed() {
    let world = Setup::default().build();
    world.refuse(|batch: &[Statement]| {
        let read = batch.first().is_some_and(|s| s.sql.starts_with("SELECT"));
        let claim = batch
            .first()
            .is_some_and(|s| s.sql.starts_with("INSERT INTO generations"));
        (!read && !claim).then(|| DbError::Fatal("database or disk is full".to_owned()))
    });
    world.r2.down.set(true);
    world.kv.writes_down.set(true);
    let call = Call::of("article 1");
    let first = world.ask(&world.isolate(1), &call);
    assert_eq!(first.status, 202);
    world.pass_minutes(13);
    assert_eq!(world.gemini.billed(), 1);
    world.refuse_nothing();
    world.r2.down.set(false);
    world.kv.writes_down.set(false);
    world.pass_minutes(3);
    let again = world.ask(&world.isolate(2), &call);
    assert!([200, 201, 503].contains(&again.status), "{}", again.body);
    world.pass_minutes(20);
    assert!(world.gemini.billed() <= 2);
    calm(&world);
}

#[test]
fn a_large_output_goes_to_the_bucket_and_is_replayed_and_published() {
    for r2_works in [true, false] {
        let world = Setup::default().build();
        world.gemini.text_bytes.set(1_900_000);
        world.r2.down.set(!r2_works);
        let call = Call::of("article 1").to(&[("hook", "in")]);
        let first = world.ask(&world.isolate(1), &call);
        assert_eq!(first.status, 201);
        assert!(first.body.len() > 1_900_000);
        world.r2.down.set(false);
        world.pass_minutes(3);
        let again = world.ask(&world.isolate(2), &call);
        assert_eq!((again.status, again.body.len()), (200, first.body.len()));
        assert_eq!(
            world.db.texts("SELECT status FROM deliveries"),
            ["published"]
        );
        crate::util::assert_sound(&world);
    }
}

/// Asks the one actor there is how its run ended.
fn attach(world: &World) -> Result<Option<Settlement>, RunnerError> {
    let (name, _) = world.actors.records().remove(0);
    let asked = world.call_actor(&name, |actor, app| {
        Box::pin(async move { actor.attach(&app, Span::default()).await })
    });
    world.pass_ms(1_000);
    futures::executor::block_on(asked).expect("the actor answers")
}

#[test]
fn a_large_output_that_the_database_refused_is_given_to_every_duplicate_at_once() {
    for in_memory in [true, false] {
        let world = Setup::default().build();
        // Over what an actor remembers after its end.
        world.gemini.text_bytes.set(80_000);
        refuse_commits(&world);
        let call = Call::of("article 1");
        let first = world.ask(&world.isolate(1), &call);
        assert_eq!(first.status, 201, "{}", first.body);
        if !in_memory {
            world.refuse_nothing();
            world.evict_all();
        }
        for _ in 0..3 {
            match attach(&world) {
                Ok(Some(Settlement::Generated { stored })) => assert_eq!(stored.body, first.body),
                other => panic!("{in_memory} {other:?}"),
            }
        }
        world.refuse_nothing();
        world.pass_minutes(6);
        assert_eq!(world.gemini.billed(), 1);
        calm(&world);
    }
}

#[test]
fn an_actor_that_cannot_ask_the_database_how_its_run_ended_asks_again() {
    let world = Setup::default().build();
    let call = Call::of("article 1");
    let first = world.ask(&world.isolate(1), &call);
    assert_eq!(first.status, 201);
    world.pass_ms(5_000);
    world.evict_all();
    world.refuse(|_| Some(DbError::Overloaded("D1 DB is overloaded.".to_owned())));
    assert!(matches!(attach(&world), Err(RunnerError::Unreachable(_))));
    world.refuse_nothing();
    let known = attach(&world);
    assert!(
        matches!(known, Ok(Some(Settlement::Generated { .. }))),
        "{known:?}"
    );
    calm(&world);
}

#[test]
fn how_a_run_ended_is_no_end_of_the_one_that_began_while_the_database_was_asked() {
    let world = Setup::default().build();
    world.gemini.then(&[Act::Ends("MAX_TOKENS")]);
    let held = world.ask(&world.isolate(1), &Call::of("article 1"));
    assert_eq!(held.code(), "output_held");
    world.pass_ms(5_000);
    world.evict_all();
    let (name, job) = world.further_job();
    let _asks = world.call_actor(&name, |actor, app| {
        Box::pin(async move { actor.attach(&app, Span::default()).await })
    });
    let wait = Span::from_seconds(1);
    let mut begins = world.call_actor(&name, move |actor, app| {
        Box::pin(async move { actor.start(&app, job, "{}".to_owned(), wait).await })
    });
    world.pass_ms(1_000);
    assert_eq!(
        begins.try_recv().unwrap(),
        Some(Ok(None)),
        "Gemini takes two"
    );
}
