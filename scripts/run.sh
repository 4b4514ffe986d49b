#!/usr/bin/env bash
# Starts a MariaDB with Terrace on 127.0.0.1:3307, loads real data and queries it. Leaves the server running.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
PORT=${PORT:-3307}
cd "$ROOT"
"$ROOT/scripts/build.sh" >/dev/null
PYTHON=$("$ROOT/scripts/python.sh")
say "Starting MariaDB with Terrace on 127.0.0.1:$PORT"
"$ROOT/scripts/server.sh" start "$ROOT/var" "$PORT" --terrace-memory=33554432 \
  --terrace-flash-path="$ROOT/var/flash" --terrace-flash=134217728 \
  --innodb-buffer-pool-size=33554432 --terrace-object="$ROOT/var/objects" --terrace-object-buffer=50331648 --terrace-sink-after-ms=60000
STATUS=$(mariadb --no-defaults --socket="$ROOT/var/sock" -uroot -N -e "SELECT plugin_status FROM information_schema.plugins WHERE plugin_name = 'TERRACE'")
[ "$STATUS" = ACTIVE ] || { grep Terrace: "$ROOT/var/error.log" | tail -3 >&2; fail "the server runs without the engine: make stop, and see $ROOT/var/error.log"; }
"$PYTHON" "$ROOT/demo/demo.py" --port "$PORT"
echo
echo "The server runs. Connect: mariadb --no-defaults -h 127.0.0.1 -P $PORT -u root flights_terrace    Stop: make stop"
