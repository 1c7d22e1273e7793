// Without Durable Objects the handler itself runs the generation, streams included.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { clients, prompt, setSdkStage } from "./lib.mjs";

let stage;
before(async () => {
  stage = await setSdkStage("inline", { vars: { RUNNER_MODE: "inline" } });
});
after(() => stage?.close());

for (const name of ["@google/genai", "Vercel AI SDK", "curl"]) {
  test(`${name}: unary, stream and their replays are bought once`, async () => {
    const client = clients(stage)[name];
    for (const [first, second] of [
      ["unary", "stream"],
      ["stream", "unary"],
    ]) {
      const { tag, text } = prompt();
      const made = await client[first](text);
      assert.ok(made.text.length > 20, made.text);
      assert.equal((await client[first](text)).text, made.text);
      assert.equal((await client[second](text)).text, made.text);
      assert.equal(await stage.fakes.billed(tag), 1);
    }
  });
}
