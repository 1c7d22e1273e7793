// What a pipeline's configuration says about its outputs: a second one for the same target is held
// where it says so, a template gives what is sent its form, and a bad template never goes into use.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { admin, send } from "./lib/client.mjs";
import { expectAnswer, expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage, uniqueTag } from "./lib/stage.mjs";
import { Worker } from "./lib/worker.mjs";

const DAY = 24 * 60 * 60_000;
const accounts = ["acme"];
const news = [{ publisher: "hook", target: "news" }];
const OWN = {
  body: '<h1>{{title|html}}</h1>\n<p data-id="{{generationId}}">{{text}}</p>',
  content_type: "text/html; charset=utf-8",
};
const PIPELINES = {
  "blog/guarded": { accounts, near_duplicates: "hold", publish: news },
  "blog/unguarded": { accounts, publish: news },
  "blog/raw": { accounts, template: "text" },
  "blog/json": { accounts, template: "json" },
  "blog/markdown": { accounts, template: "markdown" },
  "blog/own": { accounts, template: OWN },
};

let stage;
before(async () => (stage = await setStage("pipelines", { vars: { PIPELINES } })));
after(() => stage?.close());

describe("near_duplicates = hold", () => {
  const hooks = async (tag) => (await stage.fakes.hooks("plain", tag)).length;

  /** A text of its own for a pipeline's own destination, or for another. */
  async function write(pipeline, publish) {
    const { tag, body } = stage.request({ pipeline, publish });
    const sent = { ...body, userPrompt: `${tag} [[say:The news of ${tag}.]]` };
    return { tag, body: sent, answer: await stage.client.generate(sent) };
  }

  test("a second text for one target within a day is paid for and left to a person", async () => {
    const { fakes, worker, client } = stage;
    const first = await write("guarded");
    expectFresh(first.answer);
    assert.equal((await stage.settled(first.answer.json.id))[0].status, "published");

    const second = await write("guarded");
    expectAnswer(second.answer, 422, "output_held");
    const id = second.answer.json.generationId;
    const held = await client.generation(id);
    assert.deepEqual([held.state, held.reason], ["held", "near_duplicate"]);
    assert.equal(held.output.text, `The news of ${second.tag}.`, "it is kept");
    const sql = "SELECT status FROM deliveries WHERE generation_id = ?";
    assert.deepEqual(await worker.sql(sql, id), [{ status: "waiting" }]);
    await worker.cron();
    assert.equal(await hooks(second.tag), 0, "and not sent");
    expectAnswer(await client.generate(second.body), 422, "output_held");
    assert.equal(await fakes.billed(second.tag), 1, "nor bought again");
    const alerts = await worker.sql("SELECT count FROM alerts WHERE kind = 'held'");
    assert.deepEqual(alerts, [{ count: 1 }]);

    const decision = { action: "publish", reason: "both are meant" };
    const resolved = await client.call("POST", `/api/v1/generations/${id}/resolve`, decision);
    assert.equal(resolved.status, 200, resolved.text);
    assert.equal((await stage.settled(id))[0].status, "published");
    assert.equal(await hooks(second.tag), 1);
    expectAnswer(await client.generate(second.body), 200);
  });

  test("the same text again is a replay, not a near-duplicate", async () => {
    const target = uniqueTag();
    const first = await write("guarded", [{ publisher: "hook", target }]);
    expectFresh(first.answer);
    expectReplay(await stage.client.generate(first.body), first.answer);
  });

  test("another target, another pipeline and the next day are none of its business", async () => {
    const target = uniqueTag();
    expectFresh((await write("guarded", [{ publisher: "hook", target }])).answer);
    expectFresh((await write("guarded", [{ publisher: "signed", target }])).answer);
    expectFresh((await write("unguarded")).answer);
    expectFresh((await write("unguarded")).answer);
    const { worker } = stage;
    await worker.clock(worker.now - Date.now() + DAY + 60_000);
    expectFresh((await write("guarded", [{ publisher: "hook", target }])).answer);
    const third = await write("guarded", [{ publisher: "hook", target }]);
    expectAnswer(third.answer, 422, "output_held");
  });
});

describe("a template gives what is sent its form", () => {
  const TOPIC = 'Beams: "old" & <straight>';
  const TEXT = "# Beams\n\nThey stay **straight**.\n";

  async function published(pipeline) {
    const { tag, body } = stage.owedRequest("files", { pipeline, topic: TOPIC });
    await stage.fakes.script("gemini", tag, { say: TEXT });
    const answer = await stage.client.generate(body);
    expectFresh(answer);
    const [delivery] = await stage.settled(answer.json.id);
    assert.equal(delivery.status, "published", delivery.error);
    const { text, httpMetadata } = await stage.worker.r2(`files/${tag}.md`);
    return { text, type: httpMetadata.contentType, made: answer.json, delivery };
  }

  test("text: the output, byte for byte", async () => {
    const { text, type, made } = await published("raw");
    assert.equal(text, TEXT);
    assert.equal(text, made.output.text);
    assert.match(type, /^text\/plain/);
  });

  test("json: the output and where it comes from", async () => {
    const { text, type, made, delivery } = await published("json");
    assert.equal(type, "application/json");
    const { id: generationId, model, fingerprint, createdAt, completedAt } = made;
    assert.deepEqual(JSON.parse(text), {
      ...{ title: TOPIC, text: TEXT, topic: TOPIC },
      ...{ account: "acme", site: "blog", pipeline: "json" },
      ...{ model, generationId, deliveryId: delivery.id, fingerprint, createdAt, completedAt },
    });
  });

  test("markdown: the output after a front matter that no topic ends", async () => {
    const { text, type, made } = await published("markdown");
    assert.match(type, /^text\/markdown/);
    const [, matter, body] = text.match(/^---\n(.*?)\n---\n\n(.*)$/s);
    const read = matter.split("\n").map((line) => line.match(/^(\w+): (".*")$/).slice(1));
    assert.deepEqual(Object.fromEntries(read.map(([name, value]) => [name, JSON.parse(value)])), {
      ...{ title: TOPIC, date: made.completedAt, site: "blog", pipeline: "markdown" },
      ...{ model: made.model, generation: made.id },
    });
    assert.equal(body, TEXT);
  });

  test("one of the operator's own, escaped where it says so", async () => {
    const { text, type, made } = await published("own");
    assert.equal(type, OWN.content_type);
    const title = "Beams: &quot;old&quot; &amp; &lt;straight&gt;";
    assert.equal(text, `<h1>${title}</h1>\n<p data-id="${made.id}">${TEXT}</p>`);
  });
});

test("bad templates are all named when the Worker starts, and it serves nothing", async () => {
  const worker = await Worker.start("bad-templates", {
    vars: {
      PIPELINES: {
        "blog/unknown": { template: "makrdown" },
        "blog/typo": { template: { body: "{{titel}} {{text}}", content_type: "text/html" } },
        "blog/empty": { template: { body: "no text in it", content_type: "text/html" } },
        "blog/open": { template: { body: "{{text", content_type: "text/html" } },
        "blog/good": { template: "markdown" },
      },
    },
  });
  try {
    const health = await admin(worker, "GET", "/admin/health");
    assert.equal(health.status, 503);
    const faults = Object.fromEntries(
      health.json.faults.map(({ name, problem }) => [name, problem]),
    );
    const named = (pipeline) => faults[`PIPELINES."blog/${pipeline}".template`];
    assert.match(named("unknown"), /must be text, json or markdown/);
    assert.match(named("typo"), /`titel` is not known/);
    assert.match(named("empty"), /never says \{\{text\}\}/);
    assert.match(named("open"), /a `\{\{` has no `\}\}`/);
    assert.equal(health.json.faults.length, 4, health.text);
    const key = { authorization: `Bearer opk_${"0".repeat(48)}` };
    const body = { site: "blog", pipeline: "good", userPrompt: "x" };
    for (const answer of [
      await send(worker, "POST", "/api/v1/generations", body, key),
      await send(worker, "GET", "/api/v1/outbox", undefined, key),
    ]) {
      expectAnswer(answer, 500, "misconfigured");
      assert.equal(answer.headers.get("x-should-retry"), "false");
    }
  } finally {
    await worker.stop();
  }
});
