/** What needs a service whose figures and faults the test itself decides. */

import assert from "node:assert/strict";
import { after, afterEach, before, it } from "node:test";
import { contrasts, launch, openPage, overflow, settled, signIn } from "./browser.mjs";
import { HOSTILE } from "./fixtures.mjs";
import { ADMIN_TOKEN, API_KEY, startMock } from "./mock.mjs";

let chrome, mock, page, context, faults;

before(async () => {
  chrome = await launch();
});
after(async () => {
  await chrome?.close();
});
afterEach(async () => {
  const violations = await page?.evaluate(() => window.__violations).catch(() => []);
  await context?.close();
  await mock?.close();
  assert.deepEqual([...(faults ?? []), ...(violations ?? [])], []);
});

/** Opens a page of the dashboard on a double of its own. */
async function open({ route = "", token = API_KEY, scenario, browser = {}, ...options } = {}) {
  mock = await startMock({ scenario, ...options });
  ({ page, context, faults } = await openPage(chrome.browser, browser));
  await signIn(page, mock.url, token, route);
  await settled(page);
}

const figure = (label) =>
  page.locator(".figure", { hasText: label }).locator("strong").textContent();
const row = (id) => page.locator(`tbody[data-id="${id}"]`);
const find = (state, field) =>
  mock.state[field].find((item) => (item.state ?? item.status) === state);
const dollars = (microUsd, digits = 2) => `$${(microUsd / 1e6).toFixed(digits)}`;

it("shows the figures that the service gives", async () => {
  await open();
  const spent = mock.state.usage.reduce((sum, entry) => sum + entry.costMicroUsd, 0);
  const saved = mock.state.usage.reduce((sum, entry) => sum + entry.savedMicroUsd, 0);
  assert.equal(await figure("Owed"), "3");
  assert.equal(await figure("Dead"), "7");
  assert.equal(await figure("Waiting for you"), "4");
  assert.equal(await figure("Spent"), dollars(spent));
  assert.equal(await figure("Not bought twice"), dollars(saved));
  assert.match(
    await page.locator("h1").textContent(),
    /^11 rows are stuck, with \$\d+\.\d\d in them\.$/,
  );
  assert.match(await page.locator(".stuck").textContent(), /5 dead.*rest_cannot_create/s);
  assert.match(await page.locator(".side").textContent(), /0\.042%/);
});

it("says every figure of a chart in words too", async () => {
  await open();
  const first = mock.state.usage[0].day;
  const spent = mock.state.usage
    .filter((entry) => entry.day === first)
    .reduce((sum, entry) => sum + entry.costMicroUsd, 0);
  // A part of the page that comes late draws the chart anew, at its last day.
  let reading = "";
  for (let tries = 0; tries < 100 && !reading.includes(dollars(spent)); tries += 1) {
    await page.locator(".plot").focus();
    await page.keyboard.press("Home");
    await page.waitForTimeout(100);
    reading = await page.locator(".reading").textContent();
  }
  assert.ok(reading.includes(dollars(spent)), reading);
  await page.getByText("The same figures as a table").click();
  assert.equal(await page.locator(".figures-table tbody tr").count(), 30);
});

it("requeues a whole group from the overview", async () => {
  await open();
  await page.getByRole("button", { name: "Requeue 5" }).click();
  const dialog = page.getByRole("dialog");
  assert.match(await dialog.textContent(), /Cost at Gemini\$0\.00/);
  await dialog.getByRole("button", { name: "Requeue 5" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.waitForFunction(
    () => document.querySelector(".figure.key-dead strong")?.textContent === "2",
  );
  assert.equal(mock.state.seen.filter((call) => call.method === "POST").length, 5);
});

it("cancels a delivery once the person has agreed, and not before", async () => {
  await open({ route: "#/outbox?status=pending" });
  const { id } = find("pending", "deliveries");
  await row(id)
    .getByRole("button", { name: /^Cancel/ })
    .click();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(find("pending", "deliveries").id, id);
  assert.equal(
    await page.evaluate(() => document.activeElement.dataset.act),
    "cancel",
    "the focus returns to the button",
  );
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Cancel delivery" }).click();
  await row(id).locator('[data-state="cancelled"]').waitFor();
  assert.equal(mock.state.deliveries.find((item) => item.id === id).status, "cancelled");
});

it("warns that a second copy is possible before it requeues what may have arrived", async () => {
  await open({ route: "#/outbox?status=outcome_unknown" });
  await page.getByRole("button", { name: /^Requeue/ }).click();
  assert.match(await page.getByRole("dialog").textContent(), /it will have it twice/);
  await page.getByRole("dialog").getByRole("button", { name: "Requeue" }).click();
  await page.locator('[data-state="published"]').waitFor();
});

it("shows what went wrong when a row has changed meanwhile", async () => {
  await open({ route: "#/outbox?status=dead" });
  const found = find("dead", "deliveries");
  found.status = "published";
  await row(found.id)
    .getByRole("button", { name: /^Requeue/ })
    .click();
  await page.getByRole("status").filter({ hasText: "Its state has changed" }).waitFor();
});

it("says what buying again costs, from the stored usage, and asks for a reason", async () => {
  await open({ route: "#/generations?state=held" });
  await page.getByRole("link", { name: "Twelve shrines along the old salt road" }).click();
  await page.locator('[data-act="regenerate"]').click();
  const held = mock.state.generations.find(
    (item) => item.topic === "Twelve shrines along the old salt road",
  );
  const dialog = page.getByRole("dialog");
  const words = await dialog.textContent();
  assert.ok(words.includes(`about ${dollars(held.cost.microUsd, 4)}`), words);
  assert.ok(words.includes(held.usage.promptTokens.toLocaleString("en-US")), words);
  const confirm = dialog.getByRole("button", {
    name: `Buy again for about ${dollars(held.cost.microUsd, 4)}`,
  });
  await confirm.click();
  assert.equal(mock.state.audit.length, 0, "no reason, no purchase");
  await dialog.getByLabel("Reason").fill("The limit was too low");
  await confirm.click();
  await page.locator('.verdict [data-state="running"]').waitFor();
  assert.deepEqual(mock.state.audit, [
    { id: held.id, action: "regenerate", reason: "The limit was too low" },
  ]);
});

it("says the pipeline's average price where no usage is stored", async () => {
  await open({ route: "#/generations?state=unknown" });
  await page.getByRole("link", { name: "Winter roads over the pass" }).click();
  await page.locator('[data-act="regenerate"]').click();
  const words = await page.getByRole("dialog").textContent();
  assert.match(words, /about \$0\.2310/);
  assert.match(words, /average of \d+ generations/);
  assert.match(words, /pays a second time/);
});

it("publishes a held output at no further cost", async () => {
  await open({ route: "#/generations?state=held" });
  await page.getByRole("link", { name: "Tide tables, week 49" }).click();
  await page.locator('[data-act="publish"]').click();
  const dialog = page.getByRole("dialog");
  assert.match(await dialog.textContent(), /Cost at Gemini\$0\.00\$0\.0884 was already paid/);
  await dialog.getByLabel("Reason").fill("Good enough");
  await dialog.getByRole("button", { name: "Publish" }).click();
  await page.locator('.verdict [data-state="generated"]').waitFor();
});

it("shows hostile text as text everywhere", async () => {
  await open({ route: "#/generations" });
  await page.getByRole("link", { name: HOSTILE }).click();
  await page.locator("pre.output").waitFor();
  assert.equal(await page.locator("h1").textContent(), HOSTILE);
  assert.ok((await page.locator("pre.output").textContent()).startsWith(HOSTILE));
  assert.equal(await page.locator(".target").textContent(), HOSTILE);
  await page.locator('[data-act="attempts"]').click();
  assert.equal(await page.locator(".excerpt").textContent(), HOSTILE);
  assert.equal(await page.locator('a[href^="javascript"], main img, main script').count(), 0);
  assert.equal(await page.evaluate(() => window.__pwned), undefined);
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await overflow(page), 0);
});

it("walks through 10,000 rows with no more than a page of them in the document", async () => {
  await open({ route: "#/outbox", scenario: "large" });
  assert.equal(mock.state.deliveries.length, 10_000);
  for (let at = 50; at < 10_000; at += 50) {
    await page.getByRole("button", { name: "Older" }).click();
    await page
      .getByText(
        `Rows ${(at + 1).toLocaleString("en-US")} to ${(at + 50).toLocaleString("en-US")}.`,
      )
      .waitFor();
    assert.equal(await page.locator("tbody[data-id]").count(), 50);
  }
  await page.getByText("These are the last.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Older" }).isDisabled(), true);
  await page.getByRole("button", { name: "Newer" }).click();
  await page.getByText("Rows 9,901 to 9,950.").waitFor();
});

it("previews a 1.9 MB output and shows all of it when asked", async () => {
  await open();
  const found = mock.state.generations.find((item) => item.state === "generated");
  found.output.text = "語".repeat(640_000);
  await page.goto(`${mock.url}/#/generations/${found.id}`);
  await page.locator("pre.output").waitFor();
  assert.ok((await page.locator("pre.output").textContent()).length < 10_000);
  await page.getByRole("button", { name: "Show all 640,000 characters" }).click();
  assert.equal((await page.locator("pre.output").textContent()).length, 640_000);
});

it("says what failed and loads again when asked", async () => {
  await open({ scenario: "failing" });
  const alert = page.getByRole("alert").filter({ hasText: "could not be loaded" });
  assert.match(await alert.textContent(), /database does not answer.*5 seconds.*req_/s);
  mock.state.scenario = "ordinary";
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator(".figures").waitFor();
});

it("shows that it is loading", async () => {
  await open();
  mock.state.scenario = "slow";
  await page.goto(`${mock.url}/#/outbox`);
  await page.locator(".loading[aria-busy='true']").waitFor();
  assert.equal(await page.locator(".loading .unseen").textContent(), "Loading…");
});

it("keeps the figures on the page when the connection is lost, and says so", async () => {
  await open();
  const before = await figure("Spent");
  await context.setOffline(true);
  await page.locator(".offline").waitFor();
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByText("Offline: figures from earlier").waitFor();
  assert.equal(await figure("Spent"), before);
  await context.setOffline(false);
  await page.locator(".offline").waitFor({ state: "hidden" });
  await page.getByText(/^As of/).waitFor();
});

it("says what to do where there is nothing yet", async () => {
  await open({ scenario: "empty" });
  assert.equal(await page.locator("h1").textContent(), "Nothing is stuck, nothing is owed.");
  await page.locator("pre.sample").waitFor();
  await page.goto(`${mock.url}/#/outbox`);
  await page.getByText("The outbox is empty.").waitFor();
  await page.goto(`${mock.url}/#/generations`);
  await page.getByText("Nothing has been generated yet.").waitFor();
});

it("ends the session when the key is revoked", async () => {
  await open();
  mock.state.revoked = true;
  await page.goto(`${mock.url}/#/outbox`);
  await page.getByText("no longer accepted").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});

it("keeps the reason and what was typed when the address changes before the sign-in", async () => {
  await open();
  mock.state.revoked = true;
  await page.getByRole("button", { name: "Refresh" }).click();
  const reason = page.getByText("no longer accepted");
  await reason.waitFor();
  await page.getByLabel("API key or admin token").fill(API_KEY);
  await page.goto(`${mock.url}/#/outbox`);
  // Whatever the change of address starts has run by the second frame.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));
  assert.ok(await reason.isVisible());
  assert.equal(await page.getByLabel("API key or admin token").inputValue(), API_KEY);
  mock.state.revoked = false;
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Outbox" }).waitFor();
});

it("lets an admin look at one account or all, and shows faults of the configuration", async () => {
  mock = await startMock();
  mock.state.health.faults = [{ name: "PRICES", problem: "is not JSON" }];
  ({ page, context, faults } = await openPage(chrome.browser));
  await signIn(page, mock.url, ADMIN_TOKEN);
  await settled(page);
  assert.match(await page.getByRole("alert").first().textContent(), /PRICES is not JSON/);
  await page.getByLabel("Account").selectOption("acme");
  await settled(page);
  assert.ok(
    mock.state.seen.some(
      (call) => call.url.includes("/api/v1/usage") && call.url.includes("account=acme"),
    ),
  );
});

it("never puts the credential in an address that it asks for", async () => {
  await open();
  for (const route of ["outbox", "generations", "usage"]) {
    await page.goto(`${mock.url}/#/${route}`);
    await settled(page);
  }
  assert.ok(mock.state.seen.every((call) => !call.url.includes(API_KEY)));
  assert.ok(
    mock.state.seen
      .filter((call) => call.url.startsWith("/api/"))
      .every((call) => call.authorization === `Bearer ${API_KEY}`),
  );
});

it("speaks Japanese to a Japanese browser, in yen where a rate is configured", async () => {
  await open({ browser: { locale: "ja-JP" }, currency: { code: "JPY", perUsd: 150 } });
  assert.equal(await page.evaluate(() => document.documentElement.lang), "ja");
  assert.match(await page.locator("h1").textContent(), /^11 件が止まっています（.\d+ 相当）。$/);
  assert.equal(await page.locator("nav.main").textContent(), "概要配信生成支出");
  await page.getByRole("button", { name: "English" }).click();
  await page.getByRole("link", { name: "Outbox" }).waitFor();
});

it("names every control and labels every field", async () => {
  await open();
  for (const route of ["overview", "outbox", "generations", "usage"]) {
    await page.goto(`${mock.url}/#/${route}`);
    await settled(page);
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll("button, a, input, select, textarea")]
        .filter(
          (one) =>
            !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length),
        )
        .map((one) => one.outerHTML),
    );
    assert.deepEqual(nameless, [], route);
    assert.equal(await page.locator("h1").count(), 1);
    const twice = await page.evaluate(() => {
      const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
      return ids.filter((id, at) => ids.indexOf(id) !== at);
    });
    assert.deepEqual(twice, [], route);
  }
});

for (const colorScheme of ["light", "dark"]) {
  it(`keeps a decision and its dialog readable in ${colorScheme} mode`, async () => {
    await open({ browser: { colorScheme } });
    await page.goto(`${mock.url}/#/generations/${find("held", "generations").id}`);
    await page.locator('[data-act="abandon"]').click();
    await page.getByRole("dialog").waitFor();
    const weak = (await contrasts(page)).filter(({ ratio, large }) => ratio < (large ? 3 : 4.5));
    assert.deepEqual(weak, []);
  });
}
