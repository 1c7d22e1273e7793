//! How much the running answers of an isolate may hold in its memory together.
//!
//! An isolate has 128 MB, runs of many generations share it, and one that outgrows it takes all of
//! them along. Above [`ANSWERS_HELD_MAX_BYTES`] only the oldest of those whose answers are
//! coming reads on: it ends, and makes room for the next. The others' callers get signs of life
//! meanwhile. A run that has not asked to read on for some seconds waits for Gemini, or is gone
//! because the platform ended its event; nobody waits for it.
//!
//! ```
//! use oncepress::idempotency::room::Room;
//! use oncepress::limits::ANSWERS_HELD_MAX_BYTES;
//! use oncepress::time::Timestamp;
//! let (room, now) = (Room::default(), Timestamp::from_millis(0));
//! let (first, second) = (room.enter(), room.enter());
//! first.hold(ANSWERS_HELD_MAX_BYTES);
//! second.hold(1);
//! assert!(first.may_grow(now) && !second.may_grow(now));
//! drop(first);
//! assert!(second.may_grow(now));
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use crate::limits::{ANSWERS_HELD_MAX_BYTES, LEASE};
use crate::ports::Clock;
use crate::time::{Span, Timestamp};

/// The memory that runs share; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Room(Rc<RefCell<Runs>>);

/// What each run holds, the oldest first.
#[derive(Debug, Default)]
struct Runs {
    held: Vec<Run>,
    entered: u64,
}

#[derive(Debug)]
struct Run {
    number: u64,
    bytes: usize,
    /// When it last asked to read on.
    asked: Option<Timestamp>,
}

impl Run {
    fn asked_within(&self, span: Span, now: Timestamp) -> bool {
        self.asked.is_some_and(|asked| now.since(asked) < span)
    }
}

impl Runs {
    fn own(&mut self, number: u64) -> Option<&mut Run> {
        self.held.iter_mut().find(|run| run.number == number)
    }
}

impl Room {
    /// A run begins.
    pub fn enter(&self) -> Place {
        let mut runs = self.0.borrow_mut();
        runs.entered = runs.entered.wrapping_add(1);
        let number = runs.entered;
        runs.held.push(Run {
            number,
            bytes: 0,
            asked: None,
        });
        Place {
            room: self.clone(),
            number,
        }
    }
}

/// A run's place, which it leaves when this is dropped.
#[derive(Debug)]
pub struct Place {
    room: Room,
    number: u64,
}

impl Place {
    /// The run holds so much now.
    pub fn hold(&self, bytes: usize) {
        let mut runs = self.room.0.borrow_mut();
        if let Some(run) = runs.own(self.number) {
            run.bytes = bytes;
        }
    }

    /// Whether the run may read on. One that holds nothing may: what is yet to begin neither waits
    /// for others, nor do others wait for it.
    pub fn may_grow(&self, now: Timestamp) -> bool {
        let mut runs = self.room.0.borrow_mut();
        if let Some(run) = runs.own(self.number) {
            run.asked = Some(now);
        }
        let holders = || {
            let living = |run: &&Run| run.bytes > 0 && run.asked_within(GONE, now);
            runs.held.iter().filter(living)
        };
        let total = holders().fold(0, |sum: usize, run| sum.saturating_add(run.bytes));
        let oldest = holders()
            .find(|run| run.asked_within(SILENT, now))
            .is_none_or(|run| run.number == self.number);
        let holds = holders().any(|run| run.number == self.number);
        oldest || !holds || total < ANSWERS_HELD_MAX_BYTES
    }

    /// Waits until it may.
    pub async fn wait(&self, clock: &dyn Clock) {
        while !self.may_grow(clock.now()) {
            clock.sleep(PAUSE).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut runs = self.room.0.borrow_mut();
        runs.held.retain(|run| run.number != self.number);
    }
}

/// Between two looks: an isolate that is full is so for seconds.
const PAUSE: Span = Span::from_millis(250);
/// A run that has not asked for so long is waiting for Gemini, or commits, or is gone.
const SILENT: Span = Span::from_seconds(10);
/// One that has not asked for longer than a run may take is gone, and so is what it held.
const GONE: Span = LEASE;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(0).plus(Span::from_seconds(seconds))
    }

    #[test]
    fn the_oldest_always_reads_on_and_the_others_once_there_is_room() {
        let room = Room::default();
        let runs = [room.enter(), room.enter(), room.enter()];
        let may = || runs.each_ref().map(|run| run.may_grow(at(0)));
        for run in &runs {
            run.hold(ANSWERS_HELD_MAX_BYTES / 3 - 1);
        }
        assert_eq!(may(), [true, true, true], "some bytes are left");
        runs[2].hold(ANSWERS_HELD_MAX_BYTES);
        assert_eq!(may(), [true, false, false]);
        runs[0].hold(0);
        assert_eq!(may(), [true, true, false], "nobody waits for nothing");
        runs[1].hold(usize::MAX);
        let [first, second, third] = runs;
        drop(first);
        assert!(second.may_grow(at(0)) && !third.may_grow(at(0)));
        drop(second);
        assert!(third.may_grow(at(0)));
        let left: Vec<u64> = room.0.borrow().held.iter().map(|run| run.number).collect();
        assert_eq!(left, [3]);
    }

    #[test]
    fn nobody_waits_for_a_run_that_is_silent_or_was_cut() {
        let room = Room::default();
        let [slow, image, text] = [room.enter(), room.enter(), room.enter()];
        slow.hold(1);
        image.hold(ANSWERS_HELD_MAX_BYTES);
        text.hold(1);
        assert!(slow.may_grow(at(0)) && !image.may_grow(at(9)));
        assert!(image.may_grow(at(10)) && !text.may_grow(at(10)));
        // The platform drops nothing of an event that it ends.
        std::mem::forget(image);
        assert!(text.may_grow(at(20)));
        assert!(slow.may_grow(at(21)) && !text.may_grow(at(21)), "it counts");
        let gone = GONE.millis() / 1_000;
        assert!(slow.may_grow(at(11 + gone)) && text.may_grow(at(11 + gone)));
    }
}
