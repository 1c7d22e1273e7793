// The benchmark: Oncepress beside a plain Worker of the common recipe, each in its own workerd, in
// interleaved rounds. Prints Markdown tables of medians, ratios and their spread.
//   bash scripts/bench.sh [--seconds 4] [--rounds 5] [--connections 8] [--scale 1000000]
// Times are of this machine; the ratios are the point.

import { gzipSync } from "node:zlib";

import { Fakes } from "../tests/e2e/lib/fakes.mjs";
import { closedLoop, expect, percentiles } from "./lib/http.mjs";
import { bundleKiB, Oncepress, Plain } from "./lib/sides.mjs";

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : Number(process.argv[at + 1]);
};
const SECONDS = option("seconds", 4);
const ROUNDS = option("rounds", 5);
const CONNECTIONS = option("connections", 8);
const SCALE = option("scale", 1_000_000);
const OWED = 1_000;
const DUE = 20;
const LONG = "長い記事の文脈です。 A long context. ".repeat(1_000).slice(0, 25_900);
const SEEDED_AT_ONCE = 50_000;

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const show = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));

/** Rounds in turn, so that what the machine does meanwhile meets both. */
async function rounds(sides, measure) {
  const results = new Map(sides.map(({ name }) => [name, []]));
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const side of round % 2 === 0 ? sides : [...sides].reverse()) {
      results.get(side.name).push(await measure(side, round));
    }
  }
  return results;
}

function row(what, results, pick, better) {
  const [ours, plain] = ["oncepress", "plain"].map((name) => results.get(name).map(pick));
  const ratios = ours.map((value, i) => (better === "more" ? value / plain[i] : plain[i] / value));
  const spread = `${Math.min(...ratios).toFixed(2)}–${Math.max(...ratios).toFixed(2)}`;
  const ratio = `${median(ratios).toFixed(2)} (${spread})`;
  console.log(`| ${what} | ${show(median(ours))} | ${show(median(plain))} | ${ratio} |`);
}

/** Load of one kind on one side: rate, latency, and workerd's CPU time for each request. */
async function load(side, one) {
  const before = side.cpuMs();
  const figures = await closedLoop(one, { seconds: SECONDS, connections: CONNECTIONS });
  return { ...figures, cpu: (side.cpuMs() - before) / figures.count };
}

/** A replay. At the edge of its bucket, every five minutes, the recipe buys again. */
async function repeat(side, prompt) {
  const statuses = side.name === "plain" ? [200, 201] : [200];
  expect(await side.ask(prompt), ...statuses);
}

async function requests(sides) {
  const replayOf = (prompt) => rounds(sides, (side) => load(side, () => repeat(side, prompt)));
  for (const side of sides) {
    for (const prompt of ["short", LONG]) expect(await side.ask(prompt), 201);
    for (let i = 0; i < 300; i += 1) expect(await side.ask("short"), 200);
  }
  const replay = await replayOf("short");
  row("replay, requests/s", replay, ({ rate }) => rate, "more");
  row("replay, p50 ms", replay, ({ p50 }) => p50, "less");
  row("replay, p99 ms", replay, ({ p99 }) => p99, "less");
  row("replay, CPU ms a request", replay, ({ cpu }) => cpu, "less");
  const long = await replayOf(LONG);
  row("replay of a 44 kB request, requests/s", long, ({ rate }) => rate, "more");
  row("replay of a 44 kB request, CPU ms a request", long, ({ cpu }) => cpu, "less");
  let unique = 0;
  const fresh = await rounds(sides, (side) =>
    load(side, async () => expect(await side.ask(`fresh ${(unique += 1)}`), 201)),
  );
  row("fresh, instant Gemini, requests/s", fresh, ({ rate }) => rate, "more");
  row("fresh, p50 ms", fresh, ({ p50 }) => p50, "less");
  row("fresh, p99 ms", fresh, ({ p99 }) => p99, "less");
  row("fresh, CPU ms a request", fresh, ({ cpu }) => cpu, "less");
}

/** The replay again, with the rate limiter that the platform simulates asked on either side. */
async function limited(fakes) {
  const sides = [
    new Oncepress(fakes, { limited: true, stores: "oncepress-limited" }),
    new Plain(fakes, { limited: true, stores: "plain-limited" }),
  ];
  for (const side of sides) {
    await side.start({ empty: true });
    await side.prepare();
    expect(await side.ask("short"), 201);
    for (let i = 0; i < 300; i += 1) expect(await side.ask("short"), 200);
  }
  const replay = await rounds(sides, (side) =>
    load(side, () => repeat(side, "short")),
  );
  row("replay, both behind a rate limiter, requests/s", replay, ({ rate }) => rate, "more");
  row("replay, both behind a rate limiter, CPU ms a request", replay, ({ cpu }) => cpu, "less");
  await Promise.all(sides.map((side) => side.stop()));
}

/** A drain of 1,000 due rows, in as many drains as that takes; the stores are R2 and D1. */
async function drains(sides) {
  for (const side of sides) await side.drain();
  const results = await rounds(sides, async (side, round) => {
    await side.owe(`drain${round}_`, 1, OWED);
    const [begun, cpu] = [performance.now(), side.cpuMs()];
    let published = 0;
    for (let turn = 0; published < OWED && turn < OWED; turn += 1) published += await side.drain();
    if (published !== OWED) throw new Error(`${side.name} published ${published}`);
    return { ms: performance.now() - begun, cpu: side.cpuMs() - cpu };
  });
  row(`drain of ${OWED} rows, ms`, results, ({ ms }) => ms, "less");
  row(`drain of ${OWED} rows, CPU ms`, results, ({ cpu }) => cpu, "less");
}

async function sizes(sides) {
  const resident = new Map(sides.map((side) => [side.name, [side.residentMiB()]]));
  row("workerd's memory after that, MiB", resident, (value) => value, "less");
  await Promise.all(sides.map((side) => side.stop()));
  const starts = await rounds(sides, async (side) => {
    const ms = await side.start();
    await side.stop();
    return ms;
  });
  row("start of workerd to the first answer, ms", starts, (value) => value, "less");
  const bundles = await bundleKiB((file) => gzipSync(file, { level: 9 }));
  const each = new Map(Object.entries(bundles).map(([name, kib]) => [name, [kib]]));
  row("bundle, gzip KiB", each, (value) => value, "less");
}

/** Operations of the bindings, counted under the tests' wrapper, which is not timed. */
async function operations(sides) {
  console.log("\n| operations of a request | KV reads | KV writes | D1 statements in round trips | other subrequests |");
  console.log("|---|---|---|---|---|");
  for (const side of sides) {
    await side.start({ counting: true });
    expect(await side.ask("count me first"), 201);
    for (const [what, status] of [["fresh", 201], ["replay", 200]]) {
      const since = (await side.journal()).length;
      expect(await side.ask("count me"), status);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      const entries = (await side.journal(since)).filter(
        ({ subject }) => !subject?.startsWith("INSERT INTO flushes"),
      );
      const of = (binding, ...ops) =>
        entries.filter((entry) => entry.binding === binding && (!ops.length || ops.includes(entry.op)));
      const kv = side.name === "plain" ? "KV" : "KV_DEDUP";
      const statements = of("DB").reduce((sum, entry) => sum + (entry.statements ?? 1), 0);
      const others = entries.filter(({ binding }) => ![kv, "DB"].includes(binding)).length;
      const cells = [of(kv, "get", "getWithMetadata").length, of(kv, "put", "delete").length];
      cells.push(`${statements} in ${of("DB").length}`, others);
      console.log(`| ${what}, ${side.name} | ${cells.join(" | ")} |`);
    }
    await side.stop();
  }
}

/** What a drain of 20 and a replay cost beside more and more rows. */
async function scaling(fakes) {
  const side = new Oncepress(fakes, { stores: "oncepress-scale" });
  console.log("\n| published rows beside it | drain of 20: rows read a row | ms | replay from D1, p50 ms | p99 ms |");
  console.log("|---|---|---|---|---|");
  await side.start({ counting: true, empty: true });
  await side.prepare();
  const replays = Array.from({ length: 200 }, (_, i) => `asked before ${i}`);
  for (const prompt of replays) expect(await side.ask(prompt), 201);
  let seeded = 0;
  for (let scale = 1_000; scale <= SCALE; scale *= 10) {
    for (; seeded < scale; seeded = Math.min(scale, seeded + SEEDED_AT_ONCE)) {
      const last = Math.min(scale, seeded + SEEDED_AT_ONCE);
      await side.owe("p", seeded + 1, last, "published");
    }
    await side.owe(`due${scale}_`, 1, DUE);
    // A first drain after the seeding reads what SQLite has not in its cache.
    const since = (await side.journal()).length;
    const begun = performance.now();
    if ((await side.drain()) !== DUE) throw new Error("not all were published");
    const ms = performance.now() - begun;
    const read = (await side.journal(since))
      .filter(({ binding, where }) => binding === "DB" && where === "fetch")
      .reduce((sum, { rowsRead }) => sum + rowsRead, 0);
    const { p50, p99 } = await coldReplays(side, replays);
    console.log(`| ${scale} | ${read / DUE} | ${show(ms)} | ${show(p50)} | ${show(p99)} |`);
  }
  await side.stop();
}

/** Each prompt once, from D1: neither the isolate nor KV knows it any longer. */
async function coldReplays(side, prompts) {
  await side.stop();
  await side.start({ counting: true });
  const kv = await side.miniflare.getKVNamespace("KV_DEDUP", side.name);
  const { keys } = await kv.list();
  await Promise.all(keys.filter(({ name }) => name.startsWith("idem")).map(({ name }) => kv.delete(name)));
  expect(await side.ask(prompts[0]), 200);
  const times = [];
  for (const prompt of prompts.slice(1)) {
    const begun = performance.now();
    expect(await side.ask(prompt), 200);
    times.push(performance.now() - begun);
  }
  return percentiles(times);
}

const fakes = await Fakes.start("bench");
try {
  const sides = [new Oncepress(fakes.url), new Plain(fakes.url)];
  for (const side of sides) {
    await side.start({ empty: true });
    await side.prepare();
  }
  console.log(`| what | Oncepress | plain | for Oncepress, median (spread) of ${ROUNDS} rounds |`);
  console.log("|---|---|---|---|");
  await requests(sides);
  await limited(fakes.url);
  await drains(sides);
  await sizes(sides);
  await operations(sides);
  if (SCALE >= 1_000) await scaling(fakes.url);
  console.log("\nA ratio over 1 is in favour of Oncepress.");
} finally {
  await fakes.stop();
}
process.exit(0);
