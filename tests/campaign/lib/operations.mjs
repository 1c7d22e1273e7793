// What callers ask for: one logical purchase each, with the requests that ask for it.

import { createHash } from "node:crypto";

import { geminiFault } from "./faults.mjs";

const WINDOW_MINUTES = 43_200; // No window ends during a campaign: every repeat must be a replay.
const MODEL = "gemini-3.8-flash";

export class Operation {
  /** `fault` says what Gemini does with it, `destinations` who is owed it. */
  constructor(random, number, seed, { fault = geminiFault, destinations = anywhere } = {}) {
    this.tag = `op-${seed}-${number}`;
    this.surface = random.weighted([
      [60, "api"],
      [20, "generate"],
      [20, "stream"],
    ]);
    this.hasKey = random.chance(0.35);
    this.prefer = random.chance(0.15) ? "respond-async" : "wait=2";
    this.wanted = destinations(random, this.surface).map((publisher) => ({
      publisher,
      target: `${this.tag}.md`,
    }));
    // The space keeps one tag from being the beginning of another.
    this.prompt = `${this.tag} ${fault(random, this.surface)} Write.`;
    this.bodies = new Set();
    this.purchasesByPerson = 0;
  }

  /** The request, the same bytes each time; `otherPrompt` makes it another one under the same key. */
  request(otherPrompt) {
    const prompt = otherPrompt ?? this.prompt;
    return this.surface === "api" ? this.#api(prompt) : this.#dropIn(prompt);
  }

  #api(userPrompt) {
    const body = { site: "blog", pipeline: "daily", userPrompt, topic: this.tag };
    const headers = this.prefer === undefined ? {} : { prefer: this.prefer };
    if (this.hasKey) headers["idempotency-key"] = this.tag;
    else body.windowMinutes = WINDOW_MINUTES;
    return { path: "/api/v1/generations", body: { ...body, publish: this.wanted }, headers };
  }

  #dropIn(text) {
    const headers = {
      "x-oncepress-site": "blog",
      "x-oncepress-publish": this.wanted.map((one) => `${one.publisher}=${one.target}`).join(", "),
    };
    if (this.hasKey) headers["idempotency-key"] = this.tag;
    else headers["x-oncepress-window-minutes"] = String(WINDOW_MINUTES);
    const method = this.surface === "stream" ? "streamGenerateContent?alt=sse" : "generateContent";
    const body = { contents: [{ role: "user", parts: [{ text }] }] };
    return { path: `/v1beta/models/${MODEL}:${method}`, body, headers };
  }

  /** Writes an answer down; what it may not be is returned as a complaint. */
  take(answer) {
    const kind = classify(this.surface, answer);
    if (kind === "wrong") return `${this.tag}: ${answer.status} ${answer.text.slice(0, 300)}`;
    this.last = `${answer.status} ${answer.text.slice(0, 200)}`;
    // Later tries wait for what the queue does.
    if (kind === "accepted") this.prefer = "wait=2";
    if (kind !== "done") return undefined;
    this.isDone = true;
    this.text = answer.text;
    this.bodies.add(createHash("sha256").update(answer.text).digest("hex"));
    return this.bodies.size > 1 && this.purchasesByPerson === 0
      ? `${this.tag}: answered with other bytes than before`
      : undefined;
  }
}

// A CMS wants a title, which only the API's `topic` gives.
function anywhere(random, surface) {
  const names = ["files", "hook"].filter(() => random.chance(0.5));
  if (surface === "api" && random.chance(0.15)) names.push(random.pick(["repo", "wp", "ghost"]));
  return names;
}

// Gemini's own refusals come through the drop-in endpoints with Gemini's status.
const PENDING = new Set([402, 409, 429, 500, 502, 503, 504]);
const NEVER = new Set(["idempotency_conflict", "internal", "misconfigured", "invalid_state"]);

/** `done`, `accepted`, `held`, `pending` (a repeat is in place), or `wrong`. */
function classify(surface, { status, text, json, headers }) {
  if (status === 202) return "accepted";
  if (status === 422 && json?.code === "output_held") return "held";
  if (status === 200 || status === 201) {
    if (surface === "stream") return text.includes('"finishReason"') ? "done" : "pending";
    return json === undefined ? "wrong" : "done";
  }
  const code = (headers.get("x-oncepress-error-code") ?? "").toLowerCase();
  return PENDING.has(status) && !NEVER.has(code) ? "pending" : "wrong";
}
