#!/usr/bin/env bash
# Installs what the build, the demo and the tests need, inside this folder: npm packages into
# node_modules/, Rust tools into .tools/. Needs rustup, Node 20 or newer (for npm) and nothing else.
# A second run only looks whether all is there.
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

# rustup reads rust-toolchain.toml: the first call installs toolchain, components and target.
if ! rustup target list --installed 2>/dev/null | grep -qx wasm32-unknown-unknown; then
  say "Rust target wasm32-unknown-unknown"
  rustup target add wasm32-unknown-unknown
fi

if ! node scripts/lib/npm-is-current.mjs 2>/dev/null; then
  say "npm packages"
  npm ci --no-fund --no-audit
fi

# Compiled for a quick build, not for speed: they run for seconds.
install_tool() {
  local crate=$1 version=$2 binary=$3
  if [ "$("$ONCEPRESS_ROOT/.tools/bin/$binary" --version 2>/dev/null | grep -oE '[0-9.]+$')" = "$version" ]; then
    return
  fi
  say "$crate $version (once, a few minutes)"
  local -x CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off
  local -x CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR="$ONCEPRESS_ROOT/target/tools"
  # The crate's own lock file first; where the registry no longer has one of its versions, without.
  cargo install --quiet --locked --root .tools "$crate" --version "$version" ||
    cargo install --quiet --root .tools "$crate" --version "$version"
}

install_tool wasm-bindgen-cli "$(locked_version wasm-bindgen)" wasm-bindgen
install_tool worker-build "$(locked_version worker)" worker-build
rm -rf target/tools
