#!/usr/bin/env bash
# The benchmark against a plain Worker of the common recipe; prints a table. On a quiet machine.
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/setup.sh
bash scripts/build.sh
cargo build --quiet --locked --release --example fakes
cp target/release/examples/fakes target/debug/examples/fakes
node tests/e2e/lib/prepare.mjs
exec node bench/run.mjs "$@"
