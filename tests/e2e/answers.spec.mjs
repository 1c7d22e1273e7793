// The table of answers, row by row, and the wall between accounts.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { admin, Client, send } from "./lib/client.mjs";
import { expectAnswer, expectFresh, expectReplay, expectRetryAfter } from "./lib/expect.mjs";
import { setStage, uniqueTag } from "./lib/stage.mjs";
import { waitFor } from "./lib/wait.mjs";

let stage;
let other;
before(async () => {
  stage = await setStage("answers");
  await stage.atNoon();
  other = await Client.create(stage.worker, "globex");
});
after(() => stage?.close());

describe("conflict and attach", () => {
  test("the same operation key with another request is a conflict that names the fields", async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request({ generationConfig: { temperature: 0.5 } });
    const key = { "idempotency-key": tag };
    expectFresh(await client.generate(body, key));
    const secret = `${tag} changed words`;
    const changed = { ...body, userPrompt: secret, generationConfig: { temperature: 0.6 } };
    const answer = await client.generate(changed, key);
    expectAnswer(answer, 409, "idempotency_conflict");
    assert.equal(answer.headers.get("x-should-retry"), "false");
    for (const pointer of ["/userPrompt", "/generationConfig/temperature"]) {
      assert.ok(answer.text.includes(pointer), `${pointer} in ${answer.text}`);
    }
    assert.equal(answer.text.includes("changed words"), false, "never the values");
    assert.equal(await fakes.billed(tag), 1);
  });

  test("a caller attaches to a running generation and gets its result", async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    await fakes.script("gemini", tag, { gate: tag });
    const first = client.generate(body);
    await waitFor("Gemini to be asked", async () => (await fakes.asked(tag)).length === 1);

    const impatient = await client.generate(body, { prefer: "wait=0" });
    expectAnswer(impatient, 409, "generation_in_progress");
    expectRetryAfter(impatient);

    const attached = client.generate(body);
    await fakes.openGate(tag);
    const made = await first;
    expectFresh(made);
    expectReplay(await attached, made);
    assert.equal(await fakes.billed(tag), 1);
  });

  test("the first caller who will not wait gets 202 and finds the result at Location", async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    await fakes.script("gemini", tag, { gate: tag });
    const accepted = await client.generate(body, { prefer: "wait=0" });
    expectAnswer(accepted, 202);
    const location = accepted.headers.get("location");
    assert.match(location, /\/api\/v1\/generations\/gen_[0-9a-f]{32}$/);
    await fakes.openGate(tag);
    await waitFor("the generation", async () => {
      const { json } = await client.call("GET", new URL(location, stage.worker.url).pathname);
      return json.state === "generated";
    });
    expectAnswer(await client.generate(body), 200);
  });

  test("a caller that hangs up neither stops nor loses its generation", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.request();
    await fakes.script("gemini", tag, { gate: tag });
    const hangUp = new AbortController();
    const lost = worker.fetch("/api/v1/generations", {
      method: "POST",
      signal: hangUp.signal,
      headers: { authorization: `Bearer ${client.key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    await waitFor("Gemini to be asked", async () => (await fakes.asked(tag)).length === 1);
    hangUp.abort();
    await assert.rejects(lost);
    await fakes.openGate(tag);
    expectAnswer(await client.generate(body), 200);
    assert.equal(await fakes.billed(tag), 1);
  });
});

describe("the queue", () => {
  test("respond-async is 202 with Location, and the queue does the work", async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.request();
    const accepted = await client.generate(body, { prefer: "respond-async" });
    expectAnswer(accepted, 202);
    const path = new URL(accepted.headers.get("location"), stage.worker.url).pathname;
    await waitFor(
      "the generation",
      async () => (await client.call("GET", path)).json.state === "generated",
    );
    expectAnswer(await client.generate(body), 200);
    assert.equal(await fakes.billed(tag), 1);
  });

  test("a queue that takes the message twice makes one purchase", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.request();
    // The message is sent, its answer lost: whoever sends again sends it twice.
    const lost = {
      op: "send|sendBatch",
      when: "after",
      times: 1,
      error: "Queue send failed: Network connection lost.",
    };
    await worker.rules({ binding: "JOBS", ...lost });
    await client.generate(body, { prefer: "respond-async" });
    await worker.rules();
    await waitFor("the generation", async () => (await client.generate(body)).status === 200);
    assert.equal(await fakes.billed(tag), 1);
  });
});

describe("what is not fit to publish", () => {
  test("a cut-off output is held, not published; a person publishes it", async () => {
    const { fakes, worker, client } = stage;
    const { tag, body } = stage.owedRequest();
    await fakes.script("gemini", tag, { "max-tokens": true });
    const held = await client.generate(body);
    expectAnswer(held, 422, "output_held");
    const again = await client.generate(body);
    expectAnswer(again, 422, "output_held");
    assert.equal(again.json.generationId, held.json.generationId);
    await worker.cron();
    assert.deepEqual(await stage.published(tag), []);
    const path = `/api/v1/generations/${held.json.generationId}/resolve`;
    const resolved = await client.call("POST", path, { action: "publish", reason: "good enough" });
    assert.equal(resolved.status, 200, resolved.text);
    await worker.cron();
    assert.equal((await stage.settled(held.json.generationId))[0].status, "published");
    assert.equal(await fakes.billed(tag), 1);
  });

  for (const fault of ["close-mid", "reset-mid", "no-finish", "status-504"]) {
    test(`after ${fault} nobody can tell, so nothing is bought until it is settled`, async () => {
      const { fakes, client } = stage;
      const { tag, body } = stage.request();
      const scripted = fault === "status-504" ? { status: 504 } : { [fault]: true };
      await fakes.script("gemini", tag, scripted);
      const key = { "idempotency-key": tag };
      const first = await client.generate(body, key);
      expectAnswer(first, 503, "request_reconciliation_pending");
      expectRetryAfter(first);
      assert.equal(first.headers.get("x-oncepress-credits"), null, "unknown, not 0");
      expectAnswer(await client.generate(body, key), 503, "request_reconciliation_pending");
      assert.equal((await fakes.asked(tag)).length, 1);
    });
  }
});

describe("bad input costs nothing and consumes no key", () => {
  const rows = [
    [
      "a duplicate member",
      `{"site":"a","pipeline":"b","userPrompt":"x","user\\u0050rompt":"y"}`,
      400,
      "invalid_request",
    ],
    ["an unknown member", { nonsense: 1 }, 400, "invalid_request", "/nonsense"],
    ["a wrong type", { userPrompt: 7 }, 400, "invalid_request", "/userPrompt"],
    ["both prompts", { contents: [{ parts: [{ text: "x" }] }] }, 400, "invalid_request"],
    ["a window out of range", { windowMinutes: 43_201 }, 400, "invalid_request", "/windowMinutes"],
    ["a site in capitals", { site: "Blog" }, 400, "invalid_request", "/site"],
    [
      "a slot in the far future",
      { requestedAt: "2999-01-01T00:00:00Z" },
      400,
      "invalid_request",
      "/requestedAt",
    ],
    [
      "an unknown publisher",
      { publish: [{ publisher: "nobody", target: "x" }] },
      400,
      "invalid_request",
    ],
    [
      "a lone surrogate",
      `{"site":"a","pipeline":"b","userPrompt":"\\ud800"}`,
      400,
      "invalid_request",
    ],
    ["no JSON", "{", 400, "invalid_request"],
    [
      "nesting over 128",
      `{"site":"a","pipeline":"b","userPrompt":"x","tools":${"[".repeat(130)}${"]".repeat(130)}}`,
      400,
      "invalid_request",
    ],
    ["a body over 1 MiB", { userPrompt: "x".repeat(1_048_577) }, 413, "request_too_large"],
  ];

  for (const [what, change, status, code, pointer] of rows) {
    test(`${what}: ${status} ${code}`, async () => {
      const { fakes, client } = stage;
      const { tag, body } = stage.request();
      const key = { "idempotency-key": `${tag}-key` };
      const sent = typeof change === "string" ? change : { ...body, ...change };
      const answer = await client.generate(sent, key);
      expectAnswer(answer, status, code);
      if (pointer) assert.ok(answer.text.includes(pointer), `${pointer} in ${answer.text}`);
      assert.equal((await fakes.asked(tag)).length, 0);
      expectFresh(await client.generate(body, key));
    });
  }

  test("invalid UTF-8, another content type, another method", async () => {
    const { client } = stage;
    const invalid = new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]);
    expectAnswer(await client.generate(invalid), 400, "invalid_request");
    const text = await client.generate(stage.request().body, { "content-type": "text/plain" });
    expectAnswer(text, 415, "unsupported_media_type");
    expectAnswer(await client.call("PUT", "/api/v1/generations", {}), 405, "method_not_allowed");
  });

  for (const key of ["-starts-with-a-dash", "has space", "x".repeat(129), '"unclosed', "日本語"]) {
    test(`the key ${JSON.stringify(key.slice(0, 24))} is refused`, async () => {
      const headers = { "idempotency-key": Buffer.from(key).toString("latin1") };
      const answer = await stage.client.generate(stage.request().body, headers);
      expectAnswer(answer, 400, "invalid_idempotency_key");
    });
  }
});

describe("the wall between accounts", () => {
  test("no key, a wrong key, another's admin door", async () => {
    const { worker, client } = stage;
    const body = stage.request().body;
    expectAnswer(await send(worker, "POST", "/api/v1/generations", body), 401, "unauthenticated");
    const wrong = { authorization: `Bearer opk_${"0".repeat(48)}` };
    expectAnswer(
      await send(worker, "POST", "/api/v1/generations", body, wrong),
      401,
      "unauthenticated",
    );
    expectAnswer(await client.call("GET", "/admin/health"), 403, "forbidden");
    expectAnswer(await client.call("POST", "/admin/drain"), 403, "forbidden");
  });

  test("two accounts with the same keys, sites and contents never meet", async () => {
    const { fakes, client } = stage;
    const { tag, body } = stage.owedRequest();
    const key = { "idempotency-key": tag };
    const mine = await client.generate(body, key);
    const theirs = await other.generate({ ...body, publish: [] }, key);
    expectFresh(mine);
    expectFresh(theirs);
    assert.notEqual(mine.json.id, theirs.json.id);
    assert.equal(await fakes.billed(tag), 2);

    const { id, requestId } = mine.json;
    const [delivery] = (await client.generation(id)).deliveries;
    const doors = [
      ["GET", `/api/v1/generations/${id}`],
      ["POST", `/api/v1/generations/${id}/resolve`, { action: "abandon", reason: "x" }],
      ["POST", `/api/v1/outbox/${delivery.id}/requeue`],
      ["POST", `/api/v1/outbox/${delivery.id}/cancel`],
    ];
    for (const [method, path, payload] of doors) {
      expectAnswer(await other.call(method, path, payload), 404, "not_found");
    }
    for (const path of [
      `/api/v1/generations?requestId=${requestId}`,
      `/api/v1/generations?key=${tag}&site=blog`,
    ]) {
      const { json } = await other.call("GET", path);
      assert.equal(
        json.items.some((item) => item.id === id),
        false,
        path,
      );
    }
    const outbox = await other.call("GET", "/api/v1/outbox");
    assert.equal(outbox.text.includes(delivery.id), false);
  });

  test("a publisher that lists other accounts is forbidden", async () => {
    const stranger = await Client.create(stage.worker, "initech");
    const { tag, body } = stage.owedRequest("files");
    expectAnswer(await stranger.generate(body), 403, "forbidden");
    assert.equal((await stage.fakes.asked(tag)).length, 0);
  });

  test("a revoked key dies within a minute", async () => {
    const { worker } = stage;
    const made = await admin(worker, "POST", "/admin/accounts/acme/keys", { label: "short-lived" });
    const client = new Client(worker, "acme", made.json.key);
    const look = () => client.call("GET", "/api/v1/generations?limit=1");
    expectAnswer(await look(), 200);
    // As another isolate would: this one knows of it only once its memory of the key has expired.
    await worker.sql("UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1", made.json.id, worker.now);
    expectAnswer(await look(), 200);
    await worker.clock(worker.now - Date.now() + 61_000);
    expectAnswer(await look(), 401, "unauthenticated");
  });

  test("a key dies at once in the isolate that revokes it", async () => {
    const { worker } = stage;
    const made = await admin(worker, "POST", "/admin/accounts/acme/keys", { label: "short-lived" });
    const client = new Client(worker, "acme", made.json.key);
    expectAnswer(await client.call("GET", "/api/v1/generations?limit=1"), 200);
    assert.equal((await admin(worker, "DELETE", `/admin/keys/${made.json.id}`)).status, 204);
    expectAnswer(await client.call("GET", "/api/v1/generations?limit=1"), 401, "unauthenticated");
  });
});

test("the rate limit is the account's, and replays count against it", async () => {
  const ratelimits = [
    { name: "RATE_LIMIT", namespace_id: "1001", simple: { limit: 5, period: 60 } },
  ];
  const limited = await setStage("rate-limit", { bindings: { ratelimits } });
  try {
    const { body } = limited.request();
    const answers = [];
    // The limiter counts by the clock's minute, which may begin in between: then it counts anew.
    for (let call = 0; call < 12 && answers.at(-1)?.status !== 429; call += 1)
      answers.push(await limited.client.generate(body));
    assert.ok(
      answers.some(({ status }) => status === 200),
      "some were replays",
    );
    const refused = answers.at(-1);
    expectAnswer(refused, 429, "rate_limited");
    expectRetryAfter(refused);
    const neighbour = await Client.create(limited.worker, "globex");
    expectFresh(await neighbour.generate(limited.request().body));
  } finally {
    await limited.close();
  }
});

describe("credits", () => {
  test("100 requests racing for the last credit never overdraw", async () => {
    const { worker, fakes } = stage;
    const LIMIT = 20_000;
    const account = `racer-${uniqueTag().slice(4)}`;
    const racer = await Client.create(worker, account, { dailyCredits: LIMIT });
    const requests = Array.from({ length: 100 }, () =>
      stage.request({ generationConfig: { maxOutputTokens: 512 } }),
    );
    const answers = await Promise.all(requests.map(({ body }) => racer.generate(body)));
    const made = answers.filter(({ status }) => status === 201);
    const refused = answers.filter(({ status }) => status !== 201);
    assert.ok(made.length >= 1, "the first ones fit");
    assert.ok(refused.length >= 1, "the last ones don't");
    for (const answer of refused) expectAnswer(answer, 402, "credits_exhausted");
    const spent = made.reduce((sum, { json }) => sum + json.cost.microUsd, 0);
    assert.ok(spent <= LIMIT, `${spent} of ${LIMIT}`);
    const [row] = await worker.sql(
      "SELECT SUM(reserved) AS reserved, SUM(spent) AS spent FROM credit_days WHERE account = ?",
      account,
    );
    assert.deepEqual(row, { reserved: 0, spent }, "nothing leaks");
    let billed = 0;
    for (const { tag } of requests) billed += await fakes.billed(tag);
    assert.equal(billed, made.length);
  });
});
