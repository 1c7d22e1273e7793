// The WebAssembly instance ends in the middle of a request, and the next event gets a new one in
// the same isolate. What the isolate knew lives on `globalThis` and outlives it.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { expectAnswer, expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const KV = { binding: "KV_DEDUP", error: "KV GET failed: 500 Internal Server Error" };
const D1 = { binding: "DB", error: "D1_ERROR: D1 DB is overloaded. Requests queued for too long." };

let stage;
before(async () => (stage = await setStage("restart")));
after(() => stage?.close());
beforeEach(() => stage.worker.quiet());

const instances = () => stage.worker.e2e("GET", "instances");

/** Ends the instance while it works on a request; the next event will find it so. */
async function crash() {
  const { worker, client } = stage;
  const before = await instances();
  await worker.e2e("POST", "exhaust");
  const killed = await client.generate({ ...stage.request().body, userPrompt: "x".repeat(1e6) });
  assert.equal(killed.status, 500, `the instance should have ended: ${killed.text.slice(0, 200)}`);
  assert.equal(killed.json, undefined, "no answer of ours");
  return before;
}

/** The isolate is the same, the instance another. */
async function expectRestart(before) {
  const after = await instances();
  assert.equal(after.isolate, before.isolate, "the same isolate");
  assert.ok(after.started > before.started, "another instance");
}

test("the very next request is a replay that needs neither KV nor D1", async (context) => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request();
  const first = await client.generate(body);
  expectFresh(first);
  await stage.worker.quiet();
  const before = await crash();

  const since = (await worker.e2e("GET", "journal")).length;
  const again = await client.generate(body);
  const until = Number(again.headers.get("x-e2e-journal"));
  expectReplay(again, first);
  await expectRestart(before);
  const operations = (await worker.journal(since)).filter(({ seq }) => seq < until);
  const told = operations.map(({ binding, op, subject }) => `${binding} ${op} ${subject ?? ""}`);
  context.diagnostic(`operations before the answer: ${JSON.stringify(told)}`);
  assert.deepEqual(told, []);
  assert.equal(await fakes.billed(tag), 1);
});

test("a replay is answered though both KV and D1 are down", async () => {
  const { worker, client } = stage;
  const { body } = stage.request();
  const first = await client.generate(body);
  expectFresh(first);
  await stage.worker.quiet();
  const before = await crash();
  await worker.rules(KV, D1);
  const again = await client.generate(body);
  await worker.rules();
  expectReplay(again, first);
  await expectRestart(before);
});

test("new requests, publications and ticks go on", async () => {
  const { fakes, worker, client } = stage;
  const before = await crash();
  const { tag, body } = stage.owedRequest();
  const first = await client.generate(body);
  expectFresh(first);
  await expectRestart(before);
  await worker.cron();
  assert.equal((await stage.settled(first.json.id))[0].status, "published");
  assert.deepEqual(await stage.published(tag), [`files/${tag}.md`]);
  expectReplay(await client.generate(body), first);
  assert.equal(await fakes.billed(tag), 1);
  assert.equal((await worker.fetch("/healthz")).status, 200);
});

test("runs that were at Gemini are settled by their own alarms", async (context) => {
  const { fakes, client } = stage;
  const [free, bound] = [stage.owedRequest(), stage.owedRequest()];
  const key = { "idempotency-key": bound.tag };
  for (const [{ tag, body }, headers] of [[free, {}], [bound, key]]) {
    await fakes.script("gemini", tag, { gate: "both" });
    expectAnswer(await client.generate(body, { prefer: "wait=0", ...headers }), 202);
    await waitFor("Gemini to be asked", async () => (await fakes.asked(tag)).length === 1);
  }
  const begun = Date.now();
  const before = await crash();
  await fakes.clearScript();
  const until = (wanted, { body }, headers) =>
    waitFor(
      `the answer ${wanted}`,
      async () => {
        const answer = await client.generate(body, { prefer: "wait=0", ...headers });
        return wanted.includes(answer.json?.code ?? answer.status) && answer;
      },
      { withinMs: 120_000, everyMs: 250 },
    );
  const made = await until([200, 201], free);
  await until(["request_reconciliation_pending"], bound, key);
  context.diagnostic(`both settled ${Date.now() - begun} ms after the crash`);
  await expectRestart(before);
  await fakes.openGate("both");

  assert.equal((await stage.settled(made.json.id))[0].status, "published");
  assert.deepEqual(await stage.published(free.tag), [`files/${free.tag}.md`]);
  const billed = await fakes.billed(free.tag);
  assert.ok(billed <= 2, `a derived key is freed, and perhaps bought again: ${billed}`);
  assert.equal((await fakes.asked(bound.tag)).length, 1, "an operation key waits for a person");
});
