// What one large answer costs in memory, by its form: a fresh Worker for each row, since WebAssembly
// memory never shrinks. Not a test; its figures are in docs/DEFAULTS.md.
//   bash scripts/sdk.sh tests/e2e/sdk/memory.spec.mjs      (builds what this needs)
//   node tests/e2e/sdk/sizes.mjs [MiB…] [--at-once 2]

import { parseArgs } from "node:util";

import { STREAM, UNARY, call, contents, prompt } from "./lib.mjs";
import { setMeasuredStage } from "./memory.mjs";

const MIB = 1024 * 1024;
const PIECE = 64 * 1024;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "at-once": { type: "string", default: "1" }, form: { type: "string" } },
});
const atOnce = Number(values["at-once"]);
const sizes = positionals.length > 0 ? positionals.map(Number) : [6, 8, 12, 16];

const api = (text) => ({ site: "s", pipeline: "p", userPrompt: text, publish: [] });
/** How it is asked for, and in how many events Gemini sends it. */
const FORMS = {
  "stream, events of 64 KiB": [STREAM, contents, (size) => Math.ceil(size / PIECE)],
  "stream, one event": [STREAM, contents, () => 1],
  unary: [UNARY, contents, () => 1],
  "/api, events of 64 KiB": ["/api/v1/generations", api, (size) => Math.ceil(size / PIECE)],
  "/api, one event": ["/api/v1/generations", api, () => 1],
};

async function row(name, mebibytes) {
  const [path, body, chunks] = FORMS[name];
  const stage = await setMeasuredStage("sizes");
  try {
    const size = Math.floor(mebibytes * MIB);
    const asked = Array.from({ length: atOnce }, () => prompt());
    const headers = { authorization: `Bearer ${stage.client.key}`, prefer: "wait=25" };
    const ask = async ({ text }) => {
      const answer = await call(stage, path, body(text), headers);
      const length = Buffer.byteLength(await answer.text());
      return `${answer.status} ${(length / MIB).toFixed(1)}`;
    };
    await ask(prompt());
    const memory = [(await stage.memory()).wasm];
    for (const { tag } of asked) {
      await stage.fakes.script("gemini", tag, { size, chunks: chunks(size) });
    }
    const answers = [];
    for (const _ of ["live", "replay", "replay"]) {
      answers.push(await Promise.all(asked.map(ask)));
      memory.push((await stage.memory()).wasm);
    }
    console.log(JSON.stringify({ name, mebibytes, atOnce, answers, memory }));
  } catch (error) {
    console.log(JSON.stringify({ name, mebibytes, atOnce, error: String(error) }));
  } finally {
    await stage.close().catch(() => {});
  }
}

for (const mebibytes of sizes) {
  for (const name of Object.keys(FORMS)) {
    if (!values.form || name.startsWith(values.form)) await row(name, mebibytes);
  }
}
