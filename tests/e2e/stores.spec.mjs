// Stores that fail around a purchase: before it nothing is bought, after it nothing is lost.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { admin } from "./lib/client.mjs";
import { expectAnswer, expectFresh, expectReplay, expectRetryAfter } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { Worker } from "./lib/worker.mjs";
import { waitFor } from "./lib/wait.mjs";

const OVERLOADED = "D1_ERROR: D1 DB is overloaded. Requests queued for too long.";
const LOST = "D1_ERROR: Network connection lost.";
const D1 = { binding: "DB", op: "batch|run|all|first|raw" };

describe("D1 and R2", () => {
  let stage;
  before(async () => (stage = await setStage("stores")));
  after(() => stage?.close());

  test("D1 refusing the commit sends the output to the fallback store; cron brings it in", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.owedRequest();
    await worker.rules({ ...D1, where: "runner", match: "outputs", error: OVERLOADED });
    const answer = await client.generate(body, { prefer: "wait=25" });
    assert.ok([201, 202, 503].includes(answer.status), `${answer.status} ${answer.text}`);
    assert.equal(await fakes.billed(tag), 1);
    assert.ok((await worker.e2e("GET", "rules")).hits[0] > 0, "D1 refused");
    const early = await client.generate(body, { prefer: "wait=0" });
    assert.ok([200, 409, 503].includes(early.status), `${early.status} ${early.text}`);

    await worker.rules();
    await worker.clock(worker.now - Date.now() + 60_000);
    const found = await waitFor("the output to be brought in", async () => {
      await worker.cron();
      const { items } = (await client.call("GET", "/api/v1/generations?limit=1")).json;
      return items[0]?.state === "generated" ? items[0] : undefined;
    });
    const again = await client.generate(body);
    expectAnswer(again, 200);
    assert.equal(again.json.id, found.id);
    if (answer.status === 201) assert.equal(again.text, answer.text);
    assert.equal(await fakes.billed(tag), 1, "no second call");
    await worker.cron();
    await stage.settled(found.id);
    assert.equal((await stage.published(tag)).length, 1);
    assert.equal((await worker.r2(`files/${tag}.md`)).text, again.json.output.text);
  });

  test("D1 and R2 refusing the commit leave KV; cron brings it in", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.request();
    await worker.rules(
      { ...D1, where: "runner", match: "outputs", error: OVERLOADED },
      { binding: "BUCKET", op: "put", error: "put: We encountered an internal error. (10001)" },
    );
    await client.generate(body);
    assert.equal(await fakes.billed(tag), 1);
    await worker.rules();
    await worker.clock(worker.now - Date.now() + 60_000);
    await waitFor("the output to be brought in", async () => {
      await worker.cron();
      return (await client.generate(body, { prefer: "wait=0" })).status === 200;
    });
    assert.equal(await fakes.billed(tag), 1, "no second call");
  });

  test("D1 that can't be asked refuses before anything is bought", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.request();
    await worker.rules({ ...D1, error: OVERLOADED });
    const answer = await client.generate(body);
    await worker.rules();
    expectAnswer(answer, 503, "store_unavailable");
    expectRetryAfter(answer);
    assert.equal((await fakes.asked(tag)).length, 0);
    expectFresh(await client.generate(body));
  });

  test("a claim whose answer is lost recognises its own row", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.request();
    await worker.rules({
      ...D1,
      where: "fetch",
      match: "INTO generations",
      when: "after",
      times: 1,
      error: LOST,
    });
    expectFresh(await client.generate(body));
    assert.deepEqual(
      (await worker.e2e("GET", "rules")).hits.map((hits) => hits > 0),
      [true],
    );
    await worker.rules();
    assert.equal(await fakes.billed(tag), 1);
  });

  test("a commit whose answer is lost is counted once", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.owedRequest();
    const before = await spent(worker);
    await worker.rules({
      ...D1,
      where: "runner",
      match: "outputs",
      when: "after",
      times: 1,
      error: LOST,
    });
    const first = await client.generate(body);
    expectFresh(first);
    assert.deepEqual(
      (await worker.e2e("GET", "rules")).hits.map((hits) => hits > 0),
      [true],
    );
    await worker.rules();
    assert.equal(await fakes.billed(tag), 1);
    const [cost] = await spent(worker);
    assert.equal(cost.spent - (before[0]?.spent ?? 0), first.json.cost.microUsd, "spent once");
    assert.equal((await client.generation(first.json.id)).deliveries.length, 1);
    expectReplay(await client.generate(body), first);
  });

  const spent = (worker) =>
    worker.sql("SELECT SUM(spent) AS spent FROM credit_days WHERE account = 'acme'");

  test("an output of 1.9 MB is stored, replayed and published", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.owedRequest();
    await fakes.script("gemini", tag, { size: 1_900_000 });
    const first = await client.generate(body);
    expectFresh(first);
    assert.ok(Buffer.byteLength(first.json.output.text) >= 1_900_000);
    expectReplay(await client.generate(body), first);
    await worker.kill9();
    await worker.boot();
    expectReplay(await client.generate(body), first);
    await worker.cron();
    await stage.settled(first.json.id);
    assert.equal((await worker.r2(`files/${tag}.md`)).text, first.json.output.text);
  });
});

describe("the environment guard", () => {
  test("a Worker of another environment refuses to run on these stores, and says why", async () => {
    const stage = await setStage("guard");
    try {
      const { tag, body } = stage.request();
      expectFresh(await stage.client.generate(body));
      await stage.worker.stop();
      const production = await Worker.start("guard-production", {
        vars: { ...stage.worker.vars, ENVIRONMENT: "production" },
        share: stage.worker,
      });
      stage.worker = stage.client.worker = production;
      const fresh = stage.request();
      for (const request of [body, fresh.body]) {
        expectAnswer(await stage.client.generate(request), 500, "misconfigured");
      }
      const health = await admin(production, "GET", "/admin/health");
      assert.match(health.text, /development/);
      assert.match(health.text, /production/);
      assert.equal((await stage.fakes.asked(fresh.tag)).length, 0);
      assert.equal(await stage.fakes.billed(tag), 1);
    } finally {
      await stage.close();
    }
  });

  test("all faults of a configuration are named together", async () => {
    const worker = await Worker.start("misconfigured", {
      vars: { ENVIRONMENT: "", ON_UNKNOWN: "perhaps", STALE_MINUTES: "soon" },
    });
    try {
      const health = await admin(worker, "GET", "/admin/health");
      for (const name of ["ENVIRONMENT", "ON_UNKNOWN", "STALE_MINUTES"]) {
        assert.ok(health.text.includes(name), `${name} in ${health.text}`);
      }
      assert.equal((await worker.fetch("/healthz")).status, 503);
      const call = await worker.fetch("/api/v1/account", {
        headers: { authorization: "Bearer x" },
      });
      assert.equal(call.status, 500);
      assert.equal(call.headers.get("x-oncepress-error-code"), "misconfigured");
    } finally {
      await worker.stop();
    }
  });
});
