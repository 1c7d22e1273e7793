// Clocks that jump by eight hours, and drains that meet: whatever is not final is still reached by
// exactly one handler, and takes effect once. The administrator's self-check agrees at every step.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { admin } from "./lib/client.mjs";
import { expectAnswer, expectFresh } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const JUMP = 8 * HOUR;
const ROWS = 6;

let stage;
before(async () => (stage = await setStage("clock")));
after(() => stage?.close());

const drain = () => admin(stage.worker, "POST", "/admin/drain");
const deliveryOf = async (id) => (await stage.client.generation(id)).deliveries[0];

async function jump(ms) {
  const { worker } = stage;
  await worker.clock(worker.now - Date.now() + ms);
}

/** Two drains and a tick at once; then nothing is out of every handler's reach. */
async function meet() {
  const answers = await Promise.all([drain(), drain(), stage.worker.cron()]);
  for (const answer of answers.slice(0, 2)) assert.equal(answer.status, 200, answer.text);
  await expectReachable();
}

async function expectReachable() {
  const health = await admin(stage.worker, "GET", "/admin/health");
  assert.equal(health.status, 200, health.text);
  assert.deepEqual(health.json.selfCheck, { unreachable: [] });
}

async function make(publisher, headers) {
  const { tag, body } = stage.owedRequest(publisher);
  const answer = await stage.client.generate(body, headers);
  expectFresh(answer);
  return { tag, body, id: answer.json.id };
}

/** Each way of not being final, with what brings it on when the world is well again. */
async function makeUnfinished() {
  const { fakes, worker, client } = stage;
  const rows = {};
  await fakes.script("webhook", "/webhook/plain", { status: 503 }, -1);
  rows["put off after a failure"] = await make("hook");
  const headers = { "retry-after": String((3 * HOUR) / 1000) };
  await fakes.script("webhook", "/webhook/broken", { status: 429, headers });
  rows["put off for hours by Retry-After"] = await make("broken");
  await waitFor("both to be tried", async () => {
    const tried = await Promise.all(Object.values(rows).map(({ id }) => deliveryOf(id)));
    return tried.every(({ attempts }) => attempts.length === 1);
  });
  await worker.rules({ binding: "BUCKET", op: "put", match: "^files/", hold: "drain", times: 1 });
  rows["leased by a drain that hangs"] = await make("files");
  await worker.held("drain");

  const running = stage.owedRequest();
  await fakes.script("gemini", running.tag, { gate: running.tag });
  const key = { "idempotency-key": running.tag, prefer: "wait=0" };
  const begun = await client.generate(running.body, key);
  expectAnswer(begun, 202);
  rows["at Gemini"] = { ...running, id: begun.headers.get("location").split("/").at(-1) };
  await waitFor("Gemini to be asked", async () => (await fakes.asked(running.tag)).length === 1);

  const queued = stage.owedRequest();
  await fakes.script("gemini", queued.tag, { status: 429, "retry-delay": "3600s" });
  const accepted = await client.generate(queued.body, { prefer: "respond-async" });
  expectAnswer(accepted, 202);
  rows["back in the queue"] = { ...queued, id: accepted.headers.get("location").split("/").at(-1) };
  const state = "SELECT state FROM generations WHERE id = ?";
  await waitFor("the queue's first try", async () => {
    const [row] = await worker.sql(state, rows["back in the queue"].id);
    return (await fakes.asked(queued.tag)).length === 1 && row.state === "queued";
  });
  return rows;
}

/** What waits for a person, whatever the clock says. */
async function makeStuck() {
  const { fakes, client } = stage;
  const rows = {};
  for (const [state, fault, status] of [
    ["held", "max-tokens", 422],
    ["unknown", "close-mid", 503],
  ]) {
    const { tag, body } = stage.owedRequest();
    await fakes.script("gemini", tag, fault);
    const answer = await client.generate(body, { "idempotency-key": tag });
    assert.equal(answer.status, status, answer.text);
    rows[state] = { tag, id: answer.json.generationId };
  }
  return rows;
}

/** Ticks, an hour apart where the clock has to come round, until the row is published. */
async function untilPublished(what, { id }) {
  for (let hour = 0; hour < 60; hour += 1) {
    const { state, deliveries } = await stage.client.generation(id);
    if (deliveries.length > 0 && deliveries.every(({ status }) => status === "published")) return;
    assert.ok(!["failed", "held"].includes(state), `${what}: ${state}`);
    await meet();
    await jump(HOUR);
  }
  throw new Error(`${what}: ${JSON.stringify(await stage.client.generation(id))}`);
}

async function expectOnce({ tag, id }) {
  const { fakes } = stage;
  assert.equal(await fakes.billed(tag), 1, "bought once");
  const [{ publisher, id: delivery }] = (await stage.client.generation(id)).deliveries;
  if (publisher === "files") {
    assert.deepEqual(await stage.published(tag), [`files/${tag}.md`]);
    return;
  }
  const hooks = await fakes.hooks(publisher === "hook" ? "plain" : publisher, tag);
  const accepted = hooks.filter((hook) => hook.accepted);
  assert.deepEqual(
    accepted.map((hook) => hook.id),
    [delivery],
    "took effect once",
  );
}

for (const [way, there, back] of [
  ["forward and back", JUMP, -JUMP],
  ["back and forward", -JUMP, JUMP],
]) {
  test(`a clock that jumps eight hours ${way} leaves no row behind`, async () => {
    const { fakes, worker } = stage;
    const rows = await makeUnfinished();
    const stuck = await makeStuck();
    await jump(there);
    for (let tick = 0; tick < 3; tick += 1) {
      await meet();
      await jump(MINUTE);
    }
    await worker.release("drain");
    await jump(back);
    for (let tick = 0; tick < 3; tick += 1) {
      await meet();
      await jump(MINUTE);
    }
    await worker.rules();
    await fakes.clearScript();
    await fakes.openGate(rows["at Gemini"].tag);
    for (const [what, row] of Object.entries(rows)) await untilPublished(what, row);
    for (const row of Object.values(rows)) await expectOnce(row);
    for (const [state, { tag, id }] of Object.entries(stuck)) {
      assert.equal((await stage.client.generation(id)).state, state);
      assert.equal((await fakes.asked(tag)).length, 1);
      assert.deepEqual(await stage.published(tag), []);
    }
    await expectReachable();
  });
}

test("a delivery is never without a time of its next attempt", async () => {
  const { worker } = stage;
  const { id } = await make("files");
  const forget = "UPDATE deliveries SET next_attempt_at = NULL WHERE generation_id = ?";
  await assert.rejects(worker.sql(forget, id), /NOT NULL constraint failed/);
});

test("two drains at once send each due row once", async () => {
  const { fakes, worker } = stage;
  await fakes.script("webhook", "/webhook/plain", { status: 503 }, -1);
  const rows = await Promise.all(Array.from({ length: ROWS }, () => make("hook")));
  await worker.cron();
  for (const { id } of rows) await stage.unleased(id);
  await fakes.clearScript();
  // Slow enough for the drains to overlap.
  await fakes.script("webhook", "/webhook/plain", { delay: 300 }, -1);
  await waitFor("all of them", async () => {
    await jump(2 * HOUR);
    await meet();
    const left = await Promise.all(rows.map(({ id }) => deliveryOf(id)));
    return left.every(({ status }) => status === "published");
  });
  await fakes.clearScript();
  for (const row of rows) await expectOnce(row);
});

test("the self-check would tell of a row that nobody reaches", async () => {
  const { worker } = stage;
  const { id } = await make("files");
  await stage.settled(id);
  await worker.sql("UPDATE generations SET purge_at = NULL WHERE id = ?", id);
  const { json } = await admin(worker, "GET", "/admin/health");
  assert.deepEqual(
    json.selfCheck.unreachable.map((row) => row.id),
    [id],
  );
  await worker.sql("UPDATE generations SET purge_at = 1 WHERE id = ?", id);
  await expectReachable();
});
