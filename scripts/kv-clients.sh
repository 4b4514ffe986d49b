#!/usr/bin/env bash
# Runs programs of others on `terrace kv` (about a minute): Celery and RQ with a thousand jobs each, Django's cache, go-redis, Jedis. TERRACE names the
# binary (default: the debug build). Needs go (1.23), java (17) and mvn; what is missing is an error.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export TERRACE=${TERRACE:-$TARGET/debug/terrace}
[ -x "$TERRACE" ] || (cd "$ROOT" && cargo build -p terrace-cli --bin terrace)
CLIENTS=$ROOT/tests/kv/clients VENV=$CACHE/venv-kv-clients OUT=$TARGET/kv-clients
if [ ! -e "$VENV/complete-1" ]; then
  say "Making a Python environment"
  python3 -m venv "$VENV"
  retry "$VENV/bin/pip" install -q --disable-pip-version-check --retries 10 --timeout 60 celery==5.7.0 rq==3.0.0 django==5.2.19 redis==8.1.0 hiredis==3.5.0 pytest==9.2.0
  touch "$VENV/complete-1"
fi
"$VENV/bin/python" -m pytest -q -p no:cacheprovider "$CLIENTS/python"

mkdir -p "$OUT"
"$TERRACE" kv --port 0 2>"$OUT/server.log" &
SERVER=$!
trap 'kill $SERVER 2>/dev/null || true' EXIT
until PORT=$(sed -n 's/.* ready to accept connections on .*:\([0-9]*\);.*/\1/p' "$OUT/server.log") && [ -n "$PORT" ]; do
  kill -0 $SERVER || fail "the server did not start: $OUT/server.log"
done
(cd "$CLIENTS/go" && KV_ADDRESS=127.0.0.1:$PORT go test -count=1 ./...)
rm -rf "$OUT/java" && cp -r "$CLIENTS/java" "$OUT/java"
(cd "$OUT/java" && mvn -q -B compile exec:java -Dexec.mainClass=Kv -Dexec.args="$PORT")
