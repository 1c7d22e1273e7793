/** Drives Chromium, and collects what must never happen: policy violations, errors, dialogs. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

/** Opens a browser; `close` also removes its profile. */
export async function launch() {
  const profile = await mkdtemp(join(tmpdir(), "oncepress-chromium-"));
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      `--crash-dumps-dir=${profile}`,
    ],
  });
  return {
    browser,
    close: async () => {
      await browser.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}

/**
 * Opens a page whose faults are collected in `faults`.
 * @param {import("playwright-core").Browser} browser
 * @param {import("playwright-core").BrowserContextOptions} [options]
 */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({
    locale: "en-US",
    timezoneId: "Asia/Tokyo",
    reducedMotion: "reduce",
    viewport: { width: 1280, height: 860 },
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const faults = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted ?Type|Refused to/i.test(message.text()))
      faults.push(`policy: ${message.text()}`);
  });
  await page.addInitScript(() => {
    window.__violations = [];
    addEventListener("securitypolicyviolation", (event) =>
      window.__violations.push(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  return { context, page, faults };
}

/**
 * Signs in through the form, as a person does.
 * @param {import("playwright-core").Page} page
 * @param {string} base
 * @param {string} token
 */
export async function signIn(page, base, token, route = "") {
  await page.goto(`${base}/${route}`);
  await page.getByLabel(/API key|APIキー/).fill(token);
  await page.getByRole("button", { name: /^(Sign in|サインイン)$/ }).click();
  await page.locator("nav.main").waitFor();
}

/** Waits until nothing on the page is busy. */
export async function settled(page) {
  await page.waitForFunction(
    () =>
      !document.querySelector("main [aria-busy='true'], main[aria-busy='true']") &&
      document.querySelector("main h1"),
  );
}

/** How far the page can be scrolled sideways, in pixels. */
export function overflow(page) {
  return page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
}

/**
 * WCAG contrast ratios of every visible piece of text below a root, lowest first.
 * @param {import("playwright-core").Page} page
 * @returns {Promise<{ratio: number, text: string, large: boolean}[]>}
 */
export function contrasts(page) {
  return page.evaluate(() => {
    const channel = (value) =>
      value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const colour = (text) => {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = text;
      canvas.fillRect(0, 0, 1, 1);
      const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
      return { rgb: [red / 255, green / 255, blue / 255], alpha: alpha / 255 };
    };
    const luminance = ({ rgb }) =>
      0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
    const backing = (element) => {
      for (let at = element; at; at = at.parentElement) {
        const found = colour(getComputedStyle(at).backgroundColor);
        if (found.alpha > 0.99) return found;
      }
      return colour("white");
    };
    const results = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode.textContent.trim();
      const element = walker.currentNode.parentElement;
      if (
        !text ||
        !element.checkVisibility() ||
        element.closest(".unseen, :disabled, dialog:not([open])")
      )
        continue;
      const style = getComputedStyle(element);
      const paint = element instanceof SVGElement ? style.fill : style.color;
      const [light, dark] = [luminance(colour(paint)), luminance(backing(element))].sort(
        (a, b) => b - a,
      );
      const size = parseFloat(style.fontSize);
      results.push({
        ratio: (light + 0.05) / (dark + 0.05),
        text: text.slice(0, 40),
        large: size >= 24,
      });
    }
    return results.sort((a, b) => a.ratio - b.ratio);
  });
}
