#!/usr/bin/env bash
# All tests, from a clean clone if need be: native, doctests, the core on wasm32, and end to end on
# real workerd. Every stage runs even if one before it failed; the last line sums up.
set -uo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"
bash scripts/setup.sh || exit 1

logs=.state/test-logs
mkdir -p "$logs"
passed=0 failed=0 broken=()

# figures LOG WORD: adds up the runners' own closing lines, in whichever way they say it:
#   cargo "test result: ok. 3 passed; 0 failed", nextest "Summary … 5 passed, 0 skipped",
#   node "ℹ pass 7" or "# pass 7". A failing test's captured output is indented, and not counted.
figures() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" |
    grep -E '^(test result: | *Summary \[|ℹ |# )' |
    grep -oE "[0-9]+ $2ed|(ℹ|#) $2 [0-9]+" |
    awk '{ gsub(/[^0-9]/, ""); n += $0 } END { print n + 0 }'
}

# stage NAME COMMAND…: runs it, and reads the runner's own figures from what it printed.
stage() {
  local name=$1 log="$logs/$1.log" begun=$SECONDS ok fail
  shift
  printf '\n\033[1m==> %s\033[0m\n' "$name"
  if ! "$@" 2>&1 | tee "$log"; then broken+=("$name"); fi
  ok=$(figures "$log" pass) fail=$(figures "$log" fail)
  passed=$((passed + ok)) failed=$((failed + fail))
  printf '%s: %s passed, %s failed, %s s\n' "$name" "$ok" "$fail" "$((SECONDS - begun))"
}

native() {
  if cargo nextest --version > /dev/null 2>&1; then
    cargo nextest run --locked --all-targets --no-fail-fast
  else
    cargo test --locked --all-targets --no-fail-fast
  fi
}

wasm32() {
  CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER=wasm-bindgen-test-runner \
    cargo test --locked --target wasm32-unknown-unknown --test wasm
}

# In a real browser where there is one; its driver comes from npm.
has_browser() {
  [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || return 1
  [ -d tests/dashboard/node_modules/axe-core ] || npm --prefix tests/dashboard ci --no-fund
}

# On a double of the service, whose figures and faults the tests decide.
dashboard() {
  if ! has_browser; then
    echo "No Chromium at ${CHROMIUM:-/usr/bin/chromium} (set CHROMIUM): only the texts are tested."
    node --test tests/dashboard/strings.test.mjs
    return
  fi
  npm --prefix tests/dashboard run check && npm --prefix tests/dashboard test
}

# On the built Worker, as a person uses it.
desk() {
  if ! has_browser; then
    echo "No Chromium: the dashboard is not tried on the Worker."
    return
  fi
  bash scripts/e2e.sh tests/dashboard/worker/*.spec.mjs
}

stage native native
stage doctests cargo test --locked --doc
stage wasm32 wasm32
stage dashboard dashboard
stage desk desk
stage e2e bash scripts/e2e.sh
stage sdk bash scripts/sdk.sh

echo
if [ ${#broken[@]} -gt 0 ]; then
  printf 'FAILED in: %s\n' "${broken[*]}"
  printf '%s passed, %s failed\n' "$passed" "$failed"
  exit 1
fi
printf '%s passed, %s failed\n' "$passed" "$failed"
