// Storm after storm of streams at once, and what workerd's process holds after each: whether memory
// reaches a plateau, and how much of its growth is the local simulation's own.
//   bash scripts/sdk.sh tests/e2e/sdk/memory.spec.mjs      (builds what this needs)
//   node tests/campaign/storms.mjs [--storms 12] [--streams 200] [--worker product|plain|object]
// `plain` is a Worker of one line that streams as much; `object` one that has each stream made by a
// Durable Object of its own, which stores a record and sets an alarm. Neither has code of Oncepress.

import { join } from "node:path";

import { ROOT } from "../e2e/lib/paths.mjs";
import { sleep } from "../e2e/lib/wait.mjs";
import { Worker } from "../e2e/lib/worker.mjs";
import { resident, setMeasuredStage } from "../e2e/sdk/memory.mjs";
import { STREAM, call, contents, prompt } from "../e2e/sdk/lib.mjs";
import { option, word } from "./lib/options.mjs";

const [storms, streams] = [option("storms", 12), option("streams", 200)];
const kind = word("worker", "product");
const BYTES = 12_288;
const BODY = "x".repeat(500);

const stage = kind === "product" ? await setMeasuredStage("storms") : await control();
try {
  await report(0, 0);
  for (let storm = 1; storm <= storms; storm += 1) {
    const begun = performance.now();
    await Promise.all(Array.from({ length: streams }, stage.one ?? one));
    await report(storm, performance.now() - begun);
  }
  for (const seconds of [30, 60]) {
    await sleep(30_000);
    await report(`${seconds} s later`, 0);
  }
} finally {
  await stage.close();
}
process.exit(0);

async function one() {
  const { tag, text } = prompt();
  await stage.fakes.script("gemini", tag, { size: BYTES });
  const answer = await call(stage, STREAM, contents(text));
  const { length } = await answer.text();
  if (answer.status !== 200 || length < BYTES / 4) throw new Error(`${answer.status} ${length}`);
}

async function report(storm, ms) {
  const { wasm, runners } = stage.memory ? await stage.memory() : {};
  const figures = { storm, seconds: Math.round(ms / 100) / 10, resident: resident(stage.worker) };
  console.log(JSON.stringify({ ...figures, wasm, runners }));
}

/** A Worker without code of ours, on the same wrangler with the same stores. */
async function control() {
  const main = join(ROOT, "tests", "campaign", "lib", `${kind}-worker.mjs`);
  const worker = await Worker.start(`storms-${kind}`, { bindings: { main } });
  const asked = async () => {
    const answer = await worker.fetch("/v1/stream", { method: "POST", body: BODY });
    const { length } = await answer.text();
    if (length < BYTES) throw new Error(`${answer.status} ${length}`);
  };
  return { worker, one: asked, close: () => worker.stop() };
}
