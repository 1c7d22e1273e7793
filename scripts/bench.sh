#!/usr/bin/env bash
# The benchmark against a plain Worker of the common recipe; prints tables. On a quiet machine.
#   scripts/bench.sh [--seconds 4] [--rounds 5] [--connections 8] [--scale 1000000]
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/setup.sh
bash scripts/build.sh
cargo build --quiet --locked --release --example fakes
export FAKES_BINARY="$ONCEPRESS_ROOT/target/release/examples/fakes"
exec node --disable-warning=ExperimentalWarning bench/run.mjs "$@"
