/** Numbers, money and times in the reader's language and the account's time zone. */

import { language } from "./i18n.js";

/** @type {{zone: string, currency: {code: string, perUsd: number}}} */
const settings = {
  zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC",
  currency: { code: "USD", perUsd: 1 },
};

/**
 * Takes the account's IANA time zone, if it is one.
 * @param {unknown} zone
 */
export function useZone(zone) {
  if (typeof zone !== "string" || !zone) return;
  try {
    new Intl.DateTimeFormat("en", { timeZone: zone });
    settings.zone = zone;
  } catch {
    // An unknown zone leaves the browser's own.
  }
}

/**
 * Takes the currency that amounts are shown in: `{"code": "JPY", "perUsd": 150}`.
 * @param {any} currency
 */
export function useCurrency(currency) {
  const perUsd = Number(currency?.perUsd);
  if (!/^[A-Z]{3}$/.test(String(currency?.code)) || !(perUsd > 0)) return;
  settings.currency = { code: currency.code, perUsd };
}

/** The time zone in use. */
export function zone() {
  return settings.zone;
}

/** @param {number} value */
export function count(value) {
  return new Intl.NumberFormat(language()).format(value);
}

/** @param {number} value */
export function compact(value) {
  return new Intl.NumberFormat(language(), {
    notation: "compact",
    maximumFractionDigits: 1,
  }).format(value);
}

/**
 * A share, with as many digits as a rate near 0.1 % needs.
 * @param {number} share
 */
export function percent(share) {
  return new Intl.NumberFormat(language(), {
    style: "percent",
    maximumFractionDigits: share !== 0 && Math.abs(share) < 0.01 ? 3 : 1,
  }).format(share);
}

/**
 * A sum of money, from micro-dollars, in the currency's own digits.
 * @param {number} microUsd
 */
export function money(microUsd) {
  const amount = (microUsd / 1e6) * settings.currency.perUsd;
  const form = moneyForm();
  const least = 10 ** -(form.resolvedOptions().maximumFractionDigits ?? 2);
  return amount !== 0 && Math.abs(amount) < least ? price(microUsd) : form.format(amount);
}

/**
 * The price of one thing, with two digits more: a generation is often a few cents.
 * @param {number} microUsd
 */
export function price(microUsd) {
  const amount = (microUsd / 1e6) * settings.currency.perUsd;
  const digits =
    (moneyForm().resolvedOptions().maximumFractionDigits ?? 2) + (Math.abs(amount) < 10 ? 2 : 0);
  return moneyForm({
    minimumFractionDigits: amount ? digits : undefined,
    maximumFractionDigits: amount ? digits : undefined,
  }).format(amount);
}

/** @param {Intl.NumberFormatOptions} [more] */
function moneyForm(more = {}) {
  return new Intl.NumberFormat(language(), {
    style: "currency",
    currency: settings.currency.code,
    currencyDisplay: "narrowSymbol",
    ...more,
  });
}

/**
 * Money for an axis: as short as it can be.
 * @param {number} microUsd
 */
export function moneyTick(microUsd) {
  return moneyForm({ minimumFractionDigits: 0, maximumFractionDigits: 3 }).format(
    (microUsd / 1e6) * settings.currency.perUsd,
  );
}

/** How many units of the shown currency a micro-dollar is: an axis rounds in what is shown. */
export function shownPerMicroUsd() {
  return settings.currency.perUsd / 1e6;
}

/**
 * Date and time, to the second where asked.
 * @param {string} instant  RFC 3339
 * @param {boolean} [seconds]
 */
export function dateTime(instant, seconds = false) {
  const at = new Date(instant);
  if (Number.isNaN(at.getTime())) return "–";
  return new Intl.DateTimeFormat(language(), {
    timeZone: settings.zone,
    dateStyle: "medium",
    timeStyle: seconds ? "medium" : "short",
  }).format(at);
}

/** @param {Date} at */
export function clock(at) {
  return new Intl.DateTimeFormat(language(), {
    timeZone: settings.zone,
    timeStyle: "short",
  }).format(at);
}

/**
 * A calendar day such as 2026-11-30, which has no zone of its own.
 * @param {string} date
 */
export function day(date) {
  const at = new Date(`${date}T00:00:00Z`);
  if (Number.isNaN(at.getTime())) return date;
  return new Intl.DateTimeFormat(language(), {
    timeZone: "UTC",
    month: "short",
    day: "numeric",
  }).format(at);
}

/**
 * The calendar day of an instant in the zone in use, as 2026-11-30.
 * @param {Date} at
 */
export function dayOf(at) {
  return new Intl.DateTimeFormat("sv-SE", { timeZone: settings.zone }).format(at);
}

/**
 * "3 minutes ago", "in 2 hours".
 * @param {string} instant
 */
export function relative(instant) {
  const seconds = (new Date(instant).getTime() - Date.now()) / 1000;
  if (Number.isNaN(seconds)) return "–";
  const form = new Intl.RelativeTimeFormat(language(), { numeric: "auto", style: "short" });
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length || unit === "second") {
      return form.format(Math.round(seconds / length), unit);
    }
  }
  return "–";
}

/** @param {number} milliseconds */
export function latency(milliseconds) {
  const unit = milliseconds < 1000 ? "millisecond" : "second";
  return new Intl.NumberFormat(language(), {
    style: "unit",
    unit,
    unitDisplay: "short",
    maximumFractionDigits: unit === "second" ? 1 : 0,
  }).format(unit === "second" ? milliseconds / 1000 : milliseconds);
}

/** @type {[Intl.RelativeTimeFormatUnit, number][]} */
const UNITS = [
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
  ["second", 1],
];
