#!/usr/bin/env bash
# Checks each lock file of the tree against its Cargo.toml and the crates that it uses: bench/peers and fuzz are outside the workspace and use its crates
# by path, so a dependency that a crate gains makes their lock files stale, too. Each stale lock file is named on stderr; exit code 1.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
export CARGO_NET_RETRY=10
HOST=$(rustc -vV | sed -n 's/^host: //p')
ERROR=$(mktemp)
trap 'rm -f "$ERROR"' EXIT

# The network's errors are tried again, a stale lock file is not.
check() {
  local folder=$1 wait
  for wait in 5 20 60 0; do
    # The platform bounds what is downloaded, not what is resolved.
    cargo metadata --locked --format-version 1 --filter-platform "$HOST" --manifest-path "$folder/Cargo.toml" 2>"$ERROR" >/dev/null && return 0
    if grep -q -e --locked "$ERROR"; then
      printf 'error: %s/Cargo.lock does not match its Cargo.toml or the crates that it uses. Run: cargo metadata --format-version 1 --manifest-path %s/Cargo.toml >/dev/null, and commit the lock file\n' "$folder" "$folder" >&2
      return 1
    fi
    sleep $wait
  done
  cat "$ERROR" >&2
  fail "cargo metadata failed for $folder/Cargo.toml"
}

STALE=0
for lock in $(find . \( -name target -o -name var -o -name .git \) -prune -o -name Cargo.lock -print | sort); do
  folder=${lock%/Cargo.lock}
  check "${folder#./}" || STALE=1
done
exit $STALE
