//! The abstract store: rows of one key, evidence, and the guarded writes that the service's
//! statements make, each in a line or two.

use oncepress::idempotency::state::{Ask, Standing, State, Verdict};
use oncepress::limits::{LEASE, OPERATION_KEY_TTL, RECONCILE_AFTER, WINDOW_DEFAULT};
use oncepress::time::{Span, Timestamp};

pub type Ms = i64;

/// A generation's row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    pub state: State,
    /// Failed because the policy freed it.
    pub freed: bool,
    pub token: u8,
    pub fingerprint: u8,
    pub created: Ms,
    /// Its anchor was given: a scheduler's slot.
    pub given: bool,
    pub anchor: Ms,
    pub expires: Ms,
    pub lease: Ms,
    pub output: Option<u8>,
    /// A delivery of it is waiting or owed.
    pub owed: bool,
}

/// What Gemini billed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Purchase {
    pub row: u8,
    pub token: u8,
    pub fingerprint: u8,
    pub fit: bool,
    /// Its last byte reached the runner.
    pub whole: bool,
    /// It was cut, or its runner died, before any store had it.
    pub lost: bool,
    /// A person said that it may be bought again.
    pub allowed: bool,
}

/// What the fallback store keeps of a run; no purchase where it failed for sure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Evidence {
    pub row: u8,
    pub token: u8,
    pub purchase: Option<u8>,
}

/// The rules: the service's own, or one of them broken.
#[derive(Clone, Copy)]
pub struct Rules {
    pub verdict: fn(Option<&Standing>, &Ask, Timestamp) -> Verdict,
    pub commit_checks_token: bool,
    pub commit_checks_successor: bool,
    pub failure_checks_token: bool,
    pub looks_for_evidence: bool,
    pub keeps_evidence: bool,
    pub keeps_superseded: bool,
    pub frees_by_time: fn(bool) -> bool,
    pub remembers_sent: bool,
    pub remembers_runs: bool,
    pub waits_for_the_lease: bool,
    pub unknown_is_failure: bool,
    pub checks_the_deadline: bool,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

impl std::hash::Hash for Rules {
    fn hash<H: std::hash::Hasher>(&self, _state: &mut H) {}
}

/// The service's rules.
pub const RULES: Rules = Rules {
    verdict: oncepress::idempotency::state::verdict,
    commit_checks_token: true,
    commit_checks_successor: true,
    failure_checks_token: true,
    looks_for_evidence: true,
    keeps_evidence: true,
    keeps_superseded: true,
    frees_by_time: |operation| !operation,
    remembers_sent: true,
    remembers_runs: true,
    waits_for_the_lease: true,
    unknown_is_failure: false,
    checks_the_deadline: true,
};

/// All rows of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    pub operation: bool,
    pub regenerates: bool,
    pub rows: Vec<Row>,
    pub purchases: Vec<Purchase>,
    pub evidence: Vec<Evidence>,
    pub tokens: u8,
}

impl Store {
    pub fn new(operation: bool, regenerates: bool) -> Self {
        Self {
            operation,
            regenerates,
            rows: Vec::new(),
            purchases: Vec::new(),
            evidence: Vec::new(),
            tokens: 0,
        }
    }

    pub fn token(&mut self) -> u8 {
        self.tokens += 1;
        self.tokens
    }

    /// Who holds the key, and what that means for a request: the arbiter.
    pub fn verdict(&self, rules: &Rules, ask: &Ask, now: Ms) -> (Verdict, Option<usize>) {
        let unsettled = |row: &Row| row.is_unsettled();
        let generated = |row: &Row| row.state == State::Generated;
        for among in [&unsettled as &dyn Fn(&Row) -> bool, &generated] {
            for (index, row) in self.rows.iter().enumerate().rev() {
                if !among(row) {
                    continue;
                }
                let verdict =
                    (rules.verdict)(Some(&row.standing()), ask, Timestamp::from_millis(now));
                if verdict != Verdict::Fresh {
                    return (verdict, Some(index));
                }
            }
        }
        // What has failed frees its key; the pure function says so too.
        let failed = self.rows.iter().rposition(|row| row.state == State::Failed);
        let verdict = match failed {
            Some(index) => (rules.verdict)(
                Some(&self.rows[index].standing()),
                ask,
                Timestamp::from_millis(now),
            ),
            None => (rules.verdict)(None, ask, Timestamp::from_millis(now)),
        };
        (verdict, failed.filter(|_| verdict != Verdict::Fresh))
    }

    /// A claim that the arbiter let through.
    pub fn insert(&mut self, ask: &Ask, fingerprint: u8, owes: bool, now: Ms) -> usize {
        let token = self.token();
        let expires = if self.operation {
            now + OPERATION_KEY_TTL.millis()
        } else {
            ask.anchor.millis() + WINDOW_DEFAULT.millis()
        };
        self.rows.push(Row {
            state: State::Running,
            freed: false,
            token,
            fingerprint,
            created: now,
            given: ask.anchor_given,
            anchor: ask.anchor.millis(),
            expires,
            lease: now + LEASE.millis(),
            output: None,
            owed: owes,
        });
        self.rows.len() - 1
    }

    /// The commit: whether the row took it.
    pub fn commit(&mut self, rules: &Rules, row: usize, token: u8, purchase: u8) -> bool {
        if self.rows[row].output == Some(purchase) {
            return true;
        }
        let mine = self.rows[row].token == token || !rules.commit_checks_token;
        let successor = |store: &Self| {
            store.rows.iter().enumerate().any(|(index, other)| {
                index != row
                    && (other.is_unsettled() || other.state == State::Generated && index > row)
            })
        };
        let open = match self.rows[row].state {
            State::Running | State::Unknown => true,
            State::Failed if self.rows[row].freed => {
                !rules.commit_checks_successor || !successor(self)
            }
            _ => false,
        };
        if !mine || !open {
            return false;
        }
        let fit = self.purchases[usize::from(purchase)].fit;
        let row = &mut self.rows[row];
        row.state = if fit { State::Generated } else { State::Held };
        row.freed = false;
        row.output = Some(purchase);
        true
    }

    /// What a late runner paid for is kept as evidence.
    pub fn supersede(&mut self, rules: &Rules, row: usize, token: u8, purchase: u8) {
        let known = self.rows.iter().any(|row| row.output == Some(purchase));
        if known || !rules.keeps_superseded {
            return;
        }
        let kept = Row {
            state: State::Superseded,
            freed: false,
            token,
            output: Some(purchase),
            owed: false,
            ..self.rows[row].clone()
        };
        self.rows.push(kept);
    }

    pub fn fail(&mut self, rules: &Rules, row: usize, token: u8, freed: bool) {
        let unfenced = !freed && !rules.failure_checks_token;
        let row = &mut self.rows[row];
        let open = matches!(row.state, State::Running | State::Unknown);
        if (row.token == token || unfenced) && open {
            row.state = State::Failed;
            row.freed = freed;
            row.owed = false;
        }
    }

    pub fn unknown(&mut self, rules: &Rules, row: usize, token: u8) {
        if rules.unknown_is_failure {
            return self.fail(rules, row, token, false);
        }
        let row = &mut self.rows[row];
        if row.token == token && row.state == State::Running {
            row.state = State::Unknown;
        }
    }

    /// Unknown, and freed where the policy and the kind of key allow it.
    pub fn give_up(&mut self, rules: &Rules, row: usize, token: u8) {
        self.unknown(rules, row, token);
        if self.regenerates && (rules.frees_by_time)(self.operation) {
            self.fail(rules, row, token, true);
        }
    }

    pub fn keep(&mut self, rules: &Rules, row: usize, token: u8, purchase: Option<u8>) {
        let row = row as u8;
        let evidence = Evidence {
            row,
            token,
            purchase,
        };
        if rules.keeps_evidence && !self.evidence.contains(&evidence) {
            self.evidence.push(evidence);
            self.evidence.sort_by_key(|e| (e.row, e.token, e.purchase));
        }
    }

    pub fn find_evidence(&self, rules: &Rules, row: usize, token: u8) -> Option<usize> {
        let named = |e: &Evidence| usize::from(e.row) == row && e.token == token;
        let found = self.evidence.iter().position(named);
        found.filter(|_| rules.looks_for_evidence)
    }

    pub fn bring_in(&mut self, rules: &Rules, index: usize) {
        let evidence = self.evidence.remove(index);
        let (row, token) = (usize::from(evidence.row), evidence.token);
        match evidence.purchase {
            Some(purchase) => {
                if !self.commit(rules, row, token, purchase) {
                    self.supersede(rules, row, token, purchase);
                }
            }
            None => self.fail(rules, row, token, false),
        }
    }

    /// Whether the reconciler would take this row up.
    pub fn is_overdue(&self, rules: &Rules, row: &Row, now: Ms) -> bool {
        let lease = if rules.waits_for_the_lease {
            row.lease
        } else {
            row.created
        };
        match row.state {
            State::Running => lease <= now,
            State::Unknown => {
                self.regenerates
                    && (rules.frees_by_time)(self.operation)
                    && lease + decided_after().millis() <= now
            }
            _ => false,
        }
    }
}

/// From a lease's end to the moment that the fate of its generation is decided.
pub fn decided_after() -> Span {
    Span::from_millis(RECONCILE_AFTER.millis() - LEASE.millis())
}

impl Row {
    pub fn is_unsettled(&self) -> bool {
        matches!(
            self.state,
            State::Queued | State::Running | State::Unknown | State::Held
        )
    }

    pub fn standing(&self) -> Standing {
        Standing {
            state: self.state,
            lease_until: Timestamp::from_millis(self.lease),
            anchor_at: Timestamp::from_millis(self.anchor),
            expires_at: Timestamp::from_millis(self.expires),
            owed: self.owed,
            fingerprint: self.fingerprint.to_string(),
        }
    }
}
