//! How much the running answers of an isolate may hold in its memory together.
//!
//! An isolate has 128 MB, runs of many generations share it, and one that outgrows it takes all of
//! them along. Above [`ANSWERS_HELD_MAX_BYTES`] only the oldest of those that have begun to
//! answer reads on: it ends, and makes room for the next. The others' callers get signs of life
//! meanwhile.
//!
//! ```
//! use oncepress::idempotency::room::Room;
//! use oncepress::limits::ANSWERS_HELD_MAX_BYTES;
//! let room = Room::default();
//! let (first, second) = (room.enter(), room.enter());
//! first.hold(ANSWERS_HELD_MAX_BYTES);
//! second.hold(1);
//! assert!(first.may_grow() && !second.may_grow());
//! drop(first);
//! assert!(second.may_grow());
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use crate::limits::ANSWERS_HELD_MAX_BYTES;
use crate::ports::Clock;
use crate::time::Span;

/// The memory that runs share; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Room(Rc<RefCell<Runs>>);

/// What each run holds, the oldest first.
#[derive(Debug, Default)]
struct Runs {
    held: Vec<(u64, usize)>,
    entered: u64,
}

impl Room {
    /// A run begins.
    pub fn enter(&self) -> Place {
        let mut runs = self.0.borrow_mut();
        runs.entered = runs.entered.wrapping_add(1);
        let number = runs.entered;
        runs.held.push((number, 0));
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
        let own = runs
            .held
            .iter_mut()
            .find(|(number, _)| *number == self.number);
        if let Some((_, held)) = own {
            *held = bytes;
        }
    }

    /// Whether the run may read on. One that holds nothing may: what is yet to begin neither waits
    /// for others, nor do others wait for it.
    pub fn may_grow(&self) -> bool {
        let runs = self.room.0.borrow();
        let mut holders = runs.held.iter().filter(|(_, held)| *held > 0);
        let total = holders
            .clone()
            .fold(0, |sum: usize, (_, held)| sum.saturating_add(*held));
        let oldest = holders
            .next()
            .is_none_or(|(number, _)| *number == self.number);
        let holds = holders.any(|(number, _)| *number == self.number);
        oldest || !holds || total < ANSWERS_HELD_MAX_BYTES
    }

    /// Waits until it may.
    pub async fn wait(&self, clock: &dyn Clock) {
        while !self.may_grow() {
            clock.sleep(PAUSE).await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut runs = self.room.0.borrow_mut();
        runs.held.retain(|(number, _)| *number != self.number);
    }
}

/// Between two looks: an isolate that is full is so for seconds.
const PAUSE: Span = Span::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_always_reads_on_and_the_others_once_there_is_room() {
        let room = Room::default();
        let runs = [room.enter(), room.enter(), room.enter()];
        let may = || runs.each_ref().map(Place::may_grow);
        for run in &runs {
            run.hold(ANSWERS_HELD_MAX_BYTES / 3 - 1);
        }
        assert_eq!(may(), [true, true, true], "some bytes are left");
        runs[2].hold(ANSWERS_HELD_MAX_BYTES);
        assert_eq!(may(), [true, false, false]);
        runs[0].hold(0);
        assert_eq!(
            may(),
            [true, true, false],
            "a run that is silent holds up nobody"
        );
        runs[1].hold(usize::MAX);
        let [first, second, third] = runs;
        drop(first);
        assert!(second.may_grow() && !third.may_grow());
        drop(second);
        assert!(third.may_grow());
        assert_eq!(room.0.borrow().held, [(3, ANSWERS_HELD_MAX_BYTES)]);
    }
}
