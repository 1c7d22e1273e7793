//! Rules of the service broken on purpose, where its statements and calls meet the world: a
//! simulator that does not notice proves nothing.

use oncepress::ports::{Rows, SqlValue, Statement};

use super::sqlite::Rewrite;

/// A broken rule.
#[derive(Clone, Copy, Debug)]
pub enum Mutant {
    /// Statements say something else.
    Sql(&'static [Rewrite]),
    /// The schema is another.
    Schema(&'static str),
    /// A batch that begins with this text is only said to be done.
    Pretend(&'static str),
    /// Evidence in the fallback stores is not looked for.
    EvidenceIgnored,
    /// What the fallback store is given is thrown away.
    LoseEvidence,
    /// A Durable Object forgets a run as soon as it is over.
    ForgetRun,
    /// A webhook gets another id with each attempt.
    FreshWebhookId,
    /// A mark in KV that says *running* counts as a duplicate.
    RunningMarkCounts,
    /// The account is no part of a key.
    AccountForgotten,
    /// A duplicate extends the window.
    SlidingWindow,
    /// Fingerprints are not compared.
    AnyFingerprint,
    /// A destination that is asked for what is there says: nothing.
    ProbeBlind,
    /// `Retry-After` is not read.
    RetryAfterDeaf,
    /// KV that can't be read says: nothing there.
    KvGuesses,
    /// A claim that the database refuses counts as made.
    GuessFresh,
    /// No answer says when to come back.
    NoRetryAfter,
    /// Each statement of a batch is a round trip of its own.
    Chatty,
}

/// Each broken rule: the promise it belongs to, its name, and how it is broken.
pub const MUTANTS: &[(&str, &str, Mutant)] = &[
    (
        "P1",
        "nobody arbitrates: what KV does not know is fresh",
        sql(&[Rewrite {
            from: "WHERE claim_key = ?8",
            to: "WHERE claim_key = ?8 || '?'",
        }]),
    ),
    (
        "P1",
        "a claim has no lease: what runs is settled as overdue",
        sql(&[Rewrite {
            from: "?11, ?12, ?13, ?14, ?15, ?16, ?17",
            to: "?11, ?12, ?13, ?21, ?15, ?16, ?17",
        }]),
    ),
    (
        "P1",
        "a Durable Object forgets a run as soon as it is over",
        Mutant::ForgetRun,
    ),
    (
        "P2",
        "the window is a bucket of the clock",
        sql(&[Rewrite {
            from: "AND expires_at > ?15 AND anchor_at <= ?24",
            to: "AND anchor_at / 300000 = ?15 / 300000 AND anchor_at <= ?24",
        }]),
    ),
    (
        "P2",
        "what is owed is forgotten as its window ends",
        sql(&[Rewrite {
            from: "AND state = 'generated' AND purge_at IS NULL)",
            to: "AND 1 = 0)",
        }]),
    ),
    (
        "P2",
        "a duplicate extends the window",
        Mutant::SlidingWindow,
    ),
    (
        "P2",
        "fingerprints are not compared: no conflict",
        Mutant::AnyFingerprint,
    ),
    (
        "P3",
        "the commit drops its fencing token",
        sql(&[Rewrite {
            from: "WHERE id = ?1 AND token = ?2 AND (state IN ('running', 'unknown')",
            to: "WHERE id = ?1 AND ?2 IS NOT NULL AND (state IN ('running', 'unknown')",
        }]),
    ),
    (
        "P3",
        "the result is marked and answered before its commit",
        Mutant::Pretend("SET state = ?3, reason = ?4, detail = ?5, output_where"),
    ),
    (
        "P3",
        "an unknown outcome counts as a definite failure",
        sql(&[Rewrite {
            from: "SET state = 'unknown', reason = ?3, detail = ?4, updated_at = ?5",
            to: "SET state = 'failed', reason = ?3, detail = ?4, credits_reserved = 0, \
                 purge_at = ?5, updated_at = ?5",
        }]),
    ),
    (
        "P3",
        "an operation key is run again by time",
        sql(&[
            Rewrite {
                from: "INDEXED BY generations_to_decide WHERE state = 'unknown' AND operation = 0",
                to: "WHERE state = 'unknown'",
            },
            Rewrite {
                from: "SELECT g.*, (SELECT json_group_array(d.publisher || '=' || d.target) FROM \
                       deliveries d WHERE d.generation_id = g.id) AS destinations FROM \
                       generations g WHERE g.id = ?1",
                to: "SELECT 0 AS operation, g.*, (SELECT json_group_array(d.publisher || '=' || \
                     d.target) FROM deliveries d WHERE d.generation_id = g.id) AS destinations \
                     FROM generations g WHERE g.id = ?1",
            },
        ]),
    ),
    (
        "P3",
        "the reconciler ignores evidence",
        Mutant::EvidenceIgnored,
    ),
    ("P3", "the fallback store is skipped", Mutant::LoseEvidence),
    (
        "P3",
        "what a late runner paid for is thrown away",
        sql(&[Rewrite {
            from: "WHERE id = ?1 AND output_id IS NOT ?4 ON CONFLICT",
            to: "WHERE id = ?1 AND output_id IS NOT ?4 AND 1 = 0 ON CONFLICT",
        }]),
    ),
    (
        "P3",
        "an output is not stored with its commit",
        sql(&[Rewrite {
            from: "SELECT ?2, ?3, ?4 FROM generations WHERE id = ?1 AND output_id = ?2",
            to: "SELECT ?2, ?3, ?4 FROM generations WHERE id = ?1 AND output_id = ?2 AND 1 = 0",
        }]),
    ),
    (
        "P4",
        "the drain's finish drops its token",
        sql(&[Rewrite {
            from: "WHERE id = ?1 AND ((lease_token = ?2 AND status = 'pending')",
            to: "WHERE id = ?1 AND ((status = 'pending')",
        }]),
    ),
    (
        "P4",
        "an attempt whose drain died is not remembered",
        sql(&[
            Rewrite {
                from: "d.lease_token AS d_lease_token",
                to: "NULL AS d_lease_token",
            },
            Rewrite {
                from: "CASE WHEN lease_token IS NOT NULL AND lease_token <> ?51 THEN 1 \
                       ELSE maybe_sent END",
                to: "maybe_sent",
            },
        ]),
    ),
    (
        "P4",
        "the lease of a delivery is ignored",
        sql(&[
            Rewrite {
                from: " AND (d.lease_until <= ?2 OR d.lease_until > ?3) AND ",
                to: " AND ?3 IS NOT NULL AND ",
            },
            Rewrite {
                from: "AND (lease_until <= ?55 OR lease_until > ?54 OR lease_token = ?51)",
                to: "AND ?54 IS NOT NULL AND ?55 IS NOT NULL",
            },
        ]),
    ),
    (
        "P4",
        "nobody looks before writing again",
        Mutant::ProbeBlind,
    ),
    (
        "P4",
        "a webhook's id changes with each attempt",
        Mutant::FreshWebhookId,
    ),
    (
        "P4",
        "a requeued delivery gets a new key",
        sql(&[Rewrite {
            from: "UPDATE deliveries SET status = 'pending', next_attempt_at = ?3, \
                   due_since = ?3, attempted_at = NULL, attempts = 0",
            to: "UPDATE deliveries SET id = id || 'x', status = 'pending', \
                 next_attempt_at = ?3, due_since = ?3, attempted_at = NULL, attempts = 0",
        }]),
    ),
    (
        "P5",
        "a failed generation keeps its key",
        sql(&[Rewrite {
            from: "claim_key = ?8 AND state IN ('queued', 'running', 'unknown', 'held')",
            to: "claim_key = ?8 AND state IN ('queued', 'running', 'unknown', 'held', 'failed')",
        }]),
    ),
    (
        "P5",
        "a running mark in KV counts as a duplicate",
        Mutant::RunningMarkCounts,
    ),
    (
        "P5",
        "a failure is answered before it is recorded",
        Mutant::Pretend("SET state = 'failed', reason = ?3, detail = ?4, credits_reserved = 0"),
    ),
    (
        "P6",
        "KV that can't be read says: nothing there",
        Mutant::KvGuesses,
    ),
    (
        "P6",
        "a claim that the database refuses counts as made",
        Mutant::GuessFresh,
    ),
    (
        "P6",
        "a refusal does not say when to come back",
        Mutant::NoRetryAfter,
    ),
    ("P7", "Retry-After is not read", Mutant::RetryAfterDeaf),
    (
        "P7",
        "a publisher that keeps failing is asked all the same",
        sql(&[Rewrite {
            from: "SELECT value ->> '$[0]', value ->> '$[1]', value ->> '$[2]'",
            to: "SELECT value ->> '$[0]', 0, 0",
        }]),
    ),
    (
        "P8",
        "a held output is published by itself",
        sql(&[Rewrite {
            from: "SET state = ?3, reason = ?4, detail = ?5, output_where",
            to: "SET state = substr('generated' || ?3, 1, 9), reason = ?4, detail = ?5, \
                 output_where",
        }]),
    ),
    (
        "P8",
        "a commit releases no delivery",
        sql(&[Rewrite {
            from: "WHERE generation_id = ?1 AND status = 'waiting' AND EXISTS (SELECT 1 FROM \
                   generations WHERE id = ?1 AND output_id = ?2",
            to: "WHERE generation_id = ?1 AND status = 'none' AND EXISTS (SELECT 1 FROM \
                 generations WHERE id = ?1 AND output_id = ?2",
        }]),
    ),
    (
        "P8",
        "what is owed is purged",
        sql(&[
            Rewrite {
                from: "WHERE purge_at IS NOT NULL AND purge_at <= ?1 ORDER BY purge_at",
                to: "WHERE state = 'generated' AND created_at <= ?1 - 2592000000 \
                     ORDER BY created_at",
            },
            Rewrite {
                from: "AND purge_at <= ?2 AND owed = 0",
                to: "AND created_at <= ?2",
            },
        ]),
    ),
    (
        "P8",
        "an alert that Slack refused is dropped",
        sql(&[Rewrite {
            from: "UPDATE alerts SET next_attempt_at = ?3, lease_token = NULL",
            to: "UPDATE alerts SET state = 'sent', sent_at = ?3, lease_token = NULL",
        }]),
    ),
    (
        "P8",
        "an alert message is sent twice",
        sql(&[Rewrite {
            from: "UPDATE alerts SET state = 'sent', sent_at = ?3",
            to: "UPDATE alerts SET sent_at = ?3, \
                 state = CASE WHEN attempts > 1 THEN 'sent' ELSE 'closed' END",
        }]),
    ),
    (
        "P8",
        "what is held or unknown tells nobody",
        Mutant::Schema("DROP TRIGGER alert_on_generation"),
    ),
    (
        "P8",
        "what is dead tells nobody",
        Mutant::Schema("DROP TRIGGER alert_on_delivery"),
    ),
    (
        "P8",
        "what is owed too long tells nobody",
        sql(&[Rewrite {
            from: "FROM deliveries WHERE status = 'pending' AND stale_alerted = 0",
            to: "FROM deliveries WHERE status = 'none' AND stale_alerted = 0",
        }]),
    ),
    (
        "P8",
        "no digest is made",
        sql(&[Rewrite {
            from: "SELECT MAX(day) AS day FROM digests",
            to: "SELECT '9999-12-31' AS day",
        }]),
    ),
    (
        "P9",
        "the account is no part of a key",
        Mutant::AccountForgotten,
    ),
    (
        "P9",
        "another account's generation is shown",
        sql(&[Rewrite {
            from: "WHERE g.id = ?1 AND (?2 IS NULL OR g.account = ?2)",
            to: "WHERE g.id = ?1 AND (?2 IS NULL OR 1 = 1)",
        }]),
    ),
    (
        "P9",
        "credits are not looked at",
        sql(&[Rewrite {
            from: "+ ?23 > a.daily_credits",
            to: "+ ?23 > a.daily_credits + 1000000000000",
        }]),
    ),
    (
        "P9",
        "credits are reserved twice",
        sql(&[Rewrite {
            from: "?21, ?21, ?22, ?23, ?25",
            to: "?21, ?21, ?22, ?23 * 2, ?25",
        }]),
    ),
    (
        "P9",
        "a definite failure gives no credits back",
        sql(&[Rewrite {
            from: "credits_reserved = 0, completed_at = ?5",
            to: "completed_at = ?5",
        }]),
    ),
    (
        "P9",
        "what is unknown gives its credits back",
        sql(&[Rewrite {
            from: "SET state = 'unknown', reason = ?3, detail = ?4, updated_at = ?5",
            to: "SET state = 'unknown', reason = ?3, detail = ?4, updated_at = ?5, \
                 credits_reserved = 0",
        }]),
    ),
    (
        "P9",
        "a success keeps its reservation",
        sql(&[Rewrite {
            from: "credits_reserved = 0, credits_spent = credits_spent + ?19",
            to: "credits_spent = credits_spent + ?19",
        }]),
    ),
    (
        "P10",
        "a claim reads every generation there is",
        sql(&[Rewrite {
            from: "WHERE claim_key = ?8",
            to: "WHERE claim_key || '' = ?8",
        }]),
    ),
    (
        "P10",
        "a repeat reads every generation there is",
        sql(&[Rewrite {
            from: "WHERE claim_key = ?2 AND state = 'generated'",
            to: "WHERE claim_key || '' = ?2 AND state = 'generated'",
        }]),
    ),
    (
        "P10",
        "a drain looks through a backlog for the next lane",
        sql(&[Rewrite {
            from: "AND e.publisher > here ->> 0",
            to: "AND e.publisher || '' > here ->> 0",
        }]),
    ),
    (
        "P10",
        "what is published stays in the index of what is due",
        Mutant::Schema(
            "DROP INDEX deliveries_due; CREATE INDEX deliveries_due \
             ON deliveries (publisher, account, next_attempt_at)",
        ),
    ),
    (
        "P10",
        "each statement of a batch is a round trip of its own",
        Mutant::Chatty,
    ),
];

const fn sql(rewrites: &'static [Rewrite]) -> Mutant {
    Mutant::Sql(rewrites)
}

/// A batch as it is with a rule broken.
pub fn broken_batch(mutant: Option<Mutant>, batch: &mut [Statement]) {
    if !matches!(mutant, Some(Mutant::AccountForgotten)) {
        return;
    }
    let params = batch.iter_mut().flat_map(|statement| &mut statement.params);
    for param in params {
        let SqlValue::Text(text) = param else {
            continue;
        };
        for scope in ["d:", "o:"] {
            let account = text
                .strip_prefix(scope)
                .and_then(|rest| rest.split_once(':'));
            if let Some((_, rest)) = account {
                *text = format!("{scope}all:{rest}");
                break;
            }
        }
    }
}

/// What a claim's batch says with a rule broken: whoever holds the key asked for the same.
pub fn broken_rows(mutant: Option<Mutant>, batch: &[Statement], results: &mut [Rows]) {
    let is_claim = is_claim(batch);
    if !is_claim || !matches!(mutant, Some(Mutant::AnyFingerprint)) {
        return;
    }
    let asked = batch[0].params[9].clone();
    let cells = results.iter_mut().flat_map(|rows| &mut rows.rows).flatten();
    for (name, value) in cells {
        if name == "fingerprint" {
            *value = asked.clone();
        }
    }
}

/// Whether a batch claims a key.
pub fn is_claim(batch: &[Statement]) -> bool {
    batch.first().is_some_and(|first| {
        first.sql.starts_with("INSERT INTO generations") && first.params.len() == 25
    })
}
