// Which operation fails, is held, or sees stale data. A rule says
//
//   { binding, op?, match?, where?, skip?, times?,          which operations (`match`: a regular
//     when: "before" | "after",                             expression on key, SQL or address)
//     error?: text, hold?: name, delayMs?, staleMs? }       and what becomes of them
//
// "after" lets the operation take effect and loses its answer: the fault that stores really have.

import * as journal from "./journal.mjs";
import { realNow } from "./clock.mjs";

let rules = [];
let held = [];

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export function setRules(list) {
  rules = list.map((rule) => ({ when: "before", skip: 0, times: Infinity, ...rule, hits: 0 }));
  held = held.filter((entry) => !entry.released);
}

export const ruleHits = () => rules.map(({ hits }) => hits);
export const holds = () => held.filter((entry) => !entry.released);

export function release(name) {
  for (const entry of held) if (name === undefined || entry.name === name) entry.released = true;
}

/** Runs one operation under the rules and writes it into the journal. */
export async function perform(operation, run) {
  const entry = journal.begin(operation, realNow());
  const rule = ruleFor(operation);
  try {
    if (rule?.delayMs) await sleep(rule.delayMs);
    if (rule?.when === "before") await strike(rule, operation);
    const result = await run(rule);
    entry.ok = true;
    Object.assign(entry, cost(result));
    if (rule?.when === "after") await strike(rule, operation);
    return result;
  } catch (error) {
    entry.error = String(error?.message ?? error);
    throw error;
  }
}

/** The rule that this operation falls under, which counts it. */
export function ruleFor(operation) {
  for (const rule of rules) {
    if (!matches(rule, operation)) continue;
    rule.hits += 1;
    if (rule.hits > rule.skip && rule.hits <= rule.skip + rule.times) return rule;
  }
  return undefined;
}

function matches(rule, { binding, op, subject, where }) {
  return (
    rule.binding === binding &&
    (rule.op === undefined || new RegExp(`^(${rule.op})$`).test(op)) &&
    (rule.where === undefined || rule.where === where) &&
    (rule.match === undefined || new RegExp(rule.match, "s").test(subject ?? ""))
  );
}

async function strike(rule, operation) {
  if (rule.hold) {
    const entry = { name: rule.hold, ...operation, released: false };
    held.push(entry);
    while (!entry.released) await sleep(10);
  }
  if (rule.error) throw failure(rule.error);
}

// D1's own errors carry the database's words as their cause, without the prefix.
function failure(message) {
  const [, cause] = message.match(/^D1_ERROR: (.*)$/s) ?? [];
  return cause ? new Error(message, { cause: new Error(cause) }) : new Error(message);
}

// D1 says what a statement read and wrote; a batch is the sum of its statements.
function cost(result) {
  const metas = (Array.isArray(result) ? result : [result]).map((one) => one?.meta).filter(Boolean);
  if (metas.length === 0 || metas[0].rows_read === undefined) return {};
  const sum = (name) => metas.reduce((total, meta) => total + (meta[name] ?? 0), 0);
  return { rowsRead: sum("rows_read"), rowsWritten: sum("rows_written") };
}
