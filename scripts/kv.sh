#!/usr/bin/env bash
# Builds `terrace kv`, starts it on 127.0.0.1:6380 with a directory as its object store, loads real data, asks, shows where values live.
# Leaves the server running; `kv.sh stop` stops it. TERRACE=path takes a binary that is built already.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
PORT=${PORT:-6380}
DIR=${DIR:-$ROOT/var/kv}
cd "$ROOT"
alive() { [ -s "$DIR/pid" ] && kill -0 "$(cat "$DIR/pid")" 2>/dev/null; }
if [ "${1:-}" = stop ]; then
  alive || exit 0
  "$("$ROOT/scripts/python.sh")" -c "import redis; redis.Redis(port=$PORT).shutdown()"
  while alive; do sleep 0.1; done
  rm -f "$DIR/pid"
  exit 0
fi
if [ -z "${TERRACE:-}" ]; then
  say "Building terrace"
  cargo build --release -p terrace-cli
  TERRACE=$TARGET/release/terrace
fi
PYTHON=$("$ROOT/scripts/python.sh")
if alive; then
  say "terrace kv runs already"
else
  say "Starting terrace kv on 127.0.0.1:$PORT"
  mkdir -p "$DIR/objects"
  setsid "$TERRACE" kv --port "$PORT" --dir "$DIR/data" --object "$DIR/objects" --memory 96mb >"$DIR/log" 2>&1 </dev/null &
  echo $! >"$DIR/pid"
  for i in $(seq 1 300); do
    grep -q "ready to accept" "$DIR/log" && break
    alive || { cat "$DIR/log" >&2; fail "terrace kv has ended"; }
    [ "$i" -lt 300 ] || fail "terrace kv does not start; see $DIR/log"
    sleep 0.1
  done
fi
"$PYTHON" "$ROOT/demo/kv.py" --port "$PORT"
echo
echo "The server runs. Connect: redis-cli -p $PORT    Stop: scripts/kv.sh stop"
