/** All generations, newest first, by state, place, key or request. */

import { read } from "../api.js";
import { h, put, wide } from "../dom.js";
import { t } from "../i18n.js";
import { empty, heading, link, priceOf, sample, shortId, when } from "../parts.js";
import { pages } from "../paging.js";
import { badge, mark, meaning, name } from "../states.js";
import { session } from "../session.js";

const FIELDS = /** @type {const} */ (["site", "pipeline", "key", "requestId"]);

/**
 * @param {import("../main.js").Page} page
 */
export function generations(page) {
  /** @type {Record<string, string>} */
  const filter = {};
  for (const field of ["state", ...FIELDS]) filter[field] = page.parameters.get(field) ?? "";
  const state = filter.state ?? "";
  const inputs = FIELDS.map((field) =>
    h("input", {
      id: `f-${field}`,
      type: "search",
      value: filter[field],
      autocomplete: "off",
      placeholder: t("filter.any"),
    }),
  );
  const place = h("section", { "aria-label": t("nav.generations"), tabindex: -1 });

  put(
    page.root,
    heading(t("nav.generations")),
    h(
      "nav",
      { class: "tabs", "aria-label": t("filter.state") },
      ["", "running", "generated", "held", "unknown", "failed", "superseded"].map((one) =>
        link(
          "generations",
          { ...filter, state: one },
          { "aria-current": one === state ? "true" : null },
          one && mark(one),
          one ? name(one) : t("filter.all"),
        ),
      ),
    ),
    h(
      "details",
      { class: "fold", open: wide() || FIELDS.some((field) => filter[field]) },
      h("summary", {}, t("filter.more")),
      h(
        "form",
        {
          class: "filters",
          role: "search",
          onsubmit: (/** @type {SubmitEvent} */ event) => {
            event.preventDefault();
            const wanted = Object.fromEntries(
              FIELDS.map((field, index) => [field, inputs[index]?.value.trim() ?? ""]),
            );
            page.go("generations", { state, ...wanted });
          },
        },
        FIELDS.map((field, index) => [
          h("label", { for: `f-${field}` }, t(`field.${field}`)),
          inputs[index],
        ]).flat(),
        h("button", { type: "submit" }, t("filter.apply")),
        FIELDS.some((field) => filter[field]) &&
          link("generations", { state }, { class: "clear" }, t("filter.clear")),
      ),
    ),
    state && h("p", { class: "meaning" }, meaning("generation", state)),
    place,
  );

  return pages(place, {
    signal: page.signal,
    load: (cursor) => read("/api/v1/generations", { ...filter, cursor }, page.signal),
    show: (items) => table(items),
    nothing: () =>
      Object.values(filter).some(Boolean)
        ? empty(t("generations.noneMatch"))
        : empty(t("generations.empty"), t("generations.emptyLine"), sample()),
  });
}

/** @param {any[]} items */
function table(items) {
  const all = session()?.kind === "admin" && !session()?.account;
  const heads = [
    t("field.state"),
    t("field.topic"),
    t("field.place"),
    t("field.model"),
    t("field.cost"),
    t("field.created"),
  ];
  return h(
    "table",
    { class: "rows generations", role: "table" },
    h("caption", { class: "unseen" }, t("nav.generations")),
    h(
      "thead",
      { role: "rowgroup" },
      h(
        "tr",
        { role: "row" },
        heads.map((words, index) =>
          h(
            "th",
            { role: "columnheader", scope: "col", class: index === 4 ? "number" : "" },
            words,
          ),
        ),
      ),
    ),
    h(
      "tbody",
      { role: "rowgroup" },
      items.map((item) =>
        h(
          "tr",
          { role: "row", "data-id": item.id },
          h(
            "td",
            { role: "cell", class: "c-state", title: meaning("generation", item.state) },
            badge(item.state),
          ),
          h(
            "td",
            { role: "cell", class: "c-main" },
            link(
              `generations/${item.id}`,
              {},
              { class: "strong", title: item.id },
              item.topic || shortId(item.id),
            ),
          ),
          h(
            "td",
            { role: "cell", class: "c-place" },
            all && item.account ? `${item.account}: ` : "",
            item.site,
            h("span", { class: "quiet" }, " / "),
            item.pipeline,
          ),
          h("td", { role: "cell", class: "c-model quiet" }, item.model ?? ""),
          h("td", { role: "cell", class: "c-cost number" }, priceOf(item)),
          h("td", { role: "cell", class: "c-when" }, when(item.createdAt)),
        ),
      ),
    ),
  );
}
