# Sourced by every script: where the tools are, and a wrangler that neither asks nor phones home.
# `source scripts/env.sh` in a shell gives the same `wrangler`, `node` and `worker-build` by hand.

ONCEPRESS_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export ONCEPRESS_ROOT

# Node 22 comes from the npm package `node`: wrangler needs it, whatever the machine has.
export PATH="$ONCEPRESS_ROOT/node_modules/.bin:$ONCEPRESS_ROOT/.tools/bin:$PATH"

# worker-build would download these from GitHub; cargo and npm have them.
export WASM_BINDGEN_BIN="$ONCEPRESS_ROOT/.tools/bin/wasm-bindgen"
export WASM_OPT_BIN="$ONCEPRESS_ROOT/node_modules/.bin/wasm-opt"
export ESBUILD_BIN="$ONCEPRESS_ROOT/node_modules/.bin/esbuild"

export WRANGLER_SEND_METRICS=false
export WRANGLER_SEND_ERROR_REPORTS=false
export WRANGLER_HIDE_BANNER=true
export CLOUDFLARE_CF_FETCH_ENABLED=false

# The version of a package in Cargo.lock, so that a tool and its library can't part.
locked_version() {
  awk -v name="\"$1\"" '
    $1 == "name" && $3 == name { found = 1; next }
    found && $1 == "version" { gsub(/"/, "", $3); print $3; exit }
  ' "$ONCEPRESS_ROOT/Cargo.lock"
}
