#!/usr/bin/env bash
# Random SQL against InnoDB and Terrace for TIME seconds from SEED on (default: from the clock). Differences are shrunk,
# printed, and written to target/differ/report.txt.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/build.sh" >/dev/null
PYTHON=$("$ROOT/scripts/python.sh")
DIR=$TARGET/differ PORT=${PORT:-3308} SEED=${SEED:-$(date +%s)000}
mkdir -p "$DIR"
"$ROOT/scripts/server.sh" start "$DIR/server" "$PORT" --terrace-memory=33554432 --innodb-buffer-pool-size=64M \
  --innodb-flush-log-at-trx-commit=0 --terrace-flush-log-at-trx-commit=0
trap '"$ROOT/scripts/server.sh" stop "$DIR/server"' EXIT
say "Random SQL for ${TIME:-3600} seconds from seed $SEED"
"$PYTHON" "$ROOT/tests/differ/differ.py" --port "$PORT" --seconds "${TIME:-3600}" --seed "$SEED" --all | tee "$DIR/report.txt"
