// Generations that take long, whose callers have gone: each is carried to its end by its runner.
// `LONG_MINUTES` says how long Gemini takes; without it, just longer than a handler may live after
// its client left (30 s) and than any caller waits (25 s). The real thing is ten minutes:
//
//   LONG_MINUTES=10 bash scripts/e2e.sh --test-timeout=900000 tests/e2e/long.spec.mjs

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { expectAnswer, expectReplay, expectRetryAfter } from "./lib/expect.mjs";
import { setStage } from "./lib/stage.mjs";
import { sleep, waitFor } from "./lib/wait.mjs";

const MINUTES = Number(process.env.LONG_MINUTES ?? 0.55);
const LONG_MS = MINUTES * 60_000;
const TICK_MS = 20_000;
/** How much sooner than the end the callers come once more, on a machine that may be busy. */
const SOONER_MS = 3_000;
const STREAM = "/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse";

let stage;
before(async () => (stage = await setStage("long")));
after(() => stage?.close());

// Three ways to come in, and three ways in which Gemini can be slow: silent before its first byte,
// a word now and then, silent in the middle. The silent ones end when they are let go; he who has
// a word now and then comes last, so that its end is not before the others'.
const CALLERS = {
  "a caller who waited": {
    fault: (tag) => ({ gate: tag }),
    request: (tag) => owed(tag),
    ask: (body, signal) => post("/api/v1/generations", body, {}, signal),
    repeat: (body) => stage.client.generate(body, { prefer: "wait=0" }),
  },
  "a Google SDK's stream": {
    fault: (tag) => ({ "gate-mid": tag }),
    request: (tag) => ({ contents: [{ role: "user", parts: [{ text: `${tag} Write.` }] }] }),
    async ask(body, signal, tag) {
      const headers = { "x-oncepress-publish": `files=${tag}.md` };
      const answer = await post(STREAM, body, headers, signal);
      await answer.body.getReader().read();
    },
  },
  "a caller who left it to the queue": {
    fault: () => ({ chunks: 8, drip: Math.ceil((LONG_MS + SOONER_MS) / 8) }),
    request: (tag) => owed(tag),
    async ask(body) {
      const answer = await stage.client.generate(body, { prefer: "respond-async" });
      expectAnswer(answer, 202);
    },
    repeat: (body) => stage.client.generate(body, { prefer: "wait=0" }),
  },
};

function owed(tag) {
  const publish = [{ publisher: "files", target: `${tag}.md` }];
  return { ...stage.request().body, userPrompt: `${tag} Write.`, publish };
}

function post(path, body, headers, signal) {
  const { worker, client } = stage;
  return worker.fetch(path, {
    method: "POST",
    signal,
    headers: {
      authorization: `Bearer ${client.key}`,
      "content-type": "application/json",
      ...headers,
    },
    body: JSON.stringify(body),
  });
}

/** Asks, and goes away as soon as Gemini has been asked. */
async function askAndLeave({ fault, request, ask }) {
  const { fakes } = stage;
  const { tag } = stage.request();
  const body = request(tag);
  await fakes.script("gemini", tag, fault(tag));
  const leaving = new AbortController();
  const isLeaving = ({ name }) => assert.equal(name, "AbortError");
  const asked = ask(body, leaving.signal, tag).catch(isLeaving);
  await waitFor("Gemini to be asked", async () => (await fakes.asked(tag)).length === 1);
  if (fault(tag)["gate-mid"]) await asked;
  leaving.abort();
  await asked;
  return { tag, body };
}

async function only(tag) {
  const rows = await stage.worker.sql(
    "SELECT generation_id AS id FROM deliveries WHERE target = ?",
    `${tag}.md`,
  );
  assert.equal(rows.length, 1, "one delivery, of one generation");
  return rows[0].id;
}

const options = { timeout: LONG_MS + 4 * 60_000 };
describe(`Gemini takes ${MINUTES} minutes, and nobody is there any more`, options, () => {
  const runs = {};

  before(async () => {
    for (const [who, caller] of Object.entries(CALLERS))
      runs[who] = { ...(await askAndLeave(caller)), caller };
    // As the platform would: the reconciler passes by, and must leave what is at work alone.
    const end = Date.now() + LONG_MS;
    while (end - Date.now() > TICK_MS) {
      await sleep(TICK_MS);
      await stage.worker.cron();
    }
    await sleep(Math.max(0, end - Date.now() - SOONER_MS));
    for (const run of Object.values(runs)) {
      run.id = await only(run.tag);
      run.late = await stage.client.generation(run.id);
      run.told = await run.caller.repeat?.(run.body);
    }
    await sleep(Math.max(0, end - Date.now()));
    for (const { tag } of Object.values(runs)) await stage.fakes.openGate(tag);
  });

  for (const who of Object.keys(CALLERS)) {
    test(`${who}: it is generated once, published, and there for the retry`, async (context) => {
      const { fakes, worker, client } = stage;
      const { tag, body, id, late, told, caller } = runs[who];
      assert.equal(late.state, "running", "shortly before the end");
      if (told) {
        expectAnswer(told, 409, "generation_in_progress");
        expectRetryAfter(told);
      }
      const settled = async () => {
        const generation = await client.generation(id);
        return generation.state !== "running" && generation;
      };
      const made = await waitFor("the generation", settled, { withinMs: 60_000 });
      assert.equal(made.state, "generated", JSON.stringify(made));
      const tookMs = Date.parse(made.completedAt) - Date.parse(made.createdAt);
      context.diagnostic(`${who}: ${(tookMs / 1000).toFixed(1)} s from claim to commit`);
      assert.ok(tookMs >= LONG_MS - 2_000, `${tookMs} ms`);

      const [entry, ...more] = await fakes.asked(tag);
      assert.equal(more.length, 0, "Gemini was asked once");
      assert.deepEqual([entry.billed, entry.outcome], [true, "completed"]);

      await worker.cron();
      const [delivery] = await stage.settled(id);
      assert.equal(delivery.status, "published");
      assert.equal((await worker.r2(`files/${tag}.md`)).text, made.output.text);

      if (caller.repeat) {
        const first = await client.generate(body);
        expectAnswer(first, 200);
        assert.equal(first.json.id, id);
        expectReplay(await client.generate(body), first);
      } else {
        const headers = { "x-oncepress-publish": `files=${tag}.md` };
        const retry = await post(STREAM, body, headers);
        assert.equal(retry.headers.get("x-idempotency-replayed"), "true");
        assert.match(await retry.text(), /"finishReason":\s*"STOP"/);
      }
      assert.equal((await fakes.asked(tag)).length, 1, "the retry bought nothing");
    });
  }
});
