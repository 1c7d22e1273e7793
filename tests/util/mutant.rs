//! Rules of the service broken on purpose, where its statements and calls meet the world: a
//! simulator that does not notice proves nothing.

use super::sqlite::Rewrite;

/// A broken rule.
#[derive(Clone, Copy, Debug)]
pub enum Mutant {
    /// A statement says something else.
    Sql(Rewrite),
    /// A bucket that can't be read counts as one that holds no evidence.
    EvidenceUnread,
    /// A Durable Object forgets a run as soon as it is over.
    ForgetRun,
    /// What the fallback store is given is thrown away.
    LoseEvidence,
    /// A webhook gets another id with each attempt.
    FreshWebhookId,
}

/// Each broken rule: its name, and how it is broken.
pub const MUTANTS: [(&str, Mutant); 12] = [
    (
        "an unknown outcome counts as a definite failure",
        sql(
            "SET state = 'unknown', reason = ?3, detail = ?4, updated_at = ?5",
            "SET state = 'failed', reason = ?3, detail = ?4, credits_reserved = 0, purge_at = ?5, \
             updated_at = ?5",
        ),
    ),
    (
        "a held output is published by itself",
        sql(
            "SET state = ?3, reason = ?4, detail = ?5, output_where",
            "SET state = substr('generated' || ?3, 1, 9), reason = ?4, detail = ?5, output_where",
        ),
    ),
    (
        "a failed generation keeps its key",
        sql(
            "claim_key = ?8 AND state IN ('queued', 'running', 'unknown', 'held')",
            "claim_key = ?8 AND state IN ('queued', 'running', 'unknown', 'held', 'failed')",
        ),
    ),
    (
        "the window is a bucket of the clock",
        sql(
            "AND expires_at > ?15 AND anchor_at <= ?24",
            "AND anchor_at / 300000 = ?15 / 300000 AND anchor_at <= ?24",
        ),
    ),
    (
        "what is owed is forgotten as its window ends",
        sql(
            "AND state = 'generated' AND purge_at IS NULL)",
            "AND 1 = 0)",
        ),
    ),
    (
        "credits are not looked at",
        sql(
            "+ ?23 > a.daily_credits",
            "+ ?23 > a.daily_credits + 1000000000000",
        ),
    ),
    (
        "a definite failure gives no credits back",
        sql(
            "credits_reserved = 0, completed_at = ?5",
            "completed_at = ?5",
        ),
    ),
    (
        "a success keeps its reservation",
        sql(
            "credits_reserved = 0, credits_spent = credits_spent + ?19",
            "credits_spent = credits_spent + ?19",
        ),
    ),
    (
        "a commit releases no delivery",
        sql(
            "WHERE generation_id = ?1 AND status = 'waiting' AND EXISTS (SELECT 1 FROM generations \
             WHERE id = ?1 AND output_id = ?2",
            "WHERE generation_id = ?1 AND status = 'none' AND \
             EXISTS (SELECT 1 FROM generations WHERE id = ?1 AND output_id = ?2",
        ),
    ),
    (
        "an attempt that died is not remembered",
        sql(
            "d.lease_token AS d_lease_token, d.maybe_sent AS d_maybe_sent",
            "NULL AS d_lease_token, 0 AS d_maybe_sent",
        ),
    ),
    (
        "an output is not stored with its commit",
        sql(
            "SELECT ?2, ?3, ?4 FROM generations WHERE id = ?1 AND output_id = ?2",
            "SELECT ?2, ?3, ?4 FROM generations WHERE id = ?1 AND output_id = ?2 AND 1 = 0",
        ),
    ),
    (
        "a webhook's id changes with each attempt",
        Mutant::FreshWebhookId,
    ),
];

const fn sql(from: &'static str, to: &'static str) -> Mutant {
    Mutant::Sql(Rewrite { from, to })
}
