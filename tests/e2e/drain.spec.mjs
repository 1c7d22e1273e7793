// The outbox on real bindings: every delivery takes effect, none blocks another, each failure is
// recorded.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { admin } from "./lib/client.mjs";
import { expectAnswer, expectFresh } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const MINUTE = 60_000;

let stage;
before(async () => (stage = await setStage("drain")));
after(() => stage?.close());

const pass = (ms) => stage.worker.clock(stage.worker.now - Date.now() + ms);

async function make(publisher, count = 1) {
  const requests = Array.from({ length: count }, () => stage.owedRequest(publisher));
  const answers = await Promise.all(requests.map(({ body }) => stage.client.generate(body)));
  answers.forEach(expectFresh);
  return requests.map(({ tag }, index) => ({ tag, id: answers[index].json.id }));
}

/** A tick, after which no row of these is on its way: time may pass then. */
async function tick(...rows) {
  await stage.worker.cron();
  for (const { id } of rows) await stage.unleased(id);
}

const deliveryOf = async (id) => (await stage.client.generation(id)).deliveries[0];

test("a broken destination delays no other", async () => {
  const { fakes, worker } = stage;
  await fakes.script("webhook", "/webhook/broken", { status: 500 }, -1);
  const broken = await make("broken", 12);
  const fine = await make("files", 12);
  await tick(...broken);
  for (const { id } of fine) assert.equal((await stage.settled(id))[0].status, "published");
  for (const { id } of broken) assert.equal((await deliveryOf(id)).status, "pending");
  await fakes.clearScript();
  await waitFor("the broken destination's deliveries", async () => {
    await pass(6 * 60 * MINUTE);
    await tick(...broken);
    const left = await Promise.all(broken.map(({ id }) => deliveryOf(id)));
    return left.every(({ status }) => status === "published");
  });
});

test("POST /admin/drain answers counts per outcome", async () => {
  await make("files", 3);
  await waitFor("nothing to be left", async () => {
    const { status, json, text } = await admin(stage.worker, "POST", "/admin/drain");
    assert.equal(status, 200, text);
    for (const [outcome, count] of Object.entries(json)) {
      if (typeof count === "number") assert.ok(count >= 0, outcome);
    }
    assert.ok("published" in json, text);
    return json.published === 0;
  });
});

test("a destination that says no for good makes a dead letter with the reason; requeue revives it", async () => {
  const { fakes, worker, client } = stage;
  await fakes.script("webhook", "/webhook/plain", { status: 404 });
  const [{ id, tag }] = await make("hook");
  await worker.cron();
  const [dead] = await stage.settled(id);
  assert.equal(dead.status, "dead");
  assert.match(dead.error, /target_missing/);
  assert.deepEqual(
    dead.attempts.map(({ status }) => status),
    [404],
  );
  assert.ok(Date.parse(dead.attempts[0].at) > 0, JSON.stringify(dead.attempts));

  const listed = await client.call("GET", "/api/v1/outbox?status=dead");
  expectAnswer(listed, 200);
  assert.ok(listed.json.items.some((item) => item.id === dead.id));
  const requeued = await client.call("POST", `/api/v1/outbox/${dead.id}/requeue`);
  assert.equal(requeued.status, 200, requeued.text);
  await worker.cron();
  assert.equal((await stage.settled(id))[0].status, "published");
  const accepted = (await fakes.hooks("plain", tag)).filter((hook) => hook.accepted);
  assert.equal(accepted.length, 1);
  assert.equal(accepted[0].id, dead.id, "the key is the same at every attempt");
});

test("a cancelled delivery is never sent", async () => {
  const { fakes, worker, client } = stage;
  await fakes.script("webhook", "/webhook/plain", { status: 503 });
  const [{ id, tag }] = await make("hook");
  await tick({ id });
  const delivery = await deliveryOf(id);
  const cancelled = await client.call("POST", `/api/v1/outbox/${delivery.id}/cancel`);
  assert.equal(cancelled.status, 200, cancelled.text);
  await pass(24 * 60 * MINUTE);
  await worker.cron();
  assert.equal((await deliveryOf(id)).status, "cancelled");
  assert.equal((await fakes.hooks("plain", tag)).filter((hook) => hook.accepted).length, 0);
});

test("Retry-After is honoured, never undercut", async () => {
  const { fakes, worker } = stage;
  const headers = { "retry-after": "1800" };
  await fakes.script("webhook", "/webhook/plain", { status: 429, headers });
  const [{ id }] = await make("hook");
  await worker.cron();
  await waitFor("the first attempt", async () => (await deliveryOf(id)).attempts.length === 1);
  await pass(29 * MINUTE);
  await worker.cron();
  assert.equal((await deliveryOf(id)).attempts.length, 1);
  await waitFor("the second attempt", async () => {
    await pass(30 * MINUTE);
    await worker.cron();
    return (await deliveryOf(id)).status === "published";
  });
});

test("a webhook that takes effect and breaks off is told again, with the same key", async () => {
  const { fakes, worker } = stage;
  await fakes.script("webhook", "/webhook/plain", { "commit-then-reset": true });
  const [{ id, tag }] = await make("hook");
  await waitFor("the delivery", async () => {
    await tick({ id });
    await pass(60 * MINUTE);
    return (await deliveryOf(id)).status === "published";
  });
  const hooks = await fakes.hooks("plain", tag);
  assert.equal(hooks.length, 2);
  assert.equal(new Set(hooks.map((hook) => hook.id)).size, 1);
});

test("R2 that takes effect and loses the answer is recognised: one effect", async () => {
  const { worker } = stage;
  await worker.rules({
    binding: "BUCKET",
    op: "put",
    match: "^files/",
    when: "after",
    times: 1,
    error: "put: Network connection lost.",
  });
  const [{ id, tag }] = await make("files");
  await waitFor("the delivery", async () => {
    await tick({ id });
    await pass(60 * MINUTE);
    return (await deliveryOf(id)).status === "published";
  });
  await worker.rules();
  assert.deepEqual(await stage.published(tag), [`files/${tag}.md`]);
});

test("other content at the target is not overwritten: target_taken", async () => {
  const { worker, client } = stage;
  const [first] = await make("files");
  await worker.cron();
  await stage.settled(first.id);
  const { body } = stage.owedRequest();
  const second = await client.generate({
    ...body,
    publish: [{ publisher: "files", target: `${first.tag}.md` }],
  });
  expectFresh(second);
  await worker.cron();
  const [delivery] = await stage.settled(second.json.id);
  assert.equal(delivery.status, "dead");
  assert.match(delivery.error, /target_taken/);
});

test("two ticks at once publish each row once", async () => {
  const { fakes, worker } = stage;
  await fakes.script("webhook", "/webhook/plain", { status: 503 }, 8);
  const made = await make("hook", 8);
  await tick(...made);
  await fakes.clearScript();
  await pass(2 * 60 * MINUTE);
  await Promise.all([worker.cron(), worker.cron(worker.now + MINUTE), worker.cron()]);
  for (const { id, tag } of made) {
    await waitFor("the delivery", async () => {
      if ((await deliveryOf(id)).status === "published") return true;
      await pass(60 * MINUTE);
      await tick({ id });
      return false;
    });
    assert.equal((await fakes.hooks("plain", tag)).filter((hook) => hook.accepted).length, 1);
  }
});

test("a drain stays within the free plan's 50 subrequests", async (context) => {
  const { fakes, worker } = stage;
  await fakes.script("webhook", "/webhook/plain", { status: 503 }, -1);
  const made = await make("hook", 40);
  await tick(...made);
  await fakes.clearScript();
  await pass(3 * 60 * MINUTE);
  const since = (await worker.e2e("GET", "journal")).length;
  await worker.cron();
  const used = (await worker.journal(since)).filter(({ where }) => where !== "runner");
  context.diagnostic(`a drain with 40 due rows made ${used.length} subrequests`);
  assert.ok(used.length <= 50, `${used.length} subrequests`);
});
