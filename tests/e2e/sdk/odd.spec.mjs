// Answers that Gemini, or something on the way, makes in an odd way: what is one is one for every
// client and is bought once; what is none is an error. How a stream may be framed: matrix.spec.mjs.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import {
  STREAM,
  UNARY,
  call,
  clients,
  contents,
  events,
  prompt,
  setSdkStage,
  textOf,
} from "./lib.mjs";

let stage;
before(async () => {
  stage = await setSdkStage("odd");
});
after(() => stage?.close());

const CLIENTS = ["@google/genai", "Vercel AI SDK", "curl"];

const said = (text, more = {}) => ({
  candidates: [{ content: { role: "model", parts: [{ text }] }, ...more }],
});
const STOP = { finishReason: "STOP" };
const data = (document) =>
  `data: ${typeof document === "string" ? document : JSON.stringify(document)}`;

describe("an answer all the same", { concurrency: 4 }, () => {
  for (const fault of [
    "lf",
    "two-objects",
    "array-body",
    "finish-alone",
    "thought-without-text",
    "line-separators",
    "unknown-enum",
    "no-usage",
    "stop-each-chunk",
    "one-byte",
    "nul",
  ]) {
    test(`the fake's ${fault}`, async () => {
      for (const name of CLIENTS) {
        const { tag, text } = prompt();
        await stage.fakes.script("gemini", tag, fault);
        const client = clients(stage)[name];
        const first = await client.stream(text);
        assert.ok(first.text.length > 0);
        assert.equal((await client.stream(text)).text, first.text, name);
        assert.equal((await client.unary(text)).text, first.text, name);
        assert.equal(await stage.fakes.billed(tag), 1, name);
      }
    });
  }

  test("a thousand candidates, in a stream and merged", async () => {
    const { tag, text } = prompt();
    const many = (word, more) => ({
      candidates: Array.from({ length: 1_000 }, (_, index) => ({
        index,
        ...said(`${word}${index}`, more).candidates[0],
      })),
    });
    const body = [many("a"), many("b"), many("c", STOP)]
      .map((chunk) => `${data(chunk)}\r\n\r\n`)
      .join("");
    await stage.fakes.script("gemini", tag, { status: 200, body });
    const stream = await (await call(stage, STREAM, contents(text))).text();
    assert.equal(events(stream).length, 3);
    const unary = await (await call(stage, UNARY, contents(text))).json();
    assert.equal(unary.candidates.length, 1_000);
    assert.equal(textOf([{ candidates: [unary.candidates[999]] }]), "a999b999c999");
    assert.equal((await stage.fakes.asked(tag)).length, 1);
  });

  test("one event of four megabytes", async () => {
    const { tag, text } = prompt();
    const words = "日本語🎉".repeat(250_000);
    await stage.fakes.script("gemini", tag, { say: words, chunks: 1 });
    for (const path of [STREAM, STREAM]) {
      const answer = await call(stage, path, contents(text));
      assert.equal(textOf(events(await answer.text())), words);
    }
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("half a character alone is passed on as it came", async () => {
    const { tag, text } = prompt();
    const body = `${data('{"candidates":[{"content":{"parts":[{"text":"a\\ud83c"}]}}]}')}\r\n\r\n${data(said("b", STOP))}\r\n\r\n`;
    await stage.fakes.script("gemini", tag, { status: 200, body });
    const first = await (await call(stage, STREAM, contents(text))).text();
    assert.equal(first, body);
    assert.equal(await (await call(stage, STREAM, contents(text))).text(), body);
    assert.equal((await clients(stage)["@google/genai"].unary(text)).text, "a\ufffdb");
    assert.equal((await stage.fakes.asked(tag)).length, 1);
  });
});

test("what came before the last reason to end is passed on while Gemini goes on", async () => {
  const { tag, text } = prompt();
  await stage.fakes.script("gemini", tag, { "stop-each-chunk": true, "hang-mid": 2 });
  const leaving = new AbortController();
  const answer = await call(stage, STREAM, contents(text), {}, { signal: leaving.signal });
  const { value } = await answer.body.getReader().read();
  assert.equal(events(new TextDecoder().decode(value)).length, 1);
  leaving.abort();
});

describe("no answer", { concurrency: 4 }, () => {
  const BROKEN = {
    nothing: "",
    "blank lines": "\r\n\r\n\r\n",
    "an event that is cut": `${data(said("a"))}\n\ndata: {"candidates`,
    "an event that ends inside its JSON": `${data(said("a"))}\n\ndata: {"candidates\n\n`,
    "events without an end": `${data(said("a"))}\n\n${data(said("b"))}\n\n`,
    "empty events alone": "data: {}\n\ndata: {}\n\n",
    "a page": "<!DOCTYPE html><html><body>error code: 524</body></html>",
    "a page after the first event": `${data(said("a"))}\n\n<html><body>error</body></html>`,
    words: "upstream connect error or disconnect/reset before headers",
    "JSON that is no answer": '{"success": true}',
  };
  for (const [what, body] of Object.entries(BROKEN)) {
    test(`${what}: an unknown outcome, and not asked again`, async () => {
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, { status: 200, body });
      const first = await call(stage, STREAM, contents(text));
      const came = await first.text();
      const error = first.status === 200 ? events(came).at(-1).error : JSON.parse(came).error;
      assert.equal(error.code, 503, came);
      assert.equal(error.details[0].reason, "REQUEST_RECONCILIATION_PENDING");
      const again = await call(stage, UNARY, contents(text));
      assert.equal(again.status, 503, await again.text());
      assert.equal((await stage.fakes.asked(tag)).length, 1);
    });
  }
});
