// What a drain reads, in D1's own figures: the same whatever was published before and whatever
// others owe. `ONCEPRESS_SCALE=1000000` seeds a million published rows; the default is bounded, so
// that every run can afford it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { admin } from "./lib/client.mjs";
import { expectFresh } from "./lib/expect.mjs";
import { ACCOUNTS, setStage, varsFor } from "./lib/stage.mjs";

const PUBLISHED = [1_000, Number(process.env.ONCEPRESS_SCALE ?? 100_000)];
const OTHERS = 10_000;
const DUE = 20;
const READ_A_ROW_MAX = 9;
/** One statement may run for 30 s on D1. */
const SEEDED_AT_ONCE = 50_000;

const REPLAYS = 20;

let stage;
before(async () => {
  stage = await setStage("scale", { publishers, secrets: { GITHUB_TOKEN: "github_pat_e2e" } });
  await stage.fakes.control("POST", "config", { github: { token: "github_pat_e2e" } });
});
after(() => stage?.close());

function publishers(fakes) {
  const repository = {
    kind: "github",
    api_base: `${fakes.url}/github`,
    repository: "acme/blog",
    token: "GITHUB_TOKEN",
    accounts: ACCOUNTS,
  };
  return { ...varsFor(fakes).PUBLISHERS, repo: repository };
}

const NUMBERS = "WITH RECURSIVE c (i) AS (SELECT CAST(?1 AS INTEGER) UNION ALL SELECT i + 1 FROM c WHERE i < ?2)";

/** Rows `first` to `last` of a group: generations with an output, each owed to one publisher. */
async function seed(group, first, last, publisher, status, dueAt) {
  const { worker } = stage;
  const made = worker.now - 86_400_000;
  for (let from = first; from <= last; from += SEEDED_AT_ONCE) {
    const range = [from, Math.min(last, from + SEEDED_AT_ONCE - 1)];
    await worker.sql(
      `INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, operation,
         fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, request_id, model,
         upstream, created_at, updated_at, credit_day, output_id, output_where, output_parts)
       ${NUMBERS} SELECT 'gen_' || ?3 || i, 'acme', 'blog', 'daily', 'api', 'k' || ?3 || i,
         'c' || ?3 || i, 0, 'f', '[]', 'generated', 't', 0, 0, 0, 'r' || ?3 || i,
         'gemini-3.8-flash', 'u', ?4 + i % 1000, ?4, '2026-11-30', 'out_' || ?3 || i, 'd1', 1
       FROM c`,
      ...range,
      group,
      made,
    );
    await worker.sql(
      `INSERT INTO outputs (output_id, part, body)
       ${NUMBERS} SELECT 'out_' || ?3 || i, 0, json_object('output', json_object('text', ?3 || i))
       FROM c`,
      ...range,
      group,
    );
    await worker.sql(
      `INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target,
         status, next_attempt_at, created_at, due_since, final_at)
       ${NUMBERS} SELECT 'dlv_' || ?3 || i, 'gen_' || ?3 || i, 'acme', 'blog', 'daily', ?5,
         ?3 || i || '.md', ?6, ?7, ?4 + i % 1000, ?4, CASE ?6 WHEN 'pending' THEN NULL ELSE ?4 END
       FROM c`,
      ...range,
      group,
      made,
      publisher,
      status,
      dueAt,
    );
  }
}

/** Makes 20 rows due, drains them, and tells what the database read and how often it was asked. */
async function drain(...groups) {
  const { worker } = stage;
  for (const [group, publisher] of groups) {
    await seed(group, 1, DUE / groups.length, publisher, "pending", 0);
  }
  await worker.quiet();
  const since = (await worker.e2e("GET", "journal")).length;
  const begun = performance.now();
  const { status, json, text } = await admin(worker, "POST", "/admin/drain");
  const tookMs = Math.round(performance.now() - begun);
  assert.equal(status, 200, text);
  assert.equal(json.published, DUE, text);
  const made = (await worker.journal(since)).filter(({ where }) => where === "fetch");
  const database = made.filter(({ binding }) => binding === "DB");
  return {
    rowsRead: database.reduce((sum, { rowsRead }) => sum + rowsRead, 0),
    rowsWritten: database.reduce((sum, { rowsWritten }) => sum + rowsWritten, 0),
    subrequests: made.reduce((sum, { statements }) => sum + (statements ?? 1), 0),
    tookMs,
    made,
  };
}

/** Answers of which no cache knows: what each reads in the database, and how long it takes. */
async function replays() {
  const { worker, client } = stage;
  const requests = Array.from({ length: REPLAYS }, () => stage.request());
  for (const { body } of requests) expectFresh(await client.generate(body));
  for (const key of (await worker.e2e("GET", "kv")).keys.filter((name) => name.startsWith("idem:")))
    await worker.e2e("POST", "kv", { key, value: "running" });
  await worker.stop();
  await worker.boot();
  await client.call("GET", "/api/v1/account");
  const since = (await worker.e2e("GET", "journal")).length;
  const tookMs = [];
  for (const { body } of requests) {
    const begun = performance.now();
    const { status, text } = await client.generate(body);
    tookMs.push(performance.now() - begun);
    assert.equal(status, 200, text);
  }
  const claims = (await worker.journal(since)).filter(
    ({ binding, subject }) => binding === "DB" && /INSERT INTO generations/.test(subject),
  );
  assert.equal(claims.length, REPLAYS);
  const rowsRead = claims.reduce((sum, claim) => sum + claim.rowsRead, 0) / REPLAYS;
  return { rowsRead, medianMs: Math.round(tookMs.sort((a, b) => a - b)[REPLAYS / 2]) };
}

test("20 due rows cost the same beside 10^3 and 10^6 published ones, and 10^4 that others owe", async (context) => {
  const later = stage.worker.now + 86_400_000;
  const figures = [];
  const measure = async (what, group) => {
    const cost = await drain([group, "files"]);
    figures.push({ what, ...cost });
    context.diagnostic(
      `${what}: ${cost.rowsRead / DUE} rows read a row, ${cost.rowsWritten / DUE} written, ` +
        `${cost.subrequests} subrequests, ${cost.tookMs} ms`,
    );
  };
  const replayed = [];
  const replay = async () => {
    replayed.push(await replays());
    const { rowsRead, medianMs } = replayed.at(-1);
    context.diagnostic(`replay from the database: ${rowsRead} rows read, ${medianMs} ms`);
  };
  await seed("p", 1, PUBLISHED[0], "files", "published", 0);
  await measure(`beside ${PUBLISHED[0]} published`, "a");
  await replay();
  await seed("p", PUBLISHED[0] + 1, PUBLISHED[1], "files", "published", 0);
  await measure(`beside ${PUBLISHED[1]} published`, "b");
  await replay();
  await seed("d", 1, OTHERS, "hook", "dead", 0);
  await measure(`and ${OTHERS} dead of another publisher`, "e");
  await seed("w", 1, OTHERS, "hook", "pending", later);
  await measure(`and ${OTHERS} of it that wait`, "g");
  // Due, but the publisher is left alone, for no longer than the product would.
  await stage.worker.sql(
    "INSERT INTO circuits (publisher, failures, open_until) VALUES ('broken', 3, ?1)",
    stage.worker.now + 600_000,
  );
  await seed("o", 1, OTHERS, "broken", "pending", 0);
  await measure(`and ${OTHERS} due of one that is down`, "h");

  for (const { what, rowsRead, subrequests, made } of figures) {
    const read = made.map(({ subject, rowsRead }) => `${rowsRead} ${subject}`).join("\n");
    assert.ok(rowsRead <= DUE * READ_A_ROW_MAX, `${what}: ${rowsRead} rows read\n${read}`);
    assert.ok(subrequests <= 50, `${what}: ${subrequests} subrequests`);
  }
  const lanes = 3;
  const spread = Math.max(...figures.map(({ rowsRead }) => rowsRead)) - figures[0].rowsRead;
  assert.ok(spread <= 6 * lanes, `a few reads for each further lane, not ${spread}`);
  assert.equal(replayed[0].rowsRead, replayed[1].rowsRead, "a replay reads the same");
});

test("two due destinations in one drain cost no more a row", async (context) => {
  const { rowsRead, made } = await drain(["x", "files"], ["y", "signed"]);
  context.diagnostic(`two destinations: ${rowsRead / DUE} rows read a row`);
  const read = made.map(({ subject, rowsRead }) => `${rowsRead} ${subject}`).join("\n");
  assert.ok(rowsRead <= DUE * READ_A_ROW_MAX, `${rowsRead} rows read\n${read}`);
});

test("a branch that takes one writer at a time costs no more a row", async (context) => {
  const { rowsRead, rowsWritten, subrequests, made } = await drain(["r", "repo"]);
  context.diagnostic(
    `one branch: ${rowsRead / DUE} rows read a row, ${rowsWritten / DUE} written, ${subrequests} subrequests`,
  );
  const read = made.map(({ subject, rowsRead }) => `${rowsRead} ${subject}`).join("\n");
  assert.ok(rowsRead <= DUE * READ_A_ROW_MAX, `${rowsRead} rows read\n${read}`);
  assert.ok(subrequests <= 50, `${subrequests} subrequests`);
});
