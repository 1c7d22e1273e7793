// The plain Worker under the counter of operations that the end-to-end tests use.

import "../../tests/e2e/faults/clock.mjs";
import { wrapEnv, wrapFetch } from "../../tests/e2e/faults/bindings.mjs";
import { control, PREFIX } from "../../tests/e2e/faults/control.mjs";
import plain from "./worker.ts";

globalThis.fetch = wrapFetch(globalThis.fetch.bind(globalThis));

export default {
  fetch(request, env, context) {
    if (new URL(request.url).pathname.startsWith(PREFIX)) return control(request, env);
    return plain.fetch(request, wrapEnv(env, "fetch"), context);
  },
};
