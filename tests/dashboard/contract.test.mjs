/**
 * What must hold in a browser against any service that keeps the contract. By default that is the
 * mock; with ONCEPRESS_URL and ONCEPRESS_KEY it is a real Worker, which needs one dead delivery
 * whose destination works again (ONCEPRESS_DRAIN_SECONDS: how long its drain may take, default 90)
 * and one generation in the state `generated`.
 */

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, it } from "node:test";
import { contrasts, launch, openPage, overflow, settled, signIn } from "./browser.mjs";
import { API_KEY, startMock } from "./mock.mjs";

const real = process.env.ONCEPRESS_URL;
const drainMs = Number(process.env.ONCEPRESS_DRAIN_SECONDS ?? 90) * 1000;
const ROUTES = ["overview", "outbox", "generations", "usage"];
let mock, base, key, chrome, page, context, faults;

before(async () => {
  mock = real ? null : await startMock();
  base = (real ?? mock.url).replace(/\/$/, "");
  key = process.env.ONCEPRESS_KEY ?? API_KEY;
  chrome = await launch();
});
after(async () => {
  await chrome?.close();
  await mock?.close();
});
beforeEach(async () => {
  await context?.close();
  ({ page, context, faults } = await openPage(chrome.browser));
});

/** Fails if the page broke its own policy or threw. */
async function clean() {
  assert.deepEqual(faults, []);
  assert.deepEqual(await page.evaluate(() => window.__violations), []);
}

describe("signing in", () => {
  it("refuses a key that the service does not know, and says so", async () => {
    await page.goto(base);
    await page.getByLabel("API key or admin token").fill(`opk_${"0".repeat(48)}`);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("not known here").waitFor();
    assert.equal(
      await page.getByLabel("API key or admin token").getAttribute("aria-invalid"),
      "true",
    );
  });

  it("keeps the key out of the address, the storage and the next tab", async () => {
    await signIn(page, base, key);
    await settled(page);
    assert.ok(!page.url().includes(key));
    const kept = await page.evaluate(() =>
      JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
    );
    assert.ok(!kept.includes(key), kept);
    await page.reload();
    await page.getByLabel("API key or admin token").waitFor();
    await clean();
  });

  it("survives a reload of the tab only when asked to", async () => {
    await page.goto(base);
    await page.getByLabel("API key or admin token").fill(key);
    await page.getByLabel("Stay signed in").check();
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator("nav.main").waitFor();
    await page.reload();
    await page.locator("nav.main").waitFor();
    const other = await context.newPage();
    await other.goto(base);
    await other.getByLabel("API key or admin token").waitFor();
    assert.equal(await page.evaluate(() => localStorage.length), 0);
  });
});

describe("every page", () => {
  it("opens without a policy violation and puts the focus on its heading", async () => {
    await signIn(page, base, key);
    for (const route of ROUTES) {
      await page.goto(`${base}/#/${route}`);
      await settled(page);
      assert.equal(await page.evaluate(() => document.activeElement?.tagName), "H1", route);
      assert.equal(await page.locator(".note-fault").count(), 0, `${route} shows a failure`);
    }
    await clean();
  });

  it("is served with a strict policy", async () => {
    const headers = (await page.goto(base)).headers();
    const policy = headers["content-security-policy"] ?? "";
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
    ]) {
      assert.ok(policy.includes(part), `${part} is missing from: ${policy}`);
    }
    assert.ok(!/unsafe|https:|\*/.test(policy), policy);
    assert.equal(headers["x-content-type-options"], "nosniff");
    assert.equal(headers["referrer-policy"], "no-referrer");
  });

  it("does not scroll sideways at 390 pixels", async () => {
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(base);
    assert.equal(await overflow(page), 0, "sign-in");
    await signIn(page, base, key);
    for (const route of ROUTES) {
      await page.goto(`${base}/#/${route}`);
      await settled(page);
      assert.equal(await overflow(page), 0, route);
    }
  });

  for (const colorScheme of ["light", "dark"]) {
    it(`has readable text in ${colorScheme} mode`, async () => {
      await context.close();
      ({ page, context, faults } = await openPage(chrome.browser, { colorScheme }));
      await signIn(page, base, key);
      for (const route of ROUTES) {
        await page.goto(`${base}/#/${route}`);
        await settled(page);
        const weak = (await contrasts(page)).filter(
          ({ ratio, large }) => ratio < (large ? 3 : 4.5),
        );
        assert.deepEqual(weak, [], route);
      }
    });
  }

  it("switches between light and dark for this page only", async () => {
    await signIn(page, base, key);
    const paper = () =>
      page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await paper();
    await page.getByRole("button", { name: "Switch between light and dark" }).click();
    assert.notEqual(await paper(), light);
    await page.reload();
    assert.equal(await paper(), light);
  });
});

describe("the outbox", () => {
  it("requeues a dead delivery with the keyboard alone and shows it published", async () => {
    await page.goto(`${base}/#/overview`);
    await page.keyboard.insertText(key);
    await page.keyboard.press("Enter");
    await page.locator("nav.main").waitFor();
    await settled(page);
    await tabTo("a", "Outbox");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Outbox", level: 1 }).waitFor();
    await settled(page);
    await tabTo("a", "dead");
    await page.keyboard.press("Enter");
    await page.waitForURL(/status=dead/);
    await settled(page);
    const id = await page.locator("tbody[data-id]").first().getAttribute("data-id");
    await tabTo(`tbody[data-id="${id}"] [data-act="requeue"]`);
    await page.keyboard.press("Enter");
    const row = page.locator(`tbody[data-id="${id}"]`);
    await row.locator('[data-state="pending"], [data-state="published"]').waitFor();
    await row.locator('[data-state="published"]').waitFor({ timeout: drainMs });
    assert.ok(
      await page.evaluate(
        (one) => document.querySelector(`[data-id="${one}"]`)?.contains(document.activeElement),
        id,
      ),
      "the focus stays in the row",
    );
    await page.getByRole("status").filter({ hasText: "published" }).waitFor();
    await clean();
  });

  it("unfolds the attempts of a row", async () => {
    await signIn(page, base, key, "#/outbox");
    await settled(page);
    const button = page.locator('[data-act="attempts"]').first();
    await button.click();
    assert.equal(
      await page.locator('[data-act="attempts"]').first().getAttribute("aria-expanded"),
      "true",
    );
    assert.ok((await page.locator(".attempts li").count()) > 0);
  });
});

describe("a generation", () => {
  it("shows its state in words, its output as text and its deliveries", async () => {
    await signIn(page, base, key, "#/generations?state=generated");
    await settled(page);
    await page.locator("table.generations a").first().click();
    await page.locator(".verdict").waitFor();
    await page.getByText("A repeat of the request gets this output and costs nothing.").waitFor();
    await page.locator("pre.output").waitFor();
    assert.equal(await page.locator("pre.output *").count(), 0, "the output holds no element");
    await clean();
  });

  it("says when there is none by that id", async () => {
    await signIn(page, base, key, `#/generations/gen_${"0".repeat(32)}`);
    await page.getByText("There is nothing here by that id.").waitFor();
  });
});

/** Presses Tab until the focus is on what the selector (and its text) names. */
async function tabTo(selector, text = "") {
  for (let step = 0; step < 400; step += 1) {
    const found = await page.evaluate(
      ([wanted, words]) => {
        const at = document.activeElement;
        return Boolean(at?.matches(wanted) && (!words || at.textContent.trim() === words));
      },
      [selector, text],
    );
    if (found) {
      const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
      assert.notEqual(ring, "none", `${selector} shows no focus`);
      return;
    }
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab never reached ${selector} ${text}`);
}
