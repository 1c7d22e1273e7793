// Messages that the queue gives up: each becomes a failure that its caller finds and a person is
// told of, and its key is free again.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";

import { admin } from "./lib/client.mjs";
import { expectAnswer, expectFresh } from "./lib/expect.mjs";
import { BASE_CONFIG } from "./lib/paths.mjs";
import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const MINUTE = 60_000;

/** A Worker whose jobs are dead-lettered after so many retries. */
function stageWithRetries(name, max_retries) {
  const { queues } = JSON.parse(readFileSync(BASE_CONFIG, "utf8"));
  const consumers = queues.consumers.map((consumer) =>
    consumer.dead_letter_queue
      ? { ...consumer, max_retries }
      : { ...consumer, max_batch_timeout: 1 },
  );
  assert.equal(consumers.filter(({ queue }) => queue.endsWith("-dead")).length, 1);
  return setStage(name, {
    bindings: { queues: { ...queues, consumers } },
    secrets: ({ url }) => ({ SLACK_WEBHOOK_URL: `${url}/slack/alerts` }),
  });
}

const figures = async ({ worker }) => (await admin(worker, "GET", "/admin/health")).json.figures;

/** The lines of a kind that the log has about a generation, once there is one: it is written later. */
const logged = ({ worker }, event, id) =>
  waitFor(`${event} in the log`, async () => {
    const lines = (await readFile(worker.log, "utf8")).split("\n");
    const found = lines.filter((line) => line.includes(`"${event}"`) && line.includes(id));
    return found.length > 0 && found;
  });

async function submit(stage) {
  const { tag, body } = stage.owedRequest("files", { topic: "The tides" });
  const accepted = await stage.client.generate(body, { prefer: "respond-async" });
  expectAnswer(accepted, 202);
  const path = new URL(accepted.headers.get("location"), stage.worker.url).pathname;
  return { tag, body, id: path.split("/").at(-1) };
}

/** Waits until the job has failed, and sees all that is left of it. */
async function expectBuried(stage, { tag, body, id }, reason) {
  const { fakes, worker, client } = stage;
  const buried = await waitFor(
    "the dead letter",
    async () => {
      const generation = await client.generation(id);
      return generation.state === "failed" && generation;
    },
    { withinMs: 30_000 },
  );
  assert.equal(buried.reason, reason);
  assert.equal(buried.detail, "every delivery of its queue message failed");
  assert.deepEqual(buried.deliveries, [], "nothing is owed");
  assert.ok(Date.parse(buried.completedAt) > 0);
  const [{ reserved, spent }] = await worker.sql(
    "SELECT credits_reserved AS reserved, credits_spent AS spent FROM generations WHERE id = ?",
    id,
  );
  assert.deepEqual({ reserved, spent }, { reserved: 0, spent: 0 }, "the credits went back");
  assert.equal((await logged(stage, "message_dead", id)).length, 1);
  assert.equal((await figures(stage)).queued, 0, "the queue holds it no more");
  const listed = await client.call("GET", "/api/v1/generations?state=failed");
  assert.ok(listed.json.items.some((item) => item.id === id));

  await worker.rules();
  await fakes.clearScript();
  expectFresh(await client.generate(body));
  assert.equal(await fakes.billed(tag), 1);
}

/** A person hears of it as the five minutes after it close. */
async function expectTold(stage) {
  const { fakes, worker } = stage;
  const told = async () => {
    const { messages = [] } = await fakes.control("GET", "slack");
    return messages.filter((message) => /queued|queue message/i.test(JSON.stringify(message)));
  };
  assert.deepEqual(await told(), [], "not before");
  await worker.clock(worker.now - Date.now() + 6 * MINUTE);
  const messages = await waitFor("the message in Slack", async () => {
    await worker.cron();
    await worker.clock(worker.now - Date.now() + MINUTE);
    const found = await told();
    return found.length > 0 && found;
  });
  assert.equal(messages.length, 1);
  assert.match(JSON.stringify(messages[0]), /blog\/daily|blog.*daily/);
  assert.match(JSON.stringify(messages[0]), /The tides/);
  const [alert, ...more] = await worker.sql("SELECT * FROM alerts WHERE kind = 'dead_message'");
  assert.equal(more.length, 0);
  assert.deepEqual([alert.account, alert.count, alert.state], ["acme", 1, "sent"]);
}

describe("a job whose every try failed", () => {
  let stage;
  before(async () => (stage = await stageWithRetries("dead-letters", 2)));
  after(() => stage?.close());

  test("has the reason of its last try, and is told", async () => {
    const { fakes } = stage;
    const job = await submit(stage);
    await fakes.script("gemini", job.tag, { status: 429, "retry-delay": "1s" }, -1);
    await expectBuried(stage, job, "gemini_rate_limited");
    await expectTold(stage);
  });
});

describe("a job that the database never let begin", () => {
  let stage;
  before(async () => (stage = await stageWithRetries("dead-letters-store", 0)));
  after(() => stage?.close());

  test("says so, and nothing was bought", async () => {
    const { fakes, worker } = stage;
    await worker.rules({
      binding: "DB",
      where: "queue",
      match: "UPDATE generations SET state = 'running'",
      error: "D1_ERROR: D1 DB is overloaded. Requests queued for too long.",
    });
    const job = await submit(stage);
    await expectBuried(stage, job, "store_unavailable");
    assert.ok((await worker.e2e("GET", "rules")).hits.length === 0);
    assert.equal((await fakes.asked(job.tag)).length, 1, "by the fresh request only");
  });
});
