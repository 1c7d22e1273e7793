// `kill -9` at every moment that matters, then a restart: nothing is lost, nothing is published
// twice, and nothing is bought twice but where the crash hid from everybody what Gemini did.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const MINUTE = 60_000;
const D1 = { binding: "DB", op: "batch|run|all|first|raw" };

const MOMENTS = [
  ["before the claim", { ...D1, where: "fetch", match: "INTO generations" }],
  [
    "after the claim, its answer lost",
    { ...D1, where: "fetch", match: "INTO generations", when: "after" },
  ],
  ["before the running mark", { binding: "KV_DEDUP", op: "put", where: "fetch" }],
  ["before the runner is called", { binding: "RUNNER", op: "fetch", where: "fetch" }],
  ["before Gemini is called", { binding: "fetch", match: "GenerateContent|generateContent" }],
  ["while Gemini works", undefined],
  ["before the commit", { ...D1, where: "runner", match: "outputs" }],
  [
    "after the commit, its answer lost",
    { ...D1, where: "runner", match: "outputs", when: "after" },
  ],
  ["before the publication", { binding: "BUCKET", op: "put", match: "^files/" }],
  [
    "after the publication, its answer lost",
    { binding: "BUCKET", op: "put", match: "^files/", when: "after" },
  ],
  [
    "before the delivery is settled",
    { ...D1, match: "UPDATE deliveries.*'published'|published_at" },
  ],
];

let stage;
before(async () => (stage = await setStage("crash")));
after(() => stage?.close());

for (const [moment, rule] of MOMENTS) {
  test(`killed ${moment}: the caller's retry gets one output, published once`, async (context) => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.owedRequest();
    const purchasesMax = (await killDuring(rule, tag, body)) ? 2 : 1;

    const answer = await insist(body);
    const { id } = answer.json;
    assert.equal(answer.json.state, "generated");
    await drained(id);

    const billed = await fakes.billed(tag);
    context.diagnostic(`${moment}: billed ${billed}, at most ${purchasesMax} allowed`);
    assert.ok(billed >= 1 && billed <= purchasesMax, `billed ${billed} times`);
    assert.deepEqual(await stage.published(tag), [`files/${tag}.md`]);
    assert.equal((await worker.r2(`files/${tag}.md`)).text, answer.json.output.text);
    const rows = await worker.sql(
      "SELECT state, COUNT(*) AS n FROM generations WHERE id = ? GROUP BY state",
      id,
    );
    assert.deepEqual(rows, [{ state: "generated", n: 1 }]);
    const again = await client.generate(body);
    assert.equal(again.status, 200);
    assert.equal(again.text, answer.text);
  });
}

test("killed while Gemini works, an operation key waits for a person instead of a second purchase", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.owedRequest();
  const key = { "idempotency-key": tag, prefer: "wait=0" };
  assert.equal(await killDuring(undefined, tag, body, key), true);
  let answer;
  for (let minute = 0; minute < 20; minute += 1) {
    await pass(MINUTE);
    answer = await client.generate(body, key);
  }
  assert.equal(answer.status, 503);
  assert.equal(answer.json.code, "request_reconciliation_pending");
  assert.equal((await fakes.asked(tag)).length, 1, "never rerun by time alone");

  const resolve = `/api/v1/generations/${answer.json.generationId}/resolve`;
  const resolved = await client.call("POST", resolve, {
    action: "regenerate",
    reason: "the bill says no",
  });
  assert.ok([200, 201, 202].includes(resolved.status), `${resolved.status} ${resolved.text}`);
  const made = await insist(body, { "idempotency-key": tag });
  await drained(made.json.id);
  assert.deepEqual(await stage.published(tag), [`files/${tag}.md`]);
  assert.equal((await fakes.asked(tag)).length, 2);
});

/**
 * Sends the request and kills the Worker when the operation of `rule` is about to happen, or done.
 * Answers whether the crash hid what Gemini did: it was asked, and nothing was committed. Only then
 * may the policy `regenerate` buy once more.
 */
async function killDuring(rule, tag, body, headers = {}) {
  const { fakes, worker, client } = stage;
  if (rule === undefined) await fakes.script("gemini", tag, { gate: tag });
  else await worker.rules({ ...rule, hold: "kill", times: 1 });
  const sentAt = worker.now;
  const lost = client.generate(body, headers).catch(() => undefined);
  if (rule === undefined) await gateReached(tag);
  else await heldWhileDraining();
  await worker.kill9();
  await lost;
  const asked = (await fakes.asked(tag)).length > 0;
  const sql = "SELECT 1 FROM generations WHERE output_id IS NOT NULL AND created_at >= ?";
  const committed = (await worker.sqlWhileDead(sql, sentAt)).length > 0;
  await fakes.openGate(tag);
  await fakes.clearScript();
  await worker.boot();
  return asked && !committed;
}

// The last moments come in the drain, which runs after the commit or with the next tick.
async function heldWhileDraining() {
  const held = stage.worker.held("kill");
  const ticking = setInterval(() => stage.worker.cron().catch(() => undefined), 1_000);
  try {
    return await held;
  } finally {
    clearInterval(ticking);
  }
}

const gateReached = (tag) =>
  waitFor("Gemini to be asked", async () => (await stage.fakes.asked(tag)).length > 0);

/** Retries as a patient caller would, while time passes and the cron trigger fires. */
async function insist(body, headers = {}) {
  let answer;
  for (let attempt = 0; attempt < 40; attempt += 1) {
    answer = await stage.client.generate(body, { prefer: "wait=5", ...headers });
    if (answer.status === 200 || answer.status === 201) return answer;
    assert.ok([202, 409, 503].includes(answer.status), `${answer.status} ${answer.text}`);
    await pass(MINUTE);
  }
  throw new Error(`no output within 40 minutes: ${answer.status} ${answer.text}`);
}

async function drained(id) {
  for (let minute = 0; minute < 30; minute += 1) {
    const { deliveries } = await stage.client.generation(id);
    if (deliveries.every(({ status }) => status === "published")) return;
    await pass(MINUTE);
  }
  throw new Error(`not published: ${JSON.stringify(await stage.client.generation(id))}`);
}

async function pass(ms) {
  const { worker } = stage;
  await worker.clock(worker.now - Date.now() + ms);
  await worker.cron();
}
