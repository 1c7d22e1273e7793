// Assertions on answers that say what came instead.

import assert from "node:assert/strict";

/** The status, and for errors the code; a failure shows the whole answer. */
export function expectAnswer(answer, status, code) {
  const shown = `${answer.status} ${answer.text.slice(0, 400)}`;
  assert.equal(answer.status, status, `wanted ${status} ${code ?? ""}, got ${shown}`);
  assert.equal(answer.headers.get("cache-control"), "no-store", "Cache-Control");
  assert.match(answer.headers.get("x-request-id") ?? "", /^req_[0-9a-f]{32}$/, "X-Request-Id");
  if (code === undefined) return;
  assert.equal(answer.json?.code, code, `wanted ${code}, got ${shown}`);
  assert.equal(answer.headers.get("x-oncepress-error-code"), code);
  assert.equal(answer.headers.get("content-type"), "application/problem+json");
  assert.match(answer.headers.get("x-oncepress-error-source"), /^(oncepress|gemini|publisher)$/);
}

/** A generation that was made for this very call. */
export function expectFresh(answer) {
  expectAnswer(answer, 201);
  assert.equal(answer.json.state, "generated");
  assert.equal(answer.headers.get("x-idempotency-replayed"), null);
}

/** The answer of `first`, again: the same bytes, free, and marked. */
export function expectReplay(answer, first) {
  expectAnswer(answer, 200);
  assert.equal(answer.headers.get("x-idempotency-replayed"), "true");
  assert.equal(answer.headers.get("x-oncepress-credits"), "0");
  assert.equal(answer.text, first.text, "the body is the first one's, byte for byte");
  assert.equal(answer.headers.get("x-request-id"), first.headers.get("x-request-id"));
}

export function expectRetryAfter(answer) {
  assert.match(answer.headers.get("retry-after") ?? "", /^[1-9][0-9]*$/, "Retry-After in seconds");
}
