// What one generation, one replay and one idle minute use of the quotas that docs/DEPLOY.md does
// its arithmetic with. Its figures are bounds; this holds them, and prints what they really are.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";

let stage;
before(async () => {
  stage = await setStage("quotas");
  await stage.atNoon();
  // The first request of an isolate looks up the API key and the environment's name.
  await stage.client.generate(stage.request().body);
});
after(() => stage?.close());

/** What the Worker, its runner and everything after the answer did, until it is quiet. */
async function use(context, name, call) {
  await stage.worker.quiet();
  const since = (await stage.worker.e2e("GET", "journal")).length;
  await call();
  await stage.worker.quiet();
  const entries = await stage.worker.journal(since);
  const of = (binding, ...operations) =>
    entries.filter((entry) => entry.binding === binding && operations.includes(entry.op));
  const d1 = entries.filter(({ binding }) => binding === "DB");
  const sum = (member) => d1.reduce((total, entry) => total + (entry[member] ?? 0), 0);
  const figures = {
    kvReads: of("KV_DEDUP", "get", "getWithMetadata").length,
    kvWrites: of("KV_DEDUP", "put").length,
    d1RoundTrips: d1.length,
    d1RowsRead: sum("rowsRead"),
    d1RowsWritten: sum("rowsWritten"),
    runnerRequests: of("RUNNER", "fetch").length,
    r2ClassA: of("BUCKET", "put", "list").length,
    r2ClassB: of("BUCKET", "get", "head").length,
  };
  context.diagnostic(`${name}: ${JSON.stringify(figures)}`);
  return figures;
}

test("one generation, published to R2", async (context) => {
  const { body } = stage.owedRequest();
  let answer;
  const used = await use(context, "generation", async () => {
    answer = await stage.client.generate(body);
    expectFresh(answer);
    await stage.settled(answer.json.id);
  });
  assert.equal(used.kvReads, 1);
  assert.ok(used.kvWrites <= 2);
  assert.equal(used.runnerRequests, 1);
  assert.equal(used.r2ClassA, 1);
  assert.ok(used.d1RowsWritten <= 44, `${used.d1RowsWritten} rows written`);
  assert.ok(used.d1RowsRead <= 80, `${used.d1RowsRead} rows read`);

  const again = await use(context, "replay", async () => {
    expectReplay(await stage.client.generate(body), answer);
  });
  assert.ok(again.kvReads <= 1);
  assert.equal(again.kvWrites, 0);
  assert.ok(again.d1RowsWritten <= 8, `${again.d1RowsWritten} rows written`);
});

test("one tick with nothing to do", async (context) => {
  // From a tenth minute on, which also looks into KV and purges; the digest is made by one tick and
  // sent by the next.
  const tenth = Math.ceil(stage.worker.now / 600_000) * 600_000;
  const tick = (minute) => stage.worker.cron(tenth + minute * 60_000);
  await tick(0);
  await tick(1);
  await tick(2);
  const idle = await use(context, "tick", () => tick(3));
  assert.ok(idle.d1RowsWritten <= 4, `${idle.d1RowsWritten} rows written`);
  assert.ok(idle.d1RowsRead <= 45, `${idle.d1RowsRead} rows read`);
  assert.equal(idle.r2ClassA, 1);
  const more = await use(context, "every tenth tick", () => tick(10));
  assert.ok(more.d1RowsWritten <= 10, `${more.d1RowsWritten} rows written`);
});
