/**
 * The states that are not a working day, on the real Worker: ten thousand rows, stores that do not
 * answer, a key that is revoked, a configuration with faults, another currency and language.
 */

import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";

import { launch, openPage, overflow, settled, signIn } from "../browser.mjs";
import { admin, Client } from "../../e2e/lib/client.mjs";
import { setStage } from "../../e2e/lib/stage.mjs";
import { ADMIN_TOKEN } from "../../e2e/lib/worker.mjs";
import { leaks, watch } from "./checks.mjs";
import { picture } from "./pictures.mjs";

const ROWS = 10_000;
const MINUTE = 60_000;
/** 32 digits of a row's own, in SQL. */
const HEX = "printf('%08x%024x', i * 2654435761 % 4294967291, i)";
/** Every publisher of this one is named wrongly, and a time does not exist. */
const WRONG = { DIGEST_TIME: "25:99", PUBLISHERS: { archive: { kind: "ftp" } } };

let stage, wrong, chrome, page, context, faults, asked;

before(async () => {
  [stage, wrong, chrome] = await Promise.all([
    setStage("states", { vars: { CURRENCY: "JPY", CURRENCY_PER_USD: "150.5" } }),
    setStage("states-wrong", { vars: WRONG, withoutClient: true }),
    launch(),
  ]);
  await seed();
});
after(async () => {
  await chrome?.close();
  await Promise.all([stage?.close(), wrong?.close()]);
});
afterEach(async () => {
  if (!page) return;
  const found = await leaks(page, [stage.client.key, ADMIN_TOKEN], asked);
  await context.close();
  page = undefined;
  assert.deepEqual([...faults, ...found], []);
});

async function open(route = "", { on = stage, token = stage.client.key, ...options } = {}) {
  ({ page, context, faults } = await openPage(chrome.browser, options));
  asked = watch(page);
  await signIn(page, on.worker.url, token, route);
  await settled(page);
}

/** Ten thousand published deliveries of a month, a minute apart, with all that they belong to. */
async function seed() {
  const { worker } = stage;
  const numbers =
    "WITH RECURSIVE c (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < ?1 - 1)";
  await worker.sql(
    `INSERT INTO generations (id, account, site, pipeline, topic, surface, key, claim_key,
       operation, fingerprint, leaves, state, token, lease_until, anchor_at, expires_at, request_id,
       model, upstream, created_at, completed_at, updated_at, credit_day, cost_nano, purge_at)
     ${numbers} SELECT 'gen_' || ${HEX}, 'acme', 'blog', 'daily', 'Note ' || i, 'api',
       'k' || i, 'c' || i, 0, 'f', '[]', 'generated', 't', 0, 0, 0, printf('req_%032x', i),
       'gemini-3.8-flash', 'u', ?2 - i * 60000, ?2 - i * 60000, ?2, '2026-11-01', 231000000, ?3
     FROM c`,
    ROWS,
    worker.now - MINUTE,
    worker.now + 30 * 86_400_000,
  );
  const tried = [{ at: new Date(worker.now).toISOString(), outcome: "published", latencyMs: 9 }];
  await worker.sql(
    `INSERT INTO deliveries (id, generation_id, account, site, pipeline, publisher, target, status,
       next_attempt_at, attempts, attempt_log, created_at, due_since, published_at, final_at)
     ${numbers} SELECT 'dlv_' || ${HEX}, 'gen_' || ${HEX}, 'acme', 'blog', 'daily',
       'files', 'note-' || i || '.md', 'published', 0, 1, ?3, ?2 - i * 60000, 0, ?2 - i * 60000, ?2
     FROM c`,
    ROWS,
    worker.now - MINUTE,
    JSON.stringify(tried),
  );
  await worker.sql(
    `INSERT INTO usage_days (account, day, site, pipeline, model, generations, cost_nano, published,
       replays, saved_nano)
     VALUES ('acme', ?1, 'blog', 'daily', 'gemini-3.8-flash', ?2, ?2 * 231000000, ?2, 28,
       28 * 231000000)`,
    new Date(worker.now).toISOString().slice(0, 10),
    ROWS,
  );
}

test("ten thousand rows: a page holds fifty of them, and a further page costs the database no more", async () => {
  const { worker } = stage;
  await open("#/outbox");
  const readAt = [];
  for (let at = 50; at <= 600; at += 50) {
    const since = (await worker.e2e("GET", "journal")).length;
    await page.getByRole("button", { name: "Older" }).click();
    await page.getByText(`Rows ${at + 1} to ${at + 50}.`).waitFor();
    assert.equal(await page.locator("tbody[data-id]").count(), 50);
    const entries = await worker.journal(since);
    readAt.push(entries.reduce((sum, { rowsRead }) => sum + (rowsRead ?? 0), 0));
  }
  assert.ok(readAt.at(-1) <= readAt[0] + 60, `rows read, page by page: ${readAt}`);
  await page.getByRole("button", { name: "Newer" }).click();
  await page.getByText("Rows 551 to 600.").waitFor();
  await picture(page, "large-light", false);
  await page.getByRole("link", { name: "dead" }).click();
  await page.getByText("Nothing has been given up.").waitFor();
});

test("the last page of ten thousand says that it is the last", async () => {
  // The cursor of the last page but one, as the service itself gives it.
  let cursor = "";
  for (let left = ROWS; left > 200; left -= 200) {
    const { json } = await stage.client.call(
      "GET",
      `/api/v1/outbox?limit=200${cursor && `&cursor=${cursor}`}`,
    );
    assert.equal(json.items.length, 200);
    cursor = json.nextCursor;
  }
  const { json } = await stage.client.call("GET", `/api/v1/outbox?limit=200&cursor=${cursor}`);
  assert.equal(json.items.length, 200);
  assert.equal(json.nextCursor, null);
});

test("amounts are shown in the configured currency, to a Japanese reader in Japanese", async () => {
  const { json } = await stage.client.call("GET", "/api/v1/usage");
  assert.deepEqual(json.currency, { code: "JPY", perUsd: "150.5" });
  assert.equal(json.totals.savedMicroUsd, 28 * 231_000, "micro-dollars inside");
  await open("", { locale: "ja-JP" });
  assert.equal(await page.evaluate(() => document.documentElement.lang), "ja");
  const yen = new Intl.NumberFormat("ja-JP").format(Math.round(28 * 0.231 * 150.5));
  assert.match(await page.locator(".figures").textContent(), new RegExp(`[¥￥]${yen}`));
  await page.getByRole("button", { name: "English" }).click();
  await page.getByRole("link", { name: "Outbox" }).waitFor();
});

test("stores that do not answer: the page says so, and loads when they are back", async () => {
  const { worker } = stage;
  await open("#/usage");
  await worker.rules({
    binding: "DB",
    match: "usage_days",
    error: "D1_ERROR: Network connection lost.",
  });
  await page.goto(`${worker.url}/#/overview`);
  const alert = page.getByRole("alert").filter({ hasText: "could not be loaded" });
  await alert.waitFor();
  assert.match(await alert.textContent(), /database does not answer.*req_[0-9a-f]{32}/s);
  await picture(page, "failing-light");
  await worker.rules();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.locator(".figures").waitFor();
});

test("a page that waits says that it is loading", async () => {
  const { worker } = stage;
  await open("#/usage");
  await worker.rules({ binding: "DB", match: "FROM deliveries", hold: "slow", times: 1 });
  await page.goto(`${worker.url}/#/outbox`);
  await page.locator(".loading[aria-busy='true']").waitFor();
  assert.equal(await page.locator(".loading .unseen").textContent(), "Loading…");
  await worker.held("slow");
  await worker.release("slow");
  await page.locator("tbody[data-id]").first().waitFor();
  await worker.rules();
});

test("a key that is revoked ends the session within a minute, and leaves nothing behind", async () => {
  const { worker } = stage;
  const made = await admin(worker, "POST", "/admin/accounts/acme/keys", { label: "lost" });
  const lost = new Client(worker, "acme", made.json.key);
  ({ page, context, faults } = await openPage(chrome.browser));
  asked = watch(page);
  await page.goto(worker.url);
  await page.getByLabel("API key or admin token").fill(lost.key);
  await page.getByLabel("Stay signed in").check();
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("nav.main").waitFor();
  await settled(page);
  await page.reload();
  await page.locator("nav.main").waitFor();
  // What is refused later is the next page, not what this one still reads.
  await settled(page);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  // Revoked by another isolate: this one believes in the key until its memory of it ends.
  await worker.sql("UPDATE api_keys SET revoked_at = ?2 WHERE id = ?1", made.json.id, worker.now);
  assert.equal((await lost.call("GET", "/api/v1/account")).status, 200);
  await worker.clock(61_000);
  await page.goto(`${worker.url}/#/outbox`);
  await page.getByText("no longer accepted").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await worker.clock(0);
});

test("a key that nobody knows is refused with words", async () => {
  ({ page, context, faults } = await openPage(chrome.browser));
  asked = watch(page);
  await page.goto(stage.worker.url);
  for (const unknown of [`opk_${"0".repeat(48)}`, "not-the-admin-token", "日本語"]) {
    const field = page.getByLabel("API key or admin token");
    await field.fill(unknown);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByText("not known here").waitFor();
    assert.equal(await field.getAttribute("aria-invalid"), "true");
    await field.fill("");
  }
});

test("the administrator sees every account, or one", async () => {
  await Client.create(stage.worker, "globex");
  await open("#/outbox", { token: ADMIN_TOKEN });
  await page.locator("tbody[data-id]").first().waitFor();
  await page.getByLabel("Account").selectOption("globex");
  await page.getByText("The outbox is empty.").waitFor();
  assert.ok(asked.some((address) => address.includes("/api/v1/outbox?account=globex")));
  await page.getByLabel("Account").selectOption("acme");
  await page.locator("tbody[data-id]").first().waitFor();
});

test("a Worker with a faulty configuration tells the administrator every fault", async () => {
  await open("", { on: wrong, token: ADMIN_TOKEN });
  const alert = page.getByRole("alert").filter({ hasText: /The configuration has [2-9] faults/ });
  await alert.waitFor();
  assert.match(await alert.textContent(), /DIGEST_TIME.*archive|archive.*DIGEST_TIME/s);
  await picture(page, "misconfigured-light");
  await page.setViewportSize({ width: 390, height: 844 });
  assert.equal(await overflow(page), 0);
});

test("and a caller that it is not configured rightly", async () => {
  ({ page, context, faults } = await openPage(chrome.browser));
  asked = watch(page);
  await page.goto(wrong.worker.url);
  await page.getByLabel("API key or admin token").fill(stage.client.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("not configured rightly").waitFor();
});

test("the dashboard's files come with a strict policy from the real asset server", async () => {
  for (const path of ["/", "/js/main.js", "/base.css", "/favicon.svg"]) {
    const answer = await stage.worker.fetch(path);
    assert.equal(answer.status, 200, path);
    const policy = answer.headers.get("content-security-policy") ?? "";
    for (const part of [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      "connect-src 'self'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
    ]) {
      assert.ok(policy.includes(part), `${path}: ${part} is missing from: ${policy}`);
    }
    assert.doesNotMatch(policy, /unsafe|https:|\*/);
    assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
    assert.equal(answer.headers.get("referrer-policy"), "no-referrer");
  }
});
