/** What each state means to a person: its mark, its tone, and its line of explanation. */

import { h, svg } from "./dom.js";
import { known, t } from "./i18n.js";

/**
 * Tones follow a press's inks: black is settled, cyan is owed, yellow waits for a person, magenta
 * is lost unless somebody acts. A mark has its own shape too, so that colour is never the only sign.
 * @type {Record<string, {tone: string, shape: string}>}
 */
const LOOKS = {
  queued: { tone: "owed", shape: "ring" },
  running: { tone: "owed", shape: "half" },
  generated: { tone: "done", shape: "disc" },
  held: { tone: "wait", shape: "square" },
  failed: { tone: "none", shape: "cross" },
  unknown: { tone: "wait", shape: "diamond" },
  superseded: { tone: "none", shape: "dash" },
  waiting: { tone: "owed", shape: "ring" },
  pending: { tone: "owed", shape: "ring" },
  published: { tone: "done", shape: "disc" },
  dead: { tone: "dead", shape: "cross" },
  cancelled: { tone: "none", shape: "dash" },
  outcome_unknown: { tone: "wait", shape: "diamond" },
};

/** @type {Record<string, Record<string, string | number>>} */
const SHAPES = {
  ring: { d: "M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z", fill: "none" },
  half: { d: "M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM6 2v8", fill: "none" },
  disc: { d: "M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z", fill: "currentColor" },
  square: { d: "M2.5 2.5h7v7h-7Z", fill: "currentColor" },
  diamond: { d: "M6 1.5 10.5 6 6 10.5 1.5 6Z", fill: "currentColor" },
  cross: { d: "M2.5 2.5l7 7M9.5 2.5l-7 7", fill: "none" },
  dash: { d: "M2 6h8", fill: "none" },
};

/**
 * The mark of a state, for decoration beside its name.
 * @param {string} state
 */
export function mark(state) {
  const look = LOOKS[state] ?? { tone: "none", shape: "dash" };
  return svg(
    "svg",
    { class: `mark tone-${look.tone}`, viewBox: "0 0 12 12", "aria-hidden": "true" },
    svg("path", { ...SHAPES[look.shape], stroke: "currentColor", "stroke-width": 1.8 }),
  );
}

/**
 * A state's mark and name.
 * @param {string} state
 */
export function badge(state) {
  return h("span", { class: "badge", "data-state": state }, mark(state), name(state));
}

/**
 * A state's name in the reader's language.
 * @param {string} state
 */
export function name(state) {
  return known(`state.${state}`) ? t(`state.${state}`) : state;
}

/**
 * A state explained in a line.
 * @param {"generation" | "delivery"} what
 * @param {string} state
 */
export function meaning(what, state) {
  const key = `meaning.${what}.${state}`;
  return known(key) ? t(key) : "";
}

/**
 * The reason of a failure, however it is written: text, or an object with a code and words.
 * @param {any} fault
 * @returns {string}
 */
export function faultText(fault) {
  if (!fault) return "";
  if (typeof fault === "string") return known(`problem.${fault}`) ? t(`problem.${fault}`) : fault;
  const code = typeof fault.code === "string" ? fault.code : "";
  const words = fault.detail ?? fault.message ?? fault.reason ?? "";
  return [code, words].filter(Boolean).join(": ");
}

/**
 * What may be asked of a delivery.
 * @param {any} delivery
 */
export function deliveryActions(delivery) {
  return {
    requeue: ["dead", "cancelled", "outcome_unknown"].includes(delivery.status),
    cancel: ["waiting", "pending", "dead", "outcome_unknown"].includes(delivery.status),
  };
}

/**
 * What may be asked of a generation.
 * @param {any} generation
 * @returns {("publish" | "regenerate" | "abandon")[]}
 */
export function generationActions(generation) {
  if (generation.state === "held") return ["publish", "regenerate", "abandon"];
  if (generation.state === "unknown") return ["regenerate", "abandon"];
  return [];
}
