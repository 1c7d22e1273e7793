#!/usr/bin/env bash
# The crash campaign: kill -9 under load, hundreds of times, then three ledgers compared.
#   scripts/campaign.sh [--kills 300] [--seed 1] [--callers 10]
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/setup.sh
bash scripts/build.sh
cargo build --quiet --locked --example fakes
node tests/e2e/lib/prepare.mjs
exec node --disable-warning=ExperimentalWarning tests/campaign/crash.mjs "$@"
