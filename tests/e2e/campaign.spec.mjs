// The small form of the campaigns in tests/campaign: a few kills, a few seconds of load. The audit
// itself is tried too: each kind of loss, put into the books by hand, must be noticed.
// `CAMPAIGN_SEED` makes it another campaign.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { runCampaign } from "../campaign/crash.mjs";
import { audit } from "../campaign/lib/audit.mjs";
import { runLoad } from "../campaign/load.mjs";

const SEED = Number(process.env.CAMPAIGN_SEED ?? 1);

describe("after four kills under load", () => {
  let result;
  before(async () => (result = await runCampaign({ kills: 4, seed: SEED, callers: 8 })));
  after(() => (result = undefined));

  const complaintsWith = (change) => {
    const books = structuredClone(result.books);
    // The one that was made when all kills were over: for its loss there is no excuse.
    const { tag } = result.callers.operations.at(-1);
    change(books, tag, `${tag}.md`);
    return audit({ ...result, books }).complaints.join("\n");
  };

  test("Gemini's bill, the database and the destinations agree", (context) => {
    context.diagnostic(JSON.stringify(result.counts));
    assert.deepEqual(result.complaints, []);
    assert.equal(result.counts.kills, 4);
    assert.ok(result.counts.callersCut > 0, "the kills came under load");
    assert.equal(result.counts.stored, result.counts.operations);
  });

  test("the audit notices an output that is gone", () => {
    const complaints = complaintsWith(({ outputs, deliveries, generations }, _, target) => {
      const owed = deliveries.find((delivery) => delivery.target === target);
      const { output_id: id } = generations.find((row) => row.id === owed.generation_id);
      const at = outputs.findIndex((output) => output.output_id === id);
      assert.ok(at >= 0, "it was there");
      outputs.splice(at, 1);
    });
    assert.match(complaints, /purchase 1: paid for, answered whole, and lost/);
  });

  test("the audit notices a purchase of what is stored", () => {
    const complaints = complaintsWith(({ bill }, tag) => {
      const entry = bill.find(({ promptStart }) => promptStart.startsWith(`${tag} `));
      bill.push({ ...entry, purchase: entry.purchase + 1, responseId: "another" });
    });
    assert.match(complaints, /stored \(generated\), and yet bought again/);
  });

  test("the audit notices a second id at a receiver", () => {
    const complaints = complaintsWith(({ destinations: { hooks } }, _, target) => {
      const hook = hooks.find(({ body }) => JSON.parse(body).data.target === target);
      hooks.push({ ...hook, id: "dlv_another" });
    });
    assert.match(complaints, /stray dlv_another/);
  });

  test("the audit notices a published text that is not the one that was answered", () => {
    const complaints = complaintsWith(({ destinations: { objects } }, _, target) => {
      objects.find(({ key }) => key === `files/${target}`).text += ".";
    });
    assert.match(complaints, /not the text that was answered/);
  });

  test("the audit notices credits that leak", () => {
    const complaints = complaintsWith(({ credits }) => (credits[0].reserved += 1));
    assert.match(complaints, /reserved \d+ credits, but the days say \d+/);
  });
});

/** Two purchases in a life that was killed; the first was hidden by it, the second is in the database. */
function hiddenBeside(secondAt) {
  const operation = { surface: "generate", isDone: true, wanted: [], purchasesByPerson: 0 };
  const operations = ["op-0-0", "op-0-1"].map((tag) => ({ ...operation, tag }));
  const lives = {
    list: [{ bootedAt: 0, killedAt: 10_000, rules: 0 }, { bootedAt: 20_000 }],
    at: (moment) => (moment < 20_000 ? 0 : 1),
    wasCommitted: (outputId) => outputId === "second",
  };
  const bought = (tag, responseId, at, purchase = 1) => ({
    ...{ promptStart: `${tag} Write.`, at: new Date(at).toISOString(), responseId, purchase },
    ...{ billed: true, outcome: "completed" },
  });
  const row = (id) => ({
    ...{ id, output_id: id, surface: "generate", state: "generated" },
    ...{ credits_spent: 0, credits_reserved: 0 },
  });
  const books = {
    bill: [
      bought("op-0-0", "hidden", 1_000),
      bought("op-0-0", "again", 21_000, 2),
      bought("op-0-1", "second", secondAt),
    ],
    generations: [row("again"), row("second")],
    outputs: ["again", "second"].map((id) => ({ output_id: id, body: `{"responseId": "${id}"}` })),
    ...{ deliveries: [], credits: [], evidence: [] },
    destinations: { objects: [], hooks: [], github: {}, wordpress: [], ghost: [] },
  };
  return audit({ books, callers: { operations, complaints: [] }, lives });
}

test("an answer that one of a second later overtook should have been stored", () => {
  assert.deepEqual(hiddenBeside(5_000).complaints, [
    "op-0-0, purchase 1: answered 9000 ms before the kill, and not stored",
  ]);
  const { complaints, counts } = hiddenBeside(1_500);
  assert.deepEqual([complaints, counts.hiddenByKill], [[], 1], "nothing tells that there was time");
});

test("under a mixed load every replay has the first bytes, every conflict is refused", async (context) => {
  const result = await runLoad({ minutes: 0.1, rate: 30, seed: 1, warmUp: 40 });
  context.diagnostic(JSON.stringify(result.latencies));
  assert.deepEqual(result.wrong, []);
  assert.deepEqual(result.errors, {});
  assert.equal(result.billed, result.made);
  for (const kind of ["fresh", "replay", "conflict"])
    assert.ok(result.latencies[kind].count > 0, `some ${kind}`);
});
