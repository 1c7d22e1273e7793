// What clients send differently for the same meaning is one operation; what means something else is
// another. The rows of docs/SDKS.md, "Equivalences".

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { MODEL, UNARY, call, genai, prompt, setSdkStage, vercel } from "./lib.mjs";

let stage;
before(async () => {
  stage = await setSdkStage("identity");
});
after(() => stage?.close());

async function ask(body, path = UNARY, headers = {}) {
  const answer = await call(stage, path, body, headers);
  const text = await answer.text();
  assert.equal(answer.status, 200, text);
  return answer.headers.get("x-idempotency-replayed") === "true";
}

const config = (text) => `"generationConfig":${text}`;
const withConfig = (text, generationConfig) =>
  `{"contents":[{"role":"user","parts":[{"text":"${text}"}]}],${generationConfig}}`;

const SAME = [
  ["0 and 0.0", config('{"temperature":0}'), config('{"temperature":0.0}')],
  ["1 and 1e0", config('{"topK":1}'), config('{"topK":1e0}')],
  [
    "the order of members",
    config('{"temperature":1,"topP":0.5}'),
    config('{"topP":0.5,"temperature":1}'),
  ],
  [
    "camel and snake case",
    config('{"thinkingConfig":{"thinkingLevel":"LOW"}}'),
    config('{"thinking_config":{"thinking_level":"LOW"}}'),
  ],
  ["an empty generationConfig and none", config("{}"), undefined],
  [
    "a role in systemInstruction and none",
    '"systemInstruction":{"role":"user","parts":[{"text":"s"}]}',
    '"systemInstruction":{"parts":[{"text":"s"}]}',
  ],
  ["a seed and none", config('{"seed":1,"topK":2}'), config('{"topK":2}')],
  ["temperature 0 and 1", config('{"temperature":0}'), config('{"temperature":1}'), false],
];

describe("one body and another", () => {
  for (const [what, one, other, same = true] of SAME) {
    test(`${what}: ${same ? "one operation" : "two"}`, async () => {
      const { tag, text } = prompt("Write.");
      const plain = `{"contents":[{"role":"user","parts":[{"text":"${text}"}]}]}`;
      assert.equal(await ask(withConfig(text, one)), false);
      assert.equal(await ask(other === undefined ? plain : withConfig(text, other)), same);
      assert.equal(await stage.fakes.billed(tag), same ? 1 : 2);
    });
  }
});

test("versions of the API, where a key stands, and the form of the answer do not count", async () => {
  const { tag, text } = prompt("Write.");
  const body = { contents: [{ role: "user", parts: [{ text }] }] };
  assert.equal(await ask(body, `/v1/models/${MODEL}:generateContent`), false);
  assert.equal(await ask(body, `/v1beta/models/${MODEL}:generateContent`), true);
  assert.equal(await ask(body, `/v1alpha/models/${MODEL}:streamGenerateContent?alt=sse`), true);
  const { url } = stage.worker;
  const { key } = stage.client;
  for (const [query, headers] of [
    [`?key=${key}`, {}],
    ["", { authorization: `Bearer ${key}` }],
  ]) {
    const path = `${url}/v1/models/${MODEL}:generateContent${query}`;
    const answer = await fetch(path, { method: "POST", body: JSON.stringify(body), headers });
    assert.equal(answer.status, 200, await answer.text());
    assert.equal(answer.headers.get("x-idempotency-replayed"), "true");
  }
  assert.equal(await stage.fakes.billed(tag), 1);
});

test("the same call from Python, JavaScript, the Vercel SDK and curl is one operation", async () => {
  const { tag, text } = prompt("Write.");
  const { url } = stage.worker;
  const { key } = stage.client;
  const thinkingConfig = { includeThoughts: true };
  await genai(url, key).unary(text, {
    config: { temperature: 0, thinkingConfig, systemInstruction: "Brief." },
  });
  await vercel(url, key).unary(text, {
    instructions: "Brief.",
    temperature: 0,
    providerOptions: { google: { thinkingConfig } },
  });
  // As google-genai 3.6.1 for Python writes it.
  const python =
    `{"contents": [{"parts": [{"text": "${text}"}], "role": "user"}], "systemInstruction": ` +
    '{"parts": [{"text": "Brief."}], "role": "user"}, "generationConfig": ' +
    '{"temperature": 0.0, "thinkingConfig": {"include_thoughts": true}}}';
  assert.equal(await ask(python), true);
  const curl =
    `{"generationConfig":{"thinkingConfig":{"includeThoughts":true},"temperature":0},` +
    `"systemInstruction":{"parts":[{"text":"Brief."}]},` +
    `"contents":[{"role":"user","parts":[{"text":"${text}"}]}]}`;
  assert.equal(await ask(curl), true);
  assert.equal(await stage.fakes.billed(tag), 1);
});

test("a variant, another site and another model are other operations", async () => {
  const { tag, text } = prompt("Write.");
  const body = { contents: [{ parts: [{ text }] }] };
  assert.equal(await ask(body), false);
  assert.equal(await ask(body, UNARY, { "x-oncepress-variant": "B" }), false);
  assert.equal(await ask(body, UNARY, { "x-oncepress-site": "shop" }), false);
  assert.equal(await ask(body, "/v1/models/gemini-3.5-flash:generateContent"), false);
  assert.equal(await stage.fakes.billed(tag), 4);
});
