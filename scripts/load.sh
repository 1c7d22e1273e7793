#!/usr/bin/env bash
# Sustained mixed load at a fixed arrival rate: latencies, errors, memory. On a quiet machine.
#   scripts/load.sh [--minutes 10] [--rate 30] [--seed 1] [--fresh 9] [--conflicts 1]
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/setup.sh
bash scripts/build.sh
cargo build --quiet --locked --example fakes
node tests/e2e/lib/prepare.mjs
exec node --disable-warning=ExperimentalWarning tests/campaign/load.mjs "$@"
