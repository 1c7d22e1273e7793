// Many streams at once, storm after storm: none is mixed with another, and memory does not grow
// with them. `STORMS=20 bash scripts/sdk.sh tests/e2e/sdk/memory.spec.mjs` watches for longer.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { waitFor } from "../lib/wait.mjs";
import { STREAM, call, contents, events, prompt, sha256, textOf } from "./lib.mjs";
import { setMeasuredStage } from "./memory.mjs";

const STORMS = Number(process.env.STORMS ?? 1);
const SENTENCE = "日本語の文章、絵文字🎉👩‍👩‍👧と記号。";
/** Of the 128 MB that an isolate has. WebAssembly memory never shrinks. */
const WASM_MAX_MIB = 64;

let stage;
before(async () => {
  stage = await setMeasuredStage("memory");
});
after(() => stage?.close());

/** Asks for so many streams of about so many bytes at once, and compares each with what was said. */
async function storm(streams, bytes) {
  const asked = Array.from({ length: streams }, (_, index) => {
    const { tag, text } = prompt();
    const sentence = `${index} ${tag} ${SENTENCE} `;
    return { tag, text, words: sentence.repeat(Math.ceil(bytes / Buffer.byteLength(sentence))) };
  });
  for (const { tag, words } of asked) await stage.fakes.script("gemini", tag, { say: words });
  const read = async ({ text }) => {
    const answer = await call(stage, STREAM, contents(text));
    return { status: answer.status, text: await answer.text() };
  };
  const answers = await Promise.all(asked.map(read));
  for (const [index, { words }] of asked.entries()) {
    const { status, text } = answers[index];
    assert.equal(status, 200, text);
    assert.equal(sha256(textOf(events(text))), sha256(words), `stream ${index}`);
  }
  const { duplicates } = await stage.fakes.control("GET", "ledger");
  assert.equal(duplicates, 0, "each is bought once");
}

for (const [what, streams, bytes] of [
  ["200 streams of 12 KiB", 200, 12_288],
  ["20 streams of a megabyte", 20, 1_000_000],
]) {
  test(`${what} at once do not mix, and memory does not grow with storms`, async (t) => {
    const figures = [];
    for (let round = 1; round <= STORMS; round += 1) {
      const begun = Date.now();
      await storm(streams, bytes);
      const took = Date.now() - begun;
      figures.push({ round, took, ...(await stage.memory()) });
      t.diagnostic(JSON.stringify(figures.at(-1)));
    }
    assert.ok(figures.at(-1).wasm <= WASM_MAX_MIB, JSON.stringify(figures));
  });
}

test("no Durable Object outlives its run for long", { timeout: 60_000 }, async (t) => {
  const gone = await waitFor(
    "the runners to be let go",
    async () => {
      const memory = await stage.memory();
      return memory.runners <= 2 && memory;
    },
    { withinMs: 40_000, everyMs: 2_000 },
  );
  t.diagnostic(JSON.stringify(gone));
});
