/** What must hold on any page: nothing leaks, nothing is out of the keyboard's or a reader's reach. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Every address that a page asks for from now on. */
export function watch(page) {
  const addresses = [];
  page.on("request", (request) => addresses.push(request.url()));
  return addresses;
}

/** Where a credential is that must be nowhere, and which of its own rules the page broke. */
export async function leaks(page, credentials, addresses) {
  const kept = await page.evaluate(() => ({
    "the address": location.href,
    "the history": JSON.stringify(history.state ?? null),
    "localStorage": JSON.stringify({ ...localStorage }),
    "sessionStorage": JSON.stringify({ ...sessionStorage }),
    "a cookie": document.cookie,
    "policy": window.__violations.join(", "),
  }));
  const { policy, ...places } = kept;
  const found = policy ? [`policy: ${policy}`] : [];
  for (const credential of credentials) {
    for (const [place, text] of Object.entries(places)) {
      if (text.includes(credential)) found.push(`the credential is in ${place}`);
    }
    if (addresses.some((address) => address.includes(credential))) {
      found.push("the credential is in an address that was asked for");
    }
  }
  return found;
}

/** What axe-core finds against WCAG 2.2 A and AA, in a line each. */
export async function axeFaults(page) {
  // Through the debugger, which the page's own policy does not bind.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
  const { violations } = await page.evaluate(() =>
    window.axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    }),
  );
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" | ")}`);
}

/** Presses Tab until the focus, which must be visible, is on what the selector (and text) names. */
export async function tabTo(page, selector, text = "") {
  for (let step = 0; step < 200; step += 1) {
    const ring = await page.evaluate(
      ([wanted, words]) => {
        const at = document.activeElement;
        const there = at?.matches(wanted) && (!words || at.textContent.trim() === words);
        return there ? getComputedStyle(at).outlineStyle : undefined;
      },
      [selector, text],
    );
    if (ring !== undefined) {
      assert.notEqual(ring, "none", `${selector} shows no focus`);
      return;
    }
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab never reached ${selector} ${text}`);
}
