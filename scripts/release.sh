#!/usr/bin/env bash
# Makes dist/oncepress: a tree that deploys with wrangler alone. It holds the built Worker, so that
# neither the user's machine nor Cloudflare's build image needs Rust, and a flat wrangler.toml with
# production at the top level, since the Deploy to Cloudflare button knows no environments.
#   scripts/release.sh            the tree, and dist/oncepress.tar.gz
#   scripts/release.sh --commit   also commits it to the local branch `release` (never pushed here)
set -euo pipefail
source "$(dirname "$0")/env.sh"
cd "$ONCEPRESS_ROOT"

bash scripts/build.sh

out=dist/oncepress
rm -rf "$out"
mkdir -p "$out/build"
mkdir -p "$out/migrations"
cp -R public "$out/"
cp migrations/*.sql "$out/migrations/"
cp build/index.js build/index_bg.wasm "$out/build/"
cp -R build/worker "$out/build/"
cp .dev.vars.example LICENSE-MIT LICENSE-APACHE "$out/"
cp scripts/lib/release-readme.md "$out/README.md"
printf '%s\n' node_modules .wrangler '.dev.vars*' '!.dev.vars.example' > "$out/.gitignore"
node scripts/lib/release-tree.mjs "$out"

# wrangler reads the tree as a user's or Cloudflare's would be read.
(cd "$out" && wrangler deploy --dry-run --outdir ../release-check | grep -E 'Total Upload|env\.')
rm -rf dist/release-check "$out/.wrangler"
tar -czf dist/oncepress.tar.gz -C dist oncepress
printf '%s and %s.tar.gz are ready.\n' "$out" "$out"

if [ "${1:-}" = --commit ]; then
  GIT_INDEX_FILE="$(mktemp -u)"
  export GIT_INDEX_FILE
  git --work-tree="$out" add --all --force .
  tree=$(git write-tree)
  rm -f "$GIT_INDEX_FILE"
  parent=$(git rev-parse --quiet --verify refs/heads/release || true)
  source_commit=$(git rev-parse --short HEAD)
  commit=$(git commit-tree "$tree" ${parent:+-p "$parent"} -m "Release built from $source_commit")
  git update-ref refs/heads/release "$commit"
  printf 'Branch release is now %s; push it with: git push origin release\n' "$commit"
fi
