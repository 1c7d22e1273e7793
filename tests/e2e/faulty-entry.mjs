// The built Worker under a fault injector: what `main` is in the end-to-end tests. It runs the
// product's own classes on bindings that can be told to fail, to be slow, or to be stale.

import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import "./faults/clock.mjs";
import "./faults/instance.mjs";
import * as product from "../../build/index.js";
import { wrapEnv, wrapFetch, wrapState } from "./faults/bindings.mjs";
import { control, PREFIX } from "./faults/control.mjs";
import * as journal from "./faults/journal.mjs";
import { ruleFor } from "./faults/rules.mjs";

globalThis.fetch = wrapFetch(globalThis.fetch.bind(globalThis));

export default class FaultyEntrypoint extends WorkerEntrypoint {
  async fetch(request) {
    if (new URL(request.url).pathname.startsWith(PREFIX)) return control(request, this.env);
    const answer = await this.#product("fetch").fetch(asReceived(request));
    const stamped = new Response(answer.body, answer);
    // Where the journal stood at the answer: what comes later was not waited for.
    stamped.headers.set("x-e2e-journal", String(journal.length()));
    return stamped;
  }

  scheduled(event) {
    return this.#product("scheduled").scheduled(event);
  }

  queue(batch) {
    return this.#product("queue").queue(batch);
  }

  #product(where) {
    return new product.default(this.ctx, wrapEnv(this.env, where));
  }
}

/** The request as it came in, or one whose body breaks off. */
function asReceived(request) {
  const subject = new URL(request.url).pathname;
  const rule = ruleFor({ where: "fetch", binding: "request", op: "body", subject });
  if (rule === undefined) return request;
  const error = new Error(rule.error);
  return new Request(request, { body: new ReadableStream({ start: (body) => body.error(error) }) });
}

export class Runner extends DurableObject {
  #inner;

  constructor(state, env) {
    super(state, env);
    this.#inner = new product.Runner(wrapState(state), wrapEnv(env, "runner"));
  }

  fetch(request) {
    return this.#inner.fetch(request);
  }

  alarm(info) {
    return this.#inner.alarm(info);
  }
}
