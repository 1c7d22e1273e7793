// Sustained mixed load at a fixed arrival rate: 90 % replays, 9 % fresh, 1 % conflicts, on the
// built product without a fault injector. Arrivals come on schedule, whether or not answers do, and
// a latency counts from the scheduled moment: a stall is felt by everybody who should have come.
//   bash scripts/load.sh [--minutes 10] [--rate 30] [--seed 1] [--fresh 9] [--conflicts 1]
// (shares in per cent; the rest are replays)

import { pathToFileURL } from "node:url";

import { Client } from "../e2e/lib/client.mjs";
import { Fakes } from "../e2e/lib/fakes.mjs";
import { sleep, waitFor } from "../e2e/lib/wait.mjs";
import { Operation } from "./lib/operations.mjs";
import { option, percentile } from "./lib/options.mjs";
import { Random } from "./lib/random.mjs";
import { PRODUCT_ENTRY, Workerd } from "./lib/workerd.mjs";

const GEMINI_MS = 200;
const AT_ONCE = 8;

class Product extends Workerd {
  get entry() {
    return PRODUCT_ENTRY;
  }
}

/** Runs it all; gives the figures and what was wrong. */
export async function runLoad({ minutes, rate, seed, warmUp = 200, say = () => {}, ...shares }) {
  const fakes = await Fakes.start(`load-${seed}`);
  let worker;
  try {
    worker = await Product.start("load", { vars: variables(fakes) });
    const client = await Client.create(worker, "acme");
    const load = new Load({ client, seed, fresh: 9, conflicts: 1, ...shares });
    // There must be something to repeat.
    for (let n = 0; n < warmUp; n += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, () => load.fresh(performance.now())));
    }
    load.forget();
    const memory = await sampled(worker, say, () => load.run(rate, minutes * 60_000));
    return { ...load.result(), ...(await check({ worker, fakes, client, load })), memory };
  } finally {
    await Promise.all([worker?.stop(), fakes.stop()]);
  }
}

class Load {
  answered = [];
  keyed = [];
  wrong = [];
  made = 0;

  constructor({ client, seed, ...shares }) {
    Object.assign(this, { client, seed, shares, random: new Random(seed) });
    this.forget();
  }

  forget() {
    this.times = { replay: [], fresh: [], conflict: [] };
    this.errors = {};
  }

  /** Sends on schedule for a while, and waits for the last answers. */
  async run(rate, ms) {
    const begun = performance.now();
    const all = [];
    const arrivals = Math.floor((rate * ms) / 1_000);
    for (let n = 0; n < arrivals; n += 1) {
      const due = begun + (n * 1_000) / rate;
      if (due > performance.now()) await sleep(due - performance.now());
      all.push(this.#arrival(due));
    }
    await Promise.all(all);
  }

  #arrival(due) {
    const { fresh, conflicts } = this.shares;
    const dice = this.random.next() * 100;
    if (dice < fresh) return this.fresh(due);
    if (dice < fresh + conflicts) return this.#conflict(due);
    return this.#replay(due);
  }

  async fresh(due) {
    const { random } = this;
    const operation = new Operation(random, this.made, this.seed, {
      fault: () => `[[fault:delay:${GEMINI_MS}]]`,
      destinations: () => ["files", "hook"].filter(() => random.chance(0.5)),
    });
    operation.prefer = undefined;
    this.made += 1;
    const answer = await this.#send("fresh", due, operation.request());
    if (answer === undefined) return;
    const complaint = operation.take(answer);
    if (complaint !== undefined) this.wrong.push(complaint);
    else if (!operation.isDone || isReplay(answer)) this.#unexpected("fresh", answer);
    if (!operation.isDone) return;
    this.answered.push(operation);
    if (operation.hasKey) this.keyed.push(operation);
  }

  async #replay(due) {
    const operation = this.random.pick(this.answered);
    const answer = await this.#send("replay", due, operation.request());
    if (answer === undefined) return;
    if (answer.status !== 200 || !isReplay(answer)) this.#unexpected("replay", answer);
    else if (answer.text !== operation.text)
      this.wrong.push(`${operation.tag}: a replay of other bytes`);
  }

  async #conflict(due) {
    const operation = this.random.pick(this.keyed);
    const request = operation.request(`conflict ${operation.tag} Write.`);
    const answer = await this.#send("conflict", due, request);
    if (answer === undefined) return;
    const code = answer.headers.get("x-oncepress-error-code");
    if (answer.status !== 409 || code !== "idempotency_conflict")
      this.#unexpected("conflict", answer);
  }

  async #send(kind, due, { path, body, headers }) {
    try {
      const answer = await this.client.call("POST", path, body, headers);
      this.times[kind].push(performance.now() - due);
      return answer;
    } catch (error) {
      this.#count(`${kind}: ${error.cause?.code ?? error.message}`);
      return undefined;
    }
  }

  #unexpected(kind, { status, headers }) {
    this.#count(`${kind}: ${status} ${headers.get("x-oncepress-error-code") ?? ""}`);
  }

  #count(name) {
    this.errors[name] = (this.errors[name] ?? 0) + 1;
  }

  result() {
    const latencies = {};
    for (const [kind, times] of Object.entries(this.times)) {
      times.sort((a, b) => a - b);
      const at = (share) => round(percentile(times, share));
      latencies[kind] = { count: times.length, p50: at(0.5), p90: at(0.9), p99: at(0.99) };
      Object.assign(latencies[kind], { p999: at(0.999), max: round(times.at(-1)) });
    }
    return { latencies, errors: this.errors };
  }
}

const isReplay = ({ headers }) => headers.get("x-idempotency-replayed") === "true";
const round = (value) => (value === undefined ? undefined : Math.round(value * 10) / 10);

/** Memory at the start, every ten seconds, and some seconds after the end; cron every minute. */
async function sampled(worker, say, work) {
  const samples = [];
  const begun = performance.now();
  const sample = () => {
    const seconds = Math.round((performance.now() - begun) / 1_000);
    samples.push({ seconds, ...worker.memory() });
    if (seconds % 60 < 10) say(`${seconds} s: ${Math.round(samples.at(-1).rss)} MiB`);
  };
  sample();
  const sampling = setInterval(sample, 10_000);
  const ticking = setInterval(() => worker.cron().catch(() => undefined), 60_000);
  await work();
  clearInterval(ticking);
  sample();
  await sleep(Math.min(30_000, (performance.now() - begun) / 4));
  clearInterval(sampling);
  sample();
  return samples;
}

/** Gemini was paid once for each fresh one; all that was owed is published. */
async function check({ worker, fakes, client, load }) {
  const { wrong, answered, made } = load;
  await waitFor("the outbox to be empty", async () => {
    await worker.cron();
    const { items } = (await client.call("GET", "/api/v1/outbox?status=pending&limit=1")).json;
    return items.length === 0;
  });
  const ledger = await fakes.control("GET", "ledger");
  if (ledger.billed !== made) wrong.push(`Gemini billed ${ledger.billed} calls for ${made}`);
  if (ledger.total !== made) wrong.push(`Gemini was asked ${ledger.total} times for ${made}`);
  const wanted = (name) =>
    answered.filter((one) => one.wanted.some(({ publisher }) => publisher === name)).length;
  const hooks = await fakes.control("GET", "webhook/plain");
  if (hooks.distinct !== wanted("hook"))
    wrong.push(`${hooks.distinct} webhook ids for ${wanted("hook")}`);
  await worker.stop();
  const [{ files }] = await worker.sqlWhileDead(
    "SELECT COUNT(*) AS files FROM deliveries WHERE publisher = 'files' AND status = 'published'",
  );
  if (files !== wanted("files")) wrong.push(`${files} files published for ${wanted("files")}`);
  return { wrong, made, billed: ledger.billed, delivered: files + hooks.distinct };
}

function variables({ url }) {
  const accounts = ["acme"];
  const hook = { kind: "webhook", url: `${url}/webhook/plain`, secrets: ["HOOK_SECRET"] };
  return {
    GEMINI_BASE_URL: url,
    PIPELINES: {},
    PUBLISHERS: {
      files: { kind: "r2", prefix: "files/", accounts },
      hook: { ...hook, accounts },
    },
  };
}

async function main() {
  const settings = {
    minutes: option("minutes", 10),
    rate: option("rate", 30),
    seed: option("seed", 1),
    fresh: option("fresh", 9),
    conflicts: option("conflicts", 1),
  };
  const result = await runLoad({ ...settings, say: console.log });
  const { latencies, memory, wrong, errors, ...counts } = result;
  console.log(`\n| ms from the scheduled arrival | count | p50 | p90 | p99 | p99.9 | max |`);
  console.log("|---|---|---|---|---|---|---|");
  for (const [kind, { count, p50, p90, p99, p999, max }] of Object.entries(latencies))
    console.log(`| ${kind} | ${count} | ${p50} | ${p90} | ${p99} | ${p999} | ${max} |`);
  console.log("\n| s | RSS of workerd, MiB |\n|---|---|");
  for (const { seconds, rss } of memory) console.log(`| ${seconds} | ${Math.round(rss)} |`);
  console.log(JSON.stringify({ ...settings, geminiMs: GEMINI_MS, errors, ...counts }, null, 2));
  for (const text of wrong.slice(0, 20)) console.log(`WRONG: ${text}`);
  const isWell = wrong.length === 0 && Object.keys(errors).length === 0;
  console.log(isWell ? "Every answer was right." : "NOT every answer was right.");
  process.exit(isWell ? 0 : 1);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main();
