// Many identical requests at once, with KV well, broken, and broken in one direction.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { Client } from "./lib/client.mjs";
import { expectAnswer, expectRetryAfter } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { Worker } from "./lib/worker.mjs";

const CALLERS = 50;
const KV_BROKEN = { binding: "KV_DEDUP", error: "KV GET failed: 500 Internal Server Error" };

const storm = (client, body) =>
  Promise.all(Array.from({ length: CALLERS }, () => client.generate(body)));

// One caller is told that it was made now, all others that it is a replay; all get the same bytes.
async function expectOnePurchase(stage, { tag, body }) {
  const answers = await storm(stage.client, body);
  const statuses = answers.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [...Array(CALLERS - 1).fill(200), 201]);
  assert.equal(new Set(answers.map(({ text }) => text)).size, 1, "one body for all callers");
  const replays = answers.filter(({ status }) => status === 200);
  for (const { headers } of replays) assert.equal(headers.get("x-idempotency-replayed"), "true");
  assert.equal(await stage.fakes.billed(tag), 1);
  assert.equal((await stage.fakes.asked(tag)).length, 1);
}

describe("with KV_FAILURE_POLICY = deny", () => {
  let stage;
  before(async () => (stage = await setStage("storm-deny")));
  after(() => stage?.close());

  test("50 at once are one purchase", () => expectOnePurchase(stage, stage.request()));

  test("50 at once with an operation key are one purchase", async () => {
    const { tag, body } = stage.request();
    const headers = { "idempotency-key": tag };
    const answers = await Promise.all(
      Array.from({ length: CALLERS }, () => stage.client.generate(body, headers)),
    );
    assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("50 at once while KV can't be read are refused, and nothing is bought", async () => {
    const { tag, body } = stage.request();
    await stage.worker.rules({ ...KV_BROKEN, op: "get|getWithMetadata" });
    for (const answer of await storm(stage.client, body)) {
      expectAnswer(answer, 503, "dedup_unavailable");
      expectRetryAfter(answer);
    }
    assert.equal((await stage.fakes.asked(tag)).length, 0);
    await stage.worker.rules();
    expectAnswer(await stage.client.generate(body), 201);
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("what this isolate knows is still answered while KV can't be read", async () => {
    const { body } = stage.request();
    const first = await stage.client.generate(body);
    await stage.worker.rules({ ...KV_BROKEN, op: "get|getWithMetadata" });
    const again = await stage.client.generate(body);
    await stage.worker.rules();
    expectAnswer(again, 200);
    assert.equal(again.text, first.text);
  });

  test("KV that refuses writes costs speed, not safety", async () => {
    await stage.worker.rules({
      binding: "KV_DEDUP",
      op: "put|delete",
      error: "KV PUT failed: 429 Too Many Requests",
    });
    await expectOnePurchase(stage, stage.request());
    await stage.worker.rules();
  });

  test("KV that still says no, long after the mark, is no reason to buy again", async () => {
    const { tag, body } = stage.request();
    const first = await stage.client.generate(body);
    await stage.worker.rules({
      binding: "KV_DEDUP",
      op: "get|getWithMetadata",
      staleMs: 3_600_000,
    });
    await stage.worker.kill9();
    await stage.worker.boot();
    await stage.worker.rules({
      binding: "KV_DEDUP",
      op: "get|getWithMetadata",
      staleMs: 3_600_000,
    });
    const again = await stage.client.generate(body);
    await stage.worker.rules();
    expectAnswer(again, 200);
    assert.equal(again.text, first.text);
    assert.equal(await stage.fakes.billed(tag), 1);
  });
});

test("two Worker processes on one D1 database make one purchase", async () => {
  // Two processes have two of each Durable Object, of which there is but one in the world; so the
  // generations run in the handlers, and D1 is all that the two share.
  const stage = await setStage("storm-two", { vars: { RUNNER_MODE: "inline" } });
  const second = await Worker.start("storm-two-b", {
    vars: stage.worker.vars,
    share: stage.worker,
  });
  try {
    const elsewhere = new Client(second, "acme", stage.client.key);
    for (let round = 0; round < 5; round += 1) {
      const { tag, body } = stage.request();
      const callers = Array.from({ length: 20 }, (_, n) => (n % 2 ? elsewhere : stage.client));
      const answers = await Promise.all(callers.map((client) => client.generate(body)));
      const made = answers.filter(({ status }) => status === 201);
      const told = answers.map(({ status, json }) => json?.code ?? status).join();
      assert.equal(made.length, 1, told);
      assert.equal((await stage.fakes.asked(tag)).length, 1);
      for (const client of [stage.client, elsewhere]) {
        const again = await client.generate(body);
        expectAnswer(again, 200);
        assert.equal(again.text, made[0].text);
      }
    }
  } finally {
    await second.stop();
    await stage.close();
  }
});

describe("with KV_FAILURE_POLICY = arbiter", () => {
  let stage;
  before(async () => {
    stage = await setStage("storm-arbiter", { vars: { KV_FAILURE_POLICY: "arbiter" } });
  });
  after(() => stage?.close());

  test("50 at once while KV fails altogether are one purchase", async () => {
    await stage.worker.rules({ ...KV_BROKEN, op: ".*" });
    await expectOnePurchase(stage, stage.request());
    await stage.worker.rules();
  });

  test("50 at once while KV takes effect but loses its answers are one purchase", async () => {
    await stage.worker.rules({ ...KV_BROKEN, op: ".*", when: "after" });
    await expectOnePurchase(stage, stage.request());
    await stage.worker.rules();
  });

  test("50 different requests at once are 50 purchases", async () => {
    const requests = Array.from({ length: CALLERS }, () => stage.request());
    const answers = await Promise.all(requests.map(({ body }) => stage.client.generate(body)));
    for (const answer of answers) expectAnswer(answer, 201);
    assert.equal(new Set(answers.map(({ json }) => json.id)).size, CALLERS);
    for (const { tag } of requests) assert.equal(await stage.fakes.billed(tag), 1);
  });
});
