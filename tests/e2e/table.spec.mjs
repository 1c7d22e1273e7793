// The table of answers, row by row: every code that docs/CONTRACT.md names is brought about on real
// workerd, and has the status, the source and the headers that its row says.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { gzipSync } from "node:zlib";

import { admin, Client, send } from "./lib/client.mjs";
import { expectAnswer, expectFresh, expectReplay } from "./lib/expect.mjs";
import { setStage, uniqueTag } from "./lib/stage.mjs";
import { Worker } from "./lib/worker.mjs";
import { waitFor } from "./lib/wait.mjs";

const TABLE = readTable(new URL("../../docs/CONTRACT.md", import.meta.url));
const PATH = "/api/v1/generations";
const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const KV_DOWN = { binding: "KV_DEDUP", error: "KV GET failed: 500 Internal Server Error" };
const D1_DOWN = { binding: "DB", error: "D1_ERROR: D1 DB is overloaded. Requests queued." };

let stage;
let limited;
let misconfigured;
before(async () => {
  const ratelimits = [
    { name: "RATE_LIMIT", namespace_id: "1001", simple: { limit: 1, period: 60 } },
  ];
  [stage, limited, misconfigured] = await Promise.all([
    setStage("table"),
    setStage("table-limited", { bindings: { ratelimits } }),
    Worker.start("table-misconfigured", { vars: { STALE_MINUTES: "soon" } }),
  ]);
});
after(() => Promise.all([stage?.close(), limited?.close(), misconfigured?.stop()]));

/** `code` → what its row says: `retry` is `yes, 15 s`, `no; 3600 s`, `yes` or `no`. */
function readTable(file) {
  const page = readFileSync(file, "utf8");
  const [, table] = page.match(/<!-- codes: .*? -->(.*?)<!-- end of codes -->/s);
  const rows = table.split("\n").filter((line) => line.startsWith("| `"));
  return rows.map((line) => {
    const [, code, status, source, retry] = line.split("|").map((cell) => cell.trim());
    return { code: code.replaceAll("`", ""), status: Number(status), source, retry };
  });
}

// Where the delay is somebody else's to say: Gemini's, or the account's midnight.
const OWN_DELAY = new Set(["credits_exhausted", "gemini_rate_limited", "gemini_quota_exhausted"]);

/** The headers and members that every answer of this code has. */
function expectRow({ code, status, source, retry }, answer) {
  expectAnswer(answer, status, code);
  assert.equal(answer.headers.get("x-oncepress-error-source"), source);
  const pointless = retry.startsWith("no");
  assert.equal(answer.headers.get("x-should-retry"), pointless ? "false" : null, "x-should-retry");
  const seconds = answer.headers.get("retry-after");
  const [wanted = null] = retry.match(/\d+/) ?? [];
  if (OWN_DELAY.has(code)) assert.match(seconds, /^[1-9][0-9]*$/, "Retry-After");
  else assert.equal(seconds, wanted, "Retry-After");
  const { type, title, detail, status: told } = answer.json;
  assert.equal(type, `urn:oncepress:problem:${code}`);
  assert.equal(told, status);
  assert.ok(title.length > 0 && detail.length > 0);
}

/** A definite failure at Gemini: nothing is spent, and the same request is fresh at once. */
function refusedByGemini(fault) {
  return async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    await fakes.script("gemini", tag, fault);
    const answer = await client.generate(body);
    assert.equal(answer.headers.get("x-oncepress-credits"), "0");
    expectFresh(await client.generate(body));
    assert.equal(await fakes.billed(tag), 1);
    return answer;
  };
}

/** A call that was cut: nobody can tell what it cost, and nothing is bought until somebody can. */
function cutAtGemini(fault) {
  return async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    await fakes.script("gemini", tag, fault);
    const answer = await client.generate(body);
    assert.equal(answer.headers.get("x-oncepress-credits"), null, "unknown, not 0");
    assert.equal((await client.generate(body)).json.code, "request_reconciliation_pending");
    assert.equal((await fakes.asked(tag)).length, 1);
    return answer;
  };
}

/** With these rules in force nothing may be bought; without them the same request is fresh. */
function whileDown(...rules) {
  return async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.request();
    await worker.rules(...rules);
    const answer = await client.generate(body);
    await worker.rules();
    assert.equal((await fakes.asked(tag)).length, 0);
    expectFresh(await client.generate(body));
    return answer;
  };
}

/** Input that is refused consumes no key: the same key then takes a good request. */
function badInput(change, headers = {}) {
  return async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    const key = { "idempotency-key": tag };
    const whole = typeof change === "string" || change instanceof Uint8Array;
    const sent = whole ? change : { ...body, ...change };
    const answer = await client.generate(sent, { ...key, ...headers });
    assert.equal((await fakes.asked(tag)).length, 0);
    expectFresh(await client.generate(body, key));
    return answer;
  };
}

async function withCredits(dailyCredits, change) {
  const poor = await Client.create(stage.worker, `${uniqueTag()}-a`, { dailyCredits });
  const { tag, body } = stage.request(change);
  const answer = await poor.generate(body);
  assert.equal((await stage.fakes.asked(tag)).length, 0);
  return answer;
}

/** What brings a code about, and whether its answer is about a generation. */
const CAUSES = {
  invalid_request: {
    "an unknown member": badInput({ nonsense: 1 }),
    "no JSON": badInput("{"),
  },
  invalid_idempotency_key: {
    "a key with a space": badInput({}, { "idempotency-key": "has space" }),
    "a key sent twice": badInput({}, { "idempotency-key": "one, two" }),
  },
  unknown_model_price: {
    "an account with a limit and a model without a price": () =>
      withCredits(1_000_000, { model: "gemini-0-unpriced" }),
  },
  unauthenticated: {
    "no key": () => send(stage.worker, "POST", PATH, stage.request().body),
    "a key that nobody has": () =>
      send(stage.worker, "POST", PATH, stage.request().body, {
        authorization: `Bearer opk_${"0".repeat(48)}`,
      }),
    "a revoked key": async () => {
      const { worker } = stage;
      const made = await admin(worker, "POST", "/admin/accounts/acme/keys", { label: "short" });
      assert.equal((await admin(worker, "DELETE", `/admin/keys/${made.json.id}`)).status, 204);
      return new Client(worker, "acme", made.json.key).generate(stage.request().body);
    },
  },
  credits_exhausted: { "a limit below the estimate": () => withCredits(1, {}) },
  forbidden: {
    "an API key at the administrator's door": () => stage.client.call("GET", "/admin/health"),
    "another account's publisher": async () =>
      (await Client.create(stage.worker, "initech")).generate(stage.owedRequest().body),
  },
  not_found: {
    "an id that nobody has": () => stage.client.call("GET", `${PATH}/gen_${"0".repeat(32)}`),
    "another account's id": async () => {
      const other = await Client.create(stage.worker, "globex");
      const { json } = await other.generate(stage.request().body);
      return stage.client.call("GET", `${PATH}/${json.id}`);
    },
    "a path that is not there": () => stage.client.call("GET", "/api/v1/nothing"),
  },
  method_not_allowed: {
    "a method that the path does not take": async () => {
      const answer = await stage.client.call("DELETE", PATH);
      assert.equal(answer.headers.get("allow"), "GET, POST");
      return answer;
    },
  },
  idempotency_conflict: {
    "one key for two requests": async () => {
      const { client } = stage;
      const { tag, body } = stage.request();
      const key = { "idempotency-key": tag };
      expectFresh(await client.generate(body, key));
      const answer = await client.generate({ ...body, userPrompt: `${tag} other words` }, key);
      assert.deepEqual(
        answer.json.errors.map(({ pointer }) => pointer),
        ["/userPrompt"],
      );
      assert.equal(answer.text.includes("other words"), false, "never the values");
      return answer;
    },
    aboutOne: true,
  },
  generation_in_progress: {
    "a repeat that will not wait": async () => {
      const { fakes, client } = stage;
      const { tag, body } = stage.request();
      await fakes.script("gemini", tag, { gate: tag });
      const first = client.generate(body);
      await waitFor("Gemini to be asked", async () => (await fakes.asked(tag)).length === 1);
      const answer = await client.generate(body, { prefer: "wait=0" });
      await fakes.openGate(tag);
      expectFresh(await first);
      return answer;
    },
    aboutOne: true,
  },
  invalid_state: {
    "a generated one that is to be resolved": async () => {
      const { client } = stage;
      const { json } = await client.generate(stage.request().body);
      const decision = { action: "publish", reason: "why not" };
      return client.call("POST", `${PATH}/${json.id}/resolve`, decision);
    },
    "a published delivery that is to be cancelled": async () => {
      const { client } = stage;
      const { json } = await client.generate(stage.owedRequest().body);
      const [delivery] = await stage.settled(json.id);
      return client.call("POST", `/api/v1/outbox/${delivery.id}/cancel`);
    },
  },
  gone: {
    "a purged id": async () => {
      const { worker, client } = stage;
      const { json } = await client.generate(stage.request().body);
      const sql = "UPDATE generations SET purge_at = ? WHERE id = ?";
      await worker.sql(sql, worker.now - DAY, json.id);
      // The purge has its turn in the minutes that can be divided by ten.
      await worker.cron(Math.ceil(worker.now / (10 * MINUTE)) * 10 * MINUTE);
      return client.call("GET", `${PATH}/${json.id}`);
    },
    aboutOne: true,
  },
  request_too_large: { "a body over 1 MiB": badInput({ userPrompt: "x".repeat(1_048_577) }) },
  unsupported_media_type: {
    "a body that is called text": badInput({}, { "content-type": "text/plain" }),
    "a compressed body": badInput(gzipSync("{}"), { "content-encoding": "gzip" }),
  },
  output_held: {
    "an output that was cut off": async () => {
      const { fakes, client } = stage;
      const { tag, body } = stage.request();
      await fakes.script("gemini", tag, "max-tokens");
      const answer = await client.generate(body);
      assert.equal((await client.generate(body)).json.generationId, answer.json.generationId);
      assert.equal(await fakes.billed(tag), 1);
      return answer;
    },
    aboutOne: true,
  },
  rate_limited: {
    "more requests than the account may send": async () => {
      const { body } = limited.request();
      const first = await limited.client.generate(body);
      // The limiter counts by the clock's minute, which may have begun in between.
      const more = [await limited.client.generate(body), await limited.client.generate(body)];
      expectFresh(first);
      return more.find(({ status }) => status === 429);
    },
  },
  internal: {
    "a body that breaks off": whileDown({
      binding: "request",
      match: PATH,
      error: "Network connection lost.",
    }),
  },
  misconfigured: {
    "a variable that says nothing": () =>
      send(misconfigured, "POST", PATH, stage.request().body, { authorization: "Bearer x" }),
  },
  gemini_rejected: { 400: refusedByGemini(400), 404: refusedByGemini(404) },
  gemini_auth: { 401: refusedByGemini(401), 403: refusedByGemini(403) },
  gemini_rate_limited: {
    429: async () => {
      const answer = await refusedByGemini({ status: 429, "retry-delay": "7s" })();
      assert.equal(answer.headers.get("retry-after"), "7", "Gemini's own delay");
      return answer;
    },
  },
  gemini_quota_exhausted: { "429 of a day's quota": refusedByGemini("per-day") },
  gemini_unavailable: { 500: refusedByGemini(500), 503: refusedByGemini(503) },
  request_reconciliation_pending: {
    504: cutAtGemini(504),
    "a cut": cutAtGemini("close-mid"),
    "no last chunk": cutAtGemini("no-finish"),
    aboutOne: true,
  },
  dedup_unavailable: { "KV that can't be read": whileDown(KV_DOWN) },
  store_unavailable: { "D1 that can't be asked": whileDown(D1_DOWN) },
};

for (const row of TABLE) {
  const { aboutOne = false, ...causes } = CAUSES[row.code] ?? {};
  describe(`${row.status} ${row.code}`, () => {
    test("can be brought about", () => assert.notEqual(Object.keys(causes).length, 0));
    for (const [cause, bringAbout] of Object.entries(causes)) {
      test(cause, async () => {
        const answer = await bringAbout();
        expectRow(row, answer);
        if (aboutOne) assert.match(answer.json.generationId, /^gen_[0-9a-f]{32}$/);
      });
    }
  });
}

test("no code is brought about that the table does not have", () => {
  assert.deepEqual(Object.keys(CAUSES).sort(), TABLE.map(({ code }) => code).sort());
});

describe("what is no error", () => {
  test("201: made now, at its cost", async () => {
    const { client } = stage;
    const answer = await client.generate(stage.request().body);
    expectFresh(answer);
    const { cost, requestId } = answer.json;
    assert.equal(answer.headers.get("x-oncepress-credits"), String(cost.microUsd));
    assert.equal(answer.headers.get("x-request-id"), requestId);
    assert.match(answer.headers.get("content-type"), /^application\/json/);
  });

  test("200: a replay, and a caller who attached, with Gemini's own tracing headers", async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    const headers = { "x-goog-request-id": `trace-${tag}` };
    await fakes.script("gemini", tag, { gate: tag, headers });
    const first = client.generate(body);
    await waitFor("Gemini to be asked", async () => (await fakes.asked(tag)).length === 1);
    const attached = client.generate(body);
    await fakes.openGate(tag);
    const made = await first;
    expectFresh(made);
    for (const answer of [await attached, await client.generate(body)]) {
      expectReplay(answer, made);
      assert.equal(answer.headers.get("x-goog-request-id"), `trace-${tag}`);
    }
  });

  for (const prefer of ["respond-async", "wait=0"]) {
    test(`202: accepted with ${prefer}, and where to look`, async () => {
      const { client } = stage;
      const { body } = stage.request();
      const answer = await client.generate(body, { prefer });
      expectAnswer(answer, 202);
      const place = answer.headers.get("location");
      assert.match(place, /^\/api\/v1\/generations\/gen_[0-9a-f]{32}$/);
      await waitFor("the generation", async () => {
        const { json } = await client.call("GET", place);
        return json.state === "generated";
      });
    });
  }
});
