#!/usr/bin/env bash
# Runs one benchmark by name: prints a table and writes target/bench/NAME.json. Installs what it needs.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
NAME=${1:-}
cd "$ROOT"
OUT=$TARGET/bench
mkdir -p "$OUT"

# The peers: Debian's RocksDB, and LMDB from its crate.
peers() {
  need g++ make pkg-config librocksdb-dev libclang-dev
  say "Building the benchmark"
  LIBCLANG_PATH=$(dirname "$(find /usr/lib/llvm-*/lib -name 'libclang.so*' -o -name 'libclang-*.so*' | sort | tail -1)")
  export LIBCLANG_PATH ROCKSDB_LIB_DIR=${ROCKSDB_LIB_DIR:-/usr/lib/$(uname -m)-linux-gnu}
  cargo build --release --locked --manifest-path bench/peers/Cargo.toml --target-dir "$TARGET/bench-build"
  "$TARGET/bench-build/release/terrace-bench" "$1" "$OUT/$1.data" "$OUT/$1.json"
}

case $NAME in
kv-memory | kv-tiered | memory)
  peers "$NAME"
  ;;
embedded)
  say "Building the benchmark"
  cargo build --release --locked -p terrace-cli
  rm -rf "$OUT/embedded.data"
  "$TARGET/release/terrace" bench embedded --directory "$OUT/embedded.data" --records "${RECORDS:-200000}" --threads "${THREADS:-2}" \
    --millis "${MILLIS:-3000}" --rounds "${RUNS:-5}" --json >"$OUT/embedded.json"
  cat "$OUT/embedded.json"
  ;;
kv-redis)
  need redis-tools
  say "Building the benchmark"
  cargo build --release --locked -p terrace-cli
  TERRACE=$TARGET/release/terrace python3 bench/kv_redis.py "$OUT"
  ;;
split)
  say "Building the benchmark"
  cargo build --release --locked -p terrace-cli
  rm -rf "$OUT/split.data"
  TERRACE=$TARGET/release/terrace "$("$ROOT/scripts/python.sh" plots)" bench/split.py "$OUT"
  ;;
files)
  if [ -z "${TERRACE:-}" ]; then
    say "Building the benchmark"
    cargo build --release --locked -p terrace-cli
    TERRACE=$TARGET/release/terrace
  fi
  if [ -z "${S3_SERVER:-}" ]; then
    cargo build --release --locked -p terrace-io --features object-store --example s3_server
    S3_SERVER=$TARGET/release/examples/s3_server
  fi
  [ -n "${SITE:-}" ] || SITE=$("$ROOT/scripts/wheel.sh" release)
  "$ROOT/scripts/install-c.sh" "$OUT/files-c" terrace_files
  cc -O2 -o "$OUT/files-c/files" bench/files.c -I "$OUT/files-c/include" "$OUT/files-c/lib/libterrace_files_c.a" -lcurl -lpthread -ldl -lm
  TERRACE=$TERRACE S3_SERVER=$S3_SERVER SITE=$SITE FILES_C=$OUT/files-c/files "$("$ROOT/scripts/python.sh" files)" bench/files.py "$OUT"
  say "Measuring packed files on an emulated flash, and memory objects"
  cargo test --release --locked -p terrace-files --test speed --test reconstruction -- --ignored --nocapture --test-threads 1 | grep -E "round|packed to|MiB in" | tee "$OUT/files-packed.txt"
  ;;
traces)
  JAR=$CACHE/simulator-3.2.4.jar
  if [ ! -s "$JAR" ]; then
    command -v mvn >/dev/null || need maven
    say "Fetching the traces"
    mkdir -p "$OUT/jar"
    retry mvn -q -B dependency:get -Dartifact=com.github.ben-manes.caffeine:simulator:3.2.4 -Dtransitive=false
    mvn -q -B dependency:copy -Dartifact=com.github.ben-manes.caffeine:simulator:3.2.4 -DoutputDirectory="$OUT/jar"
    mv "$OUT/jar/simulator-3.2.4.jar" "$JAR"
    rm -rf "$OUT/jar"
  fi
  cargo build --release --locked -p terrace-cli
  JAR=$JAR TERRACE=$TARGET/release/terrace "$("$ROOT/scripts/python.sh" plots)" bench/traces.py "$OUT"
  ;;
fig6 | fig7 | fig8a | fig8b | fig8c | fig-split | table2 | sql-*)
  [ -f "bench/${NAME//-/_}.py" ] || fail "there is no benchmark $NAME"
  "$ROOT/scripts/build.sh" >/dev/null
  need sysbench
  [ "$NAME" != sql-instructions ] || need valgrind
  case $NAME in sql-disk | sql-load | sql-memory | sql-tables | sql-tpcc)
    # The path of MyRocks' library; MYROCKS= leaves MyRocks out.
    [ -n "${MYROCKS+set}" ] || { MYROCKS=$("$ROOT/scripts/myrocks.sh"); [ -n "$MYROCKS" ] || say "The package archive has no MyRocks of the server's version"; } ;;
  esac
  export MYROCKS=${MYROCKS:-}
  if [ "$NAME" = sql-tpcc ]; then
    command -v go >/dev/null || need golang-go
    (cd tests/apps/tpc && go build -o "$OUT/go-tpc" github.com/pingcap/go-tpc/cmd/go-tpc)
  fi
  [ "$NAME" != table2 ] || cargo build --release --locked -p terrace-cli
  # YCSB on the library needs the peers' binary.
  case $NAME,${HALF:-ycsb}, in fig6,ycsb,* | fig6,*,ycsb,*) peers fig6-ycsb ;; esac
  WITH=
  case $NAME in fig*) WITH=plots ;; esac
  "$("$ROOT/scripts/python.sh" $WITH)" "bench/${NAME//-/_}.py" "$OUT"
  ;;
*) fail "NAME=$NAME is not one of embedded, files, kv-memory, kv-redis, kv-tiered, memory, fig6, fig7, fig8a, fig8b, fig8c, fig-split, split, sql-bypass, sql-cold, sql-disk, sql-first, sql-flash, sql-foreign-keys, sql-instructions, sql-load, sql-locks, sql-memory, sql-tables, sql-tpcc, table2, traces" ;;
esac
say "Written: $OUT/$NAME.json"
