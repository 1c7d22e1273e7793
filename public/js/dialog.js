/** The one confirmation dialog: says what an act does and costs before it is done. */

import { h, put } from "./dom.js";
import { t } from "./i18n.js";
import { problemText } from "./parts.js";

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {string[]} lines  what happens, a paragraph each
 * @property {{label: string, value: string, note?: string}} [price]  what it costs, set apart
 * @property {string} confirm  the button's words: the act itself, never "OK"
 * @property {boolean} [danger]
 * @property {boolean} [reason]  ask for a reason, kept with the act
 * @property {(reason: string) => Promise<void>} act  a rejection keeps the dialog open and is shown
 */

/**
 * Asks, and acts on consent. Resolves to whether the act was done.
 * @param {Question} question
 * @returns {Promise<boolean>}
 */
export function ask(question) {
  return new Promise((resolve) => {
    const fault = h("div", { role: "alert" });
    const reason = h("textarea", { id: "reason", rows: 2, maxlength: 500, required: true });
    const confirm = h(
      "button",
      { type: "submit", class: question.danger ? "primary danger" : "primary" },
      question.confirm,
    );
    const back = h("button", { type: "button", onclick: () => dialog.close() }, t("dialog.back"));
    let done = false;

    /** @param {SubmitEvent} event */
    async function submit(event) {
      event.preventDefault();
      if (question.reason && !reason.value.trim()) return reason.focus();
      confirm.disabled = true;
      confirm.setAttribute("aria-busy", "true");
      put(fault);
      try {
        await question.act(reason.value.trim());
        done = true;
        dialog.close();
      } catch (error) {
        put(fault, h("p", { class: "fault" }, problemText(error)));
        confirm.disabled = false;
        confirm.removeAttribute("aria-busy");
      }
    }

    const dialog = h(
      "dialog",
      {
        "aria-labelledby": "dialog-title",
        onclose: () => {
          dialog.remove();
          resolve(done);
        },
      },
      h(
        "form",
        { method: "dialog", onsubmit: submit },
        h("h2", { id: "dialog-title" }, question.title),
        question.lines.map((line) => h("p", {}, line)),
        question.price && price(question.price),
        question.reason &&
          h(
            "label",
            { class: "field", for: "reason" },
            t("dialog.reason"),
            h("small", {}, t("dialog.reasonNote")),
          ),
        question.reason && reason,
        fault,
        h("div", { class: "actions" }, back, confirm),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
    (question.reason ? reason : back).focus();
  });
}

/** @param {{label: string, value: string, note?: string}} said */
function price(said) {
  return h(
    "p",
    { class: "price" },
    h("span", {}, said.label),
    h("strong", {}, said.value),
    said.note && h("small", {}, said.note),
  );
}
