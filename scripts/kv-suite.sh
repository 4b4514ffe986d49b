#!/usr/bin/env bash
# Runs Redis's own test suite, from Debian's source package, against `terrace kv`: FILE..., or those that tests/kv-suite/results.tsv lists. Compares which tests
# fail with tests/kv-suite/differences.tsv and fails on any that is not listed there. RECORD=1 writes both files anew.
# TERRACE names the binary (default: the release build, made if it is missing). Tests of replication, DEBUG and cluster are left out.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VERSION=7.0.15 OUT=$TARGET/kv-suite SECONDS_MAX=${SECONDS_MAX:-180}
RESULTS=$ROOT/tests/kv-suite/results.tsv DIFFERENCES=$ROOT/tests/kv-suite/differences.tsv
need tcl redis-tools dpkg-dev
SOURCE=$CACHE/redis-$VERSION
if [ ! -e "$SOURCE/complete" ]; then
  say "Fetching the source of Redis $VERSION"
  rm -rf "$SOURCE"; mkdir -p "$SOURCE"
  PACKAGE=$(apt-cache $(source_list) showsrc redis 2>/dev/null | awk '$1 == "Version:" { print $2 }' | grep ":$VERSION-" | sort -V | tail -1) || true
  if [ -z "$PACKAGE" ]; then
    retry $SUDO apt-get $(source_list) $APT_PATIENCE update -qq
    PACKAGE=$(apt-cache $(source_list) showsrc redis | awk '$1 == "Version:" { print $2 }' | grep ":$VERSION-" | sort -V | tail -1) || fail "the archive has no source of redis $VERSION"
  fi
  (cd "$SOURCE" && retry apt-get source $(source_list) $APT_PATIENCE --download-only -qq redis="$PACKAGE")
  tar -xf "$SOURCE"/redis_"$VERSION".orig.tar.* -C "$SOURCE" --strip-components 1
  for program in redis-cli redis-benchmark; do ln -sf "$(command -v $program)" "$SOURCE/src/$program"; done
  # The suite empties the functions before each file; a server without functions has none.
  sed -i 's/^    r function flush$/    catch {r function flush}/' "$SOURCE/tests/support/server.tcl"
  touch "$SOURCE/complete"
fi
TERRACE=${TERRACE:-$TARGET/release/terrace}
[ -x "$TERRACE" ] || (cd "$ROOT" && cargo build --release -p terrace-cli --bin terrace)
[ $# -gt 0 ] || set -- $(awk -F'\t' 'NR > 1 { print $1 }' "$RESULTS")
rm -rf "$OUT"; mkdir -p "$OUT"

start() { # a server of its own for each file: one that a test leaves busy does not spoil the next
  "$TERRACE" kv --port 0 2>"$OUT/server.log" &
  SERVER=$!
  until PORT=$(sed -n 's/.* ready to accept connections on .*:\([0-9]*\);.*/\1/p' "$OUT/server.log") && [ -n "$PORT" ]; do
    kill -0 $SERVER || fail "the server did not start: $OUT/server.log"
  done
}
stop() { [ -z "${SERVER:-}" ] || { kill "$SERVER" && wait "$SERVER"; } 2>/dev/null || true; SERVER=; }
trap stop EXIT

printf 'file\tpassed\tfailed\tignored\tend\n' >"$OUT/results.tsv"
printf 'file\ttest\n' >"$OUT/failed.tsv"
for file in "$@"; do
  log=$OUT/$(echo "$file" | tr / -).log end=complete
  start
  (cd "$SOURCE" && TERM=dumb timeout "$SECONDS_MAX" ./runtest --host 127.0.0.1 --port "$PORT" --single "$file" --durable --timeout "$SECONDS_MAX" \
    --tags "-needs:repl -needs:debug -cluster") >"$log" 2>&1 || true
  stop
  sed -i 's/\x1b\[[0-9;]*m//g' "$log"
  grep -q '^\[1/1 done\]' "$log" || end=stopped
  count() { grep -c "^\[$1\]:" "$log" || true; }
  printf '%s\t%s\t%s\t%s\t%s\n' "$file" "$(count ok)" "$(count err)" "$(count ignore)" $end | tee -a "$OUT/results.tsv"
  sed -n 's/^\[err\]: \(.*\) in tests\/.*/\1/p' "$log" | sort -u | sed "s|^|$file\t|" >>"$OUT/failed.tsv"
  [ $end = complete ] || printf '%s\t%s\n' "$file" "(did not end)" >>"$OUT/failed.tsv"
done

if [ -n "${RECORD:-}" ]; then
  cp "$OUT/results.tsv" "$RESULTS"
  # Keeps the reasons of what is listed already.
  awk -F'\t' -v OFS='\t' 'NR == FNR { why[$1, $2] = $3; next } FNR == 1 { print "file", "test", "why"; next } { print $1, $2, (($1, $2) in why ? why[$1, $2] : "not explained yet") }' \
    "$DIFFERENCES" "$OUT/failed.tsv" >"$OUT/differences.tsv"
  cp "$OUT/differences.tsv" "$DIFFERENCES"
  exit
fi
NEW=$(awk -F'\t' 'NR == FNR { known[$1, $2]; next } FNR > 1 && !(($1, $2) in known)' "$DIFFERENCES" "$OUT/failed.tsv")
[ -z "$NEW" ] || fail "tests that fail and are not listed in $DIFFERENCES:"$'\n'"$NEW"
say "No test fails that is not listed in tests/kv-suite/differences.tsv"
