#!/usr/bin/env bash
# Random SQL against InnoDB and Terrace for TIME seconds from SEED on (default: from the clock). Differences are shrunk,
# printed, and written to target/differ/report.txt. WHAT=kv: random commands against redis-server 7.0 and `terrace kv`.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
if [ "${WHAT:-sql}" = kv ]; then
  mkdir -p "$TARGET/differ"
  (cd "$ROOT" && cargo build -p terrace-cli --bin terrace)
  TERRACE=$TARGET/debug/terrace "$("$ROOT/scripts/python.sh")" "$ROOT/tests/kv/differ/run.py" --seconds "${TIME:-3600}" ${SEED:+--seed "$SEED"} | tee "$TARGET/differ/kv.txt"
  exit
fi
"$ROOT/scripts/build.sh" >/dev/null
PYTHON=$("$ROOT/scripts/python.sh")
DIR=$TARGET/differ PORT=${PORT:-3308} SEED=${SEED:-$(date +%s)000}
mkdir -p "$DIR"
"$ROOT/scripts/server.sh" start "$DIR/server" "$PORT" --terrace-memory=33554432 --innodb-buffer-pool-size=64M \
  --innodb-flush-log-at-trx-commit=0 --terrace-flush-log-at-trx-commit=0
trap '"$ROOT/scripts/server.sh" stop "$DIR/server"' EXIT
say "Random SQL for ${TIME:-3600} seconds from seed $SEED"
"$PYTHON" "$ROOT/tests/differ/differ.py" --port "$PORT" --seconds "${TIME:-3600}" --seed "$SEED" --all | tee "$DIR/report.txt"
