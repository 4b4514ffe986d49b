#!/usr/bin/env bash
# A mixed run on all tiers for TIME seconds (two hours): sizes, rules and tables change, the store fails every TROUBLE seconds (120), and with KILLS the
# server is killed every KILLS seconds. Succeeds if sums are right, `terrace check` is clean and memory has not grown.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/build.sh" >/dev/null
cd "$ROOT"
cargo build -p terrace-cli
cargo build -p terrace-io --features object-store --example s3_server
"$("$ROOT/scripts/python.sh")" tests/torture/torture.py "$TARGET/torture"
