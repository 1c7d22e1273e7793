/** The dashboard's frame: sign-in, navigation, and one page at a time. */

import { read } from "./api.js";
import { h, put, svg } from "./dom.js";
import { t, table, useTable } from "./i18n.js";
import { address, link, logo, say } from "./parts.js";
import { chooseAccount, session, signOut } from "./session.js";
import { generation } from "./views/generation.js";
import { generations } from "./views/generations.js";
import { outbox } from "./views/outbox.js";
import { overview } from "./views/overview.js";
import { signInPage } from "./views/signin.js";
import { usage } from "./views/usage.js";

/**
 * What a page is given.
 * @typedef {object} Page
 * @property {HTMLElement} root
 * @property {URLSearchParams} parameters
 * @property {string} [id]
 * @property {AbortSignal} signal  aborted as soon as another page opens
 * @property {(route: string, parameters?: Record<string, string>) => void} go
 */

/** @type {Record<string, (page: Page) => void | Promise<void>>} */
const PAGES = { overview, outbox, generations, usage };

const app = /** @type {HTMLElement} */ (document.getElementById("app"));
let leaving = new AbortController();
/** Whether the navigation is on the page, or the sign-in. */
let framed = false;

/**
 * Opens the page that the address names, or the sign-in.
 * @param {{notice?: string, focus?: boolean}} [how]
 */
function open({ notice = "", focus = true } = {}) {
  leaving.abort();
  leaving = new AbortController();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  if (!session()) {
    framed = false;
    document.title = `${t("signin.title")} · Oncepress`;
    put(app, signInPage({ notice, entered: () => open() }));
    app.querySelector("input")?.focus();
    return;
  }
  if (!framed) frame();
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [route = "", id] = (path || "overview").split("/");
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  const page = {
    root: main,
    parameters: new URLSearchParams(query ?? ""),
    id: id && decodeURIComponent(id),
    signal: leaving.signal,
    go,
  };
  const known = route in PAGES ? route : "overview";
  for (const item of app.querySelectorAll("nav.main a")) {
    if (item.getAttribute("href") === address(known)) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  document.title = `${t(`nav.${known}`)} · Oncepress`;
  scrollTo(0, 0);
  const show = known === "generations" && page.id ? generation : PAGES[known];
  show?.(page);
  if (focus) main.querySelector("h1")?.focus({ preventScroll: true });
}

/** @param {string} route @param {Record<string, string>} [parameters] */
function go(route, parameters) {
  const next = address(route, parameters);
  if (location.hash === next) open();
  else location.hash = next;
}

/** Builds what surrounds every page. */
function frame() {
  framed = true;
  const main = h("main", { id: "main" });
  put(
    app,
    h(
      "button",
      { type: "button", class: "skip", onclick: () => main.querySelector("h1")?.focus() },
      t("skip"),
    ),
    h(
      "div",
      { class: "frame" },
      h(
        "header",
        { class: "rail" },
        link("overview", {}, { class: "brand" }, logo(), "Oncepress"),
        h(
          "nav",
          { class: "main", "aria-label": t("nav.label") },
          h(
            "ul",
            {},
            Object.keys(PAGES).map((route) => h("li", {}, link(route, {}, {}, t(`nav.${route}`)))),
          ),
        ),
        h(
          "div",
          { class: "tools" },
          whoIs(),
          themeButton(),
          languageButton(),
          h(
            "button",
            {
              type: "button",
              class: "plain",
              onclick: () => {
                signOut();
                open();
              },
            },
            t("signout"),
          ),
        ),
      ),
      h(
        "div",
        { class: "body" },
        h("p", { class: "offline", role: "status", hidden: navigator.onLine }, t("offline")),
        main,
      ),
    ),
  );
}

/** The account: chosen by an admin, fixed for a key. */
function whoIs() {
  const who = session();
  const place = h("div", { class: "who" });
  if (who?.kind !== "admin") {
    read("/api/v1/account").then(
      (account) => put(place, account?.account ?? ""),
      () => {},
    );
    return place;
  }
  const picker = h(
    "select",
    {
      id: "account",
      "aria-label": t("account.label"),
      onchange: () => {
        chooseAccount(picker.value);
        open({ focus: false });
      },
    },
    h("option", { value: "" }, t("account.all")),
  );
  read("/admin/accounts").then(
    (answer) => {
      for (const one of answer?.items ?? answer?.accounts ?? []) {
        const name = typeof one === "string" ? one : (one.account ?? one.name);
        picker.append(h("option", { value: name, selected: name === who.account }, name));
      }
    },
    () => {},
  );
  put(place, picker);
  return place;
}

/** Light, dark, or as the system says; for this page only. */
function themeButton() {
  const root = document.documentElement;
  return h(
    "button",
    {
      type: "button",
      class: "plain icon",
      "aria-label": t("theme"),
      title: t("theme"),
      onclick: () => {
        const dark = root.dataset.theme
          ? root.dataset.theme === "dark"
          : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "light" : "dark";
        say(t(dark ? "theme.light" : "theme.dark"));
      },
    },
    svg(
      "svg",
      { viewBox: "0 0 16 16", "aria-hidden": "true" },
      svg("circle", {
        cx: 8,
        cy: 8,
        r: 6,
        fill: "none",
        stroke: "currentColor",
        "stroke-width": 1.5,
      }),
      svg("path", { d: "M8 2a6 6 0 0 1 0 12Z", fill: "currentColor" }),
    ),
  );
}

function languageButton() {
  const other = table() === "ja" ? "en" : "ja";
  return h(
    "button",
    {
      type: "button",
      class: "plain",
      lang: other,
      onclick: () => {
        useTable(other);
        framed = false;
        open({ focus: false });
        /** @type {HTMLElement | null} */ (app.querySelector("button[lang]"))?.focus();
      },
    },
    other === "ja" ? "日本語" : "English",
  );
}

// A page that is left aborts what it was reading; that is no fault.
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
});
// A key that is refused while working ends the session, with the reason.
addEventListener("oncepress:refused", () => {
  if (!session()) return;
  signOut();
  open({ notice: t("signin.ended") });
});
// The sign-in stays as it is, with its notice and what was typed; it opens what the address names.
addEventListener("hashchange", () => {
  if (session()) open();
});
addEventListener("online", () => {
  showOffline(false);
  if (session()) open({ focus: false });
});
addEventListener("offline", () => showOffline(true));

/** @param {boolean} yes */
function showOffline(yes) {
  const banner = /** @type {HTMLElement | null} */ (app.querySelector(".offline"));
  if (banner) banner.hidden = !yes;
}

useTable(table());
open();
