#!/usr/bin/env bash
# Runs Redis's own test suite, from Debian's source package, against `terrace kv`: FILE..., or those that tests/kv-suite/results.tsv lists. Compares which tests
# fail with tests/kv-suite/differences.tsv and fails on any that is not listed there. RECORD=1 writes both files anew, for the files that were run.
# The suite starts the server itself, with its own configuration files, so that tests which need a server of their own run too; data is in memory alone.
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
  touch "$SOURCE/complete"
fi
TERRACE=${TERRACE:-$TARGET/release/terrace}
[ -x "$TERRACE" ] || (cd "$ROOT" && cargo build --release -p terrace-cli --bin terrace)
export TERRACE
[ $# -gt 0 ] || set -- $(awk -F'\t' 'NR > 1 { print $1 }' "$RESULTS")
rm -rf "$OUT"; mkdir -p "$OUT"

# Runs leave temporary files in the suite's directory: each has a copy.
SUITE=$OUT/redis
mkdir -p "$SUITE/src"
cp -r "$SOURCE/tests" "$SOURCE/runtest" "$SUITE/"
for program in redis-cli redis-benchmark; do ln -sf "$(command -v $program)" "$SUITE/src/$program"; done
install -m 755 "$ROOT/scripts/kv-suite-server.sh" "$SUITE/src/redis-server"

# Tests of redis-server's command line and of its log file.
cat >"$OUT/skipped" <<'SKIPPED'
redis-server command line arguments - error cases
redis-server command line arguments - allow passing option name and option value in the same arg
redis-server command line arguments - wrong usage that we support anyway
redis-server command line arguments - allow option value to use the `--` prefix
redis-server command line arguments - take one bulk string with spaces for MULTI_ARG configs parsing
redis-server command line arguments - dir multiple times
redis-server command line arguments - save with empty input
Test loading duplicate users in config on startup
SKIPPED

printf 'file\tpassed\tfailed\tignored\tend\n' >"$OUT/results.tsv"
printf 'file\ttest\n' >"$OUT/failed.tsv"
for file in "$@"; do
  log=$OUT/$(echo "$file" | tr / -).log end=complete
  (cd "$SUITE" && TERM=dumb timeout "$SECONDS_MAX" ./runtest --clients 1 --single "$file" --durable --timeout "$SECONDS_MAX" --baseport "${BASE_PORT:-21111}" --skipfile "$OUT/skipped" \
    --tags "-needs:repl -needs:debug -cluster") >"$log" 2>&1 || true
  sed -i 's/\x1b\[[0-9;]*m//g' "$log"
  grep -q '^\[1/1 done\]' "$log" || end=stopped
  count() { grep -c "^\[$1\]:" "$log" || true; }
  printf '%s\t%s\t%s\t%s\t%s\n' "$file" "$(count ok)" "$(count err)" "$(count ignore)" $end | tee -a "$OUT/results.tsv"
  sed -n 's/^\[err\]: \(.*\) in tests\/.*/\1/p' "$log" | sort -u | sed "s|^|$file\t|" >>"$OUT/failed.tsv"
  [ $end = complete ] || printf '%s\t%s\n' "$file" "(did not end)" >>"$OUT/failed.tsv"
done

if [ -n "${RECORD:-}" ]; then
  # What was not run stays as it was; the reasons of what is listed stay too.
  awk -F'\t' 'NR == FNR { new[$1] = $0; order[n++] = $1; next } FNR == 1 || !($1 in new) { print; next } { print new[$1]; seen[$1] }
    END { for (i = 1; i < n; i++) if (!(order[i] in seen)) print new[order[i]] }' "$OUT/results.tsv" "$RESULTS" >"$OUT/all-results.tsv"
  awk -F'\t' -v OFS='\t' -v ran="$*" 'BEGIN { split(ran, list, " "); for (i in list) was_run[list[i]] }
    NR == FNR { why[$1, $2] = $3; if (FNR == 1 || !($1 in was_run)) print; next }
    FNR > 1 { print $1, $2, (($1, $2) in why ? why[$1, $2] : "not explained yet") }' "$DIFFERENCES" "$OUT/failed.tsv" >"$OUT/differences.tsv"
  cp "$OUT/all-results.tsv" "$RESULTS"
  cp "$OUT/differences.tsv" "$DIFFERENCES"
  exit
fi
NEW=$(awk -F'\t' 'NR == FNR { known[$1, $2]; next } FNR > 1 && !(($1, $2) in known)' "$DIFFERENCES" "$OUT/failed.tsv")
[ -z "$NEW" ] || fail "tests that fail and are not listed in $DIFFERENCES:"$'\n'"$NEW"
say "No test fails that is not listed in tests/kv-suite/differences.tsv"
