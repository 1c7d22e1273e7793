// The built Worker as it is, and beside it what its WebAssembly memory holds and how many of its
// Durable Objects live: what `main` is where memory is measured. The fault injector of the other
// tests keeps a journal, which grows.

import { WorkerEntrypoint } from "cloudflare:workers";
import "./memory-capture.mjs";
import * as product from "../../../build/index.js";

let runners = 0;
const collected = new FinalizationRegistry(() => (runners -= 1));

export class Runner extends product.Runner {
  constructor(state, env) {
    super(state, env);
    runners += 1;
    collected.register(this);
  }
}

/** Makes V8 collect its garbage: there is no way to ask for it, but large buffers make it due. */
async function collect() {
  let made = 0;
  for (let round = 0; round < 32; round += 1) {
    made += new Uint8Array(8 * 1024 * 1024).length;
    await scheduler.wait(1);
  }
  return made;
}

export default class MeasuredEntrypoint extends WorkerEntrypoint {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === "/__e2e/ready") return Response.json({});
    if (pathname === "/__e2e/memory") {
      const rubbish = await collect();
      const sizes = globalThis.__wasmInstances.map(
        ({ exports }) => exports.memory.buffer.byteLength,
      );
      return Response.json({ wasm: sizes.reduce((sum, size) => sum + size, 0), runners, rubbish });
    }
    return new product.default(this.ctx, this.env).fetch(request);
  }

  scheduled(event) {
    return new product.default(this.ctx, this.env).scheduled(event);
  }

  queue(batch) {
    return new product.default(this.ctx, this.env).queue(batch);
  }
}
