#!/usr/bin/env bash
# Builds the Worker into build/ (index.js, index_bg.wasm). It is wrangler's [build] command, so that
# `npx wrangler dev` and `npx wrangler deploy` need no step before them; unchanged sources cost
# nothing.
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

if [ ! -x .tools/bin/worker-build ] || [ ! -x .tools/bin/wasm-bindgen ] || [ ! -x "$ESBUILD_BIN" ]; then
  bash scripts/setup.sh
fi

# Everything the crate may compile in: its sources, and the files it includes as text.
fingerprint() {
  find src worker .cargo Cargo.toml Cargo.lock rust-toolchain.toml scripts/build.sh scripts/lib \
    -type f -print0 2>/dev/null | sort -z | xargs -0 sha256sum | sha256sum
}

stamp=build/.fingerprint
current=$(fingerprint)
if [ -f build/index_bg.wasm ] && [ "$(cat "$stamp" 2>/dev/null)" = "$current" ]; then
  exit 0
fi

rm -f "$stamp"
NO_MINIFY=1 worker-build --release --out-dir ../build worker
node scripts/lib/trim.mjs

# What counts is the size after compression. Inlining makes the module smaller and its gzip larger,
# since like code then looks less alike; so do hints of alignment, which engines pass over. Only
# features that workerd has had for long: more would let wasm-opt write what it can't read.
optimise() {
  wasm-opt build/index_bg.wasm --output build/index_bg.wasm.small \
    --enable-mutable-globals --enable-sign-ext --enable-nontrapping-float-to-int \
    --enable-bulk-memory --enable-multivalue --enable-reference-types --enable-exception-handling \
    --reorder-functions-by-name "$@" --strip-debug --strip-producers --strip-target-features
  mv build/index_bg.wasm.small build/index_bg.wasm
}

optimise -Oz --skip-pass=reorder-functions --skip-pass=memory-packing \
  --skip-pass=local-cse --partial-inlining-ifs 0 --always-inline-max-function-size 3 \
  --flexible-inline-max-function-size 0 --one-caller-inline-max-function-size 15 \
  --dealign
node scripts/lib/order.mjs
optimise
printf '%s\n' "$current" > "$stamp"
