#!/usr/bin/env bash
# Builds `terrace files` and the Python module, starts an S3 server over a directory and the daemon over it, runs the demo (demo/files.py), and stops both.
# TERRACE, S3_SERVER and SITE (the module's directory) take what is built already. DELAY: milliseconds that each request to the store waits.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
DIR=${DIR:-$ROOT/var/files}
PORT=${PORT:-9330}
DELAY=${DELAY:-10}
cd "$ROOT"
if [ -z "${TERRACE:-}" ]; then
  say "Building terrace"
  cargo build --release -p terrace-cli
  TERRACE=$TARGET/release/terrace
fi
if [ -z "${S3_SERVER:-}" ]; then
  say "Building the S3 server"
  cargo build --release -p terrace-io --features object-store --example s3_server
  S3_SERVER=$TARGET/release/examples/s3_server
fi
if [ -z "${SITE:-}" ]; then
  say "Building the Python module"
  SITE=$("$ROOT/scripts/wheel.sh" release)
fi
PYTHON=$("$ROOT/scripts/python.sh" files)
STARTED=()
ended() {
  local pid
  for pid in "${STARTED[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; done
}
trap ended EXIT
begin() { # a name, a line that says that it serves, a command
  local name=$1 line=$2 i
  shift 2
  "$@" >"$DIR/$name.log" 2>&1 </dev/null &
  STARTED=("$!" "${STARTED[@]}")
  for i in $(seq 1 300); do
    grep -q "$line" "$DIR/$name.log" && return
    kill -0 "${STARTED[0]}" 2>/dev/null || { cat "$DIR/$name.log" >&2; fail "$name has ended"; }
    sleep 0.1
  done
  fail "$name does not start; see $DIR/$name.log"
}
mkdir -p "$DIR/buckets/flights" "$DIR/flash"
# The server of the tests accepts this key alone.
export AWS_ACCESS_KEY_ID=TESTKEY AWS_SECRET_ACCESS_KEY=test-secret-that-must-not-show AWS_REGION=us-east-1
say "Starting an S3 server on 127.0.0.1:$PORT, each of whose requests takes $DELAY ms more than here"
echo "$DELAY" >"$DIR/buckets/delay-ms"
begin s3 "listening on" "$S3_SERVER" "$DIR/buckets" "$PORT"
daemon() {
  begin daemon "serving" "$TERRACE" files --store s3://flights --store-endpoint "http://127.0.0.1:$PORT" --memory 512M --flash "$DIR/flash:2G" \
    --socket "$DIR/socket" --freshness ttl=10m
}
say "Starting terrace files"
daemon
export PYTHONPATH=$SITE
demo() { "$PYTHON" "$ROOT/demo/files.py" --socket "$DIR/socket" --bucket "$DIR/buckets/flights" "$@"; }
demo
say "Killing the daemon with SIGKILL, and starting it again: what was on flash is used"
kill -KILL "${STARTED[0]}"
wait "${STARTED[0]}" 2>/dev/null || true
STARTED=("${STARTED[@]:1}")
daemon
demo --again
