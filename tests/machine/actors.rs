//! Everybody who acts on the store, one small step at a time: any of them may be next, any may die.

use oncepress::idempotency::state::{Ask, State, Verdict};
use oncepress::limits::{GEMINI_DEADLINE, LEASE};
use oncepress::time::Timestamp;

use crate::model::{Ms, Purchase, Rules, Store, decided_after};
use crate::search::{Machine, Step};

const MINUTE: Ms = 60_000;

/// A caller of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    pub at: Stage,
    pub fingerprint: u8,
    /// Minutes that its isolate's clock is off.
    pub skew: i64,
    /// A scheduler's slot, in minutes from the start.
    pub slot: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    Ready,
    /// Its claim was let through; the runner is not started yet.
    Won(u8),
    /// It waits for a run that nobody has started yet.
    Waits(u8),
    /// It will start the runner a second time: it heard nothing of the first.
    Again(u8),
    Done,
}

/// A run of a row under a token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    pub row: u8,
    pub token: u8,
    /// The lease that it was started with.
    pub lease: Ms,
    /// The request's body is in its memory: no need to look at the row.
    pub warm: bool,
    pub at: RunStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStage {
    Armed,
    /// It has stored that it is about to send.
    Sent,
    /// Gemini is at work on it.
    Asked(u8),
    Bought(u8),
    Keeps(u8),
    Refused,
    Cut,
    /// Its isolate died; the flag says whether it had stored that it sends.
    Dead(bool),
    /// An alarm after a death: it looks for evidence, then gives up.
    Recovers,
    GivesUp,
    Over,
}

impl RunStage {
    /// What it has bought, or is about to.
    fn purchase(self) -> Option<u8> {
        match self {
            Self::Asked(purchase) | Self::Bought(purchase) | Self::Keeps(purchase) => {
                Some(purchase)
            }
            _ => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    Idle,
    /// What the reconciler, or a person, saw of a row without evidence, and what the person wants.
    Looked {
        row: u8,
        token: u8,
        state: State,
        again: bool,
    },
}

/// The whole machine.
#[derive(Clone, Debug, Hash)]
pub struct World {
    pub rules: Rules,
    /// Always 0 between two steps: all times are counted from now.
    pub now: Ms,
    /// What lies further back than this makes no difference any more.
    pub horizon: Ms,
    pub store: Store,
    pub callers: Vec<Caller>,
    pub runs: Vec<Run>,
    pub reconciler: Helper,
    pub person: Helper,
    /// Crashes, refusals and lost replies that may still happen.
    pub faults: u8,
    /// Decisions that a person may still make.
    pub decisions: u8,
    /// Gemini may give what is not fit to publish.
    pub unfit: bool,
    pub owes: bool,
}

type Steps = Vec<(Step, World, Vec<String>)>;

impl World {
    pub fn new(store: Store, callers: Vec<Caller>, rules: Rules) -> Self {
        Self {
            rules,
            now: 0,
            horizon: 20 * MINUTE,
            store,
            callers,
            runs: Vec::new(),
            reconciler: Helper::Idle,
            person: Helper::Idle,
            faults: 0,
            decisions: 0,
            unfit: false,
            owes: true,
        }
    }

    fn fork(
        &self,
        steps: &mut Steps,
        step: Step,
        change: impl FnOnce(&mut Self, &mut Vec<String>),
    ) {
        let mut next = self.clone();
        let mut wrong = Vec::new();
        change(&mut next, &mut wrong);
        self.promises(step, &next, &mut wrong);
        next.normalise();
        steps.push((step, next, wrong));
    }

    /// The same with a fault, where one is left.
    fn fault(
        &self,
        steps: &mut Steps,
        step: Step,
        change: impl FnOnce(&mut Self, &mut Vec<String>),
    ) {
        if self.faults > 0 {
            self.fork(steps, step, |next, wrong| {
                next.faults -= 1;
                change(next, wrong);
            });
        }
    }

    /// What no single step may do.
    fn promises(&self, step: Step, next: &Self, wrong: &mut Vec<String>) {
        let unsettled = next.store.rows.iter().filter(|row| row.is_unsettled());
        if unsettled.count() > 1 {
            wrong.push("two generations hold one key".to_owned());
        }
        let caller = step.0.starts_with("caller");
        for (before, after) in self.store.rows.iter().zip(&next.store.rows) {
            if caller && before != after {
                wrong.push("a loser changed the winner's record".to_owned());
            }
            let replaced = before.token != after.token;
            if before.output.is_some() && before.output != after.output && !replaced {
                wrong.push("a late runner overwrote its successor's output".to_owned());
            }
        }
        for row in &next.store.rows {
            if let Some(purchase) = row.output
                && row.state != State::Superseded
                && next.store.purchases[usize::from(purchase)].token != row.token
            {
                wrong.push("a late runner overwrote its successor".to_owned());
            }
        }
    }

    /// Brings equal states into one form: times count from now, callers that are alike have no
    /// order, and what nothing depends on any more is dropped.
    fn normalise(&mut self) {
        let (now, horizon) = (self.now, self.horizon);
        self.now = 0;
        let shifted = |at: Ms| (at - now).max(-horizon);
        for run in &mut self.runs {
            run.lease = shifted(run.lease);
            if let RunStage::Over = run.at {
                run.lease = -horizon;
            }
        }
        for caller in &mut self.callers {
            caller.slot = caller
                .slot
                .filter(|_| caller.at == Stage::Ready)
                .map(|slot| slot - now / MINUTE);
            let waits = matches!(caller.at, Stage::Waits(row) if {
                let token = self.store.rows[usize::from(row)].token;
                self.runs.iter().any(|run| run.row == row && run.token == token)
            });
            if waits {
                caller.at = Stage::Done;
            }
        }
        self.end_idle_runs();
        for (index, row) in self.store.rows.iter_mut().enumerate() {
            row.created = shifted(row.created);
            row.anchor = shifted(row.anchor);
            row.expires = shifted(row.expires);
            row.lease = shifted(row.lease);
            let at_work =
                |run: &Run| usize::from(run.row) == index && !matches!(run.at, RunStage::Over);
            let settled = matches!(row.state, State::Failed | State::Superseded);
            if settled && !self.runs.iter().any(at_work) {
                (row.created, row.anchor, row.expires, row.lease) =
                    (-horizon, -horizon, -horizon, -horizon);
            }
        }
        self.forget();
        self.runs.sort_by_key(|run| (run.row, run.token));
        self.callers.sort();
    }

    /// Drops what nothing depends on any more, so that histories which come to the same are one.
    fn forget(&mut self) {
        let again = self.store.regenerates && !self.store.operation;
        let plain = |caller: &Caller| {
            caller.at != Stage::Ready || caller.skew == 0 && caller.slot.is_none()
        };
        let plain = self.callers.iter().all(plain);
        let horizon = self.horizon;
        let at_work = |world: &Self, row: usize| {
            let run = world
                .runs
                .iter()
                .any(|r| usize::from(r.row) == row && r.at != RunStage::Over);
            let output = world.store.rows[row].output;
            let held = |p: u8| {
                output == Some(p) || usize::from(world.store.purchases[usize::from(p)].row) == row
            };
            let in_hand = world.runs.iter().any(|r| r.at.purchase().is_some_and(held));
            let waits = |e: &crate::model::Evidence| {
                usize::from(e.row) == row || e.purchase.is_some_and(held)
            };
            let stored = |p: u8| world.store.rows.iter().any(|other| other.output == Some(p));
            let unsafe_yet = (0_u8..)
                .zip(&world.store.purchases)
                .any(|(number, bought)| {
                    let dear = bought.whole && !bought.lost && !bought.allowed;
                    usize::from(bought.row) == row && dear && !stored(number)
                });
            run || in_hand || unsafe_yet || world.store.evidence.iter().any(waits)
        };
        let mut gone = Vec::new();
        for (index, row) in self.store.rows.iter().enumerate() {
            let last = index + 1 == self.store.rows.len();
            let over = match row.state {
                State::Failed => !last && (again || !self.store.has_lost(index)),
                State::Superseded => true,
                State::Generated => {
                    let outside = row.expires <= -horizon || plain && row.expires <= 0;
                    outside && !row.owed && !last
                }
                _ => false,
            };
            if over && !at_work(self, index) {
                gone.push(index);
            }
        }
        for index in gone.into_iter().rev() {
            self.remove(index);
        }
        self.renumber();
    }

    /// Takes a row away with its runs and purchases.
    fn remove(&mut self, index: usize) {
        let output = self.store.rows[index].output;
        let of = |row: u8| usize::from(row) == index;
        self.runs.retain(|run| !of(run.row));
        for helper in [&mut self.reconciler, &mut self.person] {
            if matches!(helper, Helper::Looked { row, .. } if of(*row)) {
                *helper = Helper::Idle;
            }
        }
        for caller in &mut self.callers {
            if matches!(caller.at, Stage::Won(row) | Stage::Waits(row) | Stage::Again(row) if of(row))
            {
                caller.at = Stage::Done;
            }
        }
        let keeps = |store: &Store, number: u8, bought: &Purchase| {
            let elsewhere = store.rows.iter().enumerate();
            let elsewhere = elsewhere.filter(|(other, _)| *other != index);
            let kept = elsewhere
                .into_iter()
                .any(|(_, row)| row.output == Some(number));
            kept || Some(number) != output && !of(bought.row)
        };
        for number in (0..self.store.purchases.len() as u8).rev() {
            let bought = self.store.purchases[usize::from(number)].clone();
            if !keeps(&self.store, number, &bought) {
                self.drop_purchase(number);
            }
        }
        self.store.rows.remove(index);
        let index = index as u8;
        let down = |row: &mut u8| *row -= u8::from(*row > index);
        self.runs.iter_mut().for_each(|run| down(&mut run.row));
        self.store
            .purchases
            .iter_mut()
            .for_each(|bought| down(&mut bought.row));
        self.store
            .evidence
            .iter_mut()
            .for_each(|evidence| down(&mut evidence.row));
        for caller in &mut self.callers {
            if let Stage::Won(row) | Stage::Waits(row) | Stage::Again(row) = &mut caller.at {
                down(row);
            }
        }
        for helper in [&mut self.reconciler, &mut self.person] {
            if let Helper::Looked { row, .. } = helper {
                down(row);
            }
        }
    }

    fn drop_purchase(&mut self, number: u8) {
        self.store.purchases.remove(usize::from(number));
        let down = |at: &mut u8| *at -= u8::from(*at > number);
        for row in &mut self.store.rows {
            row.output.iter_mut().for_each(down);
        }
        for evidence in &mut self.store.evidence {
            evidence.purchase.iter_mut().for_each(down);
        }
        for run in &mut self.runs {
            if let RunStage::Asked(p) | RunStage::Bought(p) | RunStage::Keeps(p) = &mut run.at {
                down(p);
            }
        }
    }

    /// Tokens by the order of what holds them.
    fn renumber(&mut self) {
        let mut names: Vec<u8> = Vec::new();
        let mut name = |token: &mut u8| {
            let known = names.iter().position(|other| other == token);
            let known = known.unwrap_or_else(|| {
                names.push(*token);
                names.len() - 1
            });
            *token = known as u8 + 1;
        };
        self.store
            .rows
            .iter_mut()
            .for_each(|row| name(&mut row.token));
        self.runs.iter_mut().for_each(|run| name(&mut run.token));
        self.store
            .purchases
            .iter_mut()
            .for_each(|bought| name(&mut bought.token));
        self.store
            .evidence
            .iter_mut()
            .for_each(|evidence| name(&mut evidence.token));
        for helper in [&mut self.reconciler, &mut self.person] {
            if let Helper::Looked { token, .. } = helper {
                name(token);
            }
        }
        self.store.tokens = names.len() as u8;
    }

    /// A run that can only make writes which its guard refuses, now and for ever, is over.
    fn end_idle_runs(&mut self) {
        for run in &mut self.runs {
            let row = &self.store.rows[usize::from(run.row)];
            let mine =
                row.token == run.token && matches!(row.state, State::Running | State::Unknown);
            let too_late = self.rules.checks_the_deadline && run.lease - MINUTE < MINUTE / 2;
            let idle = match run.at {
                RunStage::Refused => self.rules.failure_checks_token,
                RunStage::Cut | RunStage::GivesUp => !self.rules.unknown_is_failure,
                RunStage::Armed | RunStage::Sent => too_late && self.rules.failure_checks_token,
                _ => false,
            };
            if idle && !mine {
                run.at = RunStage::Over;
            }
        }
    }

    fn start(&mut self, row: u8) {
        let held = &self.store.rows[usize::from(row)];
        let (token, lease) = (held.token, held.lease);
        let same = |run: &&mut Run| run.row == row && run.token == token;
        let forgets = !self.rules.remembers_runs;
        match self.runs.iter_mut().find(same) {
            Some(run) if forgets && matches!(run.at, RunStage::Over) => {
                run.at = RunStage::Armed;
                run.warm = true;
            }
            Some(_) => {}
            None => self.runs.push(Run {
                row,
                token,
                lease,
                warm: true,
                at: RunStage::Armed,
            }),
        }
    }

    fn callers(&self, steps: &mut Steps) {
        for (index, caller) in self.callers.iter().enumerate() {
            // Callers that are alike go in turn: which of them is first makes no difference.
            if index > 0 && self.callers[index - 1] == *caller {
                continue;
            }
            match caller.at {
                Stage::Ready => {
                    self.fork(steps, ("caller claims", index), |next, wrong| {
                        next.claim(index, wrong);
                    });
                    self.fault(steps, ("caller claims, and dies", index), |next, wrong| {
                        next.claim(index, wrong);
                        next.callers[index].at = Stage::Done;
                    });
                }
                Stage::Won(row) => {
                    self.fork(steps, ("caller starts the runner", index), |next, _| {
                        next.start(row);
                        next.callers[index].at = Stage::Done;
                    });
                    self.fault(
                        steps,
                        ("caller starts the runner, unheard", index),
                        |next, _| {
                            next.start(row);
                            next.callers[index].at = Stage::Again(row);
                        },
                    );
                    self.fault(steps, ("caller dies before the start", index), |next, _| {
                        next.callers[index].at = Stage::Done;
                    });
                }
                Stage::Waits(row) | Stage::Again(row) => {
                    self.fork(
                        steps,
                        ("caller starts what it waits for", index),
                        |next, _| {
                            next.start(row);
                            next.callers[index].at = Stage::Done;
                        },
                    );
                }
                Stage::Done => {}
            }
        }
    }

    fn claim(&mut self, index: usize, wrong: &mut Vec<String>) {
        let caller = self.callers[index].clone();
        let now = self.now + caller.skew * MINUTE;
        let operation = self.store.operation;
        let slot = caller.slot.filter(|_| !operation);
        let ask = Ask {
            fingerprint: caller.fingerprint.to_string(),
            operation,
            anchor: Timestamp::from_millis(slot.map_or(now, |slot| slot * MINUTE)),
            anchor_given: slot.is_some(),
        };
        let (verdict, holder) = self.store.verdict(&self.rules, &ask, now);
        self.judge_verdict(&ask, verdict, holder, wrong);
        self.callers[index].at = match (verdict, holder) {
            (Verdict::Fresh, _) => {
                let row = self.store.insert(&ask, caller.fingerprint, self.owes, now);
                Stage::Won(row as u8)
            }
            (Verdict::Attach, Some(row)) => {
                if self.store.rows[row].fingerprint != caller.fingerprint {
                    wrong.push("a caller waits for another's answer".to_owned());
                }
                Stage::Waits(row as u8)
            }
            _ => Stage::Done,
        };
    }

    /// What a caller is told must be true of the rows, said here in the words of the promises.
    fn judge_verdict(
        &self,
        ask: &Ask,
        verdict: Verdict,
        holder: Option<usize>,
        wrong: &mut Vec<String>,
    ) {
        let rows = || self.store.rows.iter();
        if rows().all(|row| matches!(row.state, State::Failed | State::Superseded))
            && verdict != Verdict::Fresh
        {
            wrong.push("a failed generation swallows its own retry".to_owned());
        }
        let Some(row) = holder.map(|holder| &self.store.rows[holder]) else {
            return;
        };
        if ask.operation && ask.fingerprint != row.fingerprint.to_string() {
            if verdict != Verdict::Conflict && row.state != State::Failed {
                wrong.push("another request under the same key is no conflict".to_owned());
            }
            return;
        }
        let outside = ask.anchor.millis() >= row.expires;
        if verdict == Verdict::Replay && outside && !row.owed {
            wrong.push("an expired key does not start anew".to_owned());
        }
        if verdict == Verdict::Replay && row.output.is_none() {
            wrong.push("a replay of nothing".to_owned());
        }
    }

    fn runs(&self, steps: &mut Steps) {
        for (index, run) in self.runs.iter().enumerate() {
            self.run(steps, index, run);
            let may_die = !matches!(run.at, RunStage::Over | RunStage::Dead(_));
            if may_die {
                self.fault(steps, ("run dies", index), |next, _| next.kill(index));
            }
        }
    }

    fn kill(&mut self, index: usize) {
        let run = &mut self.runs[index];
        if let Some(purchase) = run.at.purchase()
            && !self.store.is_stored(purchase)
        {
            self.store.purchases[usize::from(purchase)].lost = true;
        }
        let sent = !matches!(run.at, RunStage::Armed) && self.rules.remembers_sent;
        run.at = RunStage::Dead(sent);
        run.warm = false;
    }

    fn run(&self, steps: &mut Steps, index: usize, run: &Run) {
        let to = |stage: RunStage| {
            move |next: &mut Self, _: &mut Vec<String>| next.runs[index].at = stage
        };
        let (row, token) = (usize::from(run.row), run.token);
        match run.at {
            RunStage::Armed => self.fork(steps, ("run stores that it sends", index), |next, _| {
                let held = &next.store.rows[row];
                let mine = held.state == State::Running && held.token == token;
                let goes = next.runs[index].warm || mine;
                next.runs[index].at = if goes { RunStage::Sent } else { RunStage::Over };
            }),
            RunStage::Sent => self.ask_gemini(steps, index, run),
            RunStage::Asked(purchase) => self.hear_gemini(steps, index, purchase),
            RunStage::Bought(purchase) => self.commit(steps, index, purchase),
            RunStage::Keeps(purchase) => self.keep(steps, index, purchase),
            RunStage::Refused => {
                self.fork(steps, ("run records its failure", index), |next, _| {
                    next.store.fail(&next.rules.clone(), row, token, false);
                    next.runs[index].at = RunStage::Over;
                });
                self.fault(
                    steps,
                    ("run keeps its failure as evidence", index),
                    |next, _| {
                        next.store.keep(&next.rules.clone(), row, token, None);
                        next.runs[index].at = RunStage::Over;
                    },
                );
            }
            RunStage::Cut => {
                self.fork(steps, ("run records that it was cut", index), |next, _| {
                    next.store.unknown(&next.rules.clone(), row, token);
                    next.runs[index].at = RunStage::Over;
                });
                self.fault(
                    steps,
                    ("run can't record that it was cut", index),
                    to(RunStage::Over),
                );
            }
            RunStage::Dead(sent) => {
                let stage = if sent {
                    RunStage::Recovers
                } else {
                    RunStage::Armed
                };
                self.fork(steps, ("run is woken again", index), to(stage));
            }
            RunStage::Recovers => self.fork(steps, ("run looks for evidence", index), |next, _| {
                if let Some(found) = next.store.find_evidence(&next.rules, row, token) {
                    next.store.bring_in(&next.rules.clone(), found);
                }
                let held = &next.store.rows[row];
                let mine = held.state == State::Running && held.token == token;
                next.runs[index].at = if mine {
                    RunStage::GivesUp
                } else {
                    RunStage::Over
                };
            }),
            RunStage::GivesUp => self.fork(steps, ("run gives up", index), |next, _| {
                next.store.give_up(&next.rules.clone(), row, token);
                next.runs[index].at = RunStage::Over;
            }),
            RunStage::Over => {}
        }
    }

    /// Looks at its lease and asks Gemini, with nothing in between.
    fn ask_gemini(&self, steps: &mut Steps, index: usize, run: &Run) {
        let left = run.lease - MINUTE - self.now;
        let deadline = left.min(GEMINI_DEADLINE.millis());
        if self.rules.checks_the_deadline && deadline < MINUTE / 2 {
            self.fork(steps, ("run has too little time", index), |next, _| {
                next.runs[index].at = RunStage::Refused;
            });
            return;
        }
        self.fork(steps, ("run is refused by Gemini", index), |next, _| {
            next.runs[index].at = RunStage::Refused;
        });
        for fit in [true, false] {
            if !fit && !self.unfit {
                continue;
            }
            self.fork(steps, ("run asks Gemini", index), |next, wrong| {
                let fingerprint = next.store.rows[usize::from(run.row)].fingerprint;
                next.may_buy(run, wrong);
                next.store.purchases.push(Purchase {
                    row: run.row,
                    token: run.token,
                    fingerprint,
                    fit,
                    whole: false,
                    lost: false,
                    allowed: false,
                });
                let purchase = (next.store.purchases.len() - 1) as u8;
                next.runs[index].at = RunStage::Asked(purchase);
            });
        }
    }

    /// P1, P2, P3: whether this may be billed.
    fn may_buy(&self, run: &Run, wrong: &mut Vec<String>) {
        let asking = &self.store.rows[usize::from(run.row)];
        for (number, bought) in self.store.purchases.iter().enumerate() {
            let number = number as u8;
            if bought.allowed {
                continue;
            }
            let of = &self.store.rows[usize::from(bought.row)];
            let holder = self
                .store
                .rows
                .iter()
                .find(|row| row.output == Some(number));
            let waits = self
                .store
                .evidence
                .iter()
                .any(|e| e.purchase == Some(number));
            let holds = |run: &&Run| run.at.purchase() == Some(number);
            let living = self.runs.iter().find(holds);
            let freed = of.freed || of.token != bought.token;
            let again = self.store.regenerates && !self.store.operation;
            let why = match holder {
                Some(row) if row.state == State::Held => Some("the first one waits for a person"),
                Some(row) if row.state == State::Generated && row.owed => {
                    Some("a delivery of the first one is owed")
                }
                Some(row) if row.state == State::Generated => {
                    let another_slot = asking.given && asking.anchor < row.anchor;
                    let inside = asking.anchor < row.expires && !another_slot;
                    inside.then_some("the window of the first one is open")
                }
                Some(_) => None,
                None if waits && !freed => Some("what was bought waits as evidence"),
                None if waits => None,
                None if living.is_some_and(|run| self.now < run.lease) => Some("its runner lives"),
                None if !again => Some("nothing allows a second purchase"),
                None if living.is_none() && !bought.lost => Some("a store had it, or should have"),
                None => None,
            };
            if let Some(why) = why {
                wrong.push(format!("bought again: {why}"));
            }
        }
    }

    /// An answer, or an end without one: cut off, or waited for in vain.
    fn hear_gemini(&self, steps: &mut Steps, index: usize, purchase: u8) {
        self.fork(steps, ("run has its answer", index), |next, _| {
            next.store.purchases[usize::from(purchase)].whole = true;
            next.runs[index].at = RunStage::Bought(purchase);
        });
        self.fork(steps, ("run is cut off", index), |next, _| {
            next.store.purchases[usize::from(purchase)].lost = true;
            next.runs[index].at = RunStage::Cut;
        });
    }

    fn commit(&self, steps: &mut Steps, index: usize, purchase: u8) {
        let run = &self.runs[index];
        let (row, token) = (usize::from(run.row), run.token);
        let commit = |next: &mut Self| {
            let rules = next.rules;
            let taken = next.store.commit(&rules, row, token, purchase);
            if !taken {
                next.store.supersede(&rules, row, token, purchase);
            }
        };
        self.fork(steps, ("run commits", index), |next, _| {
            commit(next);
            next.runs[index].at = RunStage::Over;
        });
        self.fault(
            steps,
            ("run commits, and the reply is lost", index),
            |next, _| {
                commit(next);
                next.runs[index].at = RunStage::Keeps(purchase);
            },
        );
        self.fault(steps, ("run may not commit", index), |next, _| {
            next.runs[index].at = RunStage::Keeps(purchase);
        });
    }

    fn keep(&self, steps: &mut Steps, index: usize, purchase: u8) {
        let run = &self.runs[index];
        let (row, token) = (usize::from(run.row), run.token);
        self.fork(
            steps,
            ("run keeps what it bought as evidence", index),
            |next, _| {
                next.store
                    .keep(&next.rules.clone(), row, token, Some(purchase));
                next.runs[index].at = RunStage::Over;
            },
        );
        let late = self.now >= run.lease;
        self.fault(steps, ("run finds no store", index), |next, _| {
            if !late {
                next.runs[index].at = RunStage::Bought(purchase);
                return;
            }
            if !next.store.is_stored(purchase) {
                next.store.purchases[usize::from(purchase)].lost = true;
            }
            next.runs[index].at = RunStage::Over;
        });
    }

    /// The cron trigger's part, which may die between its steps.
    fn reconcile(&self, steps: &mut Steps) {
        match self.reconciler {
            Helper::Idle => {
                for index in 0..self.store.evidence.len() {
                    if !self.rules.looks_for_evidence {
                        break;
                    }
                    self.fork(
                        steps,
                        ("the reconciler brings evidence in", 0),
                        |next, _| {
                            next.store.bring_in(&next.rules.clone(), index);
                        },
                    );
                }
                for (index, row) in self.store.rows.iter().enumerate() {
                    let started = self
                        .runs
                        .iter()
                        .any(|run| usize::from(run.row) == index && run.token == row.token);
                    let forgotten = row.state == State::Running && !started;
                    if self.store.is_overdue(&self.rules, row, self.now) || forgotten {
                        self.fork(steps, ("the reconciler looks at row", index), |next, _| {
                            next.reconciler = next.look(index, false);
                        });
                    }
                }
            }
            Helper::Looked {
                row, token, state, ..
            } => {
                self.fork(
                    steps,
                    ("the reconciler settles row", usize::from(row)),
                    |next, _| {
                        next.settle(row, token, state);
                        next.reconciler = Helper::Idle;
                    },
                );
                self.fault(steps, ("the reconciler dies", 0), |next, _| {
                    next.reconciler = Helper::Idle;
                });
            }
        }
    }

    /// Evidence settles a row; without any, it is up to whoever looked.
    fn look(&mut self, index: usize, again: bool) -> Helper {
        let (token, state) = (self.store.rows[index].token, self.store.rows[index].state);
        let found = self.store.find_evidence(&self.rules, index, token);
        match found.filter(|_| state != State::Held) {
            Some(found) => {
                self.store.bring_in(&self.rules.clone(), found);
                Helper::Idle
            }
            None => Helper::Looked {
                row: index as u8,
                token,
                state,
                again,
            },
        }
    }

    fn settle(&mut self, row: u8, token: u8, state: State) {
        let rules = self.rules;
        let index = usize::from(row);
        let lease = self.store.rows[index].lease;
        let started = self
            .runs
            .iter()
            .any(|run| run.row == row && run.token == token);
        match state {
            State::Running if rules.waits_for_the_lease && self.now < lease => {
                if self.store.rows[index].token == token {
                    self.start(row);
                }
            }
            State::Running if !started => self.store.fail(&rules, index, token, false),
            State::Running
                if self.now < lease + decided_after().millis() && rules.waits_for_the_lease =>
            {
                self.store.unknown(&rules, index, token);
            }
            State::Running | State::Unknown => self.store.give_up(&rules, index, token),
            _ => {}
        }
    }

    /// A person decides about what is unknown, overdue or held.
    fn decide(&self, steps: &mut Steps) {
        match self.person {
            Helper::Idle => {
                for (index, row) in self.store.rows.iter().enumerate() {
                    let open = row.state == State::Unknown
                        || row.state == State::Held
                        || row.state == State::Running && row.lease <= self.now;
                    if !open || self.decisions == 0 {
                        continue;
                    }
                    for again in [true, false] {
                        let step = if again {
                            "a person wants again row"
                        } else {
                            "a person gives up row"
                        };
                        self.fork(steps, (step, index), |next, _| {
                            next.decisions -= 1;
                            next.person = next.look(index, again);
                        });
                    }
                }
            }
            Helper::Looked {
                row, token, again, ..
            } => {
                self.fork(
                    steps,
                    ("a person decides about row", usize::from(row)),
                    |next, _| {
                        next.resolve(usize::from(row), token, again);
                        next.person = Helper::Idle;
                    },
                );
            }
        }
    }

    fn resolve(&mut self, row: usize, token: u8, again: bool) {
        let now = self.now;
        let open = matches!(
            self.store.rows[row].state,
            State::Held | State::Unknown | State::Running
        );
        if !open || self.store.rows[row].token != token {
            return;
        }
        for bought in &mut self.store.purchases {
            bought.allowed |= usize::from(bought.row) == row;
        }
        if !again {
            let held = &mut self.store.rows[row];
            held.state = State::Failed;
            held.freed = false;
            held.owed = false;
            return;
        }
        if let Some(output) = self.store.rows[row].output {
            self.store.rows[row].output = None;
            let rules = self.rules;
            self.store.supersede(&rules, row, token, output);
        }
        let fresh = self.store.token();
        let held = &mut self.store.rows[row];
        held.state = State::Running;
        held.token = fresh;
        held.lease = now + LEASE.millis();
        held.expires = held.expires.max(now + held.expires - held.anchor);
        self.start(row as u8);
    }

    /// The drain publishes, the purge forgets, and the clock moves to the next moment that counts.
    fn environment(&self, steps: &mut Steps) {
        for (index, row) in self.store.rows.iter().enumerate() {
            if row.state == State::Generated && row.owed {
                self.fork(steps, ("the drain publishes row", index), |next, _| {
                    let row = &mut next.store.rows[index];
                    row.owed = false;
                });
            }
        }
        if let Some(next_moment) = self.next_moment() {
            self.fork(
                steps,
                ("minutes pass:", (next_moment / MINUTE) as usize),
                |next, _| {
                    next.now = next_moment;
                },
            );
        }
    }

    /// The next moment at which a function of the time says something else.
    fn next_moment(&self) -> Option<Ms> {
        let rows = self.store.rows.iter();
        let of_rows = rows.flat_map(|row| {
            let open = row.is_unsettled();
            let lease = open.then_some(row.lease);
            let fate = open.then_some(row.lease + decided_after().millis());
            let asked_again = self.callers.iter().any(|caller| caller.at == Stage::Ready);
            let window = asked_again.then_some(row.expires);
            [lease, fate, window]
        });
        of_rows.flatten().filter(|at| *at > self.now).min()
    }
}

impl Store {
    /// Whether something was bought for a row, and lost, that no person has given up.
    pub fn has_lost(&self, row: usize) -> bool {
        let lost = |bought: &Purchase| bought.lost && !bought.allowed;
        let of = |bought: &&Purchase| usize::from(bought.row) == row;
        self.purchases.iter().filter(of).any(lost)
    }

    /// Whether a purchase is in a row or waits as evidence.
    pub fn is_stored(&self, purchase: u8) -> bool {
        self.rows.iter().any(|row| row.output == Some(purchase))
            || self.evidence.iter().any(|e| e.purchase == Some(purchase))
    }
}

impl Machine for World {
    fn steps(&self) -> Steps {
        let mut steps = Vec::new();
        self.callers(&mut steps);
        self.runs(&mut steps);
        self.reconcile(&mut steps);
        self.decide(&mut steps);
        self.environment(&mut steps);
        steps
    }

    fn at_rest(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for caller in &self.callers {
            if caller.at != Stage::Done {
                wrong.push(format!("a caller is never answered: {caller:?}"));
            }
        }
        let by_hand = self.store.operation || !self.store.regenerates;
        for row in &self.store.rows {
            let for_a_person = row.state == State::Held || row.state == State::Unknown && by_hand;
            if row.is_unsettled() && !for_a_person {
                wrong.push(format!("a generation is never settled: {row:?}"));
            }
            if row.owed && row.state == State::Generated {
                wrong.push(format!("a delivery is never done: {row:?}"));
            }
        }
        for (number, bought) in self.store.purchases.iter().enumerate() {
            let kept = self
                .store
                .rows
                .iter()
                .any(|row| row.output == Some(number as u8));
            if bought.whole && !bought.lost && !bought.allowed && !kept {
                wrong.push(format!("an output is lost: {number} {bought:?}"));
            }
        }
        if !self.store.evidence.is_empty() {
            wrong.push(format!("evidence is left: {:?}", self.store.evidence));
        }
        wrong
    }
}
