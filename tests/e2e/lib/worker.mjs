// One Worker on real workerd (`wrangler dev`) with stores of its own on disk, behind the fault
// injector of faulty-entry.mjs.

import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

import { end, freePort, start } from "./process.mjs";
import { BASE_CONFIG, EMPTY_STORES, ROOT, STATE, WRANGLER } from "./paths.mjs";
import { waitFor } from "./wait.mjs";

export const ADMIN_TOKEN = "e2e-admin-token-not-used-anywhere-else";
export const HOOK_SECRET = `whsec_${Buffer.from("e2e hook secret, 32 bytes long!!").toString("base64")}`;
export const GEMINI_API_KEY = "e2e-gemini-key";

const SECRETS = { ADMIN_TOKEN, HOOK_SECRET, GEMINI_API_KEY };

export class Worker {
  #child;
  #dir;
  #clockMs = 0;

  /**
   * Starts a Worker on fresh, migrated stores, or on those of another Worker (`share`). `vars` and
   * `bindings` (wrangler's own configuration) come over those of wrangler.toml.
   */
  static async start(name, { vars = {}, secrets = {}, bindings = {}, share } = {}) {
    const worker = new this();
    worker.#dir = join(STATE, "runs", `${name}-${process.pid}`);
    worker.stores = join(worker.#dir, "stores");
    await rm(worker.#dir, { recursive: true, force: true });
    await mkdir(worker.#dir, { recursive: true });
    if (share) await worker.#shareStores(share);
    else await cp(EMPTY_STORES, worker.stores, { recursive: true });
    worker.port = await freePort();
    worker.vars = vars;
    await worker.#configure(bindings, { ...SECRETS, ...secrets });
    await worker.boot();
    return worker;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  get log() {
    return join(this.#dir, "worker.log");
  }

  /** Where wrangler's configuration of this Worker lies. */
  get config() {
    return join(this.#dir, "wrangler.json");
  }

  get clockMs() {
    return this.#clockMs;
  }

  // All but the Durable Objects, of which there is one in the world: a second process would make a
  // second one of each.
  async #shareStores({ stores }) {
    await mkdir(join(this.stores, "v3"), { recursive: true });
    for (const kind of ["d1", "kv", "r2"]) {
      await mkdir(join(stores, "v3", kind), { recursive: true });
      await symlink(join(stores, "v3", kind), join(this.stores, "v3", kind));
    }
  }

  async #configure(bindings, secrets) {
    const base = JSON.parse(await readFile(BASE_CONFIG, "utf8"));
    const config = { ...base, ...bindings, vars: { ...base.vars, ...this.vars } };
    await writeFile(this.config, JSON.stringify(config, null, 2));
    const lines = Object.entries(secrets).map(([name, value]) => `${name}="${value}"\n`);
    await writeFile(join(this.#dir, ".dev.vars"), lines.join(""));
  }

  /** Starts the process (again) on the stores as they are. */
  async boot() {
    const args = ["dev", "--config", this.config, "--local"];
    args.push("--ip", "127.0.0.1", "--port", String(this.port), "--inspector-port", "0");
    args.push("--persist-to", this.stores, "--var", `E2E_CLOCK_OFFSET_MS:${this.#clockMs}`);
    this.#child = start(WRANGLER, args, { log: this.log, cwd: ROOT, env: QUIET });
    await waitFor(`the Worker (its log: ${this.log})`, () => this.e2e("GET", "ready"), {
      withinMs: 60_000,
    });
  }

  stop() {
    return end(this.#child);
  }

  /** `kill -9` of workerd and of all that would tidy up after it. */
  kill9() {
    return end(this.#child, "SIGKILL");
  }

  fetch(path, init) {
    return fetch(this.url + path, init);
  }

  /** The fault injector's side door; see tests/e2e/faults/control.mjs. */
  async e2e(method, command, body) {
    const init = method === "POST" ? { method, body: JSON.stringify(body ?? {}) } : { method };
    const answer = await this.fetch(`/__e2e/${command}`, init);
    const json = await answer.json();
    if (!answer.ok) throw new Error(`__e2e/${command}: ${json.error}`);
    return json;
  }

  /** Puts these faults, and only these, into force. */
  rules(...rules) {
    return this.e2e("POST", "rules", { rules });
  }

  /** Waits until an operation is held under `name`. */
  held(name) {
    return waitFor(`an operation held as ${name}`, async () => {
      const { holds } = await this.e2e("GET", "holds");
      return holds.find((hold) => hold.name === name);
    });
  }

  release(name) {
    return this.e2e("POST", "release", { name });
  }

  /** Sets the product's clock ahead of the real one, over restarts too. */
  async clock(offsetMs) {
    this.clockAtBoot(offsetMs);
    await this.e2e("POST", "clock", { offsetMs });
  }

  /** Stops the product's clock at a moment, until `clock` sets it going again. */
  stopClock(at) {
    return this.e2e("POST", "stop-clock", { at });
  }

  /** As `clock`, from the next boot on. */
  clockAtBoot(offsetMs) {
    this.#clockMs = offsetMs;
  }

  get now() {
    return Date.now() + this.#clockMs;
  }

  get cronPath() {
    return "/cdn-cgi/handler/scheduled";
  }

  /** Fires the cron trigger as the platform would, in the moved clock. */
  async cron(at = this.now) {
    const query = `cron=*+*+*+*+*&time=${Math.floor(at)}&format=json`;
    const { outcome } = await (await this.fetch(`${this.cronPath}?${query}`)).json();
    if (outcome !== "ok") throw new Error(`the cron trigger ended with ${outcome}`);
  }

  async journal(since = 0) {
    return (await this.e2e("GET", `journal?since=${since}`)).entries;
  }

  /**
   * Waits until nothing has happened for longer than an isolate gathers its counts, which it writes
   * a second after some answer: nothing of an earlier request falls into what is counted next.
   */
  quiet() {
    let length = -1;
    const same = async () => {
      const before = length;
      ({ length } = await this.e2e("GET", "journal"));
      return length === before;
    };
    return waitFor("the Worker to be quiet", same, { everyMs: 1_500 });
  }

  async sql(sql, ...params) {
    return (await this.e2e("POST", "sql", { sql, params })).rows;
  }

  /** The same on the file itself, between a kill and the next boot. */
  async sqlWhileDead(sql, ...params) {
    const folder = join(this.stores, "v3", "d1", "miniflare-D1DatabaseObject");
    const files = (await readdir(folder)).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name));
    const database = new DatabaseSync(join(folder, files[0]), { readOnly: true });
    try {
      return database.prepare(sql).all(...params);
    } finally {
      database.close();
    }
  }

  async r2(key) {
    return this.e2e("POST", "r2", { key });
  }

  async r2Keys() {
    return (await this.e2e("GET", "r2")).keys;
  }
}

const QUIET = {
  ...process.env,
  CI: "true",
  NO_COLOR: "1",
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_SEND_ERROR_REPORTS: "false",
  WRANGLER_HIDE_BANNER: "true",
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  WRANGLER_LOG_PATH: join(STATE, "wrangler-logs"),
};
