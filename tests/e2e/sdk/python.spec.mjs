// Google's SDK for Python, as it is published, against the Worker. Where python3 with venv, or the
// package index, is not here, all of it is skipped, and says so.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { Cutting } from "./cutting.mjs";
import { STREAM, call, clients, contents, prompt, setSdkStage, sha256 } from "./lib.mjs";
import { Python, missingPython } from "./python.mjs";

const skip = missingPython();
const SENTENCE = "日本語の文章、絵文字🎉👩‍👩‍👧と記号。";
const PLACES = 10;

describe("google-genai for Python", { skip, concurrency: 4, timeout: 120_000 }, () => {
  let stage;
  let python;
  let sdk;
  before(async () => {
    stage = await setSdkStage("python");
    python = new Python();
    sdk = python.client(stage.worker.url, stage.client.key);
  });
  after(() => {
    python?.close();
    return stage?.close();
  });
  const billed = (tag) => stage.fakes.billed(tag);

  // The longest first, so that the others run meanwhile.
  test("a long silence before the first byte is no error", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, { delay: 22_000 });
    const answer = await sdk.stream(text);
    assert.ok(answer.text.length > 20, answer.text);
    assert.equal((await sdk.stream(text)).text, answer.text);
    assert.equal(await billed(tag), 1);
  });

  for (const form of ["unary", "stream", "asynchronous"]) {
    test(`${form}, and its replay, are one purchase`, async () => {
      const { tag, text } = prompt();
      const first = await sdk[form](text);
      assert.ok(first.text.length > 20, first.text);
      assert.equal(first.chunks.length > 1, form !== "unary");
      assert.deepEqual(await sdk[form](text), first);
      assert.equal(await billed(tag), 1);
    });
  }

  test("a stream and a unary call of the same request are one purchase", async () => {
    for (const [one, other] of [
      ["unary", "stream"],
      ["stream", "unary"],
    ]) {
      const { tag, text } = prompt();
      assert.equal((await sdk[one](text)).text, (await sdk[other](text)).text);
      assert.equal(await billed(tag), 1);
    }
  });

  test("one byte at a time, Japanese and emoji come whole", async () => {
    const words = SENTENCE.repeat(5);
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, { "one-byte": true, say: words, chunks: 7 });
    for (const form of ["stream", "asynchronous", "stream"]) {
      assert.equal((await sdk[form](text)).text, words);
    }
    assert.equal(await billed(tag), 1);
  });

  for (const fault of ["lf", "two-objects", "array-body", "stop-each-chunk", "unknown-enum"]) {
    test(`Gemini's ${fault} reaches it as a plain stream`, async () => {
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, fault);
      const first = await sdk.stream(text);
      assert.ok(first.text.length > 20, first.text);
      assert.equal((await sdk.unary(text)).text, first.text);
      assert.equal(await billed(tag), 1);
    });
  }

  test("a megabyte comes whole, live and in the replay", async () => {
    const { tag, text } = prompt("[[fault:size:1000000]]");
    const first = await sdk.stream(text);
    assert.ok(Buffer.byteLength(first.text) >= 1_000_000);
    assert.equal(sha256((await sdk.stream(text)).text), sha256(first.text));
    assert.equal(await billed(tag), 1);
  });

  test("its automatic retries of a refusal come to one purchase", async () => {
    for (const [fault, form] of [
      ["503", "stream"],
      ["429", "unary"],
    ]) {
      const { tag, text } = prompt();
      await stage.fakes.script("gemini", tag, fault, 2);
      assert.ok((await sdk[form](text)).text.length > 20);
      assert.equal((await stage.fakes.asked(tag)).length, 3, "asked by the retries");
      assert.equal(await billed(tag), 1);
    }
  });

  test(`cut at ${PLACES} places, the retry gets all of it, bought once`, async (t) => {
    const words = SENTENCE.repeat(12);
    const whole = await call(stage, STREAM, contents(`${prompt().text} [[say:${words}]]`));
    const length = Buffer.byteLength(await whole.text());
    const cutting = await Cutting.start(stage.worker.port);
    t.after(() => cutting.close());
    const cut = python.client(cutting.url, stage.client.key);
    for (let place = 0; place < PLACES; place += 1) {
      const { tag, text } = prompt(`[[say:${words}]]`);
      cutting.next(Math.floor((length * place) / (PLACES - 1)));
      const got = await cut.stream(text).catch(() => cut.stream(text));
      assert.equal(sha256(got.text), sha256(words), `cut at place ${place}`);
      assert.equal(await billed(tag), 1, `cut at place ${place}`);
      assert.equal(cutting.cuts, place + 1);
    }
  });

  test("an error in mid-stream is the SDK's own error", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "raw-error-mid:2", -1);
    await assert.rejects(sdk.stream(text), { class: "ServerError", code: 503 });
    assert.equal(await billed(tag), 1);
  });

  test("a stream that ended without a finishReason is an error, and no success", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "no-finish");
    await assert.rejects(sdk.stream(text), { class: "ServerError", code: 503 });
    assert.equal(await billed(tag), 1);
  });

  for (const [fault, expected] of [
    ["400", { class: "ClientError", code: 400, status: "INVALID_ARGUMENT" }],
    ["region", { class: "ClientError", code: 400, status: "FAILED_PRECONDITION" }],
    ["404", { class: "ClientError", code: 404, status: "NOT_FOUND" }],
    ["per-day", { class: "ClientError", code: 429, status: "RESOURCE_EXHAUSTED" }],
    ["html-524", { class: "ServerError", code: 503, status: "UNAVAILABLE" }],
    ["bad-key", { class: "ServerError", code: 502 }],
  ]) {
    test(`${fault} is read as ${expected.class} ${expected.code}`, async () => {
      for (const form of ["unary", "stream"]) {
        const { tag, text } = prompt();
        await stage.fakes.script("gemini", tag, fault, -1);
        await assert.rejects(sdk[form](text), expected);
        assert.equal(await billed(tag), 0);
      }
    });
  }

  test("a key that nobody has is its ClientError 401", async () => {
    const nobody = python.client(stage.worker.url, "wrong");
    const expected = { class: "ClientError", code: 401, status: "UNAUTHENTICATED" };
    await assert.rejects(nobody.unary(prompt().text), expected);
  });

  test("a function call reaches it, live and replayed", async () => {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "function-call");
    const declared = { name: "lookUp", parameters_json_schema: { type: "object", properties: {} } };
    const config = { tools: [{ function_declarations: [declared] }] };
    for (const form of ["unary", "stream", "unary"]) {
      const { chunks } = await sdk[form](text, { config });
      assert.deepEqual(
        chunks.flatMap((chunk) => chunk.calls),
        ["lookUp"],
        form,
      );
    }
    assert.equal(await billed(tag), 1);
  });

  test("a long answer in hops is bought once a hop, and replayed hop by hop", async () => {
    const { tag, text } = prompt("[[fault:continuation:3]]");
    const config = { max_output_tokens: 200_000 };
    const first = await sdk.stream(text, { config });
    const bought = await billed(tag);
    assert.ok(bought >= 3, `${bought} hops`);
    assert.equal((await sdk.stream(text, { config })).text, first.text);
    assert.equal(await billed(tag), bought);
  });

  test("the header fields of Oncepress count for it too", async () => {
    const { tag, text } = prompt();
    await sdk.unary(text);
    await sdk.unary(text, { headers: { "x-oncepress-variant": "B" } });
    assert.equal(await billed(tag), 2);
  });

  // What each writes for the same meaning: see docs/SDKS.md, "Equivalences".
  for (const [what, py, js, raw] of [
    ["nothing but a prompt", undefined, undefined, {}],
    [
      "temperature 0.0",
      { temperature: 0 },
      { temperature: 0 },
      { generationConfig: { temperature: 0 } },
    ],
    [
      "system instruction and thoughts",
      { system_instruction: "Brief.", thinking_config: { include_thoughts: true } },
      { systemInstruction: "Brief.", thinkingConfig: { includeThoughts: true } },
      {
        generationConfig: { thinkingConfig: { includeThoughts: true } },
        systemInstruction: { parts: [{ text: "Brief." }] },
      },
    ],
    [
      "thinking level",
      { thinking_config: { thinking_level: "LOW" }, top_p: 0.5, max_output_tokens: 500 },
      { thinkingConfig: { thinkingLevel: "LOW" }, topP: 0.5, maxOutputTokens: 500 },
      {
        generationConfig: {
          maxOutputTokens: 500,
          topP: 0.5,
          thinkingConfig: { thinkingLevel: "LOW" },
        },
      },
    ],
    [
      "a seed",
      { seed: 7, temperature: 1 },
      { temperature: 1 },
      { generationConfig: { seed: 1, temperature: 1 } },
    ],
    [
      "JSON by a schema",
      {
        response_mime_type: "application/json",
        response_json_schema: { type: "object", properties: { my_name: { type: "string" } } },
      },
      {
        responseMimeType: "application/json",
        responseJsonSchema: { type: "object", properties: { my_name: { type: "string" } } },
      },
      {
        generationConfig: {
          responseJsonSchema: { properties: { my_name: { type: "string" } }, type: "object" },
          responseMimeType: "application/json",
        },
      },
    ],
    [
      "safety settings",
      { safety_settings: [{ category: "HARM_CATEGORY_HARASSMENT", threshold: "BLOCK_NONE" }] },
      { safetySettings: [{ category: "HARM_CATEGORY_HARASSMENT", threshold: "BLOCK_NONE" }] },
      { safetySettings: [{ threshold: "BLOCK_NONE", category: "HARM_CATEGORY_HARASSMENT" }] },
    ],
    [
      "a function",
      {
        tools: [
          {
            function_declarations: [
              { name: "f", description: "d", parameters_json_schema: { type: "object" } },
            ],
          },
        ],
      },
      {
        tools: [
          {
            functionDeclarations: [
              { name: "f", description: "d", parametersJsonSchema: { type: "object" } },
            ],
          },
        ],
      },
      {
        tools: [
          {
            functionDeclarations: [
              { parametersJsonSchema: { type: "object" }, description: "d", name: "f" },
            ],
          },
        ],
      },
    ],
  ]) {
    test(`${what}: one operation from Python, JavaScript and curl`, async () => {
      const { tag, text } = prompt("Write.");
      const others = clients(stage);
      await sdk.unary(text, { config: py });
      await sdk.stream(text, { config: py });
      await others["@google/genai"].unary(text, { config: js });
      // curl's body names no role, which is content where it is not in systemInstruction.
      await others.curl.unary(text, { contents: contents(text).contents, ...raw });
      assert.equal(await billed(tag), 1);
    });
  }
});
