/**
 * A list in pages by cursor: a page is all the document ever holds, so ten thousand rows cost as
 * much as fifty.
 */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { failure, loading } from "./parts.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * @param {HTMLElement} place  takes the focus when the page is turned
 * @param {object} options
 * @param {(cursor: string) => Promise<{items: any[], nextCursor: string | null}>} options.load
 * @param {(items: any[]) => Child} options.show
 * @param {() => Child} options.nothing
 * @param {AbortSignal} options.signal
 */
export function pages(place, options) {
  /** Where each page seen so far began, and how many rows came before it. */
  const starts = [{ cursor: "", before: 0 }];

  /**
   * @param {number} index
   * @param {boolean} moved
   */
  async function open(index, moved) {
    const start = starts[index];
    if (!start) return;
    if (moved) place.setAttribute("aria-busy", "true");
    else put(place, loading(8));
    try {
      const page = await options.load(start.cursor);
      if (options.signal.aborted) return;
      const items = page?.items ?? [];
      if (page?.nextCursor) {
        starts[index + 1] = { cursor: page.nextCursor, before: start.before + items.length };
      } else {
        starts.length = index + 1;
      }
      put(
        place,
        items.length ? [options.show(items), footer(index, items.length)] : options.nothing(),
      );
      if (moved) {
        place.focus({ preventScroll: true });
        place.scrollIntoView({ block: "start" });
      }
    } catch (error) {
      if (!options.signal.aborted)
        put(
          place,
          failure(error, () => open(index, false)),
        );
    } finally {
      place.removeAttribute("aria-busy");
    }
  }

  /**
   * @param {number} index
   * @param {number} length
   */
  function footer(index, length) {
    const before = starts[index]?.before ?? 0;
    const more = index + 1 < starts.length;
    const rows = t("pages.rows", { from: before + 1, to: before + length });
    return h(
      "nav",
      { class: "pages", "aria-label": t("pages.label") },
      h(
        "span",
        {},
        more ? `${rows} ${t("pages.more")}` : index ? `${rows} ${t("pages.last")}` : rows,
      ),
      (index > 0 || more) && [
        h(
          "button",
          { type: "button", disabled: index === 0, onclick: () => open(index - 1, true) },
          t("pages.newer"),
        ),
        h(
          "button",
          { type: "button", disabled: !more, onclick: () => open(index + 1, true) },
          t("pages.older"),
        ),
      ],
    );
  }

  return open(0, false);
}
