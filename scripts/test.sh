#!/usr/bin/env bash
# Every test: the crates, then SQL against a real server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
"$ROOT/scripts/install.sh"
# All that comes over the network first.
export CARGO_NET_RETRY=10
retry cargo fetch --locked
"$ROOT/scripts/python.sh" >/dev/null
say "Testing the crates"
cargo test --workspace
say "Testing the buffer pool under a model checker"
SHUTTLE_SILENCE_WARNINGS=1 cargo test -p terrace-tier --features model --lib pool::model
python3 scripts/licences.py
# The S3 server for the SQL tests: with the features of the whole, for which `cargo test` has built all that it needs.
cargo build --workspace --features terrace-io/object-store --example s3_server
"$ROOT/scripts/build.sh" >/dev/null
say "Testing SQL"
"$CACHE/venv/bin/python" -m pytest -q -n "${TERRACE_TEST_PROCESSES:-2}" --dist worksteal "$ROOT/tests/sql" "$@"
