/** Picks the language and looks strings up. */

import { en } from "./strings/en.js";
import { ja } from "./strings/ja.js";

/** @typedef {string | {one: string, other: string}} Entry */

/** @type {Record<string, Record<string, Entry>>} */
const TABLES = { en, ja };

let chosen =
  (navigator.languages ?? [navigator.language])
    .map((tag) => tag.slice(0, 2).toLowerCase())
    .find((tag) => tag in TABLES) ?? "en";

/** The tag that Intl and `lang` take. English keeps the reader's own region. */
export function language() {
  if (chosen === "ja") return "ja";
  return (navigator.languages ?? []).find((tag) => tag.toLowerCase().startsWith("en")) ?? "en";
}

/** The table in use: `en` or `ja`. */
export function table() {
  return chosen;
}

/** @param {string} next */
export function useTable(next) {
  if (next in TABLES) chosen = next;
  document.documentElement.lang = chosen;
}

/**
 * A string in the reader's language, with `{name}` filled in; `n` picks the plural form.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const entry = TABLES[chosen]?.[key] ?? en[key] ?? key;
  const form = typeof entry === "string" ? entry : entry[plural(values.n)];
  return form.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? new Intl.NumberFormat(language()).format(value) : value;
  });
}

/**
 * Whether a string exists: codes of the service may be newer than this table.
 * @param {string} key
 */
export function known(key) {
  return key in en;
}

/**
 * @param {string | number | undefined} n
 * @returns {"one" | "other"}
 */
function plural(n) {
  return new Intl.PluralRules(language()).select(Number(n)) === "one" ? "one" : "other";
}
