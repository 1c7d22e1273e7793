// What passes through: with the gateway's key, filtered both ways, and never silently unguarded.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";

import { GoogleGenAI } from "@google/genai";

import { Client } from "../lib/client.mjs";
import { GEMINI_API_KEY } from "../lib/worker.mjs";
import { MODEL, call, setSdkStage } from "./lib.mjs";

/** Stands for Gemini where its fake has no such call: notes what came, answers with a little. */
class Recorder {
  seen = [];

  static async start() {
    const recorder = new Recorder();
    recorder.server = createServer((request, response) => recorder.answer(request, response));
    recorder.server.listen(0, "127.0.0.1");
    await once(recorder.server, "listening");
    recorder.url = `http://127.0.0.1:${recorder.server.address().port}`;
    return recorder;
  }

  async answer(request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const body = Buffer.concat(pieces);
    this.seen.push({ method: request.method, url: request.url, headers: request.headers, body });
    if (body.includes('"stream":true')) return this.stream(response);
    const headers = { "content-type": "application/json", "set-cookie": "a=b", server: "x" };
    if (request.headers["x-goog-upload-command"] === "start") {
      headers["x-goog-upload-url"] = `${this.url}/upload/v1beta/files?upload_id=1`;
      headers["x-goog-upload-status"] = "active";
    }
    if (request.headers["x-goog-upload-command"]?.includes("finalize")) {
      headers["x-goog-upload-status"] = "final";
    }
    const bodyless = Number(request.url.match(/bodyless-(\d+)/)?.[1]);
    if (bodyless) return response.writeHead(bodyless, { etag: '"1"' }).end();
    const status = request.url.includes("missing") ? 404 : 200;
    response.writeHead(status, headers);
    const file = { name: "files/1", uri: "u", mimeType: "text/plain", state: "ACTIVE" };
    const answers = { models: [{ name: `models/${MODEL}` }], totalTokens: 7, file };
    response.end(JSON.stringify(answers));
  }

  /** Ends a stream that it began only when told to. */
  async stream(response) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("data: {}\n\n");
    await new Promise((resolve) => (this.release = resolve));
    response.end("data: [DONE]\n\n");
  }

  get last() {
    return this.seen.at(-1);
  }
}

let stage;
let gemini;
let owner;
let limited;
before(async () => {
  gemini = await Recorder.start();
  stage = await setSdkStage("pass", { vars: { GEMINI_BASE_URL: gemini.url } });
  owner = { worker: stage.worker, client: await Client.create(stage.worker, "default") };
  const client = await Client.create(stage.worker, "limited", { dailyCredits: 1_000_000 });
  limited = { worker: stage.worker, client };
});
after(async () => {
  await stage?.close();
  gemini?.server.close();
});

/** Nothing of the caller's credentials is in what Gemini got; the gateway's key is. */
function expectOurKeyAlone({ url, headers }, key) {
  assert.equal(headers["x-goog-api-key"], GEMINI_API_KEY);
  assert.equal(`${url}${JSON.stringify(headers)}`.includes(key), false);
  assert.equal(headers.authorization, undefined);
}

test("models and counts pass through for the SDK, and nothing of the caller goes with them", async () => {
  const { key } = stage.client;
  const sdk = new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: stage.worker.url } });
  const models = [];
  for await (const model of await sdk.models.list()) models.push(model.name);
  assert.deepEqual(models, [`models/${MODEL}`]);
  expectOurKeyAlone(gemini.last, key);
  const { totalTokens } = await sdk.models.countTokens({ model: MODEL, contents: "x" });
  assert.equal(totalTokens, 7);
  const answer = await stage.worker.fetch(`/v1/models?key=${key}&pageSize=5&$httpHeaders=a:b`, {
    headers: { cookie: "c=d", "x-goog-user-project": "p", range: "bytes=0-" },
  });
  assert.equal(answer.status, 200);
  assert.equal(gemini.last.url, "/v1/models?pageSize=5");
  assert.equal(gemini.last.headers.cookie, undefined);
  assert.equal(gemini.last.headers["x-goog-user-project"], undefined);
  assert.equal(answer.headers.get("set-cookie"), null);
  expectOurKeyAlone(gemini.last, key);
});

describe("what generates unguarded", () => {
  const PATHS = [
    "/v1/interactions",
    "/v1beta/openai/chat/completions",
    `/v1/models/${MODEL}:embedContent`,
    `/v1/models/${MODEL}:batchGenerateContent`,
  ];
  for (const path of PATHS) {
    test(`${path} says so`, async () => {
      const answer = await call(stage, path, { a: 1 });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get("x-oncepress-warning"), "not-idempotent");
      assert.equal(gemini.last.body.toString(), '{"a":1}');
      const count = gemini.seen.length;
      const refused = await call(limited, path, { a: 1 });
      assert.equal(refused.status, 403, "closed to an account with a limit");
      assert.equal(gemini.seen.length, count);
    });
  }
});

test("a stream that passes through comes as it is made, its key as OpenAI's clients send it", async () => {
  const { key } = stage.client;
  const answer = await stage.worker.fetch("/v1beta/openai/chat/completions", {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: '{"stream":true}',
  });
  assert.equal(answer.headers.get("x-oncepress-warning"), "not-idempotent");
  const pieces = answer.body.pipeThrough(new TextDecoderStream());
  const reader = pieces.getReader();
  assert.equal((await reader.read()).value, "data: {}\n\n", "before it has ended");
  gemini.release();
  assert.equal((await reader.read()).value, "data: [DONE]\n\n");
  assert.equal(gemini.last.headers.authorization, undefined);
  expectOurKeyAlone(gemini.last, key);
});

test("files, caches and batches are the default account's only", async () => {
  for (const path of ["/v1beta/files", "/v1beta/cachedContents", "/v1beta/batches"]) {
    const count = gemini.seen.length;
    const refused = await call(stage, path);
    assert.equal(refused.status, 403);
    assert.equal((await refused.json()).error.status, "PERMISSION_DENIED");
    assert.equal(gemini.seen.length, count);
    assert.equal((await call(owner, path)).status, 200);
    assert.equal(gemini.last.url, path);
  }
});

test("an upload passes through unread, and goes on through us", async () => {
  const sdk = new GoogleGenAI({
    apiKey: owner.client.key,
    httpOptions: { baseUrl: stage.worker.url },
  });
  const bytes = new Blob(["日本".repeat(500_000)], { type: "text/plain" });
  const file = await sdk.files.upload({ file: bytes });
  assert.equal(file.name, "files/1");
  const uploads = gemini.seen.filter(({ url }) => url.startsWith("/upload/"));
  assert.ok(uploads.length >= 2);
  assert.equal(uploads.at(-1).body.length, bytes.size);
  for (const upload of uploads) expectOurKeyAlone(upload, owner.client.key);
});

test("Gemini's own refusals pass with their status and their source", async () => {
  const answer = await call(owner, "/v1beta/files/missing");
  assert.equal(answer.status, 404);
  assert.equal(answer.headers.get("x-oncepress-error-source"), "gemini");
});

test("a status without a body passes, and takes nobody else along", async () => {
  for (const status of [204, 205, 304]) {
    const answer = await call(owner, `/v1beta/files/bodyless-${status}`);
    assert.equal(answer.status, status);
    assert.equal(await answer.text(), "");
  }
  const log = await readFile(stage.worker.log, "utf8");
  assert.doesNotMatch(log, /panicked|unreachable|null body status/);
});

test("no path leads anywhere else", async () => {
  const count = gemini.seen.length;
  for (const path of [
    "/v1/..%2f..%2fadmin",
    "/v1/files/a%2fb",
    "/v1alpha/auth_tokens",
    "/v1/files/@evil.example/x%5c",
    "/v1/nothing",
  ]) {
    const answer = await call(owner, path);
    assert.equal(answer.status, 404, path);
  }
  assert.equal(gemini.seen.length, count);
});
