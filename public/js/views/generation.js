/** One generation: its state explained, its output, what it cost, and where it is owed. */

import { resolve } from "../actions.js";
import { read } from "../api.js";
import { deliveriesTable } from "../deliveries.js";
import { h, put } from "../dom.js";
import { count, dateTime, latency } from "../format.js";
import { t } from "../i18n.js";
import { empty, fillFrom, heading, link, priceOf, problemText, say } from "../parts.js";
import { badge, faultText, generationActions, meaning } from "../states.js";

/**
 * @param {import("../main.js").Page} page
 */
export async function generation(page) {
  const id = page.id ?? "";
  const title = heading(t("generation.title"));
  const body = h("div", {});
  put(
    page.root,
    h("p", { class: "crumb" }, link("generations", {}, {}, t("nav.generations"))),
    title,
    body,
  );
  const load = () => read(`/api/v1/generations/${encodeURIComponent(id)}`, {}, page.signal);
  const open = () =>
    fillFrom(
      body,
      12,
      load,
      (found) => {
        put(/** @type {Element} */ (title.querySelector("h1")), found.topic || found.id);
        return show(found, page, open);
      },
      page.signal,
    );
  await open();
}

/**
 * @param {any} found
 * @param {import("../main.js").Page} page
 * @param {() => Promise<void>} reload
 */
function show(found, page, reload) {
  return [
    verdict(found, reload),
    h(
      "div",
      { class: "columns" },
      h(
        "div",
        {},
        h(
          "section",
          { "aria-labelledby": "output" },
          h("h2", { id: "output" }, t("generation.output")),
          output(found),
        ),
        h(
          "section",
          { "aria-labelledby": "deliveries" },
          h("h2", { id: "deliveries" }, t("generation.deliveries")),
          found.deliveries?.length
            ? deliveriesTable(
                found.deliveries.map((/** @type {any} */ one) => ({
                  generationId: found.id,
                  ...one,
                })),
                {
                  caption: t("generation.deliveries"),
                  signal: page.signal,
                  generationColumn: false,
                },
              )
            : empty(t("generation.noDeliveries"), t("generation.noDeliveriesLine")),
        ),
      ),
      h("div", { class: "side" }, cost(found), facts(found)),
    ),
  ];
}

/**
 * @param {any} found
 * @param {() => Promise<void>} reload
 */
function verdict(found, reload) {
  const why = faultText(found.detail ?? found.reason);
  const actions = generationActions(found);
  const classes = { publish: "primary", regenerate: "", abandon: "plain" };
  return h(
    "section",
    { class: "verdict", "aria-label": t("field.state") },
    h(
      "p",
      { class: "verdict-state" },
      badge(found.state),
      h("span", {}, meaning("generation", found.state)),
    ),
    why && h("p", { class: "why-line" }, why),
    actions.length > 0 &&
      h(
        "p",
        { class: "row-actions" },
        actions.map((action) =>
          h(
            "button",
            {
              type: "button",
              class: classes[action],
              "data-act": action,
              onclick: async () => {
                try {
                  const answer = await resolve(found, action);
                  if (answer) await reload();
                } catch (error) {
                  say(problemText(error));
                }
              },
            },
            t(`resolve.${action}.button`),
          ),
        ),
      ),
  );
}

/** @param {any} found */
function output(found) {
  const text = found.output?.text;
  if (typeof text !== "string" || !text)
    return empty(t("generation.noOutput"), t(`generation.noOutput.${found.state}`));
  const short = [...text.slice(0, PREVIEW * 2)].slice(0, PREVIEW).join("");
  const pre = h(
    "pre",
    { class: "output", tabindex: 0, role: "group", "aria-labelledby": "output" },
    short.length < text.length ? `${short}…` : text,
  );
  const copied = () =>
    navigator.clipboard.writeText(text).then(
      () => say(t("copied")),
      () => say(t("copyFailed")),
    );
  const whole =
    short.length < text.length &&
    h(
      "button",
      {
        type: "button",
        onclick: () => {
          pre.textContent = text;
          if (whole) whole.remove();
          pre.focus();
        },
      },
      t("generation.showAll", { n: text.length }),
    );
  return [
    pre,
    h(
      "p",
      { class: "row-actions" },
      h("button", { type: "button", onclick: copied }, t("copy")),
      whole,
      found.output.finishReason &&
        h("span", { class: "quiet" }, "finishReason ", h("code", {}, found.output.finishReason)),
    ),
  ];
}

/** @param {any} found */
function cost(found) {
  const usage = found.usage ?? {};
  /** @type {[string, number | undefined][]} */
  const rows = [
    [t("tokens.prompt"), usage.promptTokens],
    [t("tokens.cached"), usage.cachedTokens],
    [t("tokens.output"), usage.outputTokens],
    [t("tokens.thought"), usage.thoughtTokens],
    [t("tokens.total"), usage.totalTokens],
  ];
  const given = rows.filter(([, value]) => typeof value === "number");
  return h(
    "section",
    { class: "part" },
    h("h2", {}, t("generation.cost"), h("strong", {}, priceOf(found))),
    given.length
      ? h(
          "table",
          { class: "mini" },
          h("caption", { class: "unseen" }, t("generation.cost")),
          h(
            "tbody",
            {},
            given.map(([words, value]) =>
              h("tr", {}, h("th", { scope: "row" }, words), h("td", {}, count(value ?? 0))),
            ),
          ),
        )
      : h("p", { class: "quiet" }, t("generation.noUsage")),
  );
}

/** @param {any} found */
function facts(found) {
  const took =
    found.completedAt && found.createdAt
      ? latency(new Date(found.completedAt).getTime() - new Date(found.createdAt).getTime())
      : "";
  /** @type {[string, any, boolean?][]} */
  const rows = [
    [t("field.account"), found.account],
    [t("field.place"), `${found.site} / ${found.pipeline}`],
    [
      t("field.model"),
      found.modelVersion && found.modelVersion !== found.model
        ? `${found.model} (${found.modelVersion})`
        : found.model,
    ],
    [t("field.created"), found.createdAt && dateTime(found.createdAt, true)],
    [
      t("field.completed"),
      found.completedAt && `${dateTime(found.completedAt, true)}${took ? ` (${took})` : ""}`,
    ],
    [t("field.id"), found.id, true],
    [t("field.key"), found.key, true],
    [t("field.fingerprint"), found.fingerprint, true],
    [t("field.requestId"), found.requestId, true],
  ];
  return h(
    "section",
    { class: "part" },
    h("h2", {}, t("generation.facts")),
    h(
      "dl",
      { class: "facts" },
      rows
        .filter(([, value]) => value)
        .map(([words, value, code]) =>
          h("div", {}, h("dt", {}, words), h("dd", {}, code ? h("code", {}, value) : value)),
        ),
    ),
  );
}

/** Characters shown at first: an output may be 1.9 MB. */
const PREVIEW = 6_000;
