/** Beside the overview: money at risk, credits, sites, KV and the digest, a part each. */

import { bars, gauge, meter, strip } from "../charts.js";
import { h } from "../dom.js";
import { count, dateTime, money, percent } from "../format.js";
import { t } from "../i18n.js";
import { link } from "../parts.js";
import { mark, name } from "../states.js";

/** @typedef {import("./facts.js").Facts} Facts */

/**
 * The parts that have something to say.
 * @param {Facts} facts
 */
export function sideParts(facts) {
  return [
    riskPart(facts),
    creditPart(facts.account),
    sitePart(facts.usage),
    kvPart(facts),
    digestPart(facts.digest),
  ];
}

/** @param {Facts} facts */
function riskPart(facts) {
  const risk = facts.usage.atRisk;
  if (!risk) return null;
  const rows = [
    ["pending", "owed", "pending"],
    ["held", "wait", "held"],
    ["unknown", "wait", "unknown"],
    ["outcomeUnknown", "wait", "outcome_unknown"],
    ["dead", "dead", "dead"],
  ].map(([key, tone, state]) => ({
    key: String(state),
    tone: String(tone),
    ...(risk[String(key)] ?? { count: 0, microUsd: 0 }),
  }));
  const total = risk.microUsd ?? rows.reduce((all, row) => all + (row.microUsd ?? 0), 0);
  return side(
    t("risk.title"),
    money(total),
    strip(rows.map((row) => ({ tone: row.tone, value: row.microUsd ?? 0 }))),
    h(
      "table",
      { class: "mini" },
      h("caption", { class: "unseen" }, t("risk.title")),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, mark(row.key), name(row.key)),
            h("td", {}, count(row.count ?? 0)),
            h("td", {}, money(row.microUsd ?? 0)),
          ),
        ),
      ),
    ),
    h("p", { class: "quiet" }, t("risk.note")),
  );
}

/** @param {any} account */
function creditPart(account) {
  if (!account) return null;
  if (typeof account.dailyCredits !== "number") return null;
  const used = account.creditsUsed ?? 0;
  const reserved = account.creditsReserved ?? 0;
  const share = account.dailyCredits ? (used + reserved) / account.dailyCredits : 0;
  return side(
    t("credits.title"),
    money(account.creditsLeft ?? 0),
    meter(
      [
        { tone: share > 0.8 ? "dead" : "done", value: used },
        { tone: "owed", value: reserved },
      ],
      account.dailyCredits,
    ),
    h(
      "p",
      { class: "quiet" },
      t("credits.line", {
        used: money(used),
        reserved: money(reserved),
        limit: money(account.dailyCredits),
      }),
      account.resetsAt && ` ${t("credits.resets", { time: dateTime(account.resetsAt) })}`,
    ),
  );
}

/** @param {any} usage */
function sitePart(usage) {
  /** @type {Map<string, {name: string, spent: number, saved: number}>} */
  const sites = new Map();
  for (const item of usage.items ?? []) {
    const site = item.site ?? "–";
    const row = sites.get(site) ?? { name: site, spent: 0, saved: 0 };
    row.spent += item.costMicroUsd ?? 0;
    row.saved += item.savedMicroUsd ?? 0;
    sites.set(site, row);
  }
  const rows = [...sites.values()].sort((left, right) => right.spent - left.spent);
  if (!rows.length) return null;
  return side(
    t("sites.title"),
    "",
    bars(t("sites.title"), rows.slice(0, 6)),
    rows.length > 6 &&
      h("p", {}, link("usage", { group_by: "site" }, {}, t("sites.all", { n: rows.length }))),
  );
}

/** @param {Facts} facts */
function kvPart(facts) {
  const source = facts.health?.kvErrorRate?.week ?? facts.digest?.figures?.kvErrorRate;
  const rate = typeof source === "object" && source ? source.rate : source;
  if (typeof rate !== "number")
    return side(t("kv.title"), "–", h("p", { class: "quiet" }, t("kv.none")));
  const over = rate > KV_LIMIT;
  return side(
    t("kv.title"),
    percent(rate),
    gauge(rate, KV_LIMIT, over),
    h(
      "p",
      { class: over ? "fault" : "quiet" },
      t(over ? "kv.over" : "kv.under", { limit: percent(KV_LIMIT) }),
    ),
  );
}

/** @param {any} digest */
function digestPart(digest) {
  if (!digest?.text) return null;
  return side(
    t("digest.title"),
    "",
    h(
      "details",
      { open: true },
      h("summary", {}, digest.date ?? t("digest.latest")),
      h("pre", { class: "digest" }, digest.text),
    ),
  );
}

/**
 * @param {string} title
 * @param {string} value
 * @param {...import("../dom.js").Child} children
 */
function side(title, value, ...children) {
  return h(
    "section",
    { class: "part" },
    h("h2", {}, title, value && h("strong", {}, value)),
    children,
  );
}

/** The share of failed KV calls in a week that raises an alert. */
const KV_LIMIT = 0.001;
