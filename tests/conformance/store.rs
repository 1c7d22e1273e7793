//! One suite for the stores' ports, and the arbiter's SQL held against the pure verdict.

use oncepress::idempotency::record::{Job, Surface};
use oncepress::idempotency::state::{Ask, Standing, State, Verdict, verdict};
use oncepress::ports::{DbError, Object, PutNew, SqlValue};
use oncepress::store::claims::{Claim, Destination, batch, read};
use oncepress::store::{integer, statement, text};
use oncepress::time::{Span, Timestamp};

use crate::util::world::Owned;
use crate::util::{Setup, Sight, World};

/// Runs a future of one isolate's ports to its end.
fn wait<T: 'static>(world: &World, work: impl Future<Output = T> + 'static) -> T {
    let handle = world.exec.spawn(99, "suite", work);
    world.exec.finish(&handle).expect("nothing dies here")
}

fn app(world: &World) -> oncepress::app::App {
    world.isolate(1).app.borrow().clone().unwrap()
}

#[test]
fn a_batch_is_all_or_nothing() {
    let world = Setup::default().build();
    let app = app(&world);
    let insert = |name: &'static str, value: &str| {
        let sql = "INSERT INTO meta (name, value) VALUES (?1, ?2)";
        statement(sql, vec![text(name), text(value)])
    };
    let refused = wait(&world, {
        let (app, batch) = (app.clone(), vec![insert("a", "1"), insert("a", "2")]);
        async move { app.db.batch(batch).await }
    });
    assert!(
        matches!(refused, Err(DbError::Constraint(_))),
        "{refused:?}"
    );
    assert_eq!(world.db.integers("SELECT COUNT(*) FROM meta"), [0]);
    let done = wait(&world, async move {
        let select = statement("SELECT value FROM meta WHERE name = ?1", vec![text("a")]);
        app.db.batch(vec![insert("a", "日本🎉"), select]).await
    });
    let rows = done.unwrap();
    assert_eq!((rows[0].changes, rows[1].changes), (1, 0));
    let value = SqlValue::Text("日本🎉".to_owned());
    assert_eq!(rows[1].rows, [vec![("value".to_owned(), value)]]);
}

#[test]
fn what_the_platform_refuses_is_refused() {
    let world = Setup::default().build();
    let insert = "INSERT INTO meta (name, value) VALUES (?1, ?2)";
    let large = text("x".repeat(2_000_001));
    let cases = [
        (insert, vec![text("a"), large]),
        ("SELECT ?1", vec![integer(1); 101]),
    ];
    for (sql, params) in cases {
        let refused = world.db.run(&[statement(sql, params)]);
        assert!(matches!(refused, Err(DbError::Limit(_))), "{refused:?}");
    }
    let fatal = world
        .db
        .run(&[statement("SELECT * FROM nothing", Vec::new())]);
    assert!(matches!(fatal, Err(DbError::Fatal(_))), "{fatal:?}");
    let typed = statement(insert, vec![text("a"), SqlValue::Null]);
    assert!(matches!(
        world.db.run(&[typed]),
        Err(DbError::Constraint(_))
    ));
}

#[test]
fn a_value_lives_as_long_as_it_was_given() {
    let world = Setup::default().build();
    let app = app(&world);
    wait(&world, async move {
        let minute = Some(Span::from_seconds(60));
        assert_eq!(app.kv.get("a").await, Ok(None));
        app.kv.put("a", "1".to_owned(), minute).await.unwrap();
        assert_eq!(app.kv.get("a").await, Ok(Some("1".to_owned())));
        assert!(
            app.kv.put("a", "2".to_owned(), minute).await.is_err(),
            "one write a second"
        );
        assert!(
            app.kv
                .put("b", "2".to_owned(), Some(Span::from_seconds(59)))
                .await
                .is_err()
        );
        app.clock.sleep(Span::from_seconds(2)).await;
        app.kv.put("a", "2".to_owned(), None).await.unwrap();
        app.kv.put("ab", "3".to_owned(), None).await.unwrap();
        assert_eq!(app.kv.list("a").await.unwrap(), ["a", "ab"]);
        app.clock.sleep(Span::from_hours(1_000)).await;
        assert_eq!(app.kv.get("a").await, Ok(Some("2".to_owned())));
        app.kv.delete("a").await.unwrap();
        assert_eq!(app.kv.get("a").await, Ok(None));
    });
}

#[test]
fn a_location_keeps_for_a_minute_what_it_saw_a_missing_value_too() {
    let world = Setup::default().build();
    world.kv.sight.set(Sight::Cached);
    let (here, there) = (world.isolate(1), world.isolate(2));
    let (here, there) = (
        here.app.borrow().clone().unwrap(),
        there.app.borrow().clone().unwrap(),
    );
    wait(&world, async move {
        assert_eq!(there.kv.get("a").await, Ok(None));
        here.kv.put("a", "1".to_owned(), None).await.unwrap();
        assert_eq!(here.kv.get("a").await, Ok(Some("1".to_owned())));
        here.clock.sleep(Span::from_millis(59_999)).await;
        assert_eq!(
            there.kv.get("a").await,
            Ok(None),
            "negative look-ups are cached"
        );
        here.clock.sleep(Span::from_millis(1)).await;
        assert_eq!(there.kv.get("a").await, Ok(Some("1".to_owned())));
    });
}

#[test]
fn an_object_is_put_once_where_it_must_be_new() {
    let world = Setup::default().build();
    let app = app(&world);
    let object = |content: &str| Object {
        bytes: content.as_bytes().to_vec(),
        content_type: "text/plain".to_owned(),
        metadata: vec![("key".to_owned(), "value".to_owned())],
    };
    wait(&world, async move {
        let objects = app.objects.unwrap();
        assert_eq!(
            objects.put_new("a/1", object("one")).await,
            Ok(PutNew::Created)
        );
        assert_eq!(
            objects.put_new("a/1", object("two")).await,
            Ok(PutNew::Exists)
        );
        assert_eq!(objects.get("a/1").await, Ok(Some(object("one"))));
        objects.put("a/1", object("three")).await.unwrap();
        objects.put("a/2", object("four")).await.unwrap();
        assert_eq!(objects.get("a/1").await, Ok(Some(object("three"))));
        assert_eq!(objects.list("a/").await.unwrap(), ["a/1", "a/2"]);
        objects.delete("a/1").await.unwrap();
        objects.delete("a/1").await.unwrap();
        assert_eq!(objects.get("a/1").await, Ok(None));
    });
}

#[test]
fn an_isolate_forgets_at_the_expiry_and_never_grows_without_bound() {
    let world = Setup::default().build();
    let app = app(&world);
    let now = app.now();
    app.isolate.put("a", "1", now.plus(Span::from_millis(5)));
    assert_eq!(
        app.isolate.get("a", now.plus(Span::from_millis(4))),
        Some("1".to_owned())
    );
    assert_eq!(app.isolate.get("a", now.plus(Span::from_millis(5))), None);
    app.isolate.remove("a");
    assert_eq!(app.isolate.get("a", now), None);
    for n in 0..1_000 {
        app.isolate
            .put(&format!("k{n}"), "v", now.plus(Span::from_hours(1)));
    }
    let kept = (0..1_000)
        .filter(|n| app.isolate.get(&format!("k{n}"), now).is_some())
        .count();
    assert!(kept < 1_000);
}

/// What is stored under the key before the claim.
#[derive(Clone, Copy, Debug)]
struct Before {
    state: State,
    /// Minutes until the lease ends; negative where it has.
    lease: i64,
    /// The status of its one delivery.
    delivery: Option<&'static str>,
    operation: bool,
}

/// How the claim asks.
#[derive(Clone, Copy, Debug)]
struct Asking {
    /// Milliseconds from the first request's anchor to this one's.
    age_ms: i64,
    given: bool,
    same_fingerprint: bool,
    /// Credits left in the day, of the 100 that the claim reserves.
    credits_left: Option<i64>,
}

const T0: Timestamp = Timestamp::from_millis(1_796_029_200_000);
const WINDOW: Span = Span::from_minutes(30);

fn stored(world: &Owned, before: &Before) {
    let lease = T0.millis() + before.lease * 60_000;
    let expires = T0.plus(WINDOW).millis();
    let operation = i64::from(before.operation);
    // Triggers and statements keep it so: what is owed, or waits for a person, is not purged.
    let kept = before.state == State::Generated && is_owed(before)
        || [State::Queued, State::Running, State::Held, State::Unknown].contains(&before.state);
    let purge = if kept { "NULL" } else { "1" };
    let sql = format!(
        "INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, operation, \
           fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, request_id, \
           model, upstream, created_at, updated_at, credit_day, purge_at) \
         VALUES ('gen_old', 'default', 's', 'p', 'api', 'k', 'k', {operation}, 'f', '{{}}', '{}', \
           'old', {lease}, {t0}, {expires}, 'req_old', 'm', 'u', {t0}, {t0}, '2026-11-30', {purge})",
        before.state.as_str(),
        t0 = T0.millis(),
    );
    world.db.query(&sql);
    if let Some(status) = before.delivery {
        world.db.query(&format!(
            "INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target, \
               status, next_attempt_at, created_at, due_since) \
             VALUES ('dlv_old', 'gen_old', 'default', 's', 'p', 'x', 't', '{status}', 0, 0, 0)"
        ));
    }
}

fn is_owed(before: &Before) -> bool {
    let open = ["waiting", "pending", "outcome_unknown"];
    before.delivery.is_some_and(|status| open.contains(&status))
}

fn claim(before: &Before, asking: &Asking) -> (Claim, Ask) {
    let anchor = T0.plus(Span::from_millis(asking.age_ms));
    let fingerprint = if asking.same_fingerprint { "f" } else { "g" };
    let ask = Ask {
        fingerprint: fingerprint.to_owned(),
        operation: before.operation,
        anchor,
        anchor_given: asking.given,
    };
    let job = Job {
        generation_id: "gen_new".to_owned(),
        token: "new".to_owned(),
        account: "default".to_owned(),
        site: "s".to_owned(),
        pipeline: "p".to_owned(),
        topic: None,
        surface: Surface::Api,
        key: "k".to_owned(),
        claim_key: "k".to_owned(),
        operation: before.operation,
        fingerprint: fingerprint.to_owned(),
        request_id: "req_new".to_owned(),
        model: "m".to_owned(),
        json_mode: false,
        upstream: "u".to_owned(),
        created_at: anchor,
        anchor_at: anchor,
        expires_at: anchor.plus(WINDOW),
        lease_until: anchor.plus(Span::from_minutes(14)),
        destinations: vec!["x=t".to_owned()],
        credits: 100,
        continues: false,
        from_queue: false,
    };
    let claim = Claim {
        state: State::Running,
        leaves: "{}".to_owned(),
        body: "{}".to_owned(),
        destinations: vec![Destination {
            delivery_id: "dlv_new".to_owned(),
            publisher: "x".to_owned(),
            target: "t".to_owned(),
        }],
        credit_day: "2026-11-30".to_owned(),
        credits: 100,
        latest_anchor: ask.latest_anchor(),
        now: anchor,
        job,
    };
    (claim, ask)
}

/// Whether SQL and the pure function decide alike, and whether the claim wrote what it must.
fn compare(before: &Before, asking: &Asking) -> Verdict {
    let world = Setup::default().account("default", None).build();
    if let Some(left) = asking.credits_left {
        world
            .db
            .query("UPDATE accounts SET daily_credits = 1000 WHERE account = 'default'");
        let spent = 1_000 - left;
        world.db.query(&format!(
            "INSERT INTO credit_days (account, day, spent) VALUES ('default', '2026-11-30', {spent})"
        ));
    }
    stored(&world, before);
    let (claim, ask) = claim(before, asking);
    let standing = Standing {
        state: before.state,
        lease_until: T0.plus(Span::from_minutes(before.lease)),
        anchor_at: T0,
        expires_at: T0.plus(WINDOW),
        owed: is_owed(before),
        fingerprint: "f".to_owned(),
    };
    let pure = verdict(Some(&standing), &ask, claim.now);
    // Twice: the second is the retry after a lost reply, and finds its own row.
    let first = read(&world.db.run(&batch(&claim)).unwrap()).unwrap();
    let second = read(&world.db.run(&batch(&claim)).unwrap()).unwrap();
    let holder = |claimed: &oncepress::store::claims::Claimed| {
        claimed.holder.as_ref().map(|holder| holder.id.clone())
    };
    assert_eq!(holder(&first), holder(&second), "{before:?} {asking:?}");
    let affordable = asking.credits_left.is_none_or(|left| left >= 100);
    let won = holder(&first).as_deref() == Some("gen_new");
    assert_eq!(
        won,
        pure == Verdict::Fresh && affordable,
        "{before:?} {asking:?}: {pure:?}"
    );
    let count = |sql: &str| world.db.integers(sql)[0];
    let own = i64::from(won);
    assert_eq!(
        count("SELECT COUNT(*) FROM generations WHERE id = 'gen_new'"),
        own
    );
    assert_eq!(count("SELECT COUNT(*) FROM request_bodies"), own);
    assert_eq!(
        count("SELECT COUNT(*) FROM deliveries WHERE id = 'dlv_new'"),
        own
    );
    assert_eq!(
        count("SELECT COALESCE(SUM(reserved), 0) FROM credit_days"),
        100 * own
    );
    let old = world
        .db
        .texts("SELECT state || token FROM generations WHERE id = 'gen_old'");
    assert_eq!(
        old,
        [format!("{}old", before.state.as_str())],
        "losers change nothing"
    );
    pure
}

#[test]
fn the_arbiter_decides_as_the_pure_verdict_in_every_combination() {
    let deliveries = [
        None,
        Some("waiting"),
        Some("pending"),
        Some("published"),
        Some("dead"),
        Some("cancelled"),
        Some("outcome_unknown"),
    ];
    let ages = [
        -8 * 3_600_000,
        -300_001,
        -1,
        0,
        1,
        WINDOW.millis() - 1,
        WINDOW.millis(),
        25 * 3_600_000,
    ];
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for state in State::ALL {
        for lease in [-1, 0, 14] {
            for delivery in deliveries {
                for operation in [false, true] {
                    let before = Before {
                        state,
                        lease,
                        delivery,
                        operation,
                    };
                    for age_ms in ages {
                        for (given, same_fingerprint) in
                            [(false, true), (true, true), (false, false)]
                        {
                            // Credits matter only to a claim that would win.
                            let credits: &[Option<i64>] = if age_ms == 0 {
                                &[None, Some(100), Some(99)]
                            } else {
                                &[None]
                            };
                            for &credits_left in credits {
                                let asking = Asking {
                                    age_ms,
                                    given,
                                    same_fingerprint,
                                    credits_left,
                                };
                                let verdict = compare(&before, &asking);
                                *seen.entry(format!("{verdict:?}")).or_default() += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{} combinations: {seen:?}", seen.values().sum::<u32>());
    assert_eq!(seen.len(), 6, "every verdict occurs: {seen:?}");
}
