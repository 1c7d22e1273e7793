// Retries: of what failed for sure, of what succeeded long ago, and from which store.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { expectAnswer, expectFresh, expectReplay, expectRetryAfter } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

let stage;
before(async () => (stage = await setStage("retries")));
after(() => stage?.close());

const REFUSALS = [
  [{ status: 429 }, 503, "gemini_rate_limited"],
  [{ status: 429, "per-day": true }, 503, "gemini_quota_exhausted"],
  [{ status: 500 }, 503, "gemini_unavailable"],
  [{ status: 503 }, 503, "gemini_unavailable"],
  [{ status: 400 }, 502, "gemini_rejected"],
  [{ status: 403 }, 502, "gemini_auth"],
];

for (const [fault, status, code] of REFUSALS) {
  test(`after ${code} (${JSON.stringify(fault)}) the retry is generated, not called a duplicate`, async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    await fakes.script("gemini", tag, fault);
    const refused = await client.generate(body);
    expectAnswer(refused, status, code);
    assert.equal(refused.headers.get("x-oncepress-error-source"), "gemini");
    assert.equal(refused.headers.get("x-oncepress-credits"), "0", "all credits returned");
    if (status === 503) expectRetryAfter(refused);
    expectFresh(await client.generate(body));
    assert.equal(await fakes.billed(tag), 1);
  });
}

test("the retry of a refused request is generated while KV still shows the old mark", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request();
  await fakes.script("gemini", tag, { status: 429 });
  // The first write (the running mark) stays; whatever would take it back is lost.
  await worker.rules({
    binding: "KV_DEDUP",
    op: "put|delete",
    skip: 1,
    error: "KV PUT failed: 500",
  });
  expectAnswer(await client.generate(body), 503, "gemini_rate_limited");
  await worker.kill9();
  await worker.boot();
  expectFresh(await client.generate(body));
  assert.equal(await fakes.billed(tag), 1);
});

test("a repeat is one generation at 1 s, 4:59, 5:01, 20 min and 29:59, and a new one at 30:00", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request();
  const first = await client.generate(body);
  expectFresh(first);
  const made = Date.parse(first.json.createdAt);
  const start = worker.now - Date.now();
  const at = (age) => worker.stopClock(made + age);
  for (const age of [
    SECOND,
    4 * MINUTE + 59 * SECOND,
    5 * MINUTE + SECOND,
    20 * MINUTE,
    30 * MINUTE - SECOND,
  ]) {
    await at(age);
    expectReplay(await client.generate(body), first);
  }
  assert.equal(await fakes.billed(tag), 1);
  await at(30 * MINUTE);
  const second = await client.generate(body);
  expectFresh(second);
  assert.notEqual(second.json.id, first.json.id);
  assert.equal(await fakes.billed(tag), 2);
  assert.equal((await client.generation(first.json.id)).state, "generated", "the old one stays");
  await worker.clock(start);
});

test("while its delivery is owed, a repeat of any age buys nothing", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.owedRequest("broken");
  await fakes.script("webhook", tag, { status: 503 }, -1);
  const first = await client.generate(body);
  expectFresh(first);
  const start = worker.now - Date.now();
  for (const age of [31 * MINUTE, 3 * HOUR, 26 * HOUR]) {
    await worker.clock(start + age);
    await worker.cron();
    expectReplay(await client.generate(body), first);
  }
  assert.equal(await fakes.billed(tag), 1);
  await fakes.clearScript();
  await worker.clock(start);
});

test("an operation key binds for 24 hours", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request();
  const key = { "idempotency-key": `"${tag}"` };
  const first = await client.generate(body, key);
  expectFresh(first);
  const start = worker.now - Date.now();
  await worker.clock(start + 24 * HOUR - MINUTE);
  expectReplay(await client.generate(body, { "idempotency-key": tag }), first);
  await worker.clock(start + 24 * HOUR + MINUTE);
  expectFresh(await client.generate(body, key));
  assert.equal(await fakes.billed(tag), 2);
  await worker.clock(start);
});

test("windowMinutes of the first request rules", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request({ windowMinutes: 120 });
  const first = await client.generate(body);
  expectFresh(first);
  const start = worker.now - Date.now();
  await worker.clock(start + 119 * MINUTE);
  expectReplay(await client.generate({ ...body, windowMinutes: 1 }), first);
  await worker.clock(start + 121 * MINUTE);
  expectFresh(await client.generate(body));
  assert.equal(await fakes.billed(tag), 2);
  await worker.clock(start);
});

test("a purged generation answers 410, and its request is fresh", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request();
  const first = await client.generate(body, { "idempotency-key": tag });
  expectFresh(first);
  const path = `/api/v1/generations/${first.json.id}`;
  const start = worker.now - Date.now();
  await worker.clock(start + 29 * 24 * HOUR);
  await worker.cron();
  expectAnswer(await client.call("GET", path), 200);
  await worker.clock(start + 31 * 24 * HOUR);
  // The purge has its turn in one tick of several.
  await waitFor("the purge", async () => {
    await worker.clock(worker.now - Date.now() + MINUTE);
    await worker.cron();
    return (await client.call("GET", path)).status === 410;
  });
  expectAnswer(await client.call("GET", path), 410, "gone");
  expectFresh(await client.generate(body, { "idempotency-key": tag }));
  assert.equal(await fakes.billed(tag), 2);
  await worker.clock(start);
});

test("the caller can't tell whether isolate, KV or D1 replayed", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.request();
  const first = await client.generate(body);
  expectFresh(first);

  const fromIsolate = await client.generate(body);
  await worker.kill9();
  await worker.boot();
  const fromKv = await client.generate(body);
  await worker.kill9();
  await worker.boot();
  await worker.rules({ binding: "KV_DEDUP", op: "get|getWithMetadata", staleMs: HOUR });
  const fromD1 = await client.generate(body);
  await worker.rules();

  const volatile = new Set(["date", "x-e2e-journal", "content-length", "transfer-encoding"]);
  const visible = ({ headers }) => [...headers].filter(([name]) => !volatile.has(name));
  for (const answer of [fromIsolate, fromKv, fromD1]) {
    expectReplay(answer, first);
    assert.deepEqual(visible(answer), visible(fromIsolate));
  }
  assert.equal(await fakes.billed(tag), 1);
});
