/** Sign-in: one field for an API key or the admin token. */

import { ApiError, probe } from "../api.js";
import { h, put } from "../dom.js";
import { t } from "../i18n.js";
import { logo, problemText } from "../parts.js";
import { kindOf, signIn } from "../session.js";

/**
 * The field has no name and the form no action: without this script nothing could be sent,
 * so the credential can't end in an address.
 * @param {{notice: string, entered: () => void}} options
 */
export function signInPage({ notice, entered }) {
  const field = h("input", {
    id: "token",
    type: "password",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    required: true,
    "aria-describedby": "token-note fault",
  });
  const remember = h("input", { id: "remember", type: "checkbox" });
  const fault = h("p", { id: "fault", class: "fault", role: "alert" }, notice);
  const button = h("button", { type: "submit", class: "primary" }, t("signin.button"));

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    const token = field.value.trim();
    if (!token) return field.focus();
    button.disabled = true;
    put(fault);
    try {
      const kind = kindOf(token);
      await probe(token, kind);
      signIn({ token, kind, account: "" }, remember.checked);
      entered();
    } catch (error) {
      const refused = error instanceof ApiError && [401, 403].includes(error.status);
      put(fault, refused ? t("signin.refused") : problemText(error));
      field.setAttribute("aria-invalid", "true");
      field.select();
    } finally {
      button.disabled = false;
    }
  }

  return h(
    "main",
    { class: "signin", id: "main" },
    h(
      "form",
      { method: "post", onsubmit: submit },
      h("p", { class: "brand" }, logo(), "Oncepress"),
      h("h1", { tabindex: -1 }, t("signin.title")),
      h("label", { class: "field", for: "token" }, t("signin.label")),
      field,
      h("p", { id: "token-note", class: "quiet" }, t("signin.note")),
      h("label", { class: "check", for: "remember" }, remember, t("signin.remember")),
      fault,
      button,
    ),
  );
}
