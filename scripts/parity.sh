#!/usr/bin/env bash
# Measures the parity table of docs/sql.md: plays its lines (tests/sql/parity/lines.tsv) on InnoDB, MyRocks and Terrace, whose answers must be those
# in the file; then counts how many of the tests that compare with InnoDB step by step MyRocks passes. WRITE=1 writes the answers into the file.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/build.sh" >/dev/null
PYTHON=$("$ROOT/scripts/python.sh")
cd "$ROOT"
for engine in InnoDB ROCKSDB Terrace; do
  say "The lines on $engine"
  TERRACE_PARITY_WRITE=${WRITE:-} "$PYTHON" -m pytest -q tests/sql/parity/test_parity_lines.py --engine "$engine"
done
for test in transactions/test_phenomena parity/test_parity_sessions transactions/test_snapshot_isolation statements/test_sequences operations/test_dump \
  statements/test_times ddl/test_prepared_ddl operations/test_replication crashes/test_ddl_crash; do
  say "MyRocks in tests/sql/$test.py"
  "$PYTHON" -m pytest -q --tb=no -n 2 "tests/sql/$test.py" --engine ROCKSDB | tail -1 || true
done
