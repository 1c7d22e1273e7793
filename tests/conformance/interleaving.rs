//! Two attempts at one delivery at the same time, in every order of their steps.

use oncepress::publish::{Outcome, Publication, Reply, Step};

use crate::destination::{perform, settings};
use crate::driver::{TEXT, delivery};
use crate::suite::{ALL, TARGET};

/// One of two attempts that run at once.
struct Runner {
    publication: Box<dyn Publication>,
    reply: Option<Reply>,
    outcome: Option<Outcome>,
}

#[test]
fn two_attempts_at_once_show_the_text_once_in_every_order_of_their_steps() {
    let mut orders = 0;
    for kind in ALL.iter().filter(|kind| kind.tells_repeats) {
        for order in 0..1_u32 << 9 {
            let mut world = (kind.new)();
            let settings = settings(world.as_ref());
            let mut delivery = delivery(&settings, TARGET);
            let now = delivery.now;
            let begin = || Runner {
                publication: settings.begin(delivery.parcel.clone()),
                reply: None,
                outcome: None,
            };
            let mut runners = [begin(), begin()];
            for turn in 0..40 {
                let wanted = usize::from(order >> turn.min(31) & 1 == 1);
                let at = if runners[wanted].outcome.is_none() {
                    wanted
                } else {
                    1 - wanted
                };
                let runner = &mut runners[at];
                if runner.outcome.is_some() {
                    break;
                }
                match runner.publication.step(runner.reply.take(), now) {
                    Step::Do(effect) => runner.reply = Some(perform(world.as_mut(), &effect, now)),
                    Step::Done(outcome) => runner.outcome = Some(outcome),
                }
            }
            // Whatever the two were told, the next look finds it in its place.
            delivery.parcel.maybe_sent = true;
            let last = delivery.finish(world.as_mut());
            let context = format!("{} {order:b} {:?}", kind.name, runners.map(|r| r.outcome));
            assert!(
                matches!(last, Outcome::Published { replayed: true, .. }),
                "{context} {last:?}"
            );
            assert_eq!(world.shown(TEXT), 1, "{context}");
            orders += 1;
        }
    }
    println!("interleaving: {orders} orders of two attempts");
}
