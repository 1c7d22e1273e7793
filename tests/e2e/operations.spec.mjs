// What a request costs in operations of KV and D1, counted on real workerd and held to its budget.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { admin } from "./lib/client.mjs";
import { expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";

let stage;
before(async () => {
  stage = await setStage("operations");
  // The first request of an isolate looks up the API key and the environment's name; the budgets
  // are those of an isolate that knows both.
  await stage.client.generate(stage.request().body);
});
after(() => stage?.close());

const KV_READS = ["get", "getWithMetadata"];

/** The operations of one request, up to its answer and after it. */
async function count(context, name, call) {
  await stage.worker.quiet();
  const since = (await stage.worker.e2e("GET", "journal")).length;
  const answer = await call();
  await stage.worker.quiet();
  // Counts are written now and then, after some answer; they are not this request's.
  const all = (await stage.worker.journal(since)).filter(
    ({ subject }) => !subject?.startsWith("INSERT INTO flushes"),
  );
  const atAnswer = Number(answer.headers.get("x-e2e-journal"));
  const figures = summarise(all.filter(({ seq }) => seq < atAnswer));
  const later = summarise(all.filter(({ seq }) => seq >= atAnswer));
  context.diagnostic(`${name}, before the answer: ${JSON.stringify(figures)}`);
  context.diagnostic(`${name}, after the answer: ${JSON.stringify(later)}`);
  return { answer, figures, later };
}

function summarise(entries) {
  const of = (binding, operations) =>
    entries.filter(
      (entry) => entry.binding === binding && (!operations || operations.includes(entry.op)),
    );
  const d1 = of("DB");
  const sum = (name) => d1.reduce((total, entry) => total + (entry[name] ?? 0), 0);
  return {
    kvReads: of("KV_DEDUP", KV_READS).length,
    kvWrites: of("KV_DEDUP", ["put", "delete"]).length,
    d1RoundTrips: d1.length,
    d1Statements: sum("statements"),
    d1RowsRead: sum("rowsRead"),
    d1RowsWritten: sum("rowsWritten"),
    r2: of("BUCKET").length,
    runner: of("RUNNER").length,
    outgoing: of("fetch").length,
  };
}

function rowsReadBySql(entries) {
  const by = Map.groupBy(
    entries.filter(({ rowsRead }) => rowsRead > 0),
    ({ subject }) => subject.replaceAll(/\s+/g, " ").slice(0, 90),
  );
  const sum = (list) => list.reduce((total, { rowsRead }) => total + rowsRead, 0);
  return [...by].map(([sql, list]) => [`${list.length} × ${sql}`, sum(list)]);
}

test("a fresh generation: 1 KV read, at most 2 KV writes, 2 D1 round trips", async (context) => {
  const { body } = stage.request();
  const { answer, figures, later } = await count(context, "fresh", () =>
    stage.client.generate(body),
  );
  expectFresh(answer);
  assert.equal(figures.kvReads, 1);
  assert.ok(figures.kvWrites + later.kvWrites <= 2, "KV writes, those after the answer included");
  assert.equal(figures.d1RoundTrips, 2);
  assert.equal(figures.outgoing, 1);
});

test("a replay by a warm isolate: at most 1 KV read, no D1", async (context) => {
  const { body } = stage.request();
  const first = await stage.client.generate(body);
  const { answer, figures } = await count(context, "replay", () => stage.client.generate(body));
  expectReplay(answer, first);
  assert.ok(figures.kvReads <= 1);
  assert.equal(figures.d1RoundTrips, 0);
  assert.equal(figures.kvWrites, 0);
  assert.equal(figures.runner, 0);
});

test("a replay from KV by a cold isolate asks D1 for the API key only", async (context) => {
  const { body } = stage.request();
  const first = await stage.client.generate(body);
  await stage.worker.quiet();
  await stage.worker.kill9();
  await stage.worker.boot();
  const { answer, figures } = await count(context, "replay, cold", () =>
    stage.client.generate(body),
  );
  expectReplay(answer, first);
  assert.ok(figures.d1RoundTrips <= 2, "the API key, and the environment's name");
});

test("a drain of 20 due rows reads at most 9 rows a row", async (context) => {
  const { worker, client } = stage;
  const DUE = 20;
  for (let made = 0; made < DUE; made += 1) {
    expectFresh(await client.generate(stage.owedRequest("hook").body));
  }
  await stage.worker.quiet();
  // Published already, each right after its commit; owed again, all at once.
  await worker.sql(
    `UPDATE deliveries SET status = 'pending', next_attempt_at = ?, attempts = 0, lease_token = NULL,
       published_at = NULL, final_at = NULL WHERE publisher = 'hook'`,
    worker.now - 1_000,
  );
  const since = (await worker.e2e("GET", "journal")).length;
  const drained = await admin(worker, "POST", "/admin/drain");
  await stage.worker.quiet();
  const entries = await worker.journal(since);
  const figures = summarise(entries);
  context.diagnostic(`a drain of ${drained.text}: ${JSON.stringify(figures)}`);
  for (const [sql, rows] of rowsReadBySql(entries)) context.diagnostic(`${rows} rows: ${sql}`);
  const { published } = drained.json;
  assert.ok(published >= 15, drained.text);
  assert.ok(figures.d1RowsRead <= 9 * published, `${figures.d1RowsRead} rows read`);
});
