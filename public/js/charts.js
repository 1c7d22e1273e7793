/** Small charts in SVG: each starts at zero, keeps one scale, and has its figures in words too. */

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
  const reading = h("p", { class: "reading", "aria-live": "polite" });
  const frame = h("div", {
    class: "plot",
    tabindex: 0,
    role: "group",
    "aria-label": t("chart.keys"),
  });
  let at = days.length - 1;
  /** @type {SVGElement[]} */
  let columns = [];

  /** @param {number} index */
  function show(index) {
    at = Math.min(Math.max(index, 0), days.length - 1);
    columns.forEach((column, position) => column.classList.toggle("on", position === at));
    const entry = days[at];
    if (!entry) return;
    put(
      reading,
      h("b", {}, dayName(entry.day)),
      h(
        "span",
        { class: "key key-spent" },
        t("chart.spent", { money: money(entry.spent), n: entry.generations }),
      ),
      h(
        "span",
        { class: "key key-saved" },
        t("chart.saved", { money: money(entry.saved), n: entry.replays }),
      ),
    );
  }

  frame.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: days.length - 1 };
    const to = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (to === undefined) return;
    event.preventDefault();
    show(to);
  });
  new ResizeObserver(() => {
    const drawn = drawLedger(days, Math.max(frame.clientWidth, 240), show);
    columns = drawn.columns;
    put(frame, drawn.picture);
    show(at);
  }).observe(frame);
  show(at);
  return h("div", {}, reading, frame);
}

/**
 * @param {Day[]} days
 * @param {number} width
 * @param {(index: number) => void} pointed
 */
function drawLedger(days, width, pointed) {
  const most = Math.max(...days.map((entry) => entry.spent), 0);
  const least = Math.max(...days.map((entry) => entry.saved), 0);
  const step = niceStep((most + least) / 4);
  const top = Math.ceil(most / step - 1e-9) * step;
  const bottom = Math.ceil(least / step - 1e-9) * step;
  const toY = (/** @type {number} */ value) => 10 + ((top - value) / (top + bottom || 1)) * HEIGHT;
  const slot = (width - GUTTER) / Math.max(days.length, 1);
  const bar = Math.max(1, Math.min(slot * 0.62, 22));
  const labelEvery = Math.ceil(days.length / (width / 90));

  const columns = days.map((entry, index) => {
    const x = GUTTER + slot * index;
    const left = x + (slot - bar) / 2;
    const back = days.length - 1 - index;
    return svg(
      "g",
      { class: "column", onpointerenter: () => pointed(index) },
      svg("rect", { class: "hit", x, y: 4, width: slot, height: HEIGHT + 12 }),
      svg("rect", {
        class: "spent",
        x: left,
        y: toY(entry.spent),
        width: bar,
        height: toY(0) - toY(entry.spent),
      }),
      svg("rect", {
        class: "saved",
        x: left,
        y: toY(0) + 1,
        width: bar,
        height: toY(-entry.saved) - toY(0),
      }),
      back % labelEvery === 0 &&
        svg(
          "text",
          {
            class: "tick",
            x: back ? x + slot / 2 : width,
            y: HEIGHT + 34,
            "text-anchor": back ? "middle" : "end",
          },
          dayName(entry.day),
        ),
    );
  });
  const line = (/** @type {string} */ kind, /** @type {number} */ value) =>
    svg("line", { class: kind, x1: GUTTER, x2: width, y1: toY(value), y2: toY(value) });
  const grid = ticks(top, bottom, step).flatMap((value) => [
    line("grid", value),
    svg(
      "text",
      { class: "tick", x: GUTTER - 8, y: toY(value) + 4, "text-anchor": "end" },
      moneyTick(Math.abs(value)),
    ),
  ]);
  const height = HEIGHT + 42;
  const picture = svg(
    "svg",
    { class: "ledger", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    grid,
    columns,
    line("axis", 0),
  );
  return { picture, columns };
}

/**
 * One strip divided by share: a press's control strip. Parts of nothing take no room.
 * @param {{tone: string, value: number}[]} parts
 */
export function strip(parts) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const picture = svg("svg", {
    class: "strip",
    viewBox: "0 0 1000 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  picture.append(svg("rect", { class: "fill-none", width: 1000, height: 10 }));
  let x = 0;
  for (const part of parts) {
    if (!part.value || !total) continue;
    const width = Math.max((part.value / total) * 1000, 4);
    picture.append(
      svg("rect", { class: `fill-${part.tone}`, x, width: Math.max(width - 2, 2), height: 10 }),
    );
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
  return svg(
    "svg",
    { class: "gauge", viewBox: "0 0 1000 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "fill-none", y: 7, width: 1000, height: 10 }),
    svg("rect", {
      class: over ? "fill-dead" : "fill-done",
      y: 7,
      width: (value / end) * 1000,
      height: 10,
    }),
    svg("rect", { class: "limit", x: (limit / end) * 1000 - 1.5, width: 3, height: 24 }),
  );
}

/**
 * Parts of a whole whose end is the limit: used, reserved, left.
 * @param {{tone: string, value: number}[]} parts
 * @param {number} whole
 */
export function meter(parts, whole) {
  const picture = svg(
    "svg",
    { class: "strip", viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "fill-none", width: 1000, height: 10 }),
  );
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
  return h(
    "table",
    { class: "bars" },
    h("caption", { class: "unseen" }, caption),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("td", {}),
        [t("spent"), t("saved")].map((words) => h("th", { scope: "col" }, words)),
      ),
    ),
    h(
      "tbody",
      {},
      rows.map((row) =>
        h(
          "tr",
          {},
          h(
            "th",
            { scope: "row" },
            row.name,
            svg(
              "svg",
              { viewBox: "0 0 1000 6", preserveAspectRatio: "none", "aria-hidden": "true" },
              svg("rect", { class: "spent", width: (row.spent / most) * 1000, height: 6 }),
              svg("rect", {
                class: "saved",
                x: (row.spent / most) * 1000,
                width: (row.saved / most) * 1000,
                height: 6,
              }),
            ),
          ),
          h("td", {}, money(row.spent)),
          h("td", { class: "saved-text" }, money(row.saved)),
        ),
      ),
    ),
  );
}

/**
 * The same figures as a table, folded away.
 * @param {Day[]} days
 */
export function ledgerTable(days) {
  return h(
    "details",
    { class: "figures-table" },
    h("summary", {}, t("chart.table")),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": t("chart.table") },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            [t("day"), t("spent"), t("generations"), t("saved"), t("replays")].map((words, index) =>
              h("th", { scope: "col", class: index ? "number" : "" }, words),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          [...days].reverse().map((entry) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, dayName(entry.day)),
              [
                money(entry.spent),
                count(entry.generations),
                money(entry.saved),
                count(entry.replays),
              ].map((words) => h("td", { class: "number" }, words)),
            ),
          ),
        ),
      ),
    ),
  );
}

/**
 * A round step near an amount, in the shown currency.
 * @param {number} microUsd
 */
function niceStep(microUsd) {
  const shown = microUsd * shownPerMicroUsd();
  if (!(shown > 0)) return 1;
  const magnitude = 10 ** Math.floor(Math.log10(shown));
  const factor = [1, 2, 2.5, 5, 10].find((candidate) => candidate * magnitude >= shown) ?? 10;
  return (factor * magnitude) / shownPerMicroUsd();
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

const HEIGHT = 180;
const GUTTER = 52;
