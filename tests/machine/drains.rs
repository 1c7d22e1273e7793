//! Two drains, a receiver and the clock over one delivery, by the service's own `decide`: every
//! outcome of an attempt, a death at every step, leases that run out in between.

use oncepress::limits::ATTEMPTS_MAX;
use oncepress::outbox::decide::{Attempt, Ending, Tally, decide};
use oncepress::publish::settings::Ambiguous;
use oncepress::publish::{Failure, IdempotencyClass, Outcome, failure};
use oncepress::store::deliveries::Leased;
use oncepress::store::leases::Finish;
use oncepress::time::{Span, Timestamp};

use crate::model::Ms;
use crate::search::{Machine, Step, visit};

const LEASE_MS: Ms = 120_000;
const ASKED_FOR_MS: Ms = 40 * 60_000;

type Decide = fn(&Leased, &Ending, IdempotencyClass, Ambiguous, &Attempt) -> (Tally, Finish);

/// The rules: the service's own, or one of them broken.
#[derive(Clone, Copy)]
struct Rules {
    decide: Decide,
    finish_checks_token: bool,
    lease_is_kept: bool,
    remembers_the_dead: bool,
    looks_first: bool,
}

const RULES: Rules = Rules {
    decide,
    finish_checks_token: true,
    lease_is_kept: true,
    remembers_the_dead: true,
    looks_first: true,
};

/// What the database holds of the delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Row {
    status: &'static str,
    attempts: u32,
    maybe_sent: bool,
    token: Option<u8>,
    lease_until: Ms,
    next_attempt_at: Ms,
    due_since: Ms,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Drain {
    Idle,
    /// It holds the row as it was, until then.
    Holds {
        token: u8,
        until: Ms,
        attempts: u32,
        maybe_sent: bool,
        interrupted: bool,
        due: Ms,
    },
    /// It knows how the attempt went.
    Knows {
        token: u8,
        attempts: u32,
        maybe_sent: bool,
        due: Ms,
        said: Said,
    },
}

/// How an attempt went, for the drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Said {
    Published,
    Unclear,
    NotNow,
    Later,
    Never,
}

#[derive(Clone)]
struct Outbox {
    rules: Rules,
    class: IdempotencyClass,
    policy: Ambiguous,
    row: Row,
    drains: [Drain; 2],
    tokens: u8,
    deaths: u8,
    /// How often the delivery took effect at a receiver that does not look at ids.
    effects: u8,
    /// The receiver asked for no request before then.
    not_before: Ms,
    /// The receiver said that it will never take it.
    refused: bool,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {:?} effects: {}",
            self.row, self.drains, self.effects
        )
    }
}

impl std::hash::Hash for Outbox {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let here = (&self.row, &self.drains, self.tokens, self.deaths);
        (here, self.effects, self.not_before, self.refused).hash(state);
    }
}

type Steps = Vec<(Step, Outbox, Vec<String>)>;

fn outbox(rules: Rules, class: IdempotencyClass, policy: Ambiguous) -> Outbox {
    Outbox {
        rules,
        class,
        policy,
        row: Row {
            status: "pending",
            attempts: 0,
            maybe_sent: false,
            token: None,
            lease_until: 0,
            next_attempt_at: 0,
            // Late already, so that no wait but the one that is asked for counts: how long they grow
            // is tested where they are.
            due_since: -97 * 3_600_000,
        },
        drains: [Drain::Idle, Drain::Idle],
        tokens: 0,
        deaths: 2,
        effects: 0,
        not_before: 0,
        refused: false,
    }
}

fn leased(attempts: u32, maybe_sent: bool, interrupted: bool, due: Ms) -> Leased {
    let text = String::new;
    Leased {
        id: text(),
        generation_id: text(),
        account: text(),
        site: text(),
        pipeline: text(),
        publisher: text(),
        target: text(),
        maybe_sent,
        interrupted,
        attempts,
        progress: None,
        created_at: Timestamp::from_millis(due),
        due_since: Timestamp::from_millis(due),
    }
}

impl Outbox {
    fn fork(
        &self,
        steps: &mut Steps,
        step: Step,
        change: impl FnOnce(&mut Self, &mut Vec<String>),
    ) {
        let mut next = self.clone();
        let mut wrong = Vec::new();
        change(&mut next, &mut wrong);
        let once = self.class != IdempotencyClass::None || self.policy == Ambiguous::AtMostOnce;
        if once && next.effects > 1 {
            wrong.push("it took effect twice".to_owned());
        }
        if next.row.status == "published" && next.effects == 0 {
            wrong.push("it is said to be published and is not there".to_owned());
        }
        if self.row.status != "pending" && next.row != self.row {
            wrong.push("what was final was changed by a drain".to_owned());
        }
        if next.row.attempts > ATTEMPTS_MAX {
            wrong.push("more attempts than there may be".to_owned());
        }
        next.renumber();
        steps.push((step, next, wrong));
    }

    /// Tokens by the order of who has them: which number one had makes no difference.
    fn renumber(&mut self) {
        self.drains.sort();
        let mut names: Vec<u8> = Vec::new();
        let mut name = |token: &mut u8| {
            let known = names.iter().position(|other| other == token);
            let known = known.unwrap_or_else(|| {
                names.push(*token);
                names.len() - 1
            });
            *token = known as u8 + 1;
        };
        self.row.token.iter_mut().for_each(&mut name);
        for drain in &mut self.drains {
            if let Drain::Holds { token, .. } | Drain::Knows { token, .. } = drain {
                name(token);
            }
        }
        self.tokens = names.len() as u8;
    }

    fn lease(&self, steps: &mut Steps, which: usize) {
        let free = self.row.lease_until <= 0 || !self.rules.lease_is_kept;
        if self.row.status != "pending" || self.row.next_attempt_at > 0 || !free {
            return;
        }
        self.fork(steps, ("a drain takes the row:", which), |next, wrong| {
            let holds = |drain: &Drain| matches!(drain, Drain::Holds { until, .. } if *until > 0);
            if next.drains.iter().any(holds) {
                wrong.push("two drains hold one row".to_owned());
            }
            let interrupted = next.row.token.is_some() && next.rules.remembers_the_dead;
            next.tokens += 1;
            next.row.token = Some(next.tokens);
            next.row.lease_until = LEASE_MS;
            next.row.maybe_sent |= interrupted;
            next.drains[which] = Drain::Holds {
                token: next.tokens,
                until: LEASE_MS,
                attempts: next.row.attempts,
                maybe_sent: next.row.maybe_sent,
                interrupted,
                due: next.row.due_since,
            };
        });
    }

    fn attempt(&self, steps: &mut Steps, which: usize) {
        let Drain::Holds {
            token,
            until,
            attempts,
            maybe_sent,
            interrupted,
            due,
        } = self.drains[which].clone()
        else {
            return;
        };
        let knows = |said| Drain::Knows {
            token,
            attempts,
            maybe_sent,
            due,
            said,
        };
        if interrupted || until <= 0 {
            self.fork(steps, ("a drain sends nothing:", which), |next, _| {
                next.drains[which] = knows(Said::Unclear);
            });
            return;
        }
        let looks = self.class != IdempotencyClass::None && self.rules.looks_first;
        // A destination that can tell looks at what is there, whether anybody remembers or not
        // where its own store refuses a second one.
        let native = self.class == IdempotencyClass::Native && self.rules.looks_first;
        if self.effects > 0 && (native || looks && maybe_sent) {
            self.fork(steps, ("a drain finds it there:", which), |next, _| {
                next.drains[which] = knows(Said::Published);
            });
            return;
        }
        let outcomes = [
            ("it is taken:", Said::Published, true),
            ("it is taken, and the reply is lost:", Said::Unclear, true),
            ("the request is lost:", Said::Unclear, false),
            ("it is refused for now:", Said::NotNow, false),
            ("it is asked to come later:", Said::Later, false),
            ("it is refused for ever:", Said::Never, false),
        ];
        for (step, said, takes) in outcomes {
            self.fork(steps, (step, which), |next, wrong| {
                if next.not_before > 0 {
                    wrong.push("the receiver had asked to be left alone".to_owned());
                }
                if next.refused {
                    wrong.push("what was refused for ever is sent again".to_owned());
                }
                next.effects = (next.effects + u8::from(takes)).min(2);
                next.drains[which] = knows(said);
            });
        }
    }

    fn finish(&self, steps: &mut Steps, which: usize) {
        let Drain::Knows {
            token,
            attempts,
            maybe_sent,
            due,
            said,
        } = self.drains[which].clone()
        else {
            return;
        };
        let failed = |code| Failure::new(code, "");
        let outcome = match said {
            Said::Published => Outcome::Published {
                reference: None,
                replayed: false,
            },
            Said::Unclear => Outcome::Ambiguous(failed(failure::TIMED_OUT)),
            Said::NotNow => Outcome::Transient(failed(failure::STORE_FAILED)),
            Said::Later => {
                let asked = Some(Span::from_millis(ASKED_FOR_MS));
                let failed = failed(failure::RATE_LIMITED);
                Outcome::Transient(Failure {
                    retry_after: asked,
                    ..failed
                })
            }
            Said::Never => Outcome::Permanent(failed(failure::TARGET_REFUSED)),
        };
        let now = Timestamp::from_millis(0);
        let attempt = Attempt {
            started_at: now,
            ended_at: now,
            progress: None,
            random: 0,
        };
        let delivery = leased(attempts, maybe_sent, false, due);
        let (_, finish) = (self.rules.decide)(
            &delivery,
            &Ending::Over(outcome),
            self.class,
            self.policy,
            &attempt,
        );
        self.fork(steps, ("a drain records how it went:", which), |next, _| {
            let mine = next.row.token == Some(token) || !next.rules.finish_checks_token;
            if mine && next.row.status == "pending" {
                // From here on it is known, and kept to.
                next.refused |= said == Said::Never;
                if said == Said::Later {
                    next.not_before = ASKED_FOR_MS;
                }
                next.row.status = finish.status;
                next.row.attempts = finish.attempts;
                next.row.maybe_sent = finish.maybe_sent;
                next.row.next_attempt_at = finish.next_attempt_at.millis();
                next.row.token = None;
                next.row.lease_until = 0;
            }
            next.drains[which] = Drain::Idle;
        });
    }

    /// All times count from now, and what is past is past.
    fn pass(&mut self, ms: Ms) {
        let shift = |at: &mut Ms| *at = (*at - ms).max(0);
        shift(&mut self.row.lease_until);
        shift(&mut self.row.next_attempt_at);
        shift(&mut self.not_before);
        // The retries are spread over this.
        self.row.due_since = (self.row.due_since - ms).max(-97 * 3_600_000);
        for drain in &mut self.drains {
            match drain {
                Drain::Holds { until, due, .. } => {
                    shift(until);
                    *due = (*due - ms).max(-97 * 3_600_000);
                }
                Drain::Knows { due, .. } => *due = (*due - ms).max(-97 * 3_600_000),
                Drain::Idle => {}
            }
        }
    }
}

impl Machine for Outbox {
    fn steps(&self) -> Steps {
        let mut steps = Vec::new();
        let idle = self.drains.iter().position(|drain| *drain == Drain::Idle);
        for which in 0..2 {
            if self.drains[which] == Drain::Idle {
                if idle == Some(which) {
                    self.lease(&mut steps, which);
                }
                continue;
            }
            self.attempt(&mut steps, which);
            self.finish(&mut steps, which);
            if self.deaths > 0 {
                self.fork(&mut steps, ("a drain dies:", which), |next, _| {
                    next.deaths -= 1;
                    next.drains[which] = Drain::Idle;
                });
            }
        }
        let moments = [self.row.lease_until, self.row.next_attempt_at];
        let open = self.row.status == "pending";
        if let Some(moment) = moments.into_iter().filter(|at| *at > 0 && open).min() {
            let minutes = (moment / 60_000) as usize;
            self.fork(&mut steps, ("minutes pass:", minutes), |next, _| {
                next.pass(moment)
            });
        }
        steps
    }

    fn at_rest(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.row.status == "pending" {
            wrong.push("a delivery is owed for ever".to_owned());
        }
        if self.row.status == "dead" && !self.refused && self.row.attempts < ATTEMPTS_MAX {
            wrong.push("given up before its attempts were used up".to_owned());
        }
        wrong
    }
}

const KINDS: [(&str, IdempotencyClass, Ambiguous); 4] = [
    (
        "looks before it writes",
        IdempotencyClass::Probe,
        Ambiguous::AtLeastOnce,
    ),
    (
        "refuses a second one",
        IdempotencyClass::Native,
        Ambiguous::AtLeastOnce,
    ),
    (
        "can't tell, at least once",
        IdempotencyClass::None,
        Ambiguous::AtLeastOnce,
    ),
    (
        "can't tell, at most once",
        IdempotencyClass::None,
        Ambiguous::AtMostOnce,
    ),
];

#[test]
fn two_drains_in_every_order_publish_a_delivery_once_wherever_that_can_be_told() {
    let (mut states, mut transitions) = (0, 0);
    for (name, class, policy) in KINDS {
        let visited = visit(outbox(RULES, class, policy));
        if let Some(story) = visited.broken {
            panic!("{name}: {story}");
        }
        println!(
            "a destination that {name}: {} states, {} transitions, {} ends, 0 left",
            visited.states, visited.transitions, visited.ends
        );
        assert!(visited.states > 500, "{name}");
        states += visited.states;
        transitions += visited.transitions;
    }
    println!("in all: {states} states, {transitions} transitions");
}

/// The service's decision with a change to what it was told, or to what it says.
macro_rules! decide_but {
    ($name:ident, $delivery:ident, $ending:ident, $policy:ident, $attempt:ident => $end:expr) => {
        fn $name(
            $delivery: &Leased,
            $ending: &Ending,
            class: IdempotencyClass,
            $policy: Ambiguous,
            $attempt: &Attempt,
        ) -> (Tally, Finish) {
            let decided =
                |ending: &Ending, policy| decide($delivery, ending, class, policy, $attempt);
            #[allow(clippy::redundant_closure_call, reason = "a closure sees the decision")]
            ($end)(&decided)
        }
    };
}

type Decided<'a> = &'a dyn Fn(&Ending, Ambiguous) -> (Tally, Finish);

decide_but!(forgets_that_it_sent, _d, ending, policy, _a => |decided: Decided<'_>| {
    let (tally, finish) = decided(ending, policy);
    (tally, Finish { maybe_sent: false, ..finish })
});
decide_but!(ignores_at_most_once, _d, ending, _policy, _a => |decided: Decided<'_>| {
    decided(ending, Ambiguous::AtLeastOnce)
});
decide_but!(ignores_retry_after, _d, ending, policy, attempt => |decided: Decided<'_>| {
    let (tally, finish) = decided(ending, policy);
    (tally, Finish { next_attempt_at: attempt.ended_at.plus(Span::from_minutes(1)), ..finish })
});
decide_but!(tries_what_was_refused, _d, ending, policy, _a => |decided: Decided<'_>| {
    match ending {
        Ending::Over(Outcome::Permanent(failed)) => {
            decided(&Ending::Over(Outcome::Transient(failed.clone())), policy)
        }
        other => decided(other, policy),
    }
});
decide_but!(gives_up_at_once, _d, ending, policy, _a => |decided: Decided<'_>| {
    match ending {
        Ending::Over(Outcome::Transient(failed)) => {
            decided(&Ending::Over(Outcome::Permanent(failed.clone())), policy)
        }
        other => decided(other, policy),
    }
});
decide_but!(takes_silence_for_success, _d, ending, policy, _a => |decided: Decided<'_>| {
    match ending {
        Ending::Over(Outcome::Ambiguous(_)) => {
            let taken = Outcome::Published { reference: None, replayed: false };
            decided(&Ending::Over(taken), policy)
        }
        other => decided(other, policy),
    }
});

#[test]
fn every_broken_rule_of_the_drain_is_noticed() {
    let with = |decide: Decide| Rules { decide, ..RULES };
    let rules = RULES;
    let broken = [
        (
            "decide: that it may have arrived is forgotten",
            with(forgets_that_it_sent),
        ),
        (
            "decide: at_most_once is not heard",
            with(ignores_at_most_once),
        ),
        (
            "decide: Retry-After is not heard",
            with(ignores_retry_after),
        ),
        (
            "decide: what was refused for ever is tried again",
            with(tries_what_was_refused),
        ),
        ("decide: a passing failure is final", with(gives_up_at_once)),
        (
            "decide: silence counts as success",
            with(takes_silence_for_success),
        ),
        (
            "finish: the token is not checked",
            Rules {
                finish_checks_token: false,
                ..rules
            },
        ),
        (
            "lease: it is not kept",
            Rules {
                lease_is_kept: false,
                ..rules
            },
        ),
        (
            "lease: an attempt that died is not remembered",
            Rules {
                remembers_the_dead: false,
                ..rules
            },
        ),
        (
            "probe: nobody looks before writing again",
            Rules {
                looks_first: false,
                ..rules
            },
        ),
    ];
    let mut silent = Vec::new();
    for (name, rules) in broken {
        let stories = KINDS.iter().find_map(|(kind, class, policy)| {
            let story = visit(outbox(rules, *class, *policy)).broken?;
            Some((kind, story.lines().next().unwrap_or_default().to_owned()))
        });
        match stories {
            Some((kind, why)) => println!("| {name} | {kind} | {why} |"),
            None => silent.push(name),
        }
    }
    assert!(silent.is_empty(), "nobody noticed: {silent:#?}");
}
