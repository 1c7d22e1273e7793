// Where things are. All that a run leaves behind is under .state/e2e/, which git ignores.

import { fileURLToPath } from "node:url";
import { join } from "node:path";

export const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
export const STATE = join(ROOT, ".state", "e2e");
export const BASE_CONFIG = join(STATE, "base-config.json");
export const EMPTY_STORES = join(STATE, "empty-stores");
export const FAULTY_ENTRY = join(ROOT, "tests", "e2e", "faulty-entry.mjs");
export const FAKES_BINARY =
  process.env.FAKES_BINARY ?? join(ROOT, "target", "debug", "examples", "fakes");
export const WRANGLER = join(ROOT, "node_modules", ".bin", "wrangler");
