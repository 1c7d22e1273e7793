// The benchmark: Oncepress beside a plain Worker of the common recipe, both on the same workerd
// through `wrangler dev`, in interleaved rounds. Prints a Markdown table of ratios with their spread.
//   bash scripts/bench.sh [--seconds 4] [--rounds 5]
// Timings are of this machine and of both Workers behind wrangler's proxy; the ratios are the point.

import { execFileSync } from "node:child_process";
import { cp, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { Agent, request as httpRequest } from "node:http";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { Fakes } from "../tests/e2e/lib/fakes.mjs";
import { ROOT, STATE, WRANGLER } from "../tests/e2e/lib/paths.mjs";
import { end, freePort, start } from "../tests/e2e/lib/process.mjs";
import { waitFor } from "../tests/e2e/lib/wait.mjs";

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : Number(process.argv[at + 1]);
};
const SECONDS = option("seconds", 4);
const ROUNDS = option("rounds", 5);
const CONNECTIONS = option("connections", 8);
const ADMIN_TOKEN = "bench-admin-token-of-this-machine";
const DIR = join(STATE, "bench");

const agent = new Agent({ keepAlive: true, maxSockets: 64 });

/** One request over a kept connection; gives status and body. */
function call(port, path, { method = "POST", headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const options = { port, path, method, agent, headers: { ...headers } };
    if (body !== undefined) {
      options.headers["content-type"] = "application/json";
      options.headers["content-length"] = Buffer.byteLength(body);
    }
    const request = httpRequest({ host: "127.0.0.1", ...options }, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => pieces.push(piece));
      answer.on("end", () =>
        resolve({ status: answer.statusCode, text: Buffer.concat(pieces).toString() }),
      );
    });
    request.on("error", reject);
    request.end(body);
  });
}

/** Requests in a closed loop over some connections, for a while; gives requests a second and ms. */
async function load(one, seconds) {
  const until = performance.now() + seconds * 1000;
  const times = [];
  const worker = async () => {
    while (performance.now() < until) {
      const begun = performance.now();
      await one();
      times.push(performance.now() - begun);
    }
  };
  const begun = performance.now();
  await Promise.all(Array.from({ length: CONNECTIONS }, worker));
  const took = (performance.now() - begun) / 1000;
  times.sort((a, b) => a - b);
  const at = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))];
  return { rate: times.length / took, p50: at(0.5), p99: at(0.99) };
}

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const expect = (answer, ...statuses) => {
  if (!statuses.includes(answer.status)) throw new Error(`${answer.status} ${answer.text}`);
  return answer;
};

class Side {
  constructor(name, config) {
    this.name = name;
    this.config = config;
  }

  async start() {
    this.port = await freePort();
    const args = ["dev", "--config", this.config, "--local", "--ip", "127.0.0.1", "--port"];
    args.push(String(this.port), "--inspector-port", "0", "--persist-to", join(DIR, this.name));
    const begun = performance.now();
    this.child = start(WRANGLER, args, { log: join(DIR, `${this.name}.log`), cwd: ROOT });
    await waitFor(`${this.name}`, () => this.ping().catch(() => undefined), { withinMs: 60_000 });
    return performance.now() - begun;
  }

  stop() {
    return end(this.child);
  }
}

class Oncepress extends Side {
  async ping() {
    return expect(await call(this.port, "/healthz", { method: "GET" }), 200);
  }

  async prepare() {
    const admin = { authorization: `Bearer ${ADMIN_TOKEN}` };
    const post = (path, body) =>
      call(this.port, path, { headers: admin, body: JSON.stringify(body) });
    expect(await post("/admin/accounts", { account: "default" }), 201, 409);
    const key = expect(await post("/admin/accounts/default/keys", {}), 201);
    this.headers = { authorization: `Bearer ${JSON.parse(key.text).key}` };
    this.admin = admin;
  }

  ask(prompt, owed = false) {
    const publish = owed ? [{ publisher: "archive", target: "{id}.md" }] : [];
    const body = JSON.stringify({ site: "demo", pipeline: "bench", userPrompt: prompt, publish });
    return call(this.port, "/api/v1/generations", { headers: this.headers, body });
  }

  async drain() {
    const answer = expect(await call(this.port, "/admin/drain", { headers: this.admin }), 200);
    return JSON.parse(answer.text).published;
  }
}

class Plain extends Side {
  async ping() {
    return expect(await call(this.port, "/", { method: "GET" }), 404);
  }

  async prepare() {
    this.headers = { authorization: "Bearer bench-key" };
  }

  ask(prompt) {
    const body = JSON.stringify({ site: "demo", pipeline: "bench", userPrompt: prompt });
    return call(this.port, "/generate", { headers: this.headers, body });
  }

  async drain() {
    return JSON.parse(expect(await call(this.port, "/drain"), 200).text).published;
  }
}

async function configure(fakes) {
  await rm(DIR, { recursive: true, force: true });
  await mkdir(DIR, { recursive: true });
  const plain = JSON.parse(await readFile(join(ROOT, "bench/plain/wrangler.json"), "utf8"));
  plain.main = join(ROOT, "bench/plain/worker.ts");
  plain.vars.GEMINI_BASE_URL = fakes.url;
  await writeFile(join(DIR, "plain.json"), JSON.stringify(plain));
  const base = JSON.parse(await readFile(join(STATE, "wrangler.json"), "utf8"));
  const ours = {
    ...base,
    main: join(ROOT, "build/index.js"),
    vars: {
      ...base.vars,
      GEMINI_BASE_URL: fakes.url,
      GEMINI_API_KEY: "fake",
      ADMIN_TOKEN,
      SUBREQUEST_BUDGET: 10_000,
      PUBLISHERS: { archive: { kind: "r2", prefix: "bench/" } },
      PIPELINES: {},
    },
  };
  await writeFile(join(DIR, "oncepress.json"), JSON.stringify(ours));
  const migrate = ["d1", "execute", "DB", "--local", "--config", join(DIR, "plain.json")];
  migrate.push("--persist-to", join(DIR, "plain"), "--file", join(ROOT, "bench/plain/schema.sql"));
  execFileSync(WRANGLER, migrate, { cwd: ROOT, env: { ...process.env, CI: "true" }, stdio: "ignore" });
  await cp(join(STATE, "empty-stores"), join(DIR, "oncepress"), { recursive: true });
}

/** Rounds in turn, so that what the machine does meanwhile meets both. */
async function compare(sides, measure) {
  const results = new Map(sides.map((side) => [side.name, []]));
  for (let round = 0; round < ROUNDS; round += 1) {
    const order = round % 2 === 0 ? sides : [...sides].reverse();
    for (const side of order) results.get(side.name).push(await measure(side, round));
  }
  return results;
}

function row(what, results, pick, better) {
  const of = (name) => results.get(name).map(pick);
  const [ours, plain] = [of("oncepress"), of("plain")];
  const ratios = ours.map((value, i) => (better === "more" ? value / plain[i] : plain[i] / value));
  const show = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(2));
  const spread = `${Math.min(...ratios).toFixed(2)}–${Math.max(...ratios).toFixed(2)}`;
  return `| ${what} | ${show(median(ours))} | ${show(median(plain))} | ${median(ratios).toFixed(2)} (${spread}) |`;
}

const fakes = await Fakes.start("bench");
const rows = [];
const sides = [];
try {
  await configure(fakes);
  sides.push(new Oncepress("oncepress", join(DIR, "oncepress.json")));
  sides.push(new Plain("plain", join(DIR, "plain.json")));
  const cold = new Map();
  for (const side of sides) cold.set(side.name, [await side.start()]);
  for (const side of sides) await side.prepare();
  const long = "長い記事の文脈です。 A long context. ".repeat(900).slice(0, 20_000);
  for (const side of sides) {
    expect(await side.ask("warm up"), 201);
    expect(await side.ask(`long ${long}`), 201);
  }
  const replay = await compare(sides, (side) =>
    load(async () => expect(await side.ask("warm up"), 200), SECONDS),
  );
  rows.push(row("replay, requests/s", replay, ({ rate }) => rate, "more"));
  rows.push(row("replay, p50 ms", replay, ({ p50 }) => p50, "less"));
  rows.push(row("replay, p99 ms", replay, ({ p99 }) => p99, "less"));
  const longReplay = await compare(sides, (side) =>
    load(async () => expect(await side.ask(`long ${long}`), 200), SECONDS),
  );
  rows.push(row("replay of a 44 kB request, requests/s", longReplay, ({ rate }) => rate, "more"));
  let unique = 0;
  const fresh = await compare(sides, (side) =>
    load(async () => expect(await side.ask(`fresh ${(unique += 1)}`), 201), SECONDS),
  );
  rows.push(row("fresh, instant Gemini, requests/s", fresh, ({ rate }) => rate, "more"));
  rows.push(row("fresh, p50 ms", fresh, ({ p50 }) => p50, "less"));
  rows.push(row("fresh, p99 ms", fresh, ({ p99 }) => p99, "less"));
  const memory = new Map();
  for (const side of sides) memory.set(side.name, [residentMiB(side.child.pid)]);
  rows.push(row("memory of workerd after that, MiB", memory, (value) => value, "less"));
  rows.push(row("start of wrangler dev to the first answer, ms", cold, (value) => value, "less"));
  const sizes = new Map([
    ["oncepress", [await gzipKiB(["build/index.js", "build/index_bg.wasm"])]],
    ["plain", [await gzipKiB(["bench/plain/worker.ts"])]],
  ]);
  rows.push(row("bundle, gzip KiB (plain: its source)", sizes, (value) => value, "less"));
} finally {
  await Promise.all([...sides.map((side) => side.stop()), fakes.stop()]);
}

function residentMiB(pid) {
  const tree = execFileSync("ps", ["-eo", "pid,ppid,rss,comm"], { encoding: "utf8" });
  const processes = tree
    .trim()
    .split("\n")
    .slice(1)
    .map((line) => line.trim().split(/\s+/));
  const own = new Set([String(pid)]);
  let grown = true;
  while (grown) {
    grown = false;
    for (const [child, parent] of processes) {
      if (own.has(parent) && !own.has(child)) grown = own.add(child) !== undefined;
    }
  }
  const sum = processes
    .filter(([child, , , name]) => own.has(child) && name.startsWith("workerd"))
    .reduce((total, [, , rss]) => total + Number(rss), 0);
  return sum / 1024;
}

async function gzipKiB(files) {
  let sum = 0;
  for (const file of files) sum += gzipSync(await readFile(join(ROOT, file)), { level: 9 }).length;
  return sum / 1024;
}

console.log(`| what | Oncepress | plain | Oncepress against plain, median (spread of ${ROUNDS} rounds) |`);
console.log("|---|---|---|---|");
for (const line of rows) console.log(line);
console.log("\nA ratio over 1 is in favour of Oncepress.");
