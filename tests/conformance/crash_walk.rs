//! Every publisher, every effect, every fault, before and after it took place; then pairs of them.

use crate::destination::{Destination, settings};
use crate::driver::TEXT;
use crate::driver::{Fault, delivery};
use crate::suite::{ALL, Kind, TARGET};
use oncepress::publish::Outcome;

/// Runs faulty attempts one after the other, then healthy ones, and checks what readers see.
/// `None` where an attempt ended before its fault's place.
fn walk(kind: &Kind, faults: &[(usize, Fault)]) -> Option<()> {
    let mut world = (kind.new)();
    let settings = settings(world.as_ref());
    let mut delivery = delivery(&settings, TARGET);
    for (at, fault) in faults {
        let attempt = delivery.attempt(world.as_mut(), &[(*at, *fault)]);
        if attempt.effects <= *at && attempt.outcome.is_some() {
            // Its place may come after the end: published without it, or given up before it.
            return None;
        }
        assert!(world.shown(TEXT) <= 1, "{} {faults:?}", kind.name);
    }
    let outcome = delivery.finish(world.as_mut());
    assert!(
        matches!(outcome, Outcome::Published { .. }),
        "{} {faults:?}: {outcome:?}",
        kind.name
    );
    assert_eq!(world.shown(TEXT), 1, "{} {faults:?}", kind.name);
    Some(())
}

#[test]
fn whatever_fails_wherever_the_text_is_shown_once() {
    let mut total = 0;
    for kind in &ALL {
        let mut points = 0;
        for fault in Fault::ALL {
            for at in 0.. {
                if walk(kind, &[(at, fault)]).is_none() {
                    break;
                }
                points += 1;
                for next_fault in Fault::ALL {
                    points += (0..100)
                        .take_while(|next| {
                            walk(kind, &[(at, fault), (*next, next_fault)]).is_some()
                        })
                        .count();
                }
            }
        }
        println!("crash walk: {} {points} placements", kind.name);
        assert!(
            points >= 9 + 81,
            "{} was hardly walked: {points}",
            kind.name
        );
        total += points;
    }
    println!("crash walk: {total} placements of one and two faults in all");
}

/// An effect whose answer was lost may take place late: between any two steps of the next attempt.
#[test]
fn an_effect_that_takes_place_late_shows_nothing_twice() {
    let mut total = 0;
    for kind in ALL.iter().filter(|kind| kind.tells_repeats) {
        for at in 0..6 {
            for late in 0..6 {
                total += usize::from(one_late(kind, at, late));
            }
        }
    }
    println!("late effects: {total} placements");
    assert_eq!(
        total,
        8 * 6,
        "eight effects of four publishers, each late at six places"
    );
}

fn one_late(kind: &Kind, at: usize, late: usize) -> bool {
    use crate::destination::perform;
    use oncepress::publish::Step;

    let mut world: Box<dyn Destination> = (kind.new)();
    let settings = settings(world.as_ref());
    let mut delivery = delivery(&settings, TARGET);
    let mut first = settings.begin(delivery.parcel.clone());
    let mut reply = None;
    let mut effects = 0;
    let pending = loop {
        match first.step(reply.take(), delivery.now) {
            Step::Do(effect) if effects == at => break effect,
            Step::Do(effect) => reply = Some(perform(world.as_mut(), &effect, delivery.now)),
            Step::Done(_) => return false,
        }
        effects += 1;
    };
    delivery.parcel.maybe_sent = true;
    delivery.parcel.progress = first.progress();
    let mut pending = Some(pending);
    let mut second = settings.begin(delivery.parcel.clone());
    let mut reply = None;
    for effects in 0.. {
        let step = second.step(reply.take(), delivery.now);
        if let Some(effect) = pending.take_if(|_| effects == late || matches!(step, Step::Done(_)))
        {
            perform(world.as_mut(), &effect, delivery.now);
        }
        match step {
            Step::Do(effect) => reply = Some(perform(world.as_mut(), &effect, delivery.now)),
            Step::Done(Outcome::Published { .. }) => break,
            Step::Done(_) => {
                delivery.parcel.progress = second.progress();
                delivery.finish(world.as_mut());
                break;
            }
        }
    }
    assert_eq!(world.shown(TEXT), 1, "{} {at} {late}", kind.name);
    true
}
