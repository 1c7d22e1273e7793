//! P10: what a request, its repeat and a drain cost, beside a few rows and beside thousands.

use std::collections::BTreeMap;

use oncepress::limits::RETENTION;
use oncepress::outbox::circuit::OPEN_MAX;

use crate::chaos::{Chaos, MINUTE};
use crate::util::Call;
use crate::util::sqlite::Work;

/// Rows of each kind that stand beside what is measured.
const FEW: i64 = 4;
const MANY: i64 = 1_000;

/// What was done for one thing that was asked of the service, by a statement's text.
type Cost = BTreeMap<String, Work>;

impl Chaos {
    /// The same three things at a small and at a large table: no statement may step over more rows.
    pub fn nothing_grows(&mut self) {
        self.world.note("GROWTH".to_owned());
        // The checks after every change look at every row themselves.
        self.world.watch.take();
        self.calm();
        self.fill(0, FEW);
        let few = self.costs("few");
        self.fill(FEW, MANY);
        let many = self.costs("many");
        for ((what, before), (_, after)) in few.iter().zip(&many) {
            self.compare(what, before, after);
        }
    }

    fn compare(&self, what: &str, before: &Cost, after: &Cost) {
        let sum = |cost: &Cost| cost.values().map(|work| work.steps).sum::<i64>();
        let (few, many) = (sum(before), sum(after));
        self.world.note(format!(
            "{what}: {few} instructions beside {FEW} rows, {many} beside {MANY}"
        ));
        // Ids and texts are not all of one length; a row that is visited costs three at the least.
        if many <= few + few / 20 + MANY {
            return;
        }
        let grown = |(sql, work): &(&String, &Work)| {
            work.steps - before.get(*sql).map_or(0, |work| work.steps)
        };
        let worst = after.iter().max_by_key(grown).unwrap();
        let words: Vec<&str> = worst.0.split_whitespace().take(4).collect();
        self.world.violate(format!(
            "{what} takes {many} instructions beside {MANY} rows, {few} beside {FEW}: {} ({:?})",
            words.join(" "),
            worst.1,
        ));
    }

    /// A request with two deliveries that fail, its repeat where only the database knows it, and
    /// the drain that makes up for it.
    fn costs(&mut self, name: &str) -> [(&'static str, Cost); 3] {
        let call = Call::shared(&format!("much beside {name}"), "default")
            .to(&[("archive", "a-{id}"), ("archive", "b-{id}")]);
        let world = &self.world;
        world.kv.writes_down.set(true);
        world.r2.down.set(true);
        world.db.work();
        let first = world.ask(&world.isolate(1), &call.clone().named(name));
        world.pass_ms(30_000);
        let fresh = world.db.work();
        let again = world.ask(&world.isolate(2), &call.named(&format!("{name}-again")));
        world.pass_ms(30_000);
        let repeat = world.db.work();
        self.calm();
        // Past any first wait.
        self.world.pass_ms(5 * MINUTE);
        let world = &self.world;
        let isolate = world.isolate(1);
        let drained = world.api(&isolate, "admin", "POST", "/admin/drain");
        world.pass_ms(30_000);
        let drain = world.db.work();
        let seen = (
            first.status,
            again.status,
            drained.json()["published"].as_i64(),
        );
        if seen != (201, 200, Some(2)) {
            world.violate(format!(
                "a request, its repeat and a drain came to {seen:?}"
            ));
        }
        [
            ("a request", fresh),
            ("its repeat", repeat),
            ("a drain", drain),
        ]
    }

    /// Generations `from` to `to`, each published, dead, waiting its turn at the same destination,
    /// and due at one that is left alone.
    fn fill(&self, from: i64, to: i64) {
        let now = self.world.exec.now_ms();
        let later = now + RETENTION.millis();
        let last = to - 1;
        let open = now + OPEN_MAX.millis() - MINUTE;
        self.world.db.alter(&format!(
            "INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, \
               operation, fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, \
               request_id, model, upstream, created_at, updated_at, credit_day, output_id, \
               output_where, output_parts, purge_at) \
             WITH RECURSIVE c (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM c WHERE i < {last}) \
             SELECT 'grown-' || i, 'default', 'blog', 'daily', 'api', 'k' || i, 'd:grown:' || i, \
               0, 'f' || i, '[]', 'generated', 't' || i, {now}, {now}, {later}, 'r' || i, 'm', \
               'u', {now}, {now}, '2026-11-30', 'out-grown-' || i, 'd1', 1, {later} FROM c; \
             INSERT INTO outputs (output_id, part, body) SELECT output_id, 0, 'of ' || id \
             FROM generations WHERE id LIKE 'grown-%' ON CONFLICT DO NOTHING; \
             INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, \
               target, status, next_attempt_at, attempted_at, created_at, due_since) \
             SELECT g.id || kind.column1, g.id, 'default', 'blog', 'daily', kind.column2, g.id, \
               kind.column3, kind.column4, {now}, {now}, {now} \
             FROM generations g CROSS JOIN (VALUES ('-1', 'archive', 'published', {now}), \
               ('-2', 'hook', 'dead', {now}), ('-3', 'archive', 'pending', {later}), \
               ('-4', 'down', 'pending', {now})) AS kind \
             WHERE g.id LIKE 'grown-%' ON CONFLICT DO NOTHING; \
             INSERT INTO circuits (publisher, failures, open_until) VALUES ('down', 9, {open}) \
             ON CONFLICT (publisher) DO UPDATE SET failures = 9, open_until = {open};"
        ));
    }
}
