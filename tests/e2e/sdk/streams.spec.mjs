// Streams that are cut, followed, large or many.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";

import { GoogleGenAI } from "@google/genai";

import { Client } from "../lib/client.mjs";
import { waitFor } from "../lib/wait.mjs";
import { Cutting } from "./cutting.mjs";
import {
  MODEL,
  STREAM,
  UNARY,
  call,
  clients,
  contents,
  events,
  genai,
  prompt,
  setSdkStage,
  sha256,
  textOf,
} from "./lib.mjs";

let stage;
before(async () => {
  stage = await setSdkStage("streams");
});
after(() => stage?.close());

/** `GEMINI_ANSWER_MAX_BYTES` of src/limits.rs. */
const ANSWER_MAX_BYTES = 8 * 1_048_576;
const SENTENCE = "日本語の文章、絵文字🎉👩‍👩‍👧と記号。";

async function read(path, body, headers) {
  const answer = await call(stage, path, body, headers);
  return { status: answer.status, headers: answer.headers, text: await answer.text() };
}

describe("a stream that its caller lost", () => {
  const PLACES = 10;
  for (const name of ["@google/genai", "Vercel AI SDK", "curl"]) {
    test(`at ${PLACES} places, is bought once and comes whole with ${name}'s retry`, async (t) => {
      const words = SENTENCE.repeat(12);
      const whole = await read(STREAM, contents(`${prompt().text} [[say:${words}]]`));
      const length = Buffer.byteLength(whole.text);
      const cutting = await Cutting.start(stage.worker.port);
      t.after(() => cutting.close());
      const { stream } = clients(stage, cutting.url)[name];
      for (let place = 0; place < PLACES; place += 1) {
        const { tag, text } = prompt(`[[say:${words}]]`);
        cutting.next(Math.floor((length * place) / (PLACES - 1)));
        // The SDKs' own retries are on; what they don't retry, their caller does.
        const { text: got } = await stream(text).catch(() => stream(text));
        assert.equal(sha256(got), sha256(words), `cut at place ${place}`);
        assert.equal(await stage.fakes.billed(tag), 1, `cut at place ${place}`);
        assert.equal(cutting.cuts, place + 1);
      }
    });
  }

  test("and whose Gemini was cut after its last byte, is whole", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "reset-end");
    const sdk = genai(stage.worker.url, stage.client.key);
    const first = await sdk.stream(text);
    assert.equal((await sdk.stream(text)).text, first.text);
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("goes on without it, and is published", async () => {
    const { tag, text } = prompt();
    const headers = { "x-oncepress-publish": `files=${tag}.md` };
    await stage.fakes.script("gemini", tag, { "gate-mid": tag });
    const leaving = new AbortController();
    const answer = await call(stage, STREAM, contents(text), headers, { signal: leaving.signal });
    await answer.body.getReader().read();
    leaving.abort();
    await stage.fakes.openGate(tag);
    const retry = await read(STREAM, contents(text), headers);
    assert.equal(retry.headers.get("x-idempotency-replayed"), "true");
    const published = await waitFor("the object", async () => {
      const object = await stage.worker.r2(`files/${tag}.md`);
      return object.found && object;
    });
    assert.equal(published.text, textOf(events(retry.text)));
    assert.equal(await stage.fakes.billed(tag), 1);
  });
});

test("an SDK that knows nothing of Oncepress publishes by its key's defaults", async () => {
  const { tag, text } = prompt();
  const defaults = {
    site: "shop",
    pipeline: "weekly",
    publish: [{ publisher: "files", target: `${tag}.md` }],
  };
  const client = await Client.create(stage.worker, "acme", { defaults });
  const { text: said } = await genai(stage.worker.url, client.key).stream(text);
  const published = await waitFor("the object", async () => {
    const object = await stage.worker.r2(`files/${tag}.md`);
    return object.found && object;
  });
  assert.equal(published.text, said);
  const { items } = (await client.call("GET", "/api/v1/generations?limit=1&site=shop")).json;
  assert.equal(items[0].pipeline, "weekly");
  assert.equal(await stage.fakes.billed(tag), 1);
});

test("a duplicate of a running stream follows it live from its first byte", async () => {
  const { tag, text } = prompt();
  await stage.fakes.script("gemini", tag, { "gate-mid": tag });
  const first = await call(stage, STREAM, contents(text));
  const firstReader = first.body.getReader();
  const decode = (bytes) => new TextDecoder().decode(bytes);
  let firstText = decode((await firstReader.read()).value);
  const second = await call(stage, STREAM, contents(text));
  const secondReader = second.body.getReader();
  let secondText = decode((await secondReader.read()).value);
  assert.equal(secondText, firstText, "before Gemini has finished");
  assert.equal(first.headers.get("x-idempotency-replayed"), null);
  assert.equal(second.headers.get("x-idempotency-replayed"), "true");
  assert.equal(second.headers.get("x-request-id"), first.headers.get("x-request-id"));
  assert.equal(first.headers.get("x-oncepress-credits"), null);
  await stage.fakes.openGate(tag);
  const rest = async (reader, from) => {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return from;
      from += decode(value);
    }
  };
  [firstText, secondText] = await Promise.all([
    rest(firstReader, firstText),
    rest(secondReader, secondText),
  ]);
  assert.equal(secondText, firstText);
  assert.equal((await read(STREAM, contents(text))).text, firstText, "byte for byte");
  assert.equal(events(firstText).at(-1).candidates[0].finishReason, "STOP");
  assert.equal(await stage.fakes.billed(tag), 1);
});

test("a unary duplicate of a running stream waits for it, and the other way round", async () => {
  for (const [one, other] of [
    [STREAM, UNARY],
    [UNARY, STREAM],
  ]) {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, { gate: tag });
    const first = read(one, contents(text));
    await waitFor("Gemini to be asked", async () => (await stage.fakes.asked(tag)).length === 1);
    const second = read(other, contents(text));
    await stage.fakes.openGate(tag);
    const said = ({ text: body }) =>
      textOf(body.startsWith("data:") ? events(body) : [JSON.parse(body)]);
    assert.equal(said(await second), said(await first));
    assert.equal(await stage.fakes.billed(tag), 1);
  }
});

test("what is replayed is byte for byte what came first, unknown members included", async () => {
  for (const path of [UNARY, STREAM, STREAM.replace("?alt=sse", "")]) {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "unknown-fields");
    const first = await read(path, contents(text));
    const again = await read(path, contents(text));
    assert.equal(first.status, 200, first.text);
    assert.equal(again.text, first.text);
    assert.equal(again.headers.get("content-type"), first.headers.get("content-type"));
    assert.equal(again.headers.get("x-idempotency-replayed"), "true");
    assert.equal(again.headers.get("x-oncepress-credits"), "0");
    assert.equal(await stage.fakes.billed(tag), 1);
  }
});

test("a megabyte comes whole, live and in the replay", async () => {
  const { tag, text } = prompt("[[fault:size:1000000]]");
  const first = await read(STREAM, contents(text));
  const again = await read(STREAM, contents(text));
  const said = textOf(events(first.text));
  assert.ok(Buffer.byteLength(said) >= 1_000_000, `${Buffer.byteLength(said)} bytes`);
  assert.equal(sha256(again.text), sha256(first.text));
  const unary = await read(UNARY, contents(text));
  assert.equal(sha256(textOf([JSON.parse(unary.text)])), sha256(said));
  assert.equal(await stage.fakes.billed(tag), 1);
});

test("an answer over the limit ends as one of unknown outcome, and takes nobody else along", async () => {
  const beside = prompt("[[fault:size:1000000]]");
  const other = read(STREAM, contents(beside.text));
  for (const path of [UNARY, STREAM]) {
    for (const chunks of [1, 200]) {
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, { size: ANSWER_MAX_BYTES + 1, chunks });
      const over = await read(path, contents(text));
      const [last] = over.status === 200 ? events(over.text).slice(-1) : [JSON.parse(over.text)];
      assert.equal(last.error.code, 503, JSON.stringify(last.error));
      assert.match(last.error.message, /too large to be stored/);
      assert.equal((await read(path, contents(text))).status, 503, "its key is bound");
      assert.equal((await stage.fakes.asked(tag)).length, 1, "and it is not bought again");
    }
  }
  assert.ok(Buffer.byteLength((await other).text) > 1_000_000);
  const log = await readFile(stage.worker.log, "utf8");
  assert.doesNotMatch(log, /panicked|RuntimeError|memory limit/);
});

describe("answers other than text", () => {
  test("a function call reaches the SDK, live and replayed", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "function-call");
    const tools = [
      {
        functionDeclarations: [
          { name: "lookUp", parametersJsonSchema: { type: "object", properties: {} } },
        ],
      },
    ];
    const sdk = genai(stage.worker.url, stage.client.key);
    for (const form of ["unary", "stream", "unary"]) {
      const { answer, chunks } = await sdk[form](text, { config: { tools } });
      const calls = answer ? answer.functionCalls : chunks.flatMap((c) => c.functionCalls ?? []);
      assert.equal(calls[0].name, "lookUp", form);
    }
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("an image reaches the SDK, live and replayed", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "image");
    const sdk = genai(stage.worker.url, stage.client.key);
    const images = [];
    for (let round = 0; round < 2; round += 1) {
      const { chunks } = await sdk.stream(text);
      const parts = chunks.flatMap((chunk) => chunk.candidates?.[0]?.content?.parts ?? []);
      images.push(parts.find((part) => part.inlineData)?.inlineData.data);
    }
    assert.ok(images[0]);
    assert.equal(images[1], images[0]);
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("what is held is given with Gemini's bytes and 200", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "max-tokens");
    const first = await read(UNARY, contents(text));
    assert.equal(first.status, 200, first.text);
    assert.equal(first.headers.get("x-oncepress-held"), "max_tokens");
    const again = await read(UNARY, contents(text));
    assert.deepEqual([again.status, again.text], [200, first.text]);
    assert.equal(again.headers.get("x-idempotency-replayed"), "true");
    assert.equal(await stage.fakes.billed(tag), 1);
  });
});

test("a long answer in hops is bought once a hop, and replayed hop by hop", async () => {
  const { tag, text } = prompt("[[fault:continuation:3]]");
  const sdk = new GoogleGenAI({
    apiKey: stage.client.key,
    httpOptions: { baseUrl: stage.worker.url },
  });
  const ask = async () => {
    const said = [];
    const stream = await sdk.models.generateContentStream({
      model: MODEL,
      contents: text,
      config: { maxOutputTokens: 200_000 },
    });
    for await (const chunk of stream) said.push(chunk.text ?? "");
    return said.join("");
  };
  const first = await ask();
  const bought = await stage.fakes.billed(tag);
  assert.ok(bought >= 3, `${bought} hops`);
  assert.equal(await ask(), first);
  assert.equal(await stage.fakes.billed(tag), bought, "the second time nothing is bought");
});

test("the Vercel SDK sees the end of a replayed stream", async () => {
  const { text } = prompt();
  const { stream } = clients(stage)["Vercel AI SDK"];
  assert.equal((await stream(text)).finishReason, "stop");
  assert.equal((await stream(text)).finishReason, "stop");
});
