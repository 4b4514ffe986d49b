#!/usr/bin/env bash
# Every test: the crates, and SQL against a real server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
"$ROOT/scripts/install.sh"
# All that comes over the network first. sysbench: a figure of the benchmarks is measured among the tests.
need sysbench
export CARGO_NET_RETRY=10
retry cargo fetch --locked
"$ROOT/scripts/python.sh" >/dev/null

# Tests of SQL wait for disks and for each other more than they compute: they run beside those of the crates, several at a time.
PROCESSES=$((2 * $(nproc)))
PROCESSES=${TERRACE_TEST_PROCESSES:-$((PROCESSES < 10 ? PROCESSES : 10))}
LOGS=$(mktemp -d)
declare -A BESIDE # what goes on, by name: its process
goes_on() { jobs -pr | grep -qx "${BESIDE[$1]}"; }
ended() { # whatever ends this script, nothing goes on behind it, and what it has found is shown
  local name
  for name in "${!BESIDE[@]}"; do
    if goes_on "$name"; then
      { kill -INT -- "-${BESIDE[$name]}" && wait "${BESIDE[$name]}"; kill -- "-${BESIDE[$name]}"; } 2>/dev/null || true
    fi
    tail -n 40 "$LOGS/$name" 2>/dev/null || true
  done
  rm -rf "$LOGS"
}
trap ended EXIT
beside() { # a command beside what follows; what it prints goes to a file
  set -m
  "$@" >"$LOGS/$1" 2>&1 </dev/null &
  BESIDE[$1]=$!
  set +m
}
joined() { # what it printed so far, and then as it comes; its end
  local code=0
  if goes_on "$1"; then tail -n +1 -f --pid="${BESIDE[$1]}" "$LOGS/$1"; else cat "$LOGS/$1"; fi
  wait "${BESIDE[$1]}" || code=$?
  unset "BESIDE[$1]"
  return $code
}

handler() { "$ROOT/scripts/build.sh"; }
sql() { "$CACHE/venv/bin/python" -m pytest -q -n "$PROCESSES" --dist worksteal "$ROOT/tests/sql" "$@"; }
# Of one file of tests the last is often alone: other files' go on beside it.
early() { cargo test --workspace --test '[!m-z]*'; }
late() { cargo test --workspace --test '[m-z]*'; }
within() { cargo test --workspace --lib --bins && cargo test --workspace --doc; }

say "Building the tests, and the handler beside them"
beside handler
cargo test --workspace --no-run
# The S3 server for the SQL tests: with the features of the whole, for which `cargo test` has built all that it needs.
cargo build --workspace --features terrace-io/object-store --example s3_server
joined handler || fail "building the handler failed"
beside sql "$@"
beside early
beside late

say "Testing the crates"
within
say "Testing that planted bugs are found"
# In the binaries that were built for the tests above; what takes long (`load`, one of `storage_crash`) is left to `make planted`.
cargo test --workspace --lib --test build --test copy --test every_step --test flash_model --test halves --test large_gone --test large_past --test large_unread --test leaks --test old_versions \
  --test pace --test patches --test phantoms --test prepared --test put_back --test row_ranges --test sink --test sink_lives --test storage_crash \
  --test temporary --test txn_crash --test txn_locks --test write_policies planted -- --ignored --skip a_slot_reused_early
say "Testing the buffer pool under a model checker"
SHUTTLE_SILENCE_WARNINGS=1 cargo test -p terrace-tier --features model --lib pool::model
python3 scripts/licences.py
say "Testing the crates from outside"
joined early
joined late
say "Testing SQL"
joined sql
