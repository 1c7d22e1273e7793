// The product's WebAssembly instances: how many this isolate has seen, and how to end the present
// one the way it really ends, by running out of memory. Rust then aborts, the instance traps, and
// worker-build's entry starts a new one at the next event; all in the same isolate.
//
// Must be loaded before the product, which makes its first instance while it is loaded.

const PAGES_AT_ONCE = 4_096;

let started = 0;
let memory;

WebAssembly.Instance = class Instance extends WebAssembly.Instance {
  constructor(module, imports) {
    super(module, imports);
    started += 1;
    memory = this.exports.memory;
  }
};

/** `isolate` tells one life of the process from another. */
export const instances = () => ({ isolate, started });

/** Takes every page that the instance's memory may still grow by: what needs one, aborts. */
export function exhaust() {
  for (let pages = PAGES_AT_ONCE; pages > 0; ) {
    try {
      memory.grow(pages);
    } catch {
      pages >>= 1;
    }
  }
}

const isolate = Math.random().toString(36);
