// What goes wrong at Gemini, or on the way to it: the status, whose fault it is, and whether the
// next try is fresh.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { GoogleGenAI } from "@google/genai";

import { waitFor } from "../lib/wait.mjs";
import { STREAM, UNARY, call, contents, prompt, setSdkStage } from "./lib.mjs";

let stage;
before(async () => {
  stage = await setSdkStage("errors");
});
after(() => stage?.close());

async function ask(path, text, headers) {
  const answer = await call(stage, path, contents(text), headers);
  const body = await answer.text();
  return { status: answer.status, headers: answer.headers, body, json: parse(body) };
}

function parse(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

// fault, status, our code, a word of the body, whether the same request is fresh again
const DEFINITE = [
  ["region", 400, "gemini_rejected", "FAILED_PRECONDITION"],
  ["429", 429, "gemini_rate_limited", "RESOURCE_EXHAUSTED"],
  ["per-day", 429, "gemini_quota_exhausted", "RESOURCE_EXHAUSTED"],
  ["400", 400, "gemini_rejected", "INVALID_ARGUMENT"],
  ["404", 404, "gemini_rejected", "NOT_FOUND"],
  ["503", 503, "gemini_unavailable", "UNAVAILABLE"],
  ["bad-key", 502, "gemini_auth", "GEMINI_AUTH"],
];

const UNKNOWN = ["html-524", "html-502", "504", "commit-then-reset", "reset-mid:1"];

for (const [path, form] of [
  [UNARY, "unary"],
  [STREAM, "stream"],
]) {
  describe(form, () => {
    for (const [fault, status, code, word] of DEFINITE) {
      test(`${fault} is ${status} ${code}, and the next try is fresh`, async () => {
        const { tag, text } = prompt();
        await stage.fakes.script("gemini", tag, fault);
        const refused = await ask(path, text);
        assert.equal(refused.status, status, refused.body);
        assert.equal(refused.headers.get("x-oncepress-error-code"), code);
        assert.equal(refused.headers.get("x-oncepress-error-source"), "gemini");
        assert.equal(refused.json.error.code, status);
        assert.ok(refused.body.includes(word), refused.body);
        const next = await ask(path, text);
        assert.equal(next.status, 200, next.body);
        assert.equal(next.headers.get("x-idempotency-replayed"), null);
        assert.equal(await stage.fakes.billed(tag), 1);
      });
    }

    for (const fault of UNKNOWN) {
      test(`${fault} is an unknown outcome, and binds its key`, async () => {
        const { tag, text } = prompt();
        await stage.fakes.script("gemini", tag, fault);
        const first = await ask(path, text);
        const midway = first.status === 200;
        if (midway) {
          const last = JSON.parse(first.body.trim().split("\r\n\r\n").at(-1).slice(6));
          assert.equal(last.error.details[0].reason, "REQUEST_RECONCILIATION_PENDING");
        } else {
          assert.equal(first.status, 503, first.body);
          assert.equal(
            first.headers.get("x-oncepress-error-code"),
            "request_reconciliation_pending",
          );
          assert.ok(Number(first.headers.get("retry-after")) > 0);
        }
        const next = await ask(path, text);
        assert.equal(next.status, 503, next.body);
        assert.equal((await stage.fakes.asked(tag)).length, 1, "not asked again");
      });
    }
  });
}

test("truncated JSON is an unknown outcome in every form", async () => {
  for (const path of [UNARY, STREAM, STREAM.replace("?alt=sse", "")]) {
    const { tag, text } = prompt();
    await stage.fakes.script("gemini", tag, "truncated-json");
    const first = await ask(path, text);
    assert.ok(first.body.includes('"REQUEST_RECONCILIATION_PENDING"'), first.body);
    assert.equal(first.status, path === UNARY ? 503 : 200);
    assert.equal((await ask(path, text)).status, 503);
    assert.equal((await stage.fakes.asked(tag)).length, 1);
  }
});

test("a stream that ends without a finishReason is incomplete, not a success", async () => {
  const { tag, text } = prompt();
  await stage.fakes.script("gemini", tag, "no-finish");
  const first = await ask(STREAM, text);
  assert.equal(first.status, 200);
  assert.ok(first.body.includes('"REQUEST_RECONCILIATION_PENDING"'), first.body);
  assert.equal((await ask(STREAM, text)).status, 503);
  assert.equal((await stage.fakes.asked(tag)).length, 1);
});

test("a finishReason in the middle does not end a stream", async () => {
  const { tag, text } = prompt();
  await stage.fakes.script("gemini", tag, "stop-each-chunk");
  const first = await ask(STREAM, text);
  assert.equal(first.status, 200);
  const again = await ask(STREAM, text);
  assert.equal(again.body, first.body);
  assert.ok(first.body.split("\r\n\r\n").length > 3, first.body);
  assert.equal(await stage.fakes.billed(tag), 1);
});

describe("refusals of our own", () => {
  const CALLS = [
    ["a key that nobody has", { "x-goog-api-key": "wrong" }, 401, "UNAUTHENTICATED"],
    ["a site that is no name", { "x-oncepress-site": "Not A Name" }, 400, "INVALID_ARGUMENT"],
    ["an unknown publisher", { "x-oncepress-publish": "nobody=x" }, 400, "INVALID_ARGUMENT"],
    ["a bad operation key", { "idempotency-key": "-" }, 400, "INVALID_ARGUMENT"],
  ];
  for (const [what, headers, status, word] of CALLS) {
    test(`${what} is ${status} in Google's shape`, async () => {
      const { tag, text } = prompt();
      const refused = await ask(UNARY, text, headers);
      assert.equal(refused.status, status, refused.body);
      assert.equal(refused.json.error.status, word);
      assert.equal(refused.json.error.details[0]["@type"].split(".").at(-1), "ErrorInfo");
      assert.equal(refused.headers.get("x-oncepress-error-source"), "oncepress");
      assert.equal((await stage.fakes.asked(tag)).length, 0);
    });
  }

  test("the SDK reads them as its own errors", async () => {
    const sdk = new GoogleGenAI({ apiKey: "wrong", httpOptions: { baseUrl: stage.worker.url } });
    const asked = sdk.models.generateContent({ model: "gemini-3.8-flash", contents: "x" });
    await assert.rejects(asked, (error) => error.name === "ApiError" && error.status === 401);
  });

  test("a key used for another request is a conflict that names the members", async () => {
    const { tag, text } = prompt();
    const headers = { "idempotency-key": tag };
    assert.equal((await ask(UNARY, text, headers)).status, 200);
    const conflict = await ask(UNARY, `${text} more`, headers);
    assert.equal(conflict.status, 409);
    assert.equal(conflict.headers.get("x-should-retry"), "false");
    assert.ok(conflict.body.includes("/contents/0/parts/0/text"), conflict.body);
    const stream = await ask(STREAM, text, headers);
    assert.equal(stream.status, 200);
    assert.equal(stream.headers.get("x-idempotency-replayed"), "true");
    assert.equal(await stage.fakes.billed(tag), 1);
  });

  test("a body over 20 MiB is too large; one of 19 MiB is bought once", { timeout: 90_000 }, async () => {
    const { tag, text } = prompt();
    const of = (mebibytes) => ({
      contents: [
        {
          role: "user",
          parts: [
            { text },
            { inlineData: { mimeType: "image/png", data: "A".repeat(mebibytes * 1024 * 1024) } },
          ],
        },
      ],
    });
    const over = await call(stage, UNARY, of(21));
    assert.equal(over.status, 413);
    assert.equal((await over.json()).error.details[0].reason, "REQUEST_TOO_LARGE");
    const first = await call(stage, UNARY, of(19));
    const body = await first.text();
    assert.equal(first.status, 200, body);
    const again = await call(stage, UNARY, of(19));
    assert.equal(await again.text(), body);
    assert.equal(await stage.fakes.billed(tag), 1);
    await waitFor("the request's body to be deleted", async () => {
      const left = await stage.worker.r2Keys();
      return !left.some((name) => name.startsWith("_oncepress/requests/"));
    });
  });
});
