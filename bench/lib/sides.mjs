// The two Workers, each in a workerd of its own (Miniflare, without wrangler's proxy in front), on
// stores on disk.

import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build } from "esbuild";
import { Miniflare, convertV4MiniflareOptions } from "miniflare";
import {
  experimental_readRawConfig as readRawConfig,
  unstable_getMiniflareWorkerOptions as workerOptionsOf,
  unstable_splitSqlQuery as statementsOf,
} from "wrangler";

import { ROOT } from "../../tests/e2e/lib/paths.mjs";
import { call, expect } from "./http.mjs";
import { cpuMs, residentMiB, workerds } from "./process.mjs";

const ADMIN_TOKEN = "bench-admin-token-of-this-machine";
const DIR = join(ROOT, ".state", "bench");
const WASM = join(ROOT, "build", "index_bg.wasm");
const LIMITS = [
  { name: "RATE_LIMIT", namespace_id: "1001", simple: { limit: 1_000_000, period: 60 } },
];

/** A script as a module of one file; a WebAssembly module that it imports stands beside it. */
async function bundle(entryPoint, minify = false) {
  const beside = { name: "wasm", setup: (build) => build.onResolve({ filter: /\.wasm$/ }, asIs) };
  const asIs = () => ({ path: "./index_bg.wasm", external: true });
  const { outputFiles } = await build({
    entryPoints: [entryPoint],
    bundle: true,
    minify,
    write: false,
    format: "esm",
    target: "es2024",
    external: ["cloudflare:workers"],
    plugins: [beside],
  });
  return outputFiles[0].text;
}

class Side {
  /** `entry` is the script; `counting` is the same under a counter of operations. */
  constructor(name, { entry, counting, config, stores = name }) {
    this.name = name;
    this.entry = entry;
    this.counting = counting;
    this.config = config;
    this.stores = join(DIR, stores);
  }

  /** Starts it; gives the ms until the first answer, of starting workerd and all. */
  async start({ counting = false, empty = false } = {}) {
    if (empty) rmSync(this.stores, { recursive: true, force: true });
    const script = await bundle(counting ? this.counting : this.entry);
    const file = join(DIR, `${this.name}.json`);
    mkdirSync(DIR, { recursive: true });
    writeFileSync(file, JSON.stringify(this.config));
    const { workerOptions, externalWorkers } = workerOptionsOf(file);
    const modules = [
      { type: "ESModule", path: "index.js", contents: script },
      ...(script.includes("index_bg.wasm")
        ? [{ type: "CompiledWasm", path: "index_bg.wasm", contents: readFileSync(WASM) }]
        : []),
    ];
    const worker = { ...workerOptions, name: this.name, rootPath: ROOT, modulesRoot: ROOT, modules };
    const options = {
      resourcePersistencePath: this.stores,
      telemetry: { enabled: false },
      cf: false,
      handleStructuredLogs: () => {},
      workers: [{ ...worker, unsafeDirectSockets: [{ port: 0 }] }, ...externalWorkers],
    };
    const before = new Set(workerds());
    const begun = performance.now();
    this.miniflare = new Miniflare(convertV4MiniflareOptions(options));
    await this.miniflare.ready;
    this.url = await this.miniflare.unsafeGetDirectURL(this.name);
    this.answers404 = (await call(this.url, "/no-such-path", { method: "GET" })).status === 404;
    const took = performance.now() - begun;
    if (!this.answers404) throw new Error(`${this.name} does not answer`);
    this.pid = workerds().find((pid) => !before.has(pid));
    return took;
  }

  stop() {
    return this.miniflare.dispose();
  }

  cpuMs() {
    return cpuMs(this.pid);
  }

  residentMiB() {
    return residentMiB(this.pid);
  }

  async database() {
    return this.miniflare.getD1Database("DB", this.name);
  }

  async run(text) {
    const database = await this.database();
    for (const statement of statementsOf(text)) await database.prepare(statement).run();
  }

  /** The journal of a counting start, from an entry on. */
  async journal(since = 0) {
    const answer = await call(this.url, `/__e2e/journal?since=${since}`, { method: "GET" });
    return JSON.parse(expect(answer, 200).text).entries;
  }
}

export class Oncepress extends Side {
  /** Miniflare's rate limiter is a Worker of its own, which costs more than a whole replay. */
  constructor(fakes, { limited = false, stores } = {}) {
    const { rawConfig } = readRawConfig({ config: join(ROOT, "wrangler.toml") });
    const { build: _build, env: _env, assets: _assets, $schema: _schema, ...config } = rawConfig;
    config.ratelimits = limited ? LIMITS : [];
    config.main = join(ROOT, "build/index.js");
    config.vars = {
      ...config.vars,
      GEMINI_BASE_URL: fakes,
      GEMINI_API_KEY: "fake",
      ADMIN_TOKEN,
      SUBREQUEST_BUDGET: 10_000,
      PUBLISHERS: { archive: { kind: "r2", prefix: "bench/" } },
      PIPELINES: {},
    };
    const counting = join(ROOT, "tests/e2e/faulty-entry.mjs");
    super("oncepress", { entry: join(ROOT, "build/index.js"), counting, config, stores });
    this.admin = { authorization: `Bearer ${ADMIN_TOKEN}` };
  }

  async prepare() {
    const folder = join(ROOT, "migrations");
    for (const name of readdirSync(folder).filter((name) => name.endsWith(".sql")).sort()) {
      await this.run(readFileSync(join(folder, name), "utf8"));
    }
    const post = (path, body) =>
      call(this.url, path, { headers: this.admin, body: JSON.stringify(body) });
    expect(await post("/admin/accounts", { account: "default" }), 201, 409);
    const key = expect(await post("/admin/accounts/default/keys", {}), 201);
    this.headers = { authorization: `Bearer ${JSON.parse(key.text).key}` };
  }

  ask(prompt) {
    const body = { site: "demo", pipeline: "bench", userPrompt: prompt, publish: [] };
    return call(this.url, "/api/v1/generations", {
      headers: this.headers,
      body: JSON.stringify(body),
    });
  }

  async drain() {
    const answer = expect(await call(this.url, "/admin/drain", { headers: this.admin }), 200);
    return JSON.parse(answer.text).published;
  }

  /** Rows as generations with an output leave them, `first` to `last`, each owed to one place. */
  async owe(group, first, last, status = "pending") {
    const numbers = `WITH RECURSIVE c (i) AS (SELECT ${first} UNION ALL SELECT i + 1 FROM c WHERE i < ${last})`;
    const made = Date.now() - 86_400_000;
    await this.run(`
      INSERT INTO generations (id, account, site, pipeline, surface, key, claim_key, operation,
        fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, request_id, model,
        upstream, created_at, updated_at, credit_day, output_id, output_where, output_parts)
      ${numbers} SELECT 'gen_${group}' || i, 'default', 'demo', 'bench', 'api', 'k${group}' || i,
        'c${group}' || i, 0, 'f', '[]', 'generated', 't', 0, 0, 0, 'r${group}' || i,
        'gemini-3.8-flash', 'u', ${made} + i % 1000, ${made}, '2026-11-30', 'out_${group}' || i,
        'd1', 1 FROM c;
      INSERT INTO outputs (output_id, part, body)
      ${numbers} SELECT 'out_${group}' || i, 0,
        json_object('output', json_object('text', hex(randomblob(1000)))) FROM c;
      INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target,
        status, next_attempt_at, created_at, due_since, final_at)
      ${numbers} SELECT 'dlv_${group}' || i, 'gen_${group}' || i, 'default', 'demo', 'bench',
        'archive', '${group}' || i || '.md', '${status}', 0, ${made} + i % 1000, ${made},
        ${status === "pending" ? "NULL" : made} FROM c;`);
  }
}

export class Plain extends Side {
  constructor(fakes, { limited = false, stores } = {}) {
    const text = readFileSync(join(ROOT, "bench/plain/wrangler.json"), "utf8");
    const config = JSON.parse(text);
    const entry = join(ROOT, "bench/plain/worker.ts");
    config.main = entry;
    config.vars.GEMINI_BASE_URL = fakes;
    config.ratelimits = limited ? LIMITS : [];
    super("plain", { entry, counting: join(ROOT, "bench/plain/counting.mjs"), config, stores });
    this.headers = { authorization: "Bearer bench-key" };
  }

  prepare() {
    return this.run(readFileSync(join(ROOT, "bench/plain/schema.sql"), "utf8"));
  }

  ask(prompt) {
    const body = JSON.stringify({ site: "demo", pipeline: "bench", userPrompt: prompt });
    return call(this.url, "/generate", { headers: this.headers, body });
  }

  async drain() {
    return JSON.parse(expect(await call(this.url, "/drain"), 200).text).published;
  }

  async owe(group, first, last, status = "pending") {
    await this.run(`
      INSERT INTO outbox (id, site, pipeline, payload, input_tokens, output_tokens, status, created_at)
      WITH RECURSIVE c (i) AS (SELECT ${first} UNION ALL SELECT i + 1 FROM c WHERE i < ${last})
      SELECT '${group}' || i, 'demo', 'bench', hex(randomblob(1000)), 1, 1, '${status}', 0 FROM c;`);
  }
}

/** What is deployed of each, minified where the build does so, gzip, in KiB. */
export async function bundleKiB(gzip) {
  const ours = [readFileSync(join(ROOT, "build/index.js")), readFileSync(WASM)];
  const plain = [Buffer.from(await bundle(join(ROOT, "bench/plain/worker.ts"), true))];
  const sum = (files) => files.reduce((total, file) => total + gzip(file).length, 0) / 1024;
  return { oncepress: sum(ours), plain: sum(plain) };
}
