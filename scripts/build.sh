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
  find src Cargo.toml Cargo.lock rust-toolchain.toml scripts/build.sh openapi.json \
    -type f -print0 2>/dev/null | sort -z | xargs -0 sha256sum | sha256sum
}

stamp=build/.fingerprint
current=$(fingerprint)
if [ -f build/index_bg.wasm ] && [ "$(cat "$stamp" 2>/dev/null)" = "$current" ]; then
  exit 0
fi

worker-build --release
printf '%s\n' "$current" > "$stamp"
