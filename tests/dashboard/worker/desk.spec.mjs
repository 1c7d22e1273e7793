/**
 * The dashboard in a real browser on the real Worker: what a person sees of a morning's troubles,
 * and what each click does to the rows and at the destinations.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { contrasts, launch, openPage, overflow, settled, signIn } from "../browser.mjs";
import { HOSTILE } from "../fixtures.mjs";
import { ADMIN_TOKEN, Worker } from "../../e2e/lib/worker.mjs";
import { waitFor } from "../../e2e/lib/wait.mjs";
import { axeFaults, leaks, tabTo, watch } from "./checks.mjs";
import { openDesk } from "./desk.mjs";
import { LOOKS, picture } from "./pictures.mjs";

let desk, chrome, page, context, faults, asked;

before(async () => {
  [desk, chrome] = await Promise.all([openDesk("desk"), launch()]);
});
after(async () => {
  await chrome?.close();
  await desk?.close();
});
// Whatever a test was about: no policy was violated, nothing threw, and no address that was asked
// for, nor anything that is kept, holds the key.
afterEach(async () => {
  if (!page) return;
  const found = await leaks(page, [desk.client.key, ADMIN_TOKEN], asked);
  await context.close();
  page = undefined;
  assert.deepEqual([...faults, ...found], []);
});

async function open(route = "", { token = desk.client.key, ...options } = {}) {
  ({ page, context, faults } = await openPage(chrome.browser, options));
  asked = watch(page);
  await signIn(page, desk.worker.url, token, route);
  await settled(page);
}

async function goTo(route) {
  await page.goto(`${desk.worker.url}/#/${route}`);
  await settled(page);
}

const figure = (label) =>
  page.locator(".figure", { hasText: label }).locator("strong").textContent();
const row = (id) => page.locator(`tbody[data-id="${id}"]`);
const dollars = (microUsd, digits = 2) => `$${(microUsd / 1e6).toFixed(digits)}`;
const dialog = () => page.getByRole("dialog");

test("an account that has nothing yet is told how to begin", async () => {
  await open();
  assert.equal(await page.locator("h1").textContent(), "Nothing is stuck, nothing is owed.");
  await page.locator("pre.sample").waitFor();
  await picture(page, "empty-light");
  for (const [route, words] of [
    ["outbox", "The outbox is empty."],
    ["generations", "Nothing has been generated yet."],
    ["usage", "Nothing was bought or replayed in this time."],
  ]) {
    await goTo(route);
    await page.getByText(words).waitFor();
  }
});

test("the overview shows what is owed, stuck, published, spent and saved, as the rows have it", async () => {
  await desk.liveAMonth();
  await desk.liveAMorning();
  const { totals, atRisk } = await desk.usage();
  const { pending, dead, outcomeUnknown, held, unknown } = atRisk;
  assert.deepEqual(
    [pending, dead, outcomeUnknown, held, unknown].map(({ count }) => count),
    [2, 3, 1, 2, 1],
    JSON.stringify(atRisk),
  );
  await open();
  assert.equal(await figure("Owed"), "2");
  assert.equal(await figure("Dead"), "3");
  assert.equal(await figure("Waiting for you"), "4");
  assert.equal(await figure("Spent"), dollars(totals.costMicroUsd));
  assert.equal(await figure("Not bought twice"), dollars(totals.savedMicroUsd));
  assert.equal(await figure("Published"), "5");
  assert.match(
    await page.locator("h1").textContent(),
    /^7 rows are stuck, with \$\d+\.\d\d in them\.$/,
  );
  assert.match(
    await page.locator(".stuck").textContent(),
    /3 dead.*kominka-cms.*credentials_refused/s,
  );
  assert.ok((await page.locator("pre.digest").textContent()).includes("Money at risk"));
});

for (const [look, options] of Object.entries(LOOKS)) {
  test(`every page is drawn, readable and without a fault of accessibility: ${look}`, async () => {
    ({ page, context, faults } = await openPage(chrome.browser, options));
    asked = watch(page);
    await page.goto(desk.worker.url);
    await page.getByLabel("API key or admin token").waitFor();
    await inspect("signin", look, false);
    await signIn(page, desk.worker.url, desk.client.key);
    for (const [name, route] of Object.entries({
      overview: "overview",
      outbox: "outbox",
      generations: "generations",
      generation: `generations/${desk.rows.shrines.id}`,
      usage: "usage",
    })) {
      await goTo(route);
      if (name === "outbox")
        await row((await desk.delivery("late")).id)
          .getByText("attempt")
          .click();
      await inspect(name, look, !["outbox", "generations"].includes(name) || look !== "phone");
    }
    await goTo(`generations/${desk.rows.shrines.id}`);
    await page.locator('[data-act="regenerate"]').click();
    await dialog().waitFor();
    await inspect("resolve", look, false);
  });
}

async function inspect(name, look, whole) {
  await picture(page, `${name}-${look}`, whole);
  const weak = (await contrasts(page)).filter(({ ratio, large }) => ratio < (large ? 3 : 4.5));
  assert.deepEqual(weak, [], `${name}: contrast`);
  assert.equal(await overflow(page), 0, `${name} scrolls sideways`);
  assert.deepEqual(await axeFaults(page), [], `${name}: axe`);
}

test("a Japanese reader sees the same in Japanese, and in the configured currency", async () => {
  const vars = { ...desk.worker.vars, CURRENCY: "JPY", CURRENCY_PER_USD: "150" };
  const yen = await Worker.start("desk-yen", { vars, share: desk.worker });
  try {
    ({ page, context, faults } = await openPage(chrome.browser, { locale: "ja-JP" }));
    asked = watch(page);
    await signIn(page, yen.url, desk.client.key);
    await settled(page);
    assert.equal(await page.evaluate(() => document.documentElement.lang), "ja");
    assert.match(await page.locator("h1").textContent(), /^7 件が止まっています（.\d+ 相当）。$/);
    await picture(page, "overview-japanese");
    assert.deepEqual(await axeFaults(page), []);
  } finally {
    await yen.stop();
  }
});

test("with the keyboard alone: a dead delivery is requeued after the repair, and published", async () => {
  const { worker, fakes } = desk;
  const dead = await desk.delivery("machiya");
  assert.equal(dead.status, "dead");
  await desk.repair("newsletter");

  ({ page, context, faults } = await openPage(chrome.browser));
  asked = watch(page);
  await page.goto(worker.url);
  await page.keyboard.insertText(desk.client.key);
  await page.keyboard.press("Enter");
  await page.locator("nav.main").waitFor();
  await settled(page);
  await tabTo(page, "a", "Outbox");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Outbox", level: 1 }).waitFor();
  await settled(page);
  await tabTo(page, "a", "dead");
  await page.keyboard.press("Enter");
  await page.waitForURL(/status=dead/);
  await settled(page);
  await tabTo(page, `tbody[data-id="${dead.id}"] [data-act="requeue"]`);
  await page.keyboard.press("Enter");
  await row(dead.id).locator('[data-state="pending"], [data-state="published"]').waitFor();
  await worker.cron();
  await row(dead.id).locator('[data-state="published"]').waitFor();
  await page.getByRole("status").filter({ hasText: "Now published" }).waitFor();
  await row(dead.id).getByText("2 attempts").click();
  await picture(page, "requeued-light", false);

  const { tag, target } = desk.rows.machiya;
  const accepted = (await fakes.hooks("kominka", target)).filter((hook) => hook.accepted);
  assert.deepEqual(
    accepted.map(({ id }) => id),
    [dead.id],
    "the destination has it, once, under the delivery's id",
  );
  assert.equal(await fakes.billed(tag), 1, "and nothing was bought for it");
});

test("the rest of the group is requeued from the overview with one question", async () => {
  const { worker } = desk;
  await open();
  await page.getByRole("button", { name: "Requeue 2" }).click();
  assert.match(await dialog().textContent(), /Cost at Gemini\$0\.00/);
  await dialog().getByRole("button", { name: "Requeue 2" }).click();
  await dialog().waitFor({ state: "detached" });
  await worker.cron();
  for (const name of ["sashiko", "irori"]) await desk.stage.settled(desk.rows[name].id);
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.waitForFunction(
    () => document.querySelector(".figure.key-dead strong")?.textContent === "0",
  );
});

test("a delivery is cancelled once the person has agreed, and never sent after that", async () => {
  const { worker, fakes } = desk;
  const { id } = await desk.delivery("waiting");
  await open("#/outbox?status=pending");
  await row(id)
    .getByRole("button", { name: /^Cancel/ })
    .click();
  await page.keyboard.press("Escape");
  await dialog().waitFor({ state: "detached" });
  assert.equal((await desk.delivery("waiting")).status, "pending");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Cancel delivery" }).click();
  await row(id).locator('[data-state="cancelled"]').waitFor();
  await desk.repair();
  await fakes.openGate("press");
  let ahead = 0;
  await waitFor("its neighbour, which goes out", async () => {
    ahead += 10;
    await desk.at(-ahead);
    await worker.cron();
    return (await desk.delivery("late")).status === "published";
  });
  await desk.at(0);
  const sent = await fakes.hooks("newsletter", desk.rows.waiting.target);
  assert.equal(sent.filter(({ accepted }) => accepted).length, 0);
});

test("what may have arrived is requeued only after a warning", async () => {
  const { worker } = desk;
  const { id } = await desk.delivery("twice");
  await open("#/outbox?status=outcome_unknown");
  await row(id)
    .getByRole("button", { name: /^Requeue/ })
    .click();
  assert.match(await dialog().textContent(), /it will have it twice/);
  await dialog().getByRole("button", { name: "Requeue" }).click();
  await dialog().waitFor({ state: "detached" });
  await worker.cron();
  await row(id).locator('[data-state="published"]').waitFor();
});

test("a held output is published as it is, at no further cost", async () => {
  const { worker, fakes, rows } = desk;
  const paid = (await desk.client.generation(rows.tides.id)).cost.microUsd;
  await open("#/generations?state=held");
  await page.getByRole("link", { name: rows.tides.topic }).click();
  await page.locator('[data-act="publish"]').click();
  const words = await dialog().textContent();
  assert.ok(words.includes(`Cost at Gemini$0.00${dollars(paid, 4)} was already paid`), words);
  await dialog().getByLabel("Reason").fill("Good enough for the back page");
  await dialog().getByRole("button", { name: "Publish" }).click();
  await page.locator('.verdict [data-state="generated"]').waitFor();
  await worker.cron();
  await desk.stage.settled(rows.tides.id);
  assert.equal((await desk.stage.published(rows.tides.target)).length, 1);
  assert.equal(await fakes.billed(rows.tides.tag), 1);
  const replay = await desk.client.generate(rows.tides.body);
  assert.equal(replay.headers.get("x-idempotency-replayed"), "true");
});

test("buying a held output again says the price first, needs a reason, and buys once", async () => {
  const { fakes, rows } = desk;
  const { cost, usage } = await desk.client.generation(rows.shrines.id);
  await open(`#/generations/${rows.shrines.id}`);
  await page.locator('[data-act="regenerate"]').click();
  const words = await dialog().textContent();
  assert.ok(words.includes(`about ${dollars(cost.microUsd, 4)}`), words);
  assert.ok(words.includes(usage.promptTokens.toLocaleString("en-US")), words);
  const confirm = dialog().getByRole("button", { name: /^Buy again for about/ });
  await confirm.click();
  assert.equal(await fakes.billed(rows.shrines.tag), 1, "no reason, no purchase");
  await dialog().getByLabel("Reason").fill("The limit was too low");
  await confirm.click();
  await dialog().waitFor({ state: "detached" });
  await waitFor("the second purchase", async () => (await fakes.billed(rows.shrines.tag)) === 2);
  const [audited] = await desk.worker.sql(
    "SELECT action, reason FROM audit WHERE subject = ?1",
    rows.shrines.id,
  );
  assert.match(audited.action, /regenerate/);
  assert.equal(audited.reason, "The limit was too low");
});

test("an unknown generation: the question says that it may be paid for twice, and what it costs", async () => {
  const { fakes, rows } = desk;
  const { tag, id } = rows.roads;
  await open("#/generations?state=unknown");
  await page.getByRole("link", { name: rows.roads.topic }).click();
  await page.locator('[data-act="regenerate"]').click();
  const words = await dialog().textContent();
  assert.match(words, /pays a second time/);
  assert.match(words, /about \$0\.\d{4}/);
  assert.match(words, /average of \d+ generations/);
  assert.equal(await fakes.billed(tag), 1);
  await dialog().getByLabel("Reason").fill("Google's console shows no charge");
  await dialog()
    .getByRole("button", { name: /^Buy again/ })
    .click();
  await waitFor("the second purchase", async () => (await fakes.billed(tag)) === 2);
  await waitFor("the output", async () => (await desk.client.generation(id)).state === "generated");
  await page.reload();
  await signIn(page, desk.worker.url, desk.client.key, `#/generations/${id}`);
  await page.locator('.verdict [data-state="generated"]').waitFor();
});

test("the outbox and the generations are filtered by what the service knows", async () => {
  const { rows, client } = desk;
  await open("#/outbox");
  await page.getByLabel("Publisher").fill("kominka-cms");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/publisher=kominka-cms/);
  await page.waitForFunction(() => document.querySelectorAll("tbody[data-id]").length === 3);
  await goTo("outbox?status=cancelled");
  assert.equal(await page.locator("tbody[data-id]").count(), 1);
  const { requestId } = await client.generation(rows.map.id);
  for (const [query, found] of [
    ["site=harbor-weekly&pipeline=features&state=failed", 1],
    [`requestId=${requestId}`, 1],
    ["key=winter-roads-49&state=generated", 1],
    ["site=nobody", 0],
  ]) {
    await goTo(`generations?${query}`);
    assert.equal(await page.locator("tr[data-id]").count(), found, query);
  }
  await page.getByText("No generation matches.").waitFor();
});

test("text from outside is text: topic, output, and a destination's answer", async () => {
  const { fakes, client } = desk;
  await fakes.script("webhook", "/webhook/kominka", { status: 400, body: HOSTILE });
  const { id } = await desk.write("excerpt", {
    topic: HOSTILE,
    place: ["trailnotes", "daily"],
    publisher: "kominka-cms",
    text: HOSTILE,
  });
  await desk.worker.cron();
  await desk.stage.settled(id);
  await open(`#/generations/${id}`);
  assert.equal(await page.locator("h1").textContent(), HOSTILE);
  const { output } = await client.generation(id);
  assert.ok(output.text.startsWith(HOSTILE), output.text);
  assert.equal(await page.locator("pre.output").textContent(), output.text);
  await page.locator('[data-act="attempts"]').click();
  assert.ok((await page.locator(".excerpt").textContent()).includes("<script>"));
  assert.equal(await page.locator("main img, main script").count(), 0);
  assert.equal(await page.evaluate(() => window.__pwned), undefined);
});
