/** The outbox: every delivery, by status and publisher, with its attempts. */

import { read } from "../api.js";
import { deliveriesTable } from "../deliveries.js";
import { h, put } from "../dom.js";
import { t } from "../i18n.js";
import { empty, heading, link } from "../parts.js";
import { pages } from "../paging.js";
import { mark, meaning, name } from "../states.js";

/**
 * @param {import("../main.js").Page} page
 */
export function outbox(page) {
  const status = page.parameters.get("status") ?? "";
  const publisher = page.parameters.get("publisher") ?? "";
  const place = h("section", { "aria-label": t("nav.outbox"), tabindex: -1 });
  const field = h("input", {
    id: "publisher",
    type: "search",
    value: publisher,
    autocomplete: "off",
    placeholder: t("filter.any"),
  });

  put(
    page.root,
    heading(t("nav.outbox")),
    h(
      "nav",
      { class: "tabs", "aria-label": t("filter.status") },
      ["", "pending", "dead", "outcome_unknown", "published", "cancelled"].map((one) =>
        link(
          "outbox",
          { status: one, publisher },
          { "aria-current": one === status ? "true" : null },
          one && mark(one),
          one ? name(one) : t("filter.all"),
        ),
      ),
    ),
    h(
      "form",
      {
        class: "filters",
        role: "search",
        onsubmit: (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          page.go("outbox", { status, publisher: field.value.trim() });
        },
      },
      h("label", { for: "publisher" }, t("delivery.publisher")),
      field,
      h("button", { type: "submit" }, t("filter.apply")),
      publisher && link("outbox", { status }, { class: "clear" }, t("filter.clear")),
    ),
    status && h("p", { class: "meaning" }, meaning("delivery", status)),
    place,
  );

  return pages(place, {
    signal: page.signal,
    load: (cursor) => read("/api/v1/outbox", { status, publisher, cursor }, page.signal),
    show: (items) =>
      deliveriesTable(items, {
        caption: t("nav.outbox"),
        signal: page.signal,
        generationColumn: true,
      }),
    nothing: () =>
      status || publisher
        ? empty(t("outbox.noneMatch"), status === "dead" ? t("outbox.noneDead") : "")
        : empty(t("outbox.empty"), t("outbox.emptyLine")),
  });
}
