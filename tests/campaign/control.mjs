// What workerd itself does with memory under load: Workers of one line, which keep nothing.
//   node tests/campaign/control.mjs [--requests 2700] [--rate 60]
// The growth for each request is what a request costs in workerd and Miniflare's own bindings, and
// tells it apart from a leak of the product (tests/campaign/load.mjs --fresh 0 --conflicts 0).

import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { convertV4MiniflareOptions, Miniflare } from "miniflare";

import { sleep } from "../e2e/lib/wait.mjs";
import { option } from "./lib/options.mjs";

const WORKERS = {
  nothing: `export default { fetch() { return new Response("ok"); } }`,
  "a read of KV": `export default { async fetch(request, { KV }) {
    await request.text();
    return new Response(await KV.get("key"));
  } }`,
  "a rate limit": `export default { async fetch(request, { LIMIT }) {
    await request.text();
    await LIMIT.limit({ key: "account" });
    return new Response("ok");
  } }`,
};

for (const [name, script] of Object.entries(WORKERS)) await measure(name, script);

async function measure(name, script) {
  const [requests, rate] = [option("requests", 2_700), option("rate", 60)];
  const miniflare = new Miniflare(options(script));
  const url = await miniflare.ready;
  await (await miniflare.getKVNamespace("KV")).put("key", "x".repeat(2_000));
  const one = async () => (await fetch(url, { method: "POST", body: "x".repeat(500) })).text();
  for (let n = 0; n < 100; n += 1) await one();
  const before = rss();
  const begun = performance.now();
  const all = [];
  for (let n = 0; n < requests; n += 1) {
    await sleep(begun + (n * 1_000) / rate - performance.now());
    all.push(one());
  }
  await Promise.all(all);
  const after = rss();
  const each = ((after - before) * 1_024) / requests;
  console.log(`${name}: ${before} to ${after} MiB, ${each.toFixed(1)} KiB a request`);
  await miniflare.dispose();
}

function options(script) {
  const limit = { type: "ratelimit", namespace_id: "1", simple: { limit: 1_000_000, period: 60 } };
  const bindings = {
    kvNamespaces: { KV: { id: "KV" } },
    ratelimits: { LIMIT: { ...limit, name: "LIMIT" } },
  };
  const worker = { name: "control", modules: true, compatibilityDate: "2026-11-17", script };
  const stores = mkdtempSync(join(tmpdir(), "control-"));
  return convertV4MiniflareOptions({
    host: "127.0.0.1",
    port: 0,
    cf: false,
    resourcePersistencePath: stores,
    workers: [{ ...worker, ...bindings }],
  });
}

function rss() {
  const own = readdirSync("/proc").find((name) => {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8");
      return stat.includes("(workerd)") && stat.split(") ")[1].split(" ")[1] === `${process.pid}`;
    } catch {
      return false; // No process, or it ended meanwhile.
    }
  });
  const status = readFileSync(`/proc/${own}/status`, "utf8");
  return Math.round(Number(status.match(/VmRSS:\s+(\d+)/)[1]) / 1_024);
}
