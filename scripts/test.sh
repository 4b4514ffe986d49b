#!/usr/bin/env bash
# Runs every test: the crates, and SQL against a real server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
"$ROOT/scripts/install.sh"
# Downloads everything first. sysbench: one test runs a benchmark. etcd: nodes of `terrace files` register there.
need sysbench etcd-server
export CARGO_NET_RETRY=10
# What incremental compilation leaves behind is of no use to a first build.
[ -d "$TARGET/debug/incremental" ] || export CARGO_INCREMENTAL=0
retry cargo fetch --locked
"$ROOT/scripts/locks.sh"
"$ROOT/scripts/python.sh" >/dev/null

# A test in Python that hangs fails after 900 seconds and says where: else it would keep the whole run.
# SQL tests wait for disks and for each other more than they compute, so they run in parallel with the crates' tests, several at a time.
PROCESSES=$((2 * $(nproc)))
PROCESSES=${TERRACE_TEST_PROCESSES:-$((PROCESSES < 10 ? PROCESSES : 10))}
LOGS=$(mktemp -d)
declare -A BESIDE # background commands: name to process
goes_on() { jobs -pr | grep -qx "${BESIDE[$1]}"; }
ended() { # at the end of this script: ends the background commands and shows their output
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
beside() { # runs a command in the background, its output goes to a file
  set -m
  "$@" >"$LOGS/$1" 2>&1 </dev/null &
  BESIDE[$1]=$!
  set +m
}
joined() { # shows a background command's output until its end, and returns its exit code
  local code=0
  if goes_on "$1"; then tail -n +1 -f --pid="${BESIDE[$1]}" "$LOGS/$1"; else cat "$LOGS/$1"; fi
  wait "${BESIDE[$1]}" || code=$?
  unset "BESIDE[$1]"
  return $code
}

handler() { "$ROOT/scripts/build.sh"; }
sql() { "$CACHE/venv/bin/python" -m pytest -q --timeout 900 --durations 25 -n "$PROCESSES" --dist worksteal "$ROOT/tests/sql" "$@"; }
kv() { "$CACHE/venv/bin/python" -m pytest -q --timeout 900 --ignore "$ROOT/tests/kv/clients" "$ROOT/tests/kv"; }
# The last test of a file often runs alone; the other half of the files runs in parallel.
early() { cargo test --workspace --test '[!m-z]*'; }
late() { cargo test --workspace --test '[m-z]*'; }
# Compiles the crates once more, without the features of tests: while the last SQL tests run, after all other builds.
module() { TERRACE=$TARGET/debug/terrace "$ROOT/scripts/python-module.sh"; }
within() { cargo test --workspace --lib --bins && cargo test --workspace --doc; }

say "Building the tests, and the handler beside them"
beside handler
cargo test --workspace --no-run
# The S3 server for the SQL tests, with the features of the whole workspace, whose dependencies `cargo test` has built already.
cargo build --workspace --features terrace-io/object-store --example s3_server
joined handler || fail "building the handler failed"
beside sql "$@"
beside early
beside late

say "Testing the crates"
within
say "Testing that planted bugs are found"
# Uses the binaries that were built for the tests above; slow ones (`archive`, `load`, one of `storage_crash`) run in `make planted` only.
cargo test --workspace --lib --test attach --test backup --test block_model --test build --test clone --test copy --test embedded_model --test cursors --test durable_reads --test every_step --test flash_model --test groups --test halves --test large_gone --test large_past --test large_unread --test leaks --test many_locks --test old_versions --test packing_sim --test peers \
  --test patches --test phantoms --test prepared --test put_back --test redefine --test row_ranges --test sink --test sink_lives --test split_model --test split_pages --test split_reader --test storage_crash \
  --test temporary --test tiering_model --test txn_crash --test txn_locks --test two_writers --test write_policies --test write_throttle planted -- --ignored --skip a_slot_reused_early
say "Testing the buffer pool under a model checker"
SHUTTLE_SILENCE_WARNINGS=1 cargo test -p terrace-tier --features model --lib pool::model
beside module
python3 scripts/licences.py
python3 scripts/rooms.py --self-test
python3 scripts/rooms.py
say "Testing the crates from outside"
joined early
joined late
say "Testing SQL"
joined sql
say "Testing the key-value server with redis-py"
kv
say "Testing the Python module"
joined module
