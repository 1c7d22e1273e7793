/** Pictures of each page for docs/screenshots: light, dark, and a phone's width. */

import { mkdir, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { launch, openPage, settled, signIn } from "./browser.mjs";
import { ADMIN_TOKEN, API_KEY, startMock } from "./mock.mjs";

const FOLDER = fileURLToPath(new URL("../../docs/screenshots/", import.meta.url));
const sharp = await import("sharp").then(
  (module) => module.default,
  () => null,
);
const only = process.argv[2] ?? "";

async function save(page, name, full = true) {
  const shot = await page.screenshot({ fullPage: full, animations: "disabled" });
  const small = sharp
    ? await sharp(shot).png({ palette: true, quality: 90, effort: 9 }).toBuffer()
    : shot;
  await writeFile(`${FOLDER}${name}.png`, small);
  console.log(`${name}.png ${Math.round(small.length / 1024)} KiB`);
}

const looks = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: {
    colorScheme: "light",
    viewport: { width: 390, height: 844 },
    deviceScaleFactor: 1.5,
    hasTouch: true,
  },
};

await mkdir(FOLDER, { recursive: true });
const chrome = await launch();
const mock = await startMock({ hostile: false });
const held = mock.state.generations.find((item) => item.state === "held").id;
const pages = {
  overview: "overview",
  outbox: "outbox",
  generations: "generations",
  generation: `generations/${held}`,
  usage: "usage",
};
for (const [look, options] of Object.entries(looks)) {
  const { page, context } = await openPage(chrome.browser, options);
  await page.goto(mock.url);
  if (!only || "signin".includes(only)) await save(page, `signin-${look}`, false);
  await signIn(page, mock.url, API_KEY);
  for (const [name, route] of Object.entries(pages)) {
    if (only && !name.includes(only)) continue;
    await page.goto(`${mock.url}/#/${route}`);
    await settled(page);
    if (name === "outbox") await page.getByText("10 attempts").click();
    await page.evaluate(() => scrollTo(0, 0));
    await save(page, `${name}-${look}`, name !== "outbox" && name !== "generations");
  }
  if (!only || "resolve".includes(only)) {
    await page.goto(`${mock.url}/#/generations/${held}`);
    await settled(page);
    await page.locator('[data-act="regenerate"]').click();
    await page.locator("dialog").waitFor();
    await save(page, `resolve-${look}`, false);
  }
  await context.close();
}
await mock.close();
for (const scenario of ["empty", "failing", "large"]) {
  if (only && !scenario.includes(only)) continue;
  const other = await startMock({ scenario });
  const { page, context } = await openPage(chrome.browser);
  await signIn(page, other.url, ADMIN_TOKEN, scenario === "large" ? "#/outbox" : "");
  await settled(page);
  await save(page, `${scenario}-light`, scenario !== "large");
  await context.close();
  await other.close();
}
if (!only || "japanese".includes(only)) {
  const other = await startMock({ hostile: false, currency: { code: "JPY", perUsd: 150 } });
  const { page, context } = await openPage(chrome.browser, { locale: "ja-JP" });
  await signIn(page, other.url, API_KEY);
  await settled(page);
  await save(page, "overview-japanese");
  await context.close();
  await other.close();
}
await chrome.close();
