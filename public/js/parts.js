/** Small pieces that every page shares. */

import { h, put, svg } from "./dom.js";
import { ApiError } from "./api.js";
import { dateTime, price, relative } from "./format.js";
import { known, t } from "./i18n.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * What went wrong, in words.
 * @param {unknown} error
 */
export function problemText(error) {
  if (!(error instanceof ApiError)) return t("problem.internal");
  const words = known(`problem.${error.code}`) ? t(`problem.${error.code}`) : error.code;
  const wait = error.retryAfterSeconds
    ? ` ${t("problem.wait", { n: error.retryAfterSeconds })}`
    : "";
  return (error.detail && error.detail !== words ? `${words} ${error.detail}` : words) + wait;
}

/**
 * A failed page or section: what happened, the id to quote, and a way to try again.
 * @param {unknown} error
 * @param {() => void} again
 */
export function failure(error, again) {
  const id = error instanceof ApiError ? error.requestId : "";
  const offline = error instanceof ApiError && error.code === "offline";
  return h(
    "div",
    { class: "note note-fault", role: "alert" },
    h("h2", {}, offline ? t("fault.offline") : t("fault.title")),
    h("p", {}, problemText(error)),
    id && h("p", { class: "quiet" }, t("fault.request"), " ", h("code", {}, id)),
    h("button", { type: "button", onclick: again }, t("retry")),
  );
}

/**
 * Nothing to show, and why that is.
 * @param {string} title
 * @param {string} [line]
 * @param {...Child} more
 */
export function empty(title, line, ...more) {
  return h("div", { class: "note" }, title && h("h2", {}, title), line && h("p", {}, line), more);
}

/** How to make a first generation, for a page that has none to show. */
export function sample() {
  return h(
    "pre",
    { class: "sample", tabindex: 0 },
    [
      `curl -X POST ${location.origin}/api/v1/generations \\`,
      `  -H "Authorization: Bearer $ONCEPRESS_KEY" \\`,
      `  -H "Content-Type: application/json" \\`,
      `  -d '{"site":"blog","pipeline":"daily","userPrompt":"Write a haiku"}'`,
    ].join("\n"),
  );
}

/**
 * Grey lines in the place of what is coming.
 * @param {number} lines
 */
export function loading(lines) {
  return h(
    "div",
    { class: "loading", "aria-busy": "true" },
    h("span", { class: "unseen" }, t("loading")),
    Array.from({ length: lines }, () => h("i", { class: "bone", "aria-hidden": "true" })),
  );
}

/**
 * An instant as people say it, with the exact one on hover.
 * @param {string | null | undefined} instant
 */
export function when(instant) {
  if (!instant) return h("span", { class: "quiet" }, "–");
  return h("time", { datetime: instant, title: dateTime(instant, true) }, relative(instant));
}

/**
 * A link inside the dashboard.
 * @param {string} route
 * @param {Record<string, string>} parameters
 * @param {Record<string, any>} attributes
 * @param {...Child} children
 */
export function link(route, parameters, attributes, ...children) {
  return h("a", { href: address(route, parameters), ...attributes }, children);
}

/**
 * The address of a page: everything after the `#`, so the server never sees it.
 * @param {string} route
 * @param {Record<string, string>} [parameters]
 */
export function address(route, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value);
  const query = new URLSearchParams(given).toString();
  return `#/${route}${query ? `?${query}` : ""}`;
}

/** An id shortened for a list. @param {string} id */
export function shortId(id) {
  return id && id.length > 14 ? `${id.slice(0, 12)}…` : id;
}

/**
 * The price of a generation, or a dash where none is stored.
 * @param {any} generation
 */
export function priceOf(generation) {
  const microUsd = generation?.cost?.microUsd;
  return typeof microUsd === "number" ? price(microUsd) : "–";
}

/**
 * Says something to a screen reader, and to the eye for a few seconds.
 * @param {string} words
 */
export function say(words) {
  const live = document.getElementById("live");
  if (!live) return;
  live.textContent = "";
  live.classList.remove("unseen");
  requestAnimationFrame(() => {
    live.textContent = words;
  });
  clearTimeout(quiet);
  quiet = setTimeout(() => live.classList.add("unseen"), 6_000);
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let quiet;

/** The product's mark: a printer's registration cross. */
export function logo() {
  return svg(
    "svg",
    { class: "logo", viewBox: "0 0 24 24", "aria-hidden": "true" },
    svg("circle", {
      cx: 12,
      cy: 12,
      r: 6.2,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 1.6,
    }),
    svg("path", { d: "M12 2v20M2 12h20", stroke: "currentColor", "stroke-width": 1.6 }),
    svg("circle", { class: "dot", cx: 12, cy: 12, r: 2.6 }),
  );
}

/**
 * A page's heading, which takes the focus when the page opens.
 * @param {string} title
 * @param {...Child} beside
 */
export function heading(title, ...beside) {
  return h("header", { class: "page-head" }, h("h1", { tabindex: -1 }, title), beside);
}

/**
 * Fills a section with what a promise brings: bones first, then the content or the failure.
 * @template T
 * @param {Element} section
 * @param {number} bones
 * @param {() => Promise<T>} load
 * @param {(value: T) => Child | Child[]} show
 * @param {AbortSignal} signal
 */
export async function fillFrom(section, bones, load, show, signal) {
  put(section, loading(bones));
  try {
    const value = await load();
    if (!signal.aborted) put(section, show(value));
  } catch (error) {
    if (signal.aborted) return;
    put(
      section,
      failure(error, () => fillFrom(section, bones, load, show, signal)),
    );
  }
}
