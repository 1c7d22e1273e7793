/** Small charts in SVG. Each starts at zero, keeps one scale, and has its figures in words beside it. */

import { h, put, svg } from "./dom.js";
import { count, day as dayName, money, moneyTick, shownPerMicroUsd } from "./format.js";
import { t } from "./i18n.js";

/**
 * @typedef {object} Day
 * @property {string} day
 * @property {number} spent  micro-dollars
 * @property {number} saved  micro-dollars
 * @property {number} generations
 * @property {number} replays
 */

/**
 * What was bought above the line, what was not bought a second time below it, on one scale.
 * Pointing at a day, or the arrow keys, reads it out.
 * @param {Day[]} days  oldest first, without gaps
 */
export function ledger(days) {
  const top = niceCeiling(Math.max(...days.map((entry) => entry.spent), 0));
  const bottom = niceCeiling(Math.max(...days.map((entry) => entry.saved), 0));
  const range = top.value + bottom.value || 1;
  const step = Math.max(top.step, bottom.step) || 1;
  const height = 190;
  const width = matchMedia("(max-width: 720px)").matches ? 360 : 760;
  const toY = (/** @type {number} */ value) => 10 + ((top.value - value) / range) * height;
  const slot = (width - GUTTER) / Math.max(days.length, 1);
  const bar = Math.max(1, Math.min(slot * 0.62, 22));

  const picture = svg("svg", { class: "ledger", viewBox: `0 0 ${width} ${height + 40}`, "aria-hidden": "true" });
  for (const value of ticks(top.value, bottom.value, step)) {
    const y = toY(value);
    picture.append(
      svg("line", { class: value === 0 ? "axis" : "grid", x1: GUTTER, x2: width, y1: y, y2: y }),
      svg("text", { class: "tick", x: GUTTER - 8, y: y + 4, "text-anchor": "end" }, moneyTick(Math.abs(value))),
    );
  }
  const labelEvery = Math.ceil(days.length / (width < 500 ? 4 : 8));
  const columns = days.map((entry, index) => {
    const x = GUTTER + slot * index;
    const left = x + (slot - bar) / 2;
    const label = (days.length - 1 - index) % labelEvery === 0;
    return svg("g", { class: "column" },
      svg("rect", { class: "hit", x, y: 4, width: slot, height: height + 12 }),
      svg("rect", { class: "spent", x: left, y: toY(entry.spent), width: bar,
        height: toY(0) - toY(entry.spent) }),
      svg("rect", { class: "saved", x: left, y: toY(0), width: bar, height: toY(-entry.saved) - toY(0) }),
      label && svg("text", { class: "tick", x: x + slot / 2, y: height + 34, "text-anchor": "middle" },
        dayName(entry.day)));
  });
  picture.append(...columns);
  return readable(picture, columns, days);
}

/**
 * Adds the reading line, and the keyboard's way to it.
 * @param {SVGElement} picture
 * @param {SVGElement[]} columns
 * @param {Day[]} days
 */
function readable(picture, columns, days) {
  const reading = h("p", { class: "reading", "aria-live": "polite" });
  let at = days.length - 1;
  /** @param {number} index */
  function show(index) {
    at = Math.min(Math.max(index, 0), days.length - 1);
    columns.forEach((column, position) => column.classList.toggle("on", position === at));
    const entry = days[at];
    if (!entry) return;
    put(reading,
      h("b", {}, dayName(entry.day)),
      h("span", { class: "key key-spent" }, t("chart.spent", { money: money(entry.spent), n: entry.generations })),
      h("span", { class: "key key-saved" }, t("chart.saved", { money: money(entry.saved), n: entry.replays })));
  }
  columns.forEach((column, index) => column.addEventListener("pointerenter", () => show(index)));
  const frame = h("div", {
    class: "plot",
    tabindex: 0,
    role: "group",
    "aria-label": t("chart.keys"),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: days.length - 1 };
      const to = moves[/** @type {keyof typeof moves} */ (event.key)];
      if (to === undefined) return;
      event.preventDefault();
      show(to);
    },
  }, picture);
  show(at);
  return h("div", {}, reading, frame);
}

/**
 * One strip divided by share: a press's control strip. Parts of nothing take no room.
 * @param {{tone: string, value: number}[]} parts
 */
export function strip(parts) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const picture = svg("svg", { class: "strip", viewBox: "0 0 1000 10", preserveAspectRatio: "none",
    "aria-hidden": "true" });
  picture.append(svg("rect", { class: "fill-none", width: 1000, height: 10 }));
  let x = 0;
  for (const part of parts) {
    if (!part.value || !total) continue;
    const width = Math.max((part.value / total) * 1000, 4);
    picture.append(svg("rect", { class: `fill-${part.tone}`, x, width: Math.max(width - 2, 2), height: 10 }));
    x += width;
  }
  return picture;
}

/**
 * A value against a limit, on a scale from zero.
 * @param {number} value
 * @param {number} limit
 * @param {boolean} over
 */
export function gauge(value, limit, over) {
  const end = Math.max(limit * 2, value * 1.15) || 1;
  return svg("svg", { class: "gauge", viewBox: "0 0 1000 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "fill-none", y: 7, width: 1000, height: 10 }),
    svg("rect", { class: over ? "fill-dead" : "fill-done", y: 7, width: (value / end) * 1000, height: 10 }),
    svg("rect", { class: "limit", x: (limit / end) * 1000 - 1.5, width: 3, height: 24 }));
}

/**
 * Parts of a whole whose end is the limit: used, reserved, left.
 * @param {{tone: string, value: number}[]} parts
 * @param {number} whole
 */
export function meter(parts, whole) {
  const picture = svg("svg", { class: "strip", viewBox: "0 0 1000 10", preserveAspectRatio: "none",
    "aria-hidden": "true" }, svg("rect", { class: "fill-none", width: 1000, height: 10 }));
  let x = 0;
  for (const part of parts) {
    const width = Math.min((part.value / (whole || 1)) * 1000, 1000 - x);
    picture.append(svg("rect", { class: `fill-${part.tone}`, x, width, height: 10 }));
    x += width;
  }
  return picture;
}

/**
 * Amounts by name as bars, the figures beside them: a table in its own right.
 * @param {string} caption
 * @param {{name: string, spent: number, saved: number}[]} rows
 */
export function bars(caption, rows) {
  const most = Math.max(...rows.map((row) => row.spent + row.saved), 1);
  return h("table", { class: "bars" },
    h("caption", { class: "unseen" }, caption),
    h("thead", { class: "unseen" }, h("tr", {}, h("th", {}, t("name")), h("th", {}, t("spent")),
      h("th", {}, t("saved")))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("th", { scope: "row" }, row.name,
        svg("svg", { viewBox: "0 0 1000 6", preserveAspectRatio: "none", "aria-hidden": "true" },
          svg("rect", { class: "spent", width: (row.spent / most) * 1000, height: 6 }),
          svg("rect", { class: "saved", x: (row.spent / most) * 1000, width: (row.saved / most) * 1000,
            height: 6 }))),
      h("td", {}, money(row.spent)),
      h("td", { class: "saved-text" }, money(row.saved))))));
}

/**
 * The same figures as a table, folded away.
 * @param {Day[]} days
 */
export function ledgerTable(days) {
  return h("details", { class: "figures-table" },
    h("summary", {}, t("chart.table")),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("chart.table") },
      h("table", {},
        h("thead", {}, h("tr", {}, [t("day"), t("spent"), t("generations"), t("saved"), t("replays")]
          .map((words, index) => h("th", { scope: "col", class: index ? "number" : "" }, words)))),
        h("tbody", {}, [...days].reverse().map((entry) => h("tr", {},
          h("th", { scope: "row" }, dayName(entry.day)),
          [money(entry.spent), count(entry.generations), money(entry.saved), count(entry.replays)]
            .map((words) => h("td", { class: "number" }, words))))))));
}

/**
 * The next round amount at or above a value, in the shown currency, and its step.
 * @param {number} microUsd
 */
function niceCeiling(microUsd) {
  if (microUsd <= 0) return { value: 0, step: 0 };
  const shown = microUsd * shownPerMicroUsd();
  const rough = shown / 2;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 2.5, 5, 10].find((candidate) => candidate * magnitude >= rough) ?? 10;
  const step = factor * magnitude;
  return { value: (Math.ceil(shown / step) * step) / shownPerMicroUsd(), step: step / shownPerMicroUsd() };
}

/**
 * @param {number} top
 * @param {number} bottom
 * @param {number} step
 */
function ticks(top, bottom, step) {
  const values = [];
  for (let value = 0; value <= top * 1.001; value += step) values.push(value);
  for (let value = step; value <= bottom * 1.001; value += step) values.push(-value);
  return values;
}

const GUTTER = 56;
