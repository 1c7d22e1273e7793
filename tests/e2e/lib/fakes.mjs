// The fake Gemini and destinations (tests/fakes, `cargo build --example fakes`) as a process.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { end, freePort, start } from "./process.mjs";
import { FAKES_BINARY, STATE } from "./paths.mjs";
import { waitFor } from "./wait.mjs";

export class Fakes {
  #child;

  static async start(name) {
    const fakes = new Fakes();
    const dir = join(STATE, "fakes");
    await mkdir(dir, { recursive: true });
    fakes.port = await freePort();
    const log = join(dir, `${name}-${process.pid}.log`);
    fakes.#child = start(FAKES_BINARY, ["--port", String(fakes.port)], { log });
    await waitFor(`the fakes (their log: ${log})`, () => fakes.control("GET", "health"));
    return fakes;
  }

  stop() {
    return end(this.#child);
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async control(method, path, body) {
    const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
    const answer = await fetch(`${this.url}/__fakes/${path}`, init);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`fakes: ${method} ${path}: ${answer.status} ${text}`);
    return text === "" ? {} : JSON.parse(text);
  }

  /** What Gemini was asked for with a prompt that starts with `tag`. */
  async asked(tag) {
    const { entries } = await this.control("GET", "ledger");
    return entries.filter(({ promptStart }) => promptStart.includes(tag));
  }

  /** How often that was billed: what the promises are about. */
  async billed(tag) {
    return (await this.asked(tag)).filter(({ billed }) => billed).length;
  }

  /** Faults for the next requests to a service whose text contains `match`. */
  script(service, match, fault, times = 1) {
    return this.control("POST", "script", { for: service, match, fault, times });
  }

  clearScript() {
    return this.control("DELETE", "script");
  }

  openGate(name) {
    return this.control("POST", `release/${name}`);
  }

  /** What arrived at a webhook, its deliveries of `match` only. */
  async hooks(name, match = "") {
    const { items } = await this.control("GET", `webhook/${name}`);
    return items.filter(({ body }) => body?.includes(match));
  }
}
