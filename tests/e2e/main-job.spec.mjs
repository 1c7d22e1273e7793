// The main job: a request is paid for once, stored, published by the cron trigger, and answered
// from the store ever after.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";

import { send } from "./lib/client.mjs";
import { expectAnswer, expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";

let stage;
before(async () => (stage = await setStage("main-job")));
after(() => stage?.close());

const LONG_ARTICLE = new URL("fixtures/long-article.json", import.meta.url);

test("a long real request is made once, published to R2, and replayed", async () => {
  const { fakes, worker, client } = stage;
  const article = JSON.parse(await readFile(LONG_ARTICLE, "utf8"));
  const target = "shiomi/2026-11-15.md";
  const body = { ...article, publish: [{ publisher: "files", target }] };

  const first = await client.generate(body);
  expectFresh(first);
  const generation = first.json;
  assert.match(generation.id, /^gen_[0-9a-f]{32}$/);
  assert.match(generation.key, /^idem:acme:demo:articles:[0-9a-f]{32}$/);
  assert.match(generation.fingerprint, /^[0-9a-f]{64}$/);
  assert.equal(generation.account, "acme");
  assert.equal(generation.topic, article.topic);
  assert.equal(generation.model, "gemini-3.8-flash");
  assert.equal(generation.requestId, first.headers.get("x-request-id"));
  assert.equal(generation.output.finishReason, "STOP");
  assert.ok(generation.output.text.length > 100);
  assert.ok(generation.usage.promptTokens > 5_000, JSON.stringify(generation.usage));
  const { promptTokens, outputTokens, thoughtTokens, totalTokens } = generation.usage;
  assert.equal(totalTokens, promptTokens + outputTokens + thoughtTokens);
  assert.ok(generation.cost.microUsd > 0);
  assert.equal(first.headers.get("x-oncepress-credits"), String(generation.cost.microUsd));
  assert.equal("deliveries" in generation, false, "deliveries change, so only GET shows them");

  expectReplay(await client.generate(body), first);

  await worker.cron();
  const [delivery] = await stage.settled(generation.id);
  assert.equal(delivery.status, "published");
  assert.match(delivery.id, /^dlv_[0-9a-f]{32}$/);
  assert.equal(delivery.attempts.length, 1);

  const object = await worker.r2(`files/${target}`);
  assert.equal(object.text, generation.output.text);
  const { entries } = await fakes.control("GET", "ledger");
  assert.equal(entries.filter(({ billed }) => billed).length, 1, "Gemini was paid once");
});

test("a webhook gets the delivery's constant key, signed", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.owedRequest("signed");
  const first = await client.generate(body);
  expectFresh(first);
  await worker.cron();
  const [delivery] = await stage.settled(first.json.id);
  assert.equal(delivery.status, "published");

  const [hook, ...more] = await fakes.hooks("signed", tag);
  assert.equal(more.length, 0);
  assert.equal(hook.verified, true);
  assert.equal(hook.id, delivery.id);
  assert.equal(hook.headers["idempotency-key"].replaceAll('"', ""), delivery.id);
  const { type, timestamp, data } = JSON.parse(hook.body);
  assert.equal(type, "generation.published");
  assert.ok(Date.parse(timestamp) > 0);
  assert.equal(JSON.stringify(data).includes(JSON.stringify(first.json.output.text)), true);
});

test("the same JSON in another order, spelling and white space is the same request", async () => {
  const { fakes, client } = stage;
  const { tag, body } = stage.request({ generationConfig: { temperature: 1, topK: 40 } });
  const first = await client.generate(body);
  expectFresh(first);
  const respelled = `{ "publish":[], "generationConfig": {"topK":4e1,"temperature":1.0},
    "userPrompt":${JSON.stringify(`  ${body.userPrompt}\n`)}, "pipeline":"d\\u0061ily", "site":"blog" }`;
  expectReplay(await client.generate(respelled), first);
  assert.equal(await fakes.billed(tag), 1);
});

test("GET shows the generation with its deliveries; lists find it by key and request id", async () => {
  const { client } = stage;
  const { tag, body } = stage.owedRequest();
  const first = await client.generate(body, { "idempotency-key": `order-${tag}` });
  expectFresh(first);
  assert.equal(first.json.key, `order-${tag}`);
  const { id, requestId } = first.json;

  const shown = await client.call("GET", `/api/v1/generations/${id}`);
  expectAnswer(shown, 200);
  const { deliveries, ...rest } = shown.json;
  assert.deepEqual(rest, first.json);
  assert.equal(deliveries.length, 1);

  for (const query of [`key=order-${tag}`, `requestId=${requestId}`]) {
    const list = await client.call("GET", `/api/v1/generations?${query}`);
    expectAnswer(list, 200);
    assert.deepEqual(
      list.json.items.map((item) => item.id),
      [id],
      query,
    );
    assert.equal(list.json.nextCursor, null);
  }
});

test("a duplicate that names a further destination buys nothing and adds the delivery", async () => {
  const { fakes, worker, client } = stage;
  const { tag, body } = stage.owedRequest();
  const first = await client.generate(body);
  expectFresh(first);
  const wider = { ...body, publish: [...body.publish, { publisher: "hook", target: tag }] };
  expectReplay(await client.generate(wider), first);
  await worker.cron();
  const deliveries = await stage.settled(first.json.id);
  assert.deepEqual(deliveries.map(({ publisher }) => publisher).sort(), ["files", "hook"]);
  assert.equal((await fakes.hooks("plain", tag)).length, 1);
  assert.equal(await fakes.billed(tag), 1);
});

test("the Worker tells that it lives, and what it offers", async () => {
  const { worker } = stage;
  assert.equal((await send(worker, "GET", "/healthz")).status, 200);
  const contract = await send(worker, "GET", "/openapi.json");
  assert.equal(contract.status, 200);
  assert.match(contract.json.openapi, /^3\.1\./);
});
