#!/usr/bin/env bash
# The main job on this machine, with nothing but this folder: sets everything up, starts the Worker
# and a fake Gemini, submits a real long request, shows answer, replay, drain and published file,
# and leaves the Worker running until Ctrl-C, with its cron trigger fired each minute. Beside the fake
# Gemini there are a fake CMS (the publisher `blog`) and a fake Slack, which can be told to fail.
#   --once   ends after the tour (for CI)
# With a real GEMINI_API_KEY in .dev.vars it asks Gemini itself, which costs about 0.03 USD; its
# outputs are then kept from one run to the next, and so is what was paid for.
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

once=no
[ "${1:-}" = --once ] && once=yes
port=${PORT:-8787}
say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }

if (exec 3<> "/dev/tcp/localhost/$port") 2> /dev/null; then
  printf 'Port %s is in use. End the demo that runs there; if it is something else: PORT=9000 bash scripts/demo.sh\n' "$port" >&2
  exit 1
fi

bash scripts/setup.sh
say "Building the Worker (a minute the first time)"
bash scripts/build.sh

secret() { sed -n "s/^$1=//p" .dev.vars | tail -1 | tr -d "\"'"; }
# `.dev.vars` may be missing, or a copy of `.dev.vars.example` that nobody has filled in.
fill() {
  [ -z "$(secret "$1")" ] || return 0
  sed "/^$1=/d" .dev.vars > .dev.vars.new
  printf '%s=%s\n' "$1" "$2" >> .dev.vars.new
  cat .dev.vars.new > .dev.vars
  rm .dev.vars.new
  say "$3"
}
[ -f .dev.vars ] || (umask 077 && : > .dev.vars)
fill GEMINI_API_KEY fake "No GEMINI_API_KEY in .dev.vars: \`fake\`, for a fake Gemini"
fill ADMIN_TOKEN "$(node -p 'crypto.randomBytes(24).toString("hex")')" "No ADMIN_TOKEN in .dev.vars: made a random one"
ADMIN_TOKEN=$(secret ADMIN_TOKEN)
gemini_key=$(secret GEMINI_API_KEY)

pids=()
cleanup() {
  trap - EXIT INT TERM
  for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null || true; done
  for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null || true; done
}
trap cleanup EXIT
trap 'exit 0' INT TERM

state=.state/demo
vars=()
if [ "$gemini_key" = fake ]; then
  say "Starting a fake Gemini (put a real GEMINI_API_KEY into .dev.vars to use the real one)"
  rm -rf "$state"
  cargo build --quiet --locked --example fakes
  mkdir -p "$state"
  target/debug/examples/fakes --port 0 > "$state/fakes.log" 2>&1 &
  pids+=($!)
  for _ in $(seq 100); do grep -q '"ready"' "$state/fakes.log" && break || sleep 0.1; done
  FAKES_URL=http://127.0.0.1:$(node -p 'JSON.parse(require("fs").readFileSync(process.argv[1], "utf8").split("\n")[0]).port' "$state/fakes.log")
  export FAKES_URL
  vars+=(
    --var "GEMINI_BASE_URL:$FAKES_URL"
    --var "SLACK_WEBHOOK_URL:$FAKES_URL/slack/services/demo"
    --var "DEMO_HOOK_SECRET:whsec_$(node -p 'crypto.randomBytes(24).toString("base64")')"
    --var "PUBLISHERS:{\"archive\":{\"kind\":\"r2\",\"prefix\":\"articles/\"},\"blog\":{\"kind\":\"webhook\",\"url\":\"$FAKES_URL/webhook/blog\",\"secrets\":[\"DEMO_HOOK_SECRET\"]}}"
  )
else
  state=.state/demo-paid
fi
mkdir -p "$state"

say "Applying the migrations to the local D1"
CI=true wrangler d1 migrations apply DB --local --persist-to "$state" > "$state/migrations.log" 2>&1 ||
  { cat "$state/migrations.log"; exit 1; }

say "Starting the Worker at http://localhost:$port"
wrangler dev --local --port "$port" --inspector-port 0 --persist-to "$state" "${vars[@]}" \
  > "$state/worker.log" 2>&1 < /dev/null &
pids+=($!)

export ADMIN_TOKEN STATE_DIR=$state WORKER_URL=http://localhost:$port
node scripts/lib/tour.mjs || { printf '\nThe Worker said:\n'; tail -40 "$state/worker.log"; exit 1; }

[ "$once" = yes ] && exit 0
# Nothing fires cron triggers on this machine.
while sleep 60; do
  curl -s -o /dev/null "$WORKER_URL/cdn-cgi/handler/scheduled?cron=*+*+*+*+*" || true
done &
pids+=($!)
printf '\nThe Worker keeps running (its log: %s/worker.log). Ctrl-C ends it.\n' "$state"
wait "${pids[@]}"
