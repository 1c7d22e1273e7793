/** The front page: what is owed, what is stuck and why, what was spent and what was not. */

import { ApiError } from "../api.js";
import { ledger, ledgerTable, strip } from "../charts.js";
import { requeueAll } from "../actions.js";
import { h, put } from "../dom.js";
import { clock, count, dayOf, money, zone } from "../format.js";
import { t } from "../i18n.js";
import {
  empty,
  failure,
  heading,
  link,
  loading,
  priceOf,
  problemText,
  sample,
  say,
  shortId,
  when,
} from "../parts.js";
import { mark, name } from "../states.js";
import { sideParts } from "./side.js";
import { byDay, gather, healthOf, stuckGroups, sum, tally } from "./facts.js";

/** @typedef {import("../main.js").Page} Page */
/** @typedef {import("./facts.js").Facts} Facts */
/** @typedef {import("./facts.js").Group} Group */

/** @type {Record<string, string>} */
const TONES = {
  dead: "dead",
  held: "wait",
  unknown: "wait",
  outcome_unknown: "wait",
  stale: "owed",
};

/**
 * @param {Page} page
 */
export async function overview(page) {
  const body = h("div", {}, loading(10));
  const stamp = h("span", { class: "quiet", "data-part": "stamp" });
  const title = heading(
    t("overview.loading"),
    h(
      "div",
      { class: "beside" },
      stamp,
      h("button", { type: "button", onclick: () => refresh() }, t("refresh")),
    ),
  );
  put(page.root, title, body);

  async function refresh() {
    body.setAttribute("aria-busy", "true");
    try {
      const facts = await gather(page.signal);
      if (page.signal.aborted) return;
      put(/** @type {Element} */ (title.querySelector("h1")), headline(facts));
      put(stamp, t("overview.updated", { time: clock(new Date()), zone: zone() }));
      put(body, show(facts, refresh));
    } catch (error) {
      if (page.signal.aborted) return;
      if (error instanceof ApiError && error.code === "offline" && body.querySelector(".figures")) {
        put(stamp, t("overview.offline"));
      } else {
        // What is wrong with the configuration is often why nothing else can be read.
        const health = await healthOf(page.signal);
        if (page.signal.aborted) return;
        put(/** @type {Element} */ (title.querySelector("h1")), t("nav.overview"));
        put(body, healthNote(health), failure(error, refresh));
      }
    } finally {
      body.removeAttribute("aria-busy");
    }
  }

  const timer = setInterval(() => {
    const inUse =
      document.querySelector("dialog") ||
      body.querySelector(":focus-visible, .figures-table[open]");
    if (document.visibilityState === "visible" && !inUse) refresh();
  }, REFRESH_MS);
  page.signal.addEventListener("abort", () => clearInterval(timer));
  await refresh();
}

/** @param {Facts} facts */
function headline(facts) {
  const { owed, held, unknown, dead, outcome } = tally(facts);
  const stuck = held.n + unknown.n + dead.n + outcome.n;
  const risk = facts.usage.atRisk;
  if (stuck && risk) {
    const paid = ["held", "unknown", "dead", "outcomeUnknown"].reduce(
      (all, key) => all + (risk[key]?.microUsd ?? 0),
      0,
    );
    return t("headline.stuckMoney", { n: stuck, money: money(paid) });
  }
  if (stuck) return t("headline.stuck", { n: stuck });
  return owed.n ? t("headline.owed", { n: owed.n }) : t("headline.clear");
}

/**
 * @param {Facts} facts
 * @param {() => void} refresh
 */
function show(facts, refresh) {
  const days = byDay(facts.usage);
  return [
    healthNote(facts.health),
    counters(facts),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        {},
        h(
          "section",
          { "aria-labelledby": "stuck" },
          h("h2", { id: "stuck" }, t("stuck.title")),
          stuckList(facts, refresh),
        ),
        h(
          "section",
          { "aria-labelledby": "money" },
          h("h2", { id: "money" }, t("money.title")),
          days.some((day) => day.spent || day.saved || day.generations || day.replays)
            ? [ledger(days), ledgerTable(days)]
            : empty(t("money.empty"), t("money.emptyLine"), sample()),
        ),
      ),
      h("div", { class: "side" }, sideParts(facts)),
    ),
  ];
}

/** @param {Facts} facts */
function counters(facts) {
  const { owed, held, unknown, dead, outcome, today } = tally(facts);
  const waiting = held.n + unknown.n + outcome.n;
  const totals = facts.usage.totals ?? {};
  const day = dayOf(new Date());
  const spentToday = sum(facts.usage.items, "costMicroUsd", (item) => item.day === day);
  return h(
    "section",
    { class: "counters", "aria-label": t("counters.label") },
    strip([
      { tone: "done", value: today.n },
      { tone: "owed", value: owed.n },
      { tone: "wait", value: waiting },
      { tone: "dead", value: dead.n },
    ]),
    h(
      "ul",
      { class: "figures" },
      figure("done", t("figure.published"), today.words, t("figure.today"), "outbox", {
        status: "published",
      }),
      figure("owed", t("figure.owed"), owed.words, nextTry(facts.pending), "outbox", {
        status: "pending",
      }),
      figure(
        "wait",
        t("figure.waiting"),
        count(waiting),
        t("figure.waitingNote", { held: held.words, unknown: count(unknown.n + outcome.n) }),
        "generations",
        { state: held.n || !unknown.n ? "held" : "unknown" },
      ),
      figure("dead", t("figure.dead"), dead.words, t("figure.deadNote"), "outbox", {
        status: "dead",
      }),
      figure(
        "",
        t("figure.spent"),
        money(totals.costMicroUsd ?? 0),
        t("figure.spentNote", { money: money(spentToday) }),
        "usage",
        {},
      ),
      figure(
        "",
        t("figure.saved"),
        money(totals.savedMicroUsd ?? 0),
        t("figure.savedNote", { n: totals.replays ?? 0 }),
        "usage",
        {},
      ),
    ),
  );
}

/**
 * @param {string} tone
 * @param {string} label
 * @param {string} value
 * @param {string} note
 * @param {string} route
 * @param {Record<string, string>} parameters
 */
function figure(tone, label, value, note, route, parameters) {
  return h(
    "li",
    { class: tone ? `figure key-${tone}` : "figure" },
    link(
      route,
      parameters,
      {},
      h("span", { class: "label" }, label),
      h("strong", {}, value),
      h("small", {}, note),
    ),
  );
}

/** @param {any} pending */
function nextTry(pending) {
  const times = (pending?.items ?? [])
    .map((/** @type {any} */ item) => item.nextAttemptAt)
    .filter(Boolean)
    .sort();
  if (!times.length) return t("figure.owedNote");
  return new Date(times[0]).getTime() <= Date.now()
    ? t("delivery.dueNow")
    : `${t("delivery.next")} ${clock(new Date(times[0]))}`;
}

/**
 * @param {Facts} facts
 * @param {() => void} refresh
 */
function stuckList(facts, refresh) {
  const groups = stuckGroups(facts);
  if (!groups.length) return empty("", t("stuck.noneLine"));
  return h(
    "ul",
    { class: "stuck" },
    groups.slice(0, GROUPS_SHOWN).map((group) => stuckGroup(group, refresh)),
    groups.length > GROUPS_SHOWN &&
      h("li", { class: "quiet" }, t("stuck.more", { n: groups.length - GROUPS_SHOWN })),
  );
}

/**
 * @param {Group} group
 * @param {() => void} refresh
 */
function stuckGroup(group, refresh) {
  const { items, state } = group;
  const single = items.length === 1 ? items[0] : null;
  const oldest = items
    .map((item) => item.createdAt)
    .filter(Boolean)
    .sort()[0];
  const route =
    group.what === "delivery"
      ? link(
          "outbox",
          { status: state === "stale" ? "pending" : state, publisher: items[0].publisher },
          {},
          t("stuck.see"),
        )
      : single
        ? link(`generations/${single.id}`, {}, { class: "button" }, t("stuck.decide"))
        : link(
            "generations",
            { state, site: items[0].site, pipeline: items[0].pipeline },
            {},
            t("stuck.see"),
          );
  const button =
    group.what === "delivery" &&
    state === "dead" &&
    h(
      "button",
      {
        type: "button",
        onclick: async () => {
          try {
            if (!(await requeueAll(items))) return;
            refresh();
            document.querySelector("h1")?.focus();
          } catch (error) {
            say(problemText(error));
          }
        },
      },
      items.length > 1 ? t("requeueAll.button", { n: items.length }) : t("requeue.button"),
    );
  return h(
    "li",
    { class: `tone-edge-${TONES[state]}` },
    h(
      "div",
      {},
      h(
        "p",
        { class: "stuck-head" },
        mark(state === "stale" ? "pending" : state),
        h("b", {}, `${count(items.length)}${group.more ? "+" : ""} ${name(state)}`),
        h("span", {}, group.where),
        oldest &&
          h(
            "span",
            { class: "quiet" },
            items.length > 1 ? t("stuck.oldest") : "",
            " ",
            when(oldest),
          ),
      ),
      h("p", { class: "why-line" }, group.why || t("stuck.noReason")),
      group.what === "generation" &&
        h(
          "ul",
          { class: "examples" },
          items
            .slice(0, 3)
            .map((item) =>
              h(
                "li",
                {},
                link(`generations/${item.id}`, {}, {}, item.topic || shortId(item.id)),
                h("span", { class: "quiet number" }, priceOf(item)),
              ),
            ),
        ),
    ),
    h("p", { class: "row-actions" }, route, button),
  );
}

/** @param {any} health */
function healthNote(health) {
  const faults = [...(health?.faults ?? [])];
  if (health?.environmentFault) {
    faults.push({ name: "ENVIRONMENT", problem: health.environmentFault });
  }
  if (!faults.length) return null;
  return h(
    "div",
    { class: "note note-fault", role: "alert" },
    h("h2", {}, t("health.title", { n: faults.length })),
    h(
      "ul",
      {},
      faults.map((/** @type {any} */ fault) =>
        h(
          "li",
          {},
          typeof fault === "string"
            ? fault
            : [h("code", {}, fault.name), ` ${fault.problem ?? ""}`],
        ),
      ),
    ),
  );
}

const GROUPS_SHOWN = 12;
/** Eight or nine reads each time: at this pace an open page takes 6 % of a free plan's daily requests. */
const REFRESH_MS = 120_000;
