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
        Self {
            left: Cell::new(subrequests),
            until,
        }
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

    /// Sets aside up to `count` for what comes later, and says how many those are.
    pub fn set_aside(&self, count: u32) -> u32 {
        let aside = count.min(self.left.get());
        self.force(aside);
        aside
    }

    /// Puts back what was taken and not spent.
    pub fn put_back(&self, count: u32) {
        self.left.set(self.left.get().saturating_add(count));
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

/// What one attempt may spend: its own share, taken beforehand so that others can't spend it, and
/// after that what the budget still has.
#[derive(Debug)]
pub struct Share<'a> {
    budget: &'a Budget,
    left: Cell<u32>,
}

impl<'a> Share<'a> {
    /// Takes a share of `count`; `None` where the budget has not so many.
    pub fn take(budget: &'a Budget, count: u32) -> Option<Self> {
        budget.take(count).then(|| Self {
            budget,
            left: Cell::new(count),
        })
    }

    /// Spends one; `false` where neither the share nor the budget has one, but keeps `kept` of the
    /// share for later.
    pub fn spend(&self, kept: u32) -> bool {
        if self.left.get() > kept {
            self.left.set(self.left.get().saturating_sub(1));
            return true;
        }
        self.budget.take(1)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.budget.put_back(self.left.get());
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

    #[test]
    fn what_is_set_aside_can_be_put_back_and_not_more() {
        let budget = Budget::new(5, Timestamp::default());
        assert_eq!(budget.set_aside(3), 3);
        assert_eq!(budget.set_aside(3), 2);
        assert_eq!(budget.left(), 0);
        budget.put_back(5);
        assert_eq!(budget.left(), 5);
    }

    #[test]
    fn a_share_spends_its_own_first_and_gives_the_rest_back() {
        let budget = Budget::new(4, Timestamp::default());
        {
            let share = Share::take(&budget, 3).unwrap();
            assert!(Share::take(&budget, 2).is_none());
            assert!(share.spend(1) && share.spend(1));
            assert_eq!(budget.left(), 1);
            assert!(share.spend(1), "from the budget");
            assert!(!share.spend(1), "the last one is kept");
        }
        assert_eq!(budget.left(), 1);
    }
}
