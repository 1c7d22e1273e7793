// What the operating system says of a process: Linux only.

import { readdirSync, readFileSync } from "node:fs";

const TICKS_A_SECOND = 100;

/** The workerd processes that this one has started. */
export function workerds() {
  const own = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    const stat = statOf(pid);
    if (stat?.name === "workerd" && stat.parent === process.pid) own.push(Number(pid));
  }
  return own;
}

/** CPU time that it has used, in ms. */
export function cpuMs(pid) {
  return (statOf(pid).ticks * 1000) / TICKS_A_SECOND;
}

export function residentMiB(pid) {
  const [, kib] = readFileSync(`/proc/${pid}/status`, "utf8").match(/^VmRSS:\s+(\d+) kB$/m);
  return Number(kib) / 1024;
}

function statOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const name = text.slice(text.indexOf("(") + 1, text.lastIndexOf(")"));
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { name, parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) };
  } catch {
    return undefined;
  }
}
