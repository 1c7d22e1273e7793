// What is past its retention goes, with all that lies elsewhere for it; what a person still has to
// decide stays, however old it is; and the figures of what was used stay for good.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { Client } from "./lib/client.mjs";
import { expectAnswer, expectFresh } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

const MINUTE = 60_000;
const TEN_MINUTES = 10 * MINUTE;
const DAY = 24 * 60 * MINUTE;
const OUTPUTS = "_oncepress/outputs/";
const BODIES = "_oncepress/requests/";
const UNARY = "/v1beta/models/gemini-3.8-flash:generateContent";

let stage;
let other;
before(async () => {
  stage = await setStage("purge", { vars: { ON_UNKNOWN: "hold" } });
  await stage.atNoon();
  other = await Client.create(stage.worker, "globex");
});
after(() => stage?.close());

const objects = async (prefix) =>
  (await stage.worker.r2Keys()).filter((key) => key.startsWith(prefix));

const look = (id) => stage.client.call("GET", `/api/v1/generations/${id}`);

/** Makes a generation and its deliveries as old as if they had been made so long ago. */
async function age(id, ms) {
  const { worker } = stage;
  const earlier = (columns) => columns.map((name) => `${name} = ${name} - ?1`).join(", ");
  const times = ["lease_until", "anchor_at", "expires_at", "created_at", "completed_at"];
  const all = earlier([...times, "updated_at", "purge_at"]);
  await worker.sql(`UPDATE generations SET ${all} WHERE id = ?2`, ms, id);
  const delivered = earlier(["created_at", "due_since", "published_at", "final_at"]);
  await worker.sql(`UPDATE deliveries SET ${delivered} WHERE generation_id = ?2`, ms, id);
}

/** The next tick that tidies up, or the first one that looks after bodies whose names begin so. */
async function tidy(part) {
  const { worker } = stage;
  let turn = Math.ceil(worker.now / TEN_MINUTES) + 1;
  while (part !== undefined && turn % 256 !== part) turn += 1;
  await worker.clock(turn * TEN_MINUTES - Date.now());
  await worker.cron(turn * TEN_MINUTES);
}

/** Makes what there is to make: each by its own way into the state that it shall grow old in. */
const MADE = {
  async published() {
    const { tag, body } = stage.owedRequest();
    const answer = await stage.client.generate(body);
    expectFresh(answer);
    assert.equal((await stage.settled(answer.json.id))[0].status, "published");
    return { tag, body, id: answer.json.id };
  },
  async "under an operation key"() {
    const { tag, body } = stage.request();
    const headers = { "idempotency-key": tag };
    const answer = await stage.client.generate(body, headers);
    expectFresh(answer);
    return { tag, body, headers, id: answer.json.id };
  },
  async large() {
    const { tag, body } = stage.request();
    await stage.fakes.script("gemini", tag, { size: 300_000 });
    const answer = await stage.client.generate(body);
    expectFresh(answer);
    const [row] = await stage.worker.sql(
      "SELECT output_where AS place FROM generations WHERE id = ?",
      answer.json.id,
    );
    assert.equal(row.place, "r2");
    return { tag, body, id: answer.json.id };
  },
  async failed() {
    const { tag, body } = stage.request();
    await stage.fakes.script("gemini", tag, 400);
    const answer = await stage.client.generate(body);
    expectAnswer(answer, 502, "gemini_rejected");
    return { tag, body, id: answer.json.generationId };
  },
};

const KEPT = {
  async "unknown, under an operation key"() {
    const { tag, body } = stage.request();
    await stage.fakes.script("gemini", tag, "close-mid");
    const headers = { "idempotency-key": tag };
    const answer = await stage.client.generate(body, headers);
    expectAnswer(answer, 503, "request_reconciliation_pending");
    return { tag, body, headers, id: answer.json.generationId, state: "unknown" };
  },
  async "unknown, under a derived key that is held"() {
    const { tag, body } = stage.request();
    await stage.fakes.script("gemini", tag, "close-mid");
    const answer = await stage.client.generate(body);
    expectAnswer(answer, 503, "request_reconciliation_pending");
    return { tag, body, id: answer.json.generationId, state: "unknown" };
  },
  async held() {
    const { tag, body } = stage.request();
    await stage.fakes.script("gemini", tag, "max-tokens");
    const answer = await stage.client.generate(body);
    expectAnswer(answer, 422, "output_held");
    return { tag, body, id: answer.json.generationId, state: "held" };
  },
  async owed() {
    const { tag, body } = stage.owedRequest("broken");
    await stage.fakes.script("webhook", "/webhook/broken", { status: 503 }, -1);
    const answer = await stage.client.generate(body);
    expectFresh(answer);
    return { tag, body, id: answer.json.id, state: "generated" };
  },
};

describe("31 days later", () => {
  const gone = {};
  const kept = {};
  let usage;
  // What was made. Repeats count as replays, and there are some in between.
  const readUsage = async () => {
    const { json } = await stage.client.call("GET", "/api/v1/usage?group_by=site,pipeline,day");
    return json.items.map(({ replays: _replays, savedMicroUsd: _saved, ...made }) => made);
  };

  before(async () => {
    for (const [what, make] of Object.entries(MADE)) gone[what] = await make();
    for (const [what, make] of Object.entries(KEPT)) kept[what] = await make();
    usage = await readUsage();
    assert.equal((await objects(OUTPUTS)).length, 1);
    for (const { id } of Object.values(gone)) await age(id, 31 * DAY);
    for (const { id } of Object.values(kept)) await age(id, 400 * DAY);
    // A decision about what is unknown is due every minute, the purge in every tenth.
    await stage.worker.cron();
    await tidy();
    await tidy();
  });

  for (const what of Object.keys(MADE)) {
    test(`${what}: the id answers 410, and nothing of it is left`, async () => {
      const { id } = gone[what];
      const answer = await look(id);
      expectAnswer(answer, 410, "gone");
      assert.equal(answer.json.generationId, id);
      expectAnswer(await other.call("GET", `/api/v1/generations/${id}`), 404, "not_found");
      const { worker } = stage;
      const [left] = await worker.sql(
        `SELECT (SELECT COUNT(*) FROM generations WHERE id = ?1) AS generations,
           (SELECT COUNT(*) FROM deliveries WHERE generation_id = ?1) AS deliveries,
           (SELECT COUNT(*) FROM request_bodies WHERE generation_id = ?1) AS bodies`,
        id,
      );
      assert.deepEqual(left, { generations: 0, deliveries: 0, bodies: 0 });
    });
  }

  test("no output lies about that no generation has", async () => {
    assert.deepEqual(await objects(OUTPUTS), []);
    const orphans = await stage.worker.sql(
      `SELECT COUNT(*) AS n FROM outputs o WHERE NOT EXISTS
         (SELECT 1 FROM generations g WHERE g.output_id = o.output_id)`,
    );
    assert.deepEqual(orphans, [{ n: 0 }]);
  });

  test("what was published is the destination's, and stays there", async () => {
    assert.equal((await stage.published(gone.published.tag)).length, 1);
  });

  for (const what of Object.keys(KEPT)) {
    test(`${what}: is there after 400 days, and bought by nobody`, async () => {
      const { tag, body, headers, id, state } = kept[what];
      const answer = await look(id);
      expectAnswer(answer, 200);
      assert.equal(answer.json.state, state);
      const again = await stage.client.generate(body, headers);
      const wanted = { unknown: 503, held: 422, generated: 200 }[state];
      assert.equal(again.status, wanted, again.text);
      assert.equal((await stage.fakes.asked(tag)).length, 1);
    });
  }

  test("the figures of what was used stay", async () => {
    assert.ok(usage[0].generations >= 5 && usage[0].costMicroUsd > 0, JSON.stringify(usage));
    assert.deepEqual(await readUsage(), usage);
  });

  test("their keys are free: the same requests are fresh", async () => {
    const { fakes, worker, client } = stage;
    // The marks of the caches end by themselves, 30 minutes after they were made.
    await worker.clock(worker.now - Date.now() + 31 * MINUTE);
    for (const [what, { tag, body, headers, id }] of Object.entries(gone)) {
      await fakes.clearScript();
      const asked = (await fakes.asked(tag)).length;
      const answer = await client.generate(body, headers);
      expectFresh(answer);
      assert.notEqual(answer.json.id, id, what);
      assert.equal((await fakes.asked(tag)).length, asked + 1, what);
    }
  });
});

test("a large request's body lies in R2 while somebody may need it, and no longer", async () => {
  const { fakes, client } = stage;
  const { tag } = stage.request();
  const text = `${tag} ${"context ".repeat(150_000)}`;
  const headers = { "x-oncepress-publish": `files=${tag}.md`, "idempotency-key": tag };
  await fakes.script("gemini", tag, "max-tokens");
  const held = await client.call("POST", UNARY, { contents: [{ parts: [{ text }] }] }, headers);
  assert.equal(held.status, 200, held.text.slice(0, 300));
  const [body] = await objects(BODIES);
  const id = body?.slice(BODIES.length);
  assert.equal((await look(id)).json.state, "held");
  const part = Number.parseInt(id.slice("gen_".length, "gen_".length + 2), 16);
  await tidy(part);
  assert.deepEqual(await objects(BODIES), [body], "it is needed: a person may have it run again");

  const decision = { action: "abandon", reason: "not this one" };
  const resolved = await client.call("POST", `/api/v1/generations/${id}/resolve`, decision);
  assert.equal(resolved.status, 200, resolved.text);
  await tidy(part);
  assert.deepEqual(await objects(BODIES), []);

  const next = stage.request();
  const words = `${next.tag} ${"context ".repeat(150_000)}`;
  const made = await client.call("POST", UNARY, { contents: [{ parts: [{ text: words }] }] });
  assert.equal(made.status, 200, made.text.slice(0, 300));
  await waitFor("the body to be deleted", async () => (await objects(BODIES)).length === 0);
});
