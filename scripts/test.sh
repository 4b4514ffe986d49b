#!/usr/bin/env bash
# Every test: the crates, then SQL against a real server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
"$ROOT/scripts/install.sh"
# All that comes over the network first. sysbench: a figure of the benchmarks is measured among the tests.
need sysbench
export CARGO_NET_RETRY=10
retry cargo fetch --locked
"$ROOT/scripts/python.sh" >/dev/null
# What the SQL tests need is built meanwhile, in the time that the crates leave: many of their tests keep one core busy.
BESIDE=$(mktemp)
set -m
nice -n 19 "$ROOT/scripts/build.sh" >"$BESIDE" 2>&1 </dev/null &
BUILD=$!
set +m
trap '[ -z "$BUILD" ] || kill -- -$BUILD 2>/dev/null || true; rm -f "$BESIDE"' EXIT
say "Testing the crates"
cargo test --workspace
say "Testing that planted bugs are found"
# In the binaries that were built for the tests above; what takes long (`load`, one of `storage_crash`) is left to `make planted`.
cargo test --workspace --lib --test build --test copy --test every_step --test flash_model --test halves --test large_gone --test large_past --test large_unread --test leaks --test old_versions \
  --test pace --test patches --test phantoms --test prepared --test put_back --test row_ranges --test sink --test sink_lives --test storage_crash \
  --test temporary --test txn_crash --test txn_locks --test write_policies planted -- --ignored --skip a_slot_reused_early
say "Testing the buffer pool under a model checker"
SHUTTLE_SILENCE_WARNINGS=1 cargo test -p terrace-tier --features model --lib pool::model
python3 scripts/licences.py
# The S3 server for the SQL tests: with the features of the whole, for which `cargo test` has built all that it needs.
cargo build --workspace --features terrace-io/object-store --example s3_server
say "Building the handler"
wait $BUILD || { cat "$BESIDE" >&2; fail "building the handler failed"; }
BUILD=
say "Testing SQL"
"$CACHE/venv/bin/python" -m pytest -q -n "${TERRACE_TEST_PROCESSES:-2}" --dist worksteal "$ROOT/tests/sql" "$@"
