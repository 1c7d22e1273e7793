/**
 * Pictures of what a test has on the page. Into docs/screenshots when ONCEPRESS_SCREENSHOTS is set,
 * else beside the logs: every run takes them, so that a page that can't be drawn is seen.
 */

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { STATE } from "../../e2e/lib/paths.mjs";

const DOCS = fileURLToPath(new URL("../../../docs/screenshots/", import.meta.url));
const FOLDER = process.env.ONCEPRESS_SCREENSHOTS ? DOCS : join(STATE, "screenshots");
// Makes them a third as large; it comes with wrangler.
const sharp = await import("sharp").then(
  (module) => module.default,
  () => null,
);

/** The looks that a page must have: `openPage` takes them. */
export const LOOKS = {
  light: { colorScheme: "light" },
  dark: { colorScheme: "dark" },
  phone: {
    colorScheme: "light",
    viewport: { width: 390, height: 844 },
    deviceScaleFactor: 1.5,
    hasTouch: true,
  },
};

/**
 * @param {import("playwright-core").Page} page
 * @param {string} name
 * @param {boolean} [whole]  down to the page's end, not only what a window shows
 */
export async function picture(page, name, whole = true) {
  const shot = await page.screenshot({ fullPage: whole, animations: "disabled" });
  const small = sharp
    ? await sharp(shot).png({ palette: true, quality: 90, effort: 7 }).toBuffer()
    : shot;
  await mkdir(FOLDER, { recursive: true });
  await writeFile(join(FOLDER, `${name}.png`), small);
}
