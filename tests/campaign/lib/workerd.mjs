// A Worker on workerd without wrangler's dev server around it: one process, started in half a
// second, whose pid is known. Stores and configuration are those of the end-to-end tests.
// `miniflare` and `esbuild` are what wrangler itself uses; they come with it.

import { createWriteStream, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { convertV4MiniflareOptions, Log, LogLevel, Miniflare } from "miniflare";
import { unstable_getMiniflareWorkerOptions as workerOptions } from "wrangler";

import { FAULTY_ENTRY, ROOT } from "../../e2e/lib/paths.mjs";
import { waitFor } from "../../e2e/lib/wait.mjs";
import { Worker } from "../../e2e/lib/worker.mjs";

process.env.WRANGLER_LOG ??= "error"; // It says at each boot where the secrets came from.

export const PRODUCT_ENTRY = join(ROOT, "build", "index.js");

export class Workerd extends Worker {
  #miniflare;
  #modules;
  #logFile;

  /** What `boot` starts: the product behind the fault injector, or (PRODUCT_ENTRY) by itself. */
  get entry() {
    return FAULTY_ENTRY;
  }

  get cronPath() {
    return "/cdn-cgi/local/scheduled";
  }

  async boot() {
    this.#modules ??= await bundle(this.entry);
    this.#logFile ??= createWriteStream(this.log, { flags: "a" });
    const before = new Set(children());
    this.#miniflare = new Miniflare(this.#options());
    await this.#miniflare.ready;
    this.pid = children().find((pid) => !before.has(pid));
    if (this.pid === undefined) throw new Error("no workerd among this process's children");
    await waitFor("the Worker", async () => (await this.fetch("/healthz")).ok, { everyMs: 5 });
  }

  #options() {
    const { workerOptions: options } = workerOptions(this.config);
    const { modulesRules: _rules, assets: _assets, rootPath: _root, ...bindings } = options;
    const clock = { E2E_CLOCK_OFFSET_MS: String(this.clockMs) };
    return convertV4MiniflareOptions({
      host: "127.0.0.1",
      port: this.port,
      cf: false,
      log: new Log(LogLevel.NONE),
      logRequests: false,
      unsafeTriggerHandlers: true,
      handleStructuredLogs: ({ message }) => this.#logFile.write(`${message}\n`),
      resourcePersistencePath: join(this.stores, "v3"),
      workers: [
        {
          ...bindings,
          bindings: { ...bindings.bindings, ...clock },
          name: "oncepress-development",
          modulesRoot: "/",
          modules: this.#modules,
        },
      ],
    });
  }

  async stop() {
    await this.#miniflare?.dispose();
    this.#miniflare = undefined;
  }

  /** `kill -9` of workerd, which holds the product and all of its stores. */
  async kill9() {
    process.kill(this.pid, "SIGKILL");
    await this.stop();
    await waitFor("workerd to be gone", () => !children().includes(this.pid), { everyMs: 5 });
  }

  /** The bucket itself, past the product. */
  bucket() {
    return this.#miniflare.getR2Bucket("BUCKET");
  }

  kv() {
    return this.#miniflare.getKVNamespace("KV_DEDUP");
  }

  /** The memory that workerd has in RAM now, and the most it ever had, in MiB. */
  memory() {
    const status = readFileSync(`/proc/${this.pid}/status`, "utf8");
    const mib = (name) => Number(status.match(new RegExp(`${name}:\\s+(\\d+)`))[1]) / 1024;
    return { rss: mib("VmRSS"), peak: mib("VmHWM") };
  }
}

async function bundle(entry) {
  const wasm = {
    name: "wasm",
    setup: ({ onResolve }) =>
      onResolve({ filter: /\.wasm$/ }, () => ({ path: "./index_bg.wasm", external: true })),
  };
  const options = { bundle: true, format: "esm", target: "es2024", write: false };
  const external = ["cloudflare:*"];
  const built = await build({ ...options, entryPoints: [entry], external, plugins: [wasm] });
  const contents = readFileSync(join(ROOT, "build", "index_bg.wasm"));
  return [
    { type: "ESModule", path: "/index.mjs", contents: built.outputFiles[0].text },
    { type: "CompiledWasm", path: "/index_bg.wasm", contents },
  ];
}

/** The workerd processes that this very process has started. */
function children() {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
        const [, ppid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        return stat.includes("(workerd)") && Number(ppid) === process.pid;
      } catch {
        return false; // It ended meanwhile.
      }
    });
}
