// Google's SDK for Python, in a virtual environment under .state/: made once, from pinned versions.

import { execFileSync, spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { ROOT } from "../lib/paths.mjs";
import { MODEL } from "./lib.mjs";

const HERE = fileURLToPath(new URL("./python/", import.meta.url));
const REQUIREMENTS = join(HERE, "requirements.txt");
const HOME = join(ROOT, ".state", "python-sdk");
const INSTALLED = join(HOME, "installed.txt");
const PYTHON = join(HOME, "bin", "python");

/** Why there is no Python SDK on this machine; `false` where there is one. */
export function missingPython() {
  const wanted = readFileSync(REQUIREMENTS, "utf8");
  if (existsSync(INSTALLED) && readFileSync(INSTALLED, "utf8") === wanted) return false;
  rmSync(HOME, { recursive: true, force: true });
  const pip = [
    "-m",
    "pip",
    "--python",
    PYTHON,
    "install",
    "--quiet",
    "--disable-pip-version-check",
  ];
  const steps = [
    ["python3 with venv is not here", ["-m", "venv", "--without-pip", HOME]],
    ["pip gave no google-genai", [...pip, "--no-compile", "-r", REQUIREMENTS]],
  ];
  for (const [without, args] of steps) {
    try {
      execFileSync("python3", args, { stdio: ["ignore", "ignore", "pipe"], timeout: 90_000 });
    } catch (error) {
      return `${without}: ${String(error.stderr || error.message)
        .trim()
        .split("\n")
        .at(-1)}`;
    }
  }
  writeFileSync(INSTALLED, wanted);
  return false;
}

/** The SDK's process; `unary`, `stream` and `asynchronous` are the calls of the other clients. */
export class Python {
  #calls = new Map();
  #last = 0;

  constructor() {
    this.child = spawn(PYTHON, [join(HERE, "client.py")], {
      stdio: ["pipe", "pipe", "inherit"],
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
    });
    createInterface({ input: this.child.stdout }).on("line", (line) => {
      const said = JSON.parse(line);
      this.#calls.get(said.id)(said);
    });
    this.child.once("exit", () => {
      for (const settle of this.#calls.values()) settle({ error: { class: "Exit" } });
    });
  }

  close() {
    this.child.kill("SIGKILL");
  }

  async #ask(form, url, key, text, { headers, config } = {}) {
    const id = (this.#last += 1);
    const said = await new Promise((resolve) => {
      this.#calls.set(id, resolve);
      const call = { id, form, url, key, model: MODEL, text, headers, config };
      this.child.stdin.write(`${JSON.stringify(call)}\n`);
    });
    this.#calls.delete(id);
    if (said.error) throw Object.assign(new Error(JSON.stringify(said.error)), said.error);
    return { text: said.chunks.map((chunk) => chunk.text).join(""), chunks: said.chunks };
  }

  /** A client as `clients` of lib.mjs gives them. */
  client(url, key) {
    const form = (name) => (text, more) => this.#ask(name, url, key, text, more);
    return { unary: form("unary"), stream: form("stream"), asynchronous: form("asynchronous") };
  }
}
