// Every client and every feature of the table in docs/SDKS.md: a test a cell.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { clients, prompt, setSdkStage } from "./lib.mjs";

let stage;
before(async () => {
  stage = await setSdkStage("features");
});
after(() => stage?.close());

for (const name of ["@google/genai", "Vercel AI SDK", "curl"]) {
  describe(name, () => {
    const client = () => clients(stage)[name];

    test("unary, and its replay, are one purchase", async () => {
      const { tag, text } = prompt();
      const first = await client().unary(text);
      assert.ok(first.text.length > 20, first.text);
      const again = await client().unary(text);
      assert.equal(again.text, first.text);
      assert.equal(await stage.fakes.billed(tag), 1);
    });

    test("a stream, and its replay, are one purchase", async () => {
      const { tag, text } = prompt();
      const first = await client().stream(text);
      assert.ok(first.text.length > 20, first.text);
      assert.ok(first.chunks.length > 1, "comes in pieces");
      const again = await client().stream(text);
      assert.equal(again.text, first.text);
      assert.equal(await stage.fakes.billed(tag), 1);
    });

    test("a stream and a unary call of the same request are one purchase", async () => {
      const { tag, text } = prompt();
      const streamed = await client().stream(text);
      const unary = await client().unary(text);
      assert.equal(unary.text, streamed.text);
      const other = prompt();
      const first = await client().unary(other.text);
      assert.equal((await client().stream(other.text)).text, first.text);
      assert.equal((await stage.fakes.billed(tag)) + (await stage.fakes.billed(other.tag)), 2);
    });

    test("a long silence before the first byte is no error", { timeout: 60_000 }, async () => {
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, { delay: 22_000 });
      const answer = await client().stream(text);
      assert.ok(answer.text.length > 20, answer.text);
      assert.equal((await client().stream(text)).text, answer.text);
      assert.equal(await stage.fakes.billed(tag), 1);
    });

    test("one byte at a time, Japanese and emoji come whole", async () => {
      const words = "日本語の文章、絵文字🎉👩‍👩‍👧と記号。".repeat(5);
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, { "one-byte": true, say: words, chunks: 7 });
      assert.equal((await client().stream(text)).text, words);
      assert.equal((await client().stream(text)).text, words);
      assert.equal(await stage.fakes.billed(tag), 1);
    });

    test("an error in mid-stream reaches the caller as an error", async () => {
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, "raw-error-mid:2", -1);
      if (name === "curl") {
        const { chunks } = await client().stream(text);
        const last = chunks.at(-1);
        assert.equal(last.error.status, "UNAVAILABLE");
        assert.equal(last.error.details[0].reason, "REQUEST_RECONCILIATION_PENDING");
      } else {
        await assert.rejects(client().stream(text));
      }
      assert.equal(await stage.fakes.billed(tag), 1);
    });
  });
}

describe("JSON list, as it comes without alt=sse", () => {
  test("it is a list of the stream's own chunks", async () => {
    const { tag, text } = prompt();
    const { curl } = clients(stage);
    const listed = await curl.list(text);
    const streamed = await curl.stream(text);
    assert.deepEqual(listed.chunks, streamed.chunks);
    assert.deepEqual((await curl.list(text)).chunks, listed.chunks);
    assert.equal(await stage.fakes.billed(tag), 1);
  });
});
