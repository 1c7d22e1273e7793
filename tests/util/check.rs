//! The promises, as checks of the world: some after every step, some when nothing moves any more.

use std::collections::{BTreeMap, BTreeSet};

use oncepress::app::delivery_id;
use oncepress::config::OnUnknown;
use oncepress::ports::SqlValue;
use oncepress::time::Timestamp;

use super::gemini::{Act, Entry};
use super::world::World;

/// P1, P2, P3: whether Gemini may be asked for this prompt now. A prompt stands for one key here.
pub fn purchase_is_allowed(world: &World, prompt: &str, generation: &str) {
    let earlier: Vec<Entry> = {
        let ledger = world.gemini.ledger.borrow();
        let same = ledger
            .iter()
            .filter(|entry| entry.prompt == prompt && entry.act.bills());
        same.cloned().collect()
    };
    for entry in earlier {
        if let Err(why) = again_is_allowed(world, prompt, generation, &entry) {
            world.violate(format!("{prompt:?} is bought again: {why} ({entry:?})"));
        }
    }
}

/// P6: the arbiter alone says that a request is fresh. The run of a handler whose lease is over
/// can't be told by its prompt; a Durable Object's is named.
pub fn purchase_is_claimed(world: &World, prompt: &str, generation: &str) {
    let known = world.db.integers(&format!(
        "SELECT COUNT(*) FROM generations WHERE id = '{generation}'"
    ));
    if !generation.is_empty() && known[0] == 0 {
        world.violate(format!(
            "{prompt:?} is bought, and no store said that it is fresh"
        ));
    }
}

fn again_is_allowed(
    world: &World,
    prompt: &str,
    generation: &str,
    entry: &Entry,
) -> Result<(), String> {
    if world
        .allowed
        .borrow()
        .iter()
        .any(|allowed| allowed == prompt)
    {
        return Ok(());
    }
    if let Some(state) = state_of_text(world, &entry.text) {
        return after_commit(world, generation, &state);
    }
    if world.is_kept(&entry.text) {
        return Err("what was bought waits as evidence".to_owned());
    }
    if entry.kept {
        return Err("a store had taken what was bought, and lost it".to_owned());
    }
    let operation = world.db.integers(&format!(
        "SELECT operation FROM generations WHERE id = '{}'",
        entry.generation
    ));
    if operation.first() == Some(&1) {
        return Err("an operation key is never run again by time alone".to_owned());
    }
    if world.settings.config.on_unknown == OnUnknown::Hold {
        return Err("the policy is to hold what is unknown".to_owned());
    }
    let cut = !matches!(entry.act, Act::Answer | Act::Ends(_) | Act::CutAfter);
    let lease_over = world.exec.now_ms() >= entry.at + 13 * 60_000;
    if cut || lease_over || entry.excuse.is_some() || !entry.whole && is_cut_off(world, entry) {
        return Ok(());
    }
    Err("its runner lives and was not cut".to_owned())
}

/// A read of the answer failed by plan: the runner itself called it unknown.
fn is_cut_off(world: &World, entry: &Entry) -> bool {
    let settled = world.db.texts(&format!(
        "SELECT COALESCE(reason, '') FROM generations WHERE id = '{}'",
        entry.generation
    ));
    settled.first().is_some_and(|reason| {
        ["unknown_freed", "request_reconciliation_pending"].contains(&reason.as_str())
    })
}

/// (state, owed, `expires_at`, `anchor_at`, operation) of the generation that holds a text.
fn state_of_text(world: &World, text: &str) -> Option<(String, bool, i64, i64, bool)> {
    let text = super::gemini::tail_of(text);
    let rows = world.db.query(&format!(
        "SELECT g.state, EXISTS (SELECT 1 FROM deliveries d WHERE d.generation_id = g.id \
           AND d.status IN ('waiting', 'pending', 'outcome_unknown')) AS owed, g.expires_at, \
           g.anchor_at, g.operation \
         FROM generations g JOIN outputs o ON o.output_id = g.output_id \
         WHERE instr(o.body, '{text}') > 0 AND g.state <> 'running' LIMIT 1"
    ));
    let row = rows.first()?;
    let number = |index: usize| match &row[index].1 {
        SqlValue::Integer(value) => *value,
        other => panic!("{other:?}"),
    };
    let SqlValue::Text(state) = &row[0].1 else {
        panic!("a state is a text")
    };
    Some((
        state.clone(),
        number(1) != 0,
        number(2),
        number(3),
        number(4) != 0,
    ))
}

fn after_commit(
    world: &World,
    generation: &str,
    (state, owed, expires_at, anchor_at, operation): &(String, bool, i64, i64, bool),
) -> Result<(), String> {
    let asking = world.db.query(&format!(
        "SELECT anchor_at, created_at FROM generations WHERE id = '{generation}'"
    ));
    let at = |index: usize| match asking.first().map(|row| &row[index].1) {
        Some(SqlValue::Integer(value)) => *value,
        _ => world.exec.now_ms(),
    };
    let anchor = if *operation { at(1) } else { at(0) };
    match state.as_str() {
        "generated" if *owed => Err("a delivery of the first one is still owed".to_owned()),
        "generated" if anchor >= *expires_at || anchor + 300_000 < *anchor_at => Ok(()),
        "generated" => Err("the window of the first one is still open".to_owned()),
        "held" => Err("the first one waits for a person".to_owned()),
        "failed" | "superseded" => Ok(()),
        other => Err(format!("the first one is {other}")),
    }
}

/// What holds after every single change of the database.
pub fn every_step(world: &World) {
    for (rule, sql) in RULES {
        let broken = world.db.show(sql);
        if !broken.is_empty() {
            world.violate(format!("{rule}: {broken}"));
        }
    }
    every_output_is_its_owners(world);
    every_lease_is_its_holders(world);
    super::people::is_told_at_once(world);
}

/// A late runner never overwrites its successor: what a row holds was bought under its own token.
fn every_output_is_its_owners(world: &World) {
    let since = world.exec.now_ms() - 40 * 60_000;
    let held = world.db.texts(&format!(
        "SELECT g.output_id || '\n' || g.token || '\n' || group_concat(o.body, '') \
         FROM generations g JOIN outputs o ON o.output_id = g.output_id \
         WHERE g.state <> 'superseded' AND g.output_parts = 1 AND g.completed_at > {since} \
         GROUP BY g.id"
    ));
    for row in held {
        let mut parts = row.splitn(3, '\n');
        let (output, token) = (parts.next().unwrap(), parts.next().unwrap());
        if !world
            .checked
            .borrow_mut()
            .insert(format!("{output} {token}"))
        {
            continue;
        }
        let number = super::gemini::number_in(parts.next().unwrap());
        let ledger = world.gemini.ledger.borrow();
        let bought = number.and_then(|number| ledger.get(number));
        let stranger = bought
            .and_then(|entry| entry.token.as_ref())
            .is_some_and(|other| other != token);
        drop(ledger);
        if stranger {
            world.violate(format!("a late runner overwrote its successor: {output}"));
        }
    }
}

/// Two drains never hold the same row.
fn every_lease_is_its_holders(world: &World) {
    let now = world.exec.now_ms();
    let rows = world.db.query(
        "SELECT id, COALESCE(lease_token, ''), lease_until, COALESCE(done_token, '') \
         FROM deliveries WHERE lease_token IS NOT NULL OR done_token IS NOT NULL",
    );
    let mut leases = BTreeMap::new();
    for row in rows {
        let (SqlValue::Text(id), SqlValue::Text(token), SqlValue::Integer(until)) =
            (&row[0].1, &row[1].1, &row[2].1)
        else {
            panic!("{row:?}")
        };
        let SqlValue::Text(done) = &row[3].1 else {
            panic!("{row:?}")
        };
        leases.insert(id.clone(), (token.clone(), *until, done.clone()));
    }
    let before = world.leases.replace(leases.clone());
    for (id, (token, _, done)) in leases {
        let Some((other, until, done_before)) = before.get(&id) else {
            continue;
        };
        if !token.is_empty() && !other.is_empty() && *other != token && *until > now {
            world.violate(format!("two drains hold {id} at once"));
        }
        if done != *done_before && done != *other {
            world.violate(format!("a late drain finished {id} over its successor"));
        }
    }
}

const RULES: &[(&str, &str)] = &[
    (
        "the credits of a day are the sum over its generations",
        "SELECT c.account, c.day, c.reserved, c.spent FROM credit_days c \
             WHERE NOT EXISTS (SELECT 1 FROM tombstones t WHERE t.account = c.account) \
               AND (c.reserved <> (SELECT COALESCE(SUM(g.credits_reserved), 0) \
                 FROM generations g WHERE g.account = c.account AND g.credit_day = c.day) \
               OR c.spent <> (SELECT COALESCE(SUM(g.credits_spent), 0) \
                 FROM generations g WHERE g.account = c.account AND g.credit_day = c.day))",
    ),
    (
        "an account stays inside its limit of the day",
        "SELECT c.* FROM credit_days c JOIN accounts a ON a.account = c.account \
             WHERE c.spent + c.reserved > a.daily_credits",
    ),
    (
        "what is not settled holds its key alone",
        "SELECT claim_key, COUNT(*) FROM generations \
             WHERE state IN ('queued', 'running', 'unknown', 'held') \
             GROUP BY claim_key HAVING COUNT(*) > 1",
    ),
    (
        "what is generated is owed exactly while a delivery of it is",
        "SELECT g.id, g.purge_at FROM generations g WHERE g.state = 'generated' \
             AND (g.purge_at IS NULL) <> EXISTS (SELECT 1 FROM deliveries d \
               WHERE d.generation_id = g.id \
                 AND d.status IN ('waiting', 'pending', 'outcome_unknown'))",
    ),
    (
        "what is bought is stored whole",
        "SELECT g.id, g.state FROM generations g WHERE g.output_where = 'd1' \
               AND g.state IN ('generated', 'held', 'superseded') AND g.output_parts <> ( \
                 SELECT COUNT(*) FROM outputs o WHERE o.output_id = g.output_id)",
    ),
    (
        "only what is generated is published",
        "SELECT d.id, d.status, g.state FROM deliveries d \
             JOIN generations g ON g.id = d.generation_id \
             WHERE d.status IN ('pending', 'published') AND g.state <> 'generated'",
    ),
    (
        "what is not fit is published by a person only",
        "SELECT g.id, g.finish_reason FROM generations g WHERE g.state = 'generated' \
             AND g.finish_reason <> 'STOP' AND NOT EXISTS (SELECT 1 FROM audit a \
               WHERE a.subject = g.id AND a.action = 'publish') \
             AND (g.surface = 'api' OR EXISTS (SELECT 1 FROM deliveries d \
               WHERE d.generation_id = g.id))",
    ),
    (
        "what is owed is not purged",
        "SELECT d.id, g.purge_at FROM deliveries d \
             JOIN generations g ON g.id = d.generation_id \
             WHERE d.status IN ('pending', 'outcome_unknown') AND g.purge_at IS NOT NULL",
    ),
    (
        "what is held or unknown is not purged",
        "SELECT id, state FROM generations WHERE purge_at IS NOT NULL \
               AND state IN ('queued', 'running', 'held', 'unknown')",
    ),
    (
        "what is settled is purged one day, unless it is owed",
        "SELECT g.id, g.state FROM generations g WHERE g.purge_at IS NULL \
               AND g.state IN ('generated', 'failed', 'superseded') AND NOT EXISTS ( \
                 SELECT 1 FROM deliveries d WHERE d.generation_id = g.id \
                   AND d.status IN ('waiting', 'pending', 'outcome_unknown'))",
    ),
    (
        "a settled generation reserves nothing",
        "SELECT id, state, reason, credits_reserved FROM generations \
             WHERE credits_reserved > 0 AND (state IN ('generated', 'held', 'superseded') \
               OR (state = 'failed' AND COALESCE(reason, '') <> 'unknown_freed'))",
    ),
    (
        "a delivery belongs to its generation's account",
        "SELECT d.id FROM deliveries d JOIN generations g ON g.id = d.generation_id \
             WHERE d.account <> g.account",
    ),
    (
        "what is reserved is the estimate, once",
        "SELECT id, state, credits_reserved, credits_estimate FROM generations \
             WHERE credits_reserved NOT IN (0, credits_estimate)",
    ),
    (
        "what is unknown keeps its reservation",
        "SELECT id, credits_reserved, credits_estimate FROM generations \
             WHERE state = 'unknown' AND credits_reserved <> credits_estimate",
    ),
];

/// What the end of a run must look like.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Deliveries may be left to do.
    pub owed: bool,
    /// Unknown generations may be left to a person.
    pub unknown: bool,
}

/// What holds once retries and the cron trigger have done their work.
pub fn at_rest(world: &World, rest: Rest) {
    every_step(world);
    let unsettled = if rest.unknown {
        "'queued', 'running'"
    } else {
        "'queued', 'running', 'unknown'"
    };
    no_rows(
        world,
        "every generation is settled",
        &format!("SELECT id, state, reason, detail FROM generations WHERE state IN ({unsettled})"),
    );
    if !rest.owed {
        no_rows(
            world,
            "every delivery is final",
            "SELECT id, publisher, status, attempts, error FROM deliveries \
             WHERE status IN ('pending', 'outcome_unknown')",
        );
        no_rows(
            world,
            "nothing waits for a commit that will not come",
            "SELECT d.id, g.state, g.reason FROM deliveries d \
             JOIN generations g ON g.id = d.generation_id WHERE d.status = 'waiting' \
               AND g.state IN ('generated', 'superseded')",
        );
    }
    no_rows(
        world,
        "what is generated is owed to its destinations",
        "SELECT g.id, g.topic FROM generations g WHERE g.state = 'generated' \
           AND g.topic NOT LIKE 'none %' AND NOT EXISTS ( \
             SELECT 1 FROM deliveries d WHERE d.generation_id = g.id)",
    );
    nothing_is_lost(world);
    destinations_agree(world);
    ids_are_constant(world);
    nothing_is_told(world);
}

/// P4: a delivery's id, its idempotency key, is made of what it is, whatever becomes of it.
fn ids_are_constant(world: &World) {
    for row in world
        .db
        .query("SELECT id, generation_id, publisher, target FROM deliveries")
    {
        let texts: Vec<&str> = row
            .iter()
            .filter_map(|(_, value)| match value {
                SqlValue::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        if texts[0] != delivery_id(texts[1], texts[2], texts[3]) {
            world.violate(format!("a delivery's key has changed: {texts:?}"));
        }
    }
}

fn no_rows(world: &World, rule: &str, sql: &str) {
    let broken = world.db.show(sql);
    if !broken.is_empty() {
        world.violate(format!("{rule}: {broken}"));
    }
}

/// Every output that reached a runner whole is in the database, and nothing is left as evidence.
fn nothing_is_lost(world: &World) {
    for entry in world.gemini.ledger.borrow().iter() {
        let answered = matches!(entry.act, Act::Answer | Act::Ends(_) | Act::CutAfter);
        let due = answered && entry.whole && entry.excuse.is_none();
        let replaced = world.allowed.borrow().contains(&entry.prompt);
        if due && !replaced && state_of_text(world, &entry.text).is_none() {
            let in_r2 = world.db.integers(&format!(
                "SELECT COUNT(*) FROM generations WHERE topic = '{}' AND output_where = 'r2'",
                entry.prompt
            ));
            let purged = world.db.integers("SELECT COUNT(*) FROM tombstones")[0] > 0;
            if !purged && (in_r2[0] == 0 || !world.is_kept(&entry.text)) {
                world.violate(format!("an output is lost: {entry:?}"));
            }
        }
    }
    let objects = world.r2.list("_oncepress/evidence/");
    let values = world.kv.list("_oncepress/evidence/", world.exec.now_ms());
    if !objects.is_empty() || !values.is_empty() {
        world.violate(format!("evidence is left: {objects:?} {values:?}"));
    }
}

/// P4: what the database says is published is there, once, under a constant key.
fn destinations_agree(world: &World) {
    let mut bodies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for receipt in world.hooks.receipts.borrow().iter() {
        if !receipt.signed {
            world.violate(format!("a webhook is not signed: {receipt:?}"));
        }
        let asked_at = receipt.sooner_than_asked_at;
        if asked_at.is_some_and(|at| is_recorded(world, &receipt.id, at)) {
            world.violate(format!("Retry-After is not kept to: {receipt:?}"));
        }
        bodies
            .entry(receipt.id.clone())
            .or_default()
            .insert(receipt.body.clone());
    }
    for (id, bodies) in &bodies {
        if bodies.len() > 1 {
            world.violate(format!("the delivery {id} has {} bodies", bodies.len()));
        }
    }
    let effects = world.hooks.effects();
    for id in world.db.texts(
        "SELECT id FROM deliveries WHERE status = 'published' AND publisher IN ('hook', 'once')",
    ) {
        if !effects.contains_key(&id) {
            world.violate(format!("{id} is said to be published and never arrived"));
        }
    }
    for id in world
        .db
        .texts("SELECT id FROM deliveries WHERE publisher = 'once'")
    {
        if effects.get(&id).copied().unwrap_or_default() > 1 {
            world.violate(format!(
                "{id} arrived more than once at an at_most_once receiver"
            ));
        }
    }
    for target in world
        .db
        .texts("SELECT target FROM deliveries WHERE status = 'published' AND publisher = 'archive'")
    {
        if !world
            .r2
            .objects
            .borrow()
            .contains_key(&format!("articles/{target}"))
        {
            world.violate(format!("{target} is said to be published and is not there"));
        }
    }
    for name in world.r2.list("articles/") {
        let target = name.trim_start_matches("articles/");
        let known = world.db.integers(&format!(
            "SELECT COUNT(*) FROM deliveries WHERE target = '{target}'"
        ));
        let purged = world.db.integers("SELECT COUNT(*) FROM tombstones")[0] > 0;
        if known[0] == 0 && !purged {
            world.violate(format!("{name} was published and no delivery knows it"));
        }
    }
}

/// Whether an attempt was recorded with its answer: what a drain that died had heard, nobody knows.
fn is_recorded(world: &World, id: &str, at: i64) -> bool {
    let at = Timestamp::from_millis(at).to_rfc3339();
    let count = world.db.integers(&format!(
        "SELECT COUNT(*) FROM deliveries d, json_each(d.attempt_log) a WHERE d.id = '{id}' \
           AND a.value ->> 'at' = '{at}' AND a.value ->> 'status' IS NOT NULL"
    ));
    count[0] > 0
}

/// No log line holds a prompt, an output or a secret.
fn nothing_is_told(world: &World) {
    let secrets = [
        "of Gemini",
        "gemini-secret",
        "opk_",
        "admin-secret",
        "whsec_",
    ];
    for line in world.logs.borrow().iter() {
        if secrets.iter().any(|secret| line.contains(secret)) {
            world.violate(format!("a log line tells too much: {line}"));
        }
    }
}

/// Fails with the trace where a rule was broken.
#[track_caller]
pub fn assert_sound(world: &World) {
    let violations = world.violations.borrow();
    assert!(
        violations.is_empty(),
        "{}\n\n{}",
        violations.join("\n"),
        world.story()
    );
}
