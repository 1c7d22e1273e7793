#!/usr/bin/env bash
# The drop-in endpoints under real clients: @google/genai, the Vercel AI SDK, curl and, where python3
# with venv is, google-genai for Python, against the built Worker on real workerd, with a fake
# Gemini behind it.
#   scripts/sdk.sh                                   all of them
#   scripts/sdk.sh tests/e2e/sdk/odd.spec.mjs      some; further arguments go to `node --test`
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/setup.sh
bash scripts/build.sh
cargo build --quiet --locked --example fakes
npm ci --prefix tests/e2e/sdk --ignore-scripts --no-audit --no-fund --silent
node tests/e2e/lib/prepare.mjs

specs=("$@")
[ $# -gt 0 ] || specs=(tests/e2e/sdk/*.spec.mjs)
exec node --test --test-concurrency=1 --test-force-exit --test-timeout=180000 --test-reporter=spec "${specs[@]}"
