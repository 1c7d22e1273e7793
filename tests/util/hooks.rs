//! A model of webhook receivers, which remember every id that took effect.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookAct {
    /// Takes it: 200.
    Take,
    /// Takes it, and the connection breaks before the answer.
    TakeThenReset,
    /// Takes it, and answers 502.
    TakeThenGateway,
    /// Takes it, and the answer never comes.
    TakeThenHang,
    /// Refuses: this status, nothing taken.
    Refuse(u16),
    /// 503 with this Retry-After in seconds.
    Later(u16),
    /// No connection.
    NotSent,
}

impl HookAct {
    pub fn takes(self) -> bool {
        matches!(
            self,
            Self::Take | Self::TakeThenReset | Self::TakeThenGateway | Self::TakeThenHang
        )
    }
}

/// One request that a receiver got.
#[derive(Clone, Debug)]
pub struct Receipt {
    pub at: i64,
    pub host: String,
    /// `webhook-id`.
    pub id: String,
    pub body: String,
    pub took: bool,
    pub signed: bool,
}

/// All receivers.
#[derive(Default)]
pub struct Hooks {
    pub receipts: RefCell<Vec<Receipt>>,
    pub script: RefCell<VecDeque<HookAct>>,
    /// What a host does where no script says otherwise.
    pub habits: RefCell<BTreeMap<String, HookAct>>,
    /// What any host does where it has no habit.
    pub whim: RefCell<Option<Box<dyn FnMut() -> HookAct>>>,
}

impl Hooks {
    pub fn then(&self, acts: &[HookAct]) {
        self.script.borrow_mut().extend(acts);
    }

    pub fn habit(&self, host: &str, act: HookAct) {
        self.habits.borrow_mut().insert(host.to_owned(), act);
    }

    pub fn next_act(&self, host: &str) -> HookAct {
        let scripted = self.script.borrow_mut().pop_front();
        scripted.unwrap_or_else(|| {
            let habits = self.habits.borrow();
            let mut whim = self.whim.borrow_mut();
            let whim = || whim.as_mut().map_or(HookAct::Take, |whim| whim());
            habits.get(host).copied().unwrap_or_else(whim)
        })
    }

    /// How often each id took effect on a receiver that does not look at ids.
    pub fn effects(&self) -> BTreeMap<String, usize> {
        let mut effects = BTreeMap::new();
        for receipt in self.receipts.borrow().iter().filter(|receipt| receipt.took) {
            *effects.entry(receipt.id.clone()).or_default() += 1;
        }
        effects
    }
}
