#!/usr/bin/env bash
# End-to-end tests: the built Worker on real workerd, with a fake Gemini and fake destinations.
#   scripts/e2e.sh                               all of them
#   scripts/e2e.sh tests/e2e/storm.spec.mjs      some; further arguments go to `node --test`
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/setup.sh
bash scripts/build.sh
cargo build --quiet --locked --example fakes
node tests/e2e/lib/prepare.mjs

specs=("$@")
[ $# -gt 0 ] || specs=(tests/e2e/*.spec.mjs)
# One file at a time: each starts a workerd, and some count what happens within seconds.
exec node --disable-warning=ExperimentalWarning --test --test-concurrency=1 --test-force-exit --test-timeout=300000 \
  --test-reporter=spec "${specs[@]}"
