// Child processes in groups of their own, so that a kill takes workerd along with wrangler, and
// nothing outlives the test run.

import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";
import { createServer } from "node:net";
import { once } from "node:events";

const running = new Set();

/** Starts a command whose output goes to `log`; `onLine` sees each line of it. */
export function start(command, args, { log, onLine, ...options } = {}) {
  const child = spawn(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
    ...options,
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  const file = createWriteStream(log, { flags: "a" });
  for (const stream of [child.stdout, child.stderr]) {
    stream.pipe(file, { end: false });
    if (onLine) lines(stream, onLine);
  }
  return child;
}

/** Ends the whole group and waits until it is gone. `SIGKILL` leaves no time to tidy up. */
export async function end(child, signal = "SIGTERM") {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  signalGroup(child, signal);
  const impatience = setTimeout(() => signalGroup(child, "SIGKILL"), 5_000);
  await gone;
  clearTimeout(impatience);
  // The leader is gone; whoever of its group is not must not hold the stores' files.
  signalGroup(child, "SIGKILL");
}

/** A port that was free a moment ago. */
export async function freePort() {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

function signalGroup(child, signal) {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group is gone already.
  }
}

function lines(stream, onLine) {
  let rest = "";
  stream.setEncoding("utf8").on("data", (text) => {
    const parts = (rest + text).split("\n");
    rest = parts.pop();
    parts.forEach(onLine);
  });
}

process.once("exit", () => running.forEach((child) => signalGroup(child, "SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
