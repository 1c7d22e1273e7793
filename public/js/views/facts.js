/** What the overview is made of: reads it, counts it, and gathers what is stuck by its reason. */

import { ApiError, read } from "../api.js";
import { count, dayOf, useCurrency, useZone } from "../format.js";
import { t } from "../i18n.js";
import { session } from "../session.js";
import { faultText } from "../states.js";

/**
 * The health report, for an administrator: of a Worker that is not well, too.
 * @param {AbortSignal} signal
 */
export async function healthOf(signal) {
  if (session()?.kind !== "admin") return null;
  return read("/admin/health", {}, signal).catch(() => null);
}

/**
 * Everything the page needs. Usage must be there; any other part that fails leaves its place
 * empty.
 * @param {AbortSignal} signal
 */
export async function gather(signal) {
  const admin = session()?.kind === "admin";
  const lone = !admin || Boolean(session()?.account);
  /** @param {string} path @param {Record<string, any>} [parameters] */
  const may = (path, parameters) =>
    read(path, parameters, signal).catch((error) => {
      if (error instanceof ApiError && error.code !== "offline" && error.status !== 401)
        return null;
      throw error;
    });
  const account = lone ? await may("/api/v1/account") : null;
  useZone(account?.timezone);
  const from = dayOf(new Date(Date.now() - (DAYS - 1) * 86_400_000));
  const [usage, dead, outcome, pending, held, unknown, digest, health] = await Promise.all([
    read("/api/v1/usage", { from, group_by: "day,site" }, signal),
    may("/api/v1/outbox", { status: "dead" }),
    may("/api/v1/outbox", { status: "outcome_unknown" }),
    may("/api/v1/outbox", { status: "pending" }),
    may("/api/v1/generations", { state: "held" }),
    may("/api/v1/generations", { state: "unknown" }),
    may("/api/v1/digest"),
    healthOf(signal),
  ]);
  useCurrency(usage.currency);
  return { account, usage, dead, outcome, pending, held, unknown, digest, health };
}

/** @typedef {Awaited<ReturnType<typeof gather>>} Facts */

/**
 * How many rows wait in each condition: the service's own count where it gives one,
 * else the rows that were read, with a plus where there are more.
 * @param {Facts} facts
 */
export function tally(facts) {
  const risk = facts.usage.atRisk ?? {};
  /** @param {any} given @param {any} page */
  const of = (given, page) =>
    typeof given?.count === "number"
      ? { n: given.count, words: count(given.count) }
      : {
          n: page?.items?.length ?? 0,
          words: page ? count(page.items.length) + (page.nextCursor ? "+" : "") : "–",
        };
  return {
    owed: of(risk.pending, facts.pending),
    held: of(risk.held, facts.held),
    unknown: of(risk.unknown, facts.unknown),
    dead: of(risk.dead, facts.dead),
    outcome: of(risk.outcomeUnknown, facts.outcome),
    today: published(facts),
  };
}

/**
 * What was published of today's generations.
 * @param {Facts} facts
 */
function published(facts) {
  const today = dayOf(new Date());
  const n = sum(facts.usage.items, "published", (item) => item.day === today);
  return { n, words: count(n) };
}

/**
 * @typedef {object} Group
 * @property {string} state
 * @property {string} where
 * @property {string} why
 * @property {any[]} items
 * @property {boolean} more  the service has more rows than were read
 * @property {"delivery" | "generation"} what
 */

/**
 * Rows that don't move by themselves, gathered by their reason, the most first.
 * @param {Facts} facts
 * @returns {Group[]}
 */
export function stuckGroups(facts) {
  return [
    ...groupDeliveries(facts.dead),
    ...groupDeliveries(facts.outcome),
    ...staleGroup(facts),
    ...groupGenerations(facts.held),
    ...groupGenerations(facts.unknown),
  ].sort((left, right) => right.items.length - left.items.length);
}

/**
 * @param {any} page
 * @returns {Group[]}
 */
function groupDeliveries(page) {
  return gatherGroups(
    page,
    "delivery",
    (item) => item.publisher,
    (item) => faultText(item.error) || lastExcerpt(item),
  );
}

/**
 * @param {any} page
 * @returns {Group[]}
 */
function groupGenerations(page) {
  return gatherGroups(
    page,
    "generation",
    (item) => `${item.site} / ${item.pipeline}`,
    (item) =>
      faultText(item.detail ?? item.reason) ||
      finish(item) ||
      (item.state === "unknown" ? t("stuck.unknown") : ""),
  );
}

/** @param {any} item */
function finish(item) {
  return item.output?.finishReason ? t("stuck.finish", { reason: item.output.finishReason }) : "";
}

/** @param {any} item */
function lastExcerpt(item) {
  const last = Array.isArray(item.attempts) ? item.attempts.at(-1) : null;
  return last ? [last.status, last.excerpt].filter(Boolean).join(": ") : "";
}

/**
 * Owed for longer than the threshold.
 * @param {Facts} facts
 * @returns {Group[]}
 */
function staleGroup(facts) {
  const minutes =
    facts.health?.staleMinutes ?? facts.account?.limits?.staleMinutes ?? STALE_MINUTES;
  const before = Date.now() - minutes * 60_000;
  const old = (facts.pending?.items ?? []).filter(
    (/** @type {any} */ item) => new Date(item.createdAt).getTime() < before,
  );
  if (!old.length) return [];
  const page = { items: old, nextCursor: facts.pending.nextCursor };
  return gatherGroups(
    page,
    "delivery",
    (item) => item.publisher,
    (item) => faultText(item.error) || lastExcerpt(item) || t("stuck.stale", { n: minutes }),
  ).map((group) => ({ ...group, state: "stale" }));
}

/**
 * @param {any} page
 * @param {"delivery" | "generation"} what
 * @param {(item: any) => string} where
 * @param {(item: any) => string} why
 * @returns {Group[]}
 */
function gatherGroups(page, what, where, why) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const item of /** @type {any[]} */ (page?.items ?? [])) {
    const state = item.status ?? item.state;
    const key = JSON.stringify([where(item), why(item)]);
    /** @type {Group} */
    const group = groups.get(key) ?? {
      state,
      where: where(item),
      why: why(item),
      items: [],
      more: Boolean(page.nextCursor),
      what,
    };
    group.items.push(item);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/**
 * One entry for each of the last days, also for those on which nothing happened.
 * @param {any} usage
 */
export function byDay(usage) {
  const last = new Date(`${dayOf(new Date())}T00:00:00Z`).getTime();
  return Array.from({ length: DAYS }, (_, index) => {
    const day = new Date(last - (DAYS - 1 - index) * 86_400_000).toISOString().slice(0, 10);
    const on = (/** @type {any} */ item) => item.day === day;
    return {
      day,
      spent: sum(usage.items, "costMicroUsd", on),
      saved: sum(usage.items, "savedMicroUsd", on),
      generations: sum(usage.items, "generations", on),
      replays: sum(usage.items, "replays", on),
    };
  });
}

/**
 * @param {any[] | undefined} items
 * @param {string} field
 * @param {(item: any) => boolean} which
 */
export function sum(items, field, which) {
  return (items ?? []).filter(which).reduce((all, item) => all + (item[field] ?? 0), 0);
}

const DAYS = 30;
const STALE_MINUTES = 60;
