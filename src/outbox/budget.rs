//! The budget of one invocation: the platform counts every statement, fetch and store call.

use std::cell::Cell;

use crate::time::Timestamp;

/// What an invocation may still spend.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u32>,
    until: Timestamp,
}

impl Budget {
    /// A budget of so many subrequests, until a point in time.
    pub const fn new(subrequests: u32, until: Timestamp) -> Self {
        Self { left: Cell::new(subrequests), until }
    }

    /// Takes `count` from it; `false`, and nothing taken, where it has not so many.
    pub fn take(&self, count: u32) -> bool {
        match self.left.get().checked_sub(count) {
            Some(left) => {
                self.left.set(left);
                true
            }
            None => false,
        }
    }

    /// Takes `count`, or what is there: for what must be done all the same.
    pub fn force(&self, count: u32) {
        self.left.set(self.left.get().saturating_sub(count));
    }

    /// How many subrequests are left.
    pub const fn left(&self) -> u32 {
        self.left.get()
    }

    /// Whether its time is over.
    pub fn is_late(&self, now: Timestamp) -> bool {
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_taken() {
        let budget = Budget::new(3, Timestamp::default());
        assert!(budget.take(2));
        assert!(!budget.take(2));
        assert_eq!(budget.left(), 1);
        budget.force(5);
        assert_eq!(budget.left(), 0);
    }
}
