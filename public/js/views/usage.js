/** Spend and savings by day, site, pipeline and model. */

import { read } from "../api.js";
import { ledger, ledgerTable } from "../charts.js";
import { h, put } from "../dom.js";
import { compact, count, day, dayOf, money, useCurrency } from "../format.js";
import { t } from "../i18n.js";
import { empty, fillFrom, heading } from "../parts.js";

const GROUPS = /** @type {const} */ (["site", "pipeline", "model", "day"]);

/**
 * @param {import("../main.js").Page} page
 */
export async function usage(page) {
  const to = page.parameters.get("to") || dayOf(new Date());
  const from = page.parameters.get("from") || dayOf(new Date(Date.now() - 29 * 86_400_000));
  const asked = (page.parameters.get("group_by") || "site,pipeline").split(",");
  const groups = GROUPS.filter((group) => asked.includes(group));
  const fromField = h("input", { id: "from", type: "date", value: from, max: to, required: true });
  const toField = h("input", { id: "to", type: "date", value: to, required: true });
  const checks = GROUPS.map((group) =>
    h("input", {
      id: `g-${group}`,
      type: "checkbox",
      value: group,
      checked: groups.includes(group),
    }),
  );
  const place = h("div", {});

  put(
    page.root,
    heading(t("nav.usage")),
    h(
      "form",
      {
        class: "filters",
        onsubmit: (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          const chosen = checks.filter((check) => check.checked).map((check) => check.value);
          page.go("usage", {
            from: fromField.value,
            to: toField.value,
            group_by: chosen.join(","),
          });
        },
      },
      h("label", { for: "from" }, t("usage.from")),
      fromField,
      h("label", { for: "to" }, t("usage.to")),
      toField,
      h(
        "fieldset",
        {},
        h("legend", {}, t("usage.by")),
        checks.map((check) =>
          h("label", { class: "check", for: check.id }, check, t(`field.${check.value}`)),
        ),
      ),
      h("button", { type: "submit" }, t("filter.apply")),
    ),
    place,
  );

  const load = () =>
    Promise.all([
      read("/api/v1/usage", { from, to, group_by: groups.join(",") }, page.signal),
      read("/api/v1/usage", { from, to, group_by: "day" }, page.signal),
    ]);
  await fillFrom(
    place,
    8,
    load,
    ([grouped, daily]) => show(grouped, daily, groups, from, to),
    page.signal,
  );
}

/**
 * @param {any} grouped
 * @param {any} daily
 * @param {string[]} groups
 * @param {string} from
 * @param {string} to
 */
function show(grouped, daily, groups, from, to) {
  useCurrency(grouped.currency);
  if (!grouped.items?.length) return empty(t("usage.empty"), t("money.emptyLine"));
  const days = everyDay(daily.items ?? [], from, to);
  return [
    days.length > 1 &&
      days.length <= CHART_DAYS &&
      h(
        "section",
        { class: "wide-chart", "aria-label": t("money.title") },
        ledger(days),
        ledgerTable(days),
      ),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": t("nav.usage") },
      table(grouped, groups),
    ),
  ];
}

/** @type {[string, (item: any) => string][]} */
const COLUMNS = [
  ["generations", (item) => count(item.generations ?? 0)],
  ["replays", (item) => count(item.replays ?? 0)],
  ["tokens.prompt", (item) => compact(item.promptTokens ?? 0)],
  ["tokens.cached", (item) => compact(item.cachedTokens ?? 0)],
  ["tokens.output", (item) => compact(item.outputTokens ?? 0)],
  ["tokens.thought", (item) => compact(item.thoughtTokens ?? 0)],
  ["spent", (item) => money(item.costMicroUsd ?? 0)],
  ["saved", (item) => money(item.savedMicroUsd ?? 0)],
];

/**
 * @param {any} grouped
 * @param {string[]} groups
 */
function table(grouped, groups) {
  const byDay = groups.includes("day");
  const items = [...grouped.items].sort((left, right) =>
    byDay
      ? String(right.day).localeCompare(String(left.day)) ||
        (right.costMicroUsd ?? 0) - (left.costMicroUsd ?? 0)
      : (right.costMicroUsd ?? 0) - (left.costMicroUsd ?? 0),
  );
  const shown = items.slice(0, ROWS_SHOWN);
  return h(
    "table",
    { class: "usage" },
    h(
      "caption",
      { class: items.length > shown.length ? "quiet" : "unseen" },
      items.length > shown.length
        ? t("usage.cut", { n: shown.length, all: items.length })
        : t("nav.usage"),
    ),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        groups.map((group) => h("th", { scope: "col" }, t(`field.${group}`))),
        !groups.length && h("td", {}),
        COLUMNS.map(([key]) => h("th", { scope: "col", class: "number" }, t(key))),
      ),
    ),
    h(
      "tbody",
      {},
      shown.map((item) =>
        h(
          "tr",
          {},
          groups.map((group, index) =>
            h(
              index ? "td" : "th",
              index ? {} : { scope: "row" },
              group === "day" ? day(String(item.day)) : (item[group] ?? "–"),
            ),
          ),
          !groups.length && h("th", { scope: "row" }, t("usage.total")),
          cells(item),
        ),
      ),
    ),
    grouped.totals &&
      groups.length > 0 &&
      h(
        "tfoot",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "row", colspan: groups.length }, t("usage.total")),
          cells(grouped.totals),
        ),
      ),
  );
}

/** @param {any} item */
function cells(item) {
  return COLUMNS.map(([key, text]) =>
    h("td", { class: key === "saved" ? "number saved-text" : "number" }, text(item)),
  );
}

/**
 * @param {any[]} items
 * @param {string} from
 * @param {string} to
 */
function everyDay(items, from, to) {
  const by = new Map(items.map((item) => [item.day, item]));
  const days = [];
  const end = new Date(`${to}T00:00:00Z`).getTime();
  for (
    let at = new Date(`${from}T00:00:00Z`).getTime();
    at <= end && days.length <= CHART_DAYS;
    at += 86_400_000
  ) {
    const name = new Date(at).toISOString().slice(0, 10);
    const item = by.get(name) ?? {};
    days.push({
      day: name,
      spent: item.costMicroUsd ?? 0,
      saved: item.savedMicroUsd ?? 0,
      generations: item.generations ?? 0,
      replays: item.replays ?? 0,
    });
  }
  return days;
}

/** A day's column would be thinner than three pixels. */
const CHART_DAYS = 190;
/** A hundred sites over a year by day is more than a person reads; the table says what is left out. */
const ROWS_SHOWN = 500;
