//! A model of webhook receivers, which remember every id that took effect.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use super::outbound::SLACK_HOST;

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
    /// The receiver asked for no request before then.
    pub later_until: i64,
    /// It came sooner than the receiver had asked for when it got an earlier one, then.
    pub sooner_than_asked_at: Option<i64>,
}

/// All receivers.
#[derive(Default)]
pub struct Hooks {
    pub receipts: RefCell<Vec<Receipt>>,
    pub script: RefCell<VecDeque<HookAct>>,
    /// What a host does where no script says otherwise.
    pub habits: RefCell<BTreeMap<String, HookAct>>,
    /// Messages for a user's own consumer: binding and body.
    pub messages: RefCell<Vec<(i64, String, String)>>,
    /// Deliveries that a person had tried again, with when.
    pub requeued: RefCell<BTreeMap<String, i64>>,
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

    /// What a script says is for receivers and sites, not for Slack.
    pub fn next_act(&self, host: &str) -> HookAct {
        let mut script = self.script.borrow_mut();
        let scripted = (host != SLACK_HOST).then(|| script.pop_front()).flatten();
        scripted.unwrap_or_else(|| {
            let habits = self.habits.borrow();
            let mut whim = self.whim.borrow_mut();
            let whim = || whim.as_mut().map_or(HookAct::Take, |whim| whim());
            habits.get(host).copied().unwrap_or_else(whim)
        })
    }

    /// A queue takes a message for somebody's consumer.
    pub fn take_message(&self, at: i64, binding: &str, body: String) {
        let message = (at, binding.to_owned(), body);
        self.messages.borrow_mut().push(message);
    }

    /// Enters a request, and whether it came before the receiver wanted it.
    pub fn enter(&self, mut receipt: Receipt) {
        let receipts = self.receipts.borrow();
        let same = receipts.iter().rev().find(|other| other.id == receipt.id);
        let requeued = self.requeued.borrow().get(&receipt.id).copied();
        let too_soon = same
            .filter(|last| receipt.at < last.later_until && requeued.is_none_or(|at| at < last.at));
        receipt.sooner_than_asked_at = too_soon.map(|last| last.at);
        drop(receipts);
        self.receipts.borrow_mut().push(receipt);
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
