// The small form of the campaigns in tests/campaign: a few kills, a few seconds of load. The audit
// itself is tried too: each kind of loss, put into the books by hand, must be noticed.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { runCampaign } from "../campaign/crash.mjs";
import { audit } from "../campaign/lib/audit.mjs";
import { runLoad } from "../campaign/load.mjs";

describe("after four kills under load", () => {
  let result;
  before(async () => (result = await runCampaign({ kills: 4, seed: 1, callers: 8 })));
  after(() => (result = undefined));

  const complaintsWith = (change) => {
    const books = structuredClone(result.books);
    change(books);
    return audit({ ...result, books }).complaints;
  };

  test("Gemini's bill, the database and the destinations agree", (context) => {
    context.diagnostic(JSON.stringify(result.counts));
    assert.deepEqual(result.complaints, []);
    assert.equal(result.counts.kills, 4);
    assert.ok(result.counts.callersCut > 0, "the kills came under load");
    assert.equal(result.counts.stored, result.counts.operations);
  });

  test("the audit notices an output that is gone", () => {
    const complaints = complaintsWith(({ outputs }) => outputs.pop());
    assert.match(complaints.join("\n"), /lost|never bought|not stored|without fault or kill/);
  });

  test("the audit notices a purchase of what is stored", () => {
    const complaints = complaintsWith(({ bill }) => {
      const { purchase, ...entry } = bill.findLast((one) => one.outcome === "completed");
      bill.push({ ...entry, purchase: purchase + 1, responseId: "another" });
    });
    assert.match(complaints.join("\n"), /stored \(generated\), and yet bought again/);
  });

  test("the audit notices a second id at a receiver", () => {
    const complaints = complaintsWith(({ destinations: { hooks } }) =>
      hooks.push({ ...hooks.at(-1), id: "dlv_another" }),
    );
    assert.match(complaints.join("\n"), /stray dlv_another/);
  });

  test("the audit notices a published text that is not the one that was answered", () => {
    const complaints = complaintsWith(({ destinations: { objects } }) => {
      objects.at(-1).text += ".";
    });
    assert.match(complaints.join("\n"), /not the text that was answered/);
  });

  test("the audit notices credits that leak", () => {
    const complaints = complaintsWith(({ credits }) => (credits[0].reserved += 1));
    assert.match(complaints.join("\n"), /reserved \d+ credits, but the days say \d+/);
  });
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
