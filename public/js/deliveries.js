/** The table of deliveries: state, destination, why, attempts, and what can be done about it. */

import { cancel, follow, requeue } from "./actions.js";
import { h, put } from "./dom.js";
import { count, latency } from "./format.js";
import { t } from "./i18n.js";
import { link, problemText, say, shortId, when } from "./parts.js";
import { badge, deliveryActions, faultText, meaning } from "./states.js";

/**
 * @param {any[]} items
 * @param {{caption: string, signal: AbortSignal, generationColumn: boolean}} options
 */
export function deliveriesTable(items, options) {
  const heads = [
    t("delivery.status"),
    t("delivery.destination"),
    options.generationColumn ? t("delivery.generation") : "",
    t("delivery.attempts"),
    t("delivery.when"),
  ];
  return h(
    "table",
    { class: "rows deliveries", role: "table" },
    h("caption", { class: "unseen" }, options.caption),
    h(
      "thead",
      { role: "rowgroup" },
      h(
        "tr",
        { role: "row" },
        heads
          .filter(Boolean)
          .map((words) => h("th", { role: "columnheader", scope: "col" }, words)),
        h(
          "th",
          { role: "columnheader", scope: "col" },
          h("span", { class: "unseen" }, t("delivery.actions")),
        ),
      ),
    ),
    items.map((item) => row(item, options)),
  );
}

/**
 * One delivery. It is a `tbody` of its own, so that its attempts unfold beneath it.
 * @param {any} delivery
 * @param {{signal: AbortSignal, generationColumn: boolean}} options
 */
function row(delivery, options) {
  const body = h("tbody", { role: "rowgroup", "data-id": delivery.id });
  let open = false;

  /** @param {any} next */
  function draw(next) {
    const focused = body.contains(document.activeElement)
      ? (/** @type {HTMLElement} */ (document.activeElement).dataset.act ?? "link")
      : null;
    delivery = next;
    const attempts = Array.isArray(delivery.attempts) ? delivery.attempts : [];
    const columns = options.generationColumn ? 6 : 5;
    put(
      body,
      h(
        "tr",
        { role: "row" },
        h(
          "td",
          { role: "cell", class: "c-state", title: meaning("delivery", delivery.status) },
          badge(delivery.status),
        ),
        h(
          "td",
          { role: "cell", class: "c-main" },
          h("span", { class: "strong" }, delivery.publisher),
          " ",
          h("span", { class: "target" }, delivery.target),
          delivery.error && h("span", { class: "why" }, faultText(delivery.error)),
          delivery.reference && h("span", { class: "why quiet" }, reference(delivery.reference)),
        ),
        options.generationColumn &&
          h(
            "td",
            { role: "cell", class: "c-gen" },
            link(
              `generations/${delivery.generationId}`,
              {},
              { class: "id", "data-act": "link", title: delivery.generationId },
              shortId(delivery.generationId ?? ""),
            ),
          ),
        h("td", { role: "cell", class: "c-attempts" }, attemptsButton(attempts)),
        h("td", { role: "cell", class: "c-when" }, timing(delivery)),
        h("td", { role: "cell", class: "c-actions" }, buttons()),
      ),
      open &&
        h(
          "tr",
          { role: "row", class: "unfolded" },
          h("td", { role: "cell", colspan: columns }, attemptList(attempts)),
        ),
    );
    if (focused) {
      const same = /** @type {HTMLElement | null} */ (
        body.querySelector(`[data-act="${focused}"]`)
      );
      (same ?? /** @type {HTMLElement | null} */ (body.querySelector("button, a")))?.focus();
    }
  }

  /** @param {any[]} attempts */
  function attemptsButton(attempts) {
    if (!attempts.length) return h("span", { class: "quiet" }, t("attempts.none"));
    return h(
      "button",
      {
        type: "button",
        class: "link",
        "data-act": "attempts",
        "aria-expanded": String(open),
        onclick: () => {
          open = !open;
          draw(delivery);
        },
      },
      t("attempts.n", { n: attempts.length }),
    );
  }

  function buttons() {
    const may = deliveryActions(delivery);
    const of = `${delivery.publisher} ${delivery.target}`;
    return [
      may.requeue &&
        h(
          "button",
          {
            type: "button",
            "data-act": "requeue",
            "aria-label": t("requeue.of", { of }),
            onclick: () => run(requeue),
          },
          t("requeue.button"),
        ),
      may.cancel &&
        h(
          "button",
          {
            type: "button",
            class: "plain",
            "data-act": "cancel",
            "aria-label": t("cancel.of", { of }),
            onclick: () => run(cancel),
          },
          t("cancel.button"),
        ),
    ];
  }

  /** @param {(delivery: any) => Promise<any>} act */
  async function run(act) {
    body.setAttribute("aria-busy", "true");
    try {
      const answer = await act(delivery);
      if (!answer) return;
      const status = act === requeue ? "pending" : "cancelled";
      draw({ ...delivery, status, error: null, ...answer });
      if (delivery.status === "pending") follow(delivery, draw, options.signal);
    } catch (error) {
      say(problemText(error));
    } finally {
      body.removeAttribute("aria-busy");
    }
  }

  draw(delivery);
  return body;
}

/** @param {any} delivery */
function timing(delivery) {
  if (delivery.status === "published") return when(delivery.publishedAt);
  if (delivery.status === "pending" && delivery.nextAttemptAt) {
    const due = new Date(delivery.nextAttemptAt).getTime() <= Date.now();
    return due
      ? h("span", {}, t("delivery.dueNow"))
      : h("span", {}, t("delivery.next"), " ", when(delivery.nextAttemptAt));
  }
  return when(delivery.createdAt);
}

/**
 * A destination's reference; a link only if it is plainly a web address.
 * @param {string} text
 */
function reference(text) {
  if (!/^https?:\/\//.test(text)) return text;
  return h("a", { href: text, target: "_blank", rel: "noopener noreferrer" }, text);
}

/** @param {any[]} attempts */
function attemptList(attempts) {
  const shown = attempts.slice(-ATTEMPTS_SHOWN);
  return h(
    "ol",
    { class: "attempts", start: attempts.length - shown.length + 1 },
    shown.map((attempt) =>
      h(
        "li",
        {},
        h("span", {}, when(attempt.at ?? attempt.time)),
        h("span", { class: "strong" }, attempt.status ?? attempt.outcome ?? "–"),
        h(
          "span",
          { class: "quiet" },
          typeof attempt.latencyMs === "number" ? latency(attempt.latencyMs) : "",
        ),
        h("span", { class: "excerpt" }, whatCame(attempt)),
      ),
    ),
    attempts.length > shown.length &&
      h("li", { class: "quiet" }, t("attempts.more", { n: count(attempts.length - shown.length) })),
  );
}

/**
 * Why an attempt failed, and the destination's own words.
 * @param {any} attempt
 */
function whatCame(attempt) {
  const why = faultText(attempt.error);
  const words = attempt.excerpt ?? "";
  return why && words ? [why, h("q", {}, words)] : why || words;
}

/** Ten attempts are usual; requeued again and again, a delivery may have more than a page holds. */
const ATTEMPTS_SHOWN = 50;
