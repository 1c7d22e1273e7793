//! P8 as checks: what a person must hear of is told, unasked and in time.

use super::world::World;

/// What is held, unknown or dead is an alert from the same transaction on.
pub fn is_told_at_once(world: &World) {
    let since = world.exec.now_ms() - 86_400_000;
    let silent = world.db.show(&format!(
        "SELECT g.id, g.state FROM generations g WHERE g.state IN ('held', 'unknown') \
           AND g.updated_at > {since} AND NOT EXISTS (SELECT 1 FROM alerts a \
             WHERE a.kind = g.state AND a.account = g.account AND a.site = g.site \
               AND a.pipeline = g.pipeline AND a.newest_at >= g.updated_at) \
         UNION ALL SELECT d.id, d.status FROM deliveries d \
           WHERE d.status IN ('dead', 'outcome_unknown') AND d.final_at > {since} \
           AND NOT EXISTS (SELECT 1 FROM alerts a WHERE a.kind = d.status \
             AND a.account = d.account AND a.site = d.site AND a.pipeline = d.pipeline \
             AND a.newest_at >= d.final_at)"
    ));
    if !silent.is_empty() {
        world.violate(format!("nobody hears of it: {silent}"));
    }
}

/// Minutes after which what is owed is stale, and two ticks.
const STALE_MS: i64 = 62 * 60_000;
/// A bundle closes after five minutes, and a few messages are sent a tick.
const TOLD_MS: i64 = 15 * 60_000;

/// What is owed for longer than an hour is an alert, once the cron trigger had its minutes.
pub fn is_stale_told(world: &World) {
    let since = world.exec.now_ms() - STALE_MS;
    let silent = world.db.show(&format!(
        "SELECT d.id, d.due_since FROM deliveries d WHERE d.status = 'pending' \
           AND d.due_since <= {since} AND NOT EXISTS (SELECT 1 FROM alerts a \
             WHERE a.kind = 'stale' AND a.account = d.account AND a.site = d.site \
               AND a.pipeline = d.pipeline AND a.newest_at >= d.due_since)"
    ));
    if !silent.is_empty() {
        world.violate(format!("nobody hears of what is stale: {silent}"));
    }
}

/// Slack was told of every alert that is said to be sent, and no alert waits for ever.
pub fn is_slack_told(world: &World) {
    let since = world.exec.now_ms() - TOLD_MS;
    let waiting = world.db.show(&format!(
        "SELECT id, kind, attempts, next_attempt_at FROM alerts WHERE state <> 'sent' \
         AND closes_at <= {since}"
    ));
    if !waiting.is_empty() {
        world.violate(format!("an alert waits for ever: {waiting}"));
    }
    let sent = world.db.integers(SENT)[0];
    let told = world.told.borrow().len();
    if i64::try_from(told).unwrap() < sent {
        world.violate(format!("{sent} messages were sent, and Slack got {told}"));
    }
}

/// Messages that Slack got beyond those that are said to be sent: a tick that dies, or whose record
/// is lost, sends again what it had sent.
pub fn repeated(world: &World) -> i64 {
    let sent = world.db.integers(SENT)[0];
    i64::try_from(world.told.borrow().len()).unwrap() - sent
}

/// Since `before`, when faults had ended, no message was repeated.
pub fn is_slack_told_once(world: &World, before: i64) {
    let more = repeated(world) - before;
    if more > 0 {
        world.violate(format!(
            "Slack got {more} messages again, and nothing was wrong"
        ));
    }
}

/// Messages that are said to be sent.
const SENT: &str = "SELECT (SELECT COUNT(*) FROM alerts WHERE state = 'sent') \
   + (SELECT COUNT(*) FROM digests WHERE sent_at IS NOT NULL)";

/// A digest was made, and reached Slack.
pub fn is_digest_sent(world: &World) {
    let sent = world
        .db
        .integers("SELECT COUNT(*) FROM digests WHERE sent_at IS NOT NULL")[0];
    if sent == 0 {
        let made = world.db.show("SELECT day, made_at, attempts FROM digests");
        world.violate(format!("no digest reached Slack: {made}"));
    }
}
