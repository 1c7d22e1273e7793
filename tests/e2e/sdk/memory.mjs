// What the Worker's process holds, in MiB: its WebAssembly memory, which never shrinks, and all that
// is resident, the local simulation of D1, KV, R2 and every Durable Object's storage included.

import { execFileSync } from "node:child_process";
import { join } from "node:path";

import { ROOT } from "../lib/paths.mjs";
import { setSdkStage } from "./lib.mjs";

const ENTRY = join(ROOT, "tests", "e2e", "sdk", "memory-entry.mjs");

/** A stage whose Worker is the product without a fault injector, and can be measured. */
export async function setMeasuredStage(name) {
  const stage = await setSdkStage(name, { bindings: { main: ENTRY } });
  const { worker } = stage;
  stage.memory = async () => {
    const { wasm, runners } = await (await worker.fetch("/__e2e/memory")).json();
    return {
      wasm: Math.round((wasm / 1024 / 1024) * 10) / 10,
      runners,
      resident: resident(worker),
    };
  };
  return stage;
}

/** Resident memory of the Worker's own workerd: of wrangler's descendants, the largest. */
export function resident({ port }) {
  const table = execFileSync("ps", ["-eo", "pid=,ppid=,rss=,args="], {
    encoding: "utf8",
    maxBuffer: 16 * 1024 * 1024,
  });
  const all = table.split("\n").flatMap((line) => {
    const [, pid, parent, rss, args] = /^\s*(\d+)\s+(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? [];
    return pid ? [{ pid, parent, rss: Number(rss), args }] : [];
  });
  const own = new Set();
  for (const { pid, args } of all) if (args.includes(`--port ${port} `)) own.add(pid);
  for (let size = -1; size !== own.size;) {
    size = own.size;
    for (const { pid, parent } of all) if (own.has(parent)) own.add(pid);
  }
  const workerds = all.filter(({ pid, args }) => own.has(pid) && args.includes("workerd"));
  return Math.round(Math.max(...workerds.map(({ rss }) => rss)) / 1024);
}
