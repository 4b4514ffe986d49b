#!/usr/bin/env bash
# Every test: the crates, then SQL against a real server.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
"$ROOT/scripts/install.sh"
say "Testing the crates"
cargo test --workspace
python3 scripts/licences.py
"$ROOT/scripts/build.sh" >/dev/null
say "Testing SQL"
"$ROOT/scripts/python.sh" >/dev/null
"$CACHE/venv/bin/python" -m pytest -q "$ROOT/tests/sql" "$@"
