#!/usr/bin/env bash
# One benchmark by name: a table on the screen and target/bench/NAME.json. Installs what it needs.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
NAME=${1:-}
cd "$ROOT"
OUT=$TARGET/bench
mkdir -p "$OUT"

need() { # Debian packages
  local p missing=
  for p in "$@"; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"; done
  [ -z "$missing" ] || { say "Installing$missing"; $SUDO apt-get update -qq; $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null; }
}

case $NAME in
kv-memory | kv-tiered | memory)
  # The peers: Debian's RocksDB, and LMDB from its crate.
  need g++ make pkg-config librocksdb-dev libclang-dev
  say "Building the benchmark"
  LIBCLANG_PATH=$(dirname "$(find /usr/lib/llvm-*/lib -name 'libclang.so*' -o -name 'libclang-*.so*' | sort | tail -1)")
  export LIBCLANG_PATH ROCKSDB_LIB_DIR=${ROCKSDB_LIB_DIR:-/usr/lib/$(uname -m)-linux-gnu}
  cargo build --release --locked --manifest-path bench/peers/Cargo.toml --target-dir "$TARGET/bench-build"
  "$TARGET/bench-build/release/terrace-bench" "$NAME" "$OUT/$NAME.data" "$OUT/$NAME.json"
  ;;
sql-bypass | sql-cold | sql-first | sql-load | sql-memory)
  "$ROOT/scripts/build.sh" >/dev/null
  need sysbench
  [ "$NAME" != sql-memory ] || MYROCKS=$("$ROOT/scripts/myrocks.sh")
  export MYROCKS=${MYROCKS:-}
  "$("$ROOT/scripts/python.sh")" "bench/${NAME//-/_}.py" "$OUT"
  ;;
*) fail "NAME=$NAME is none of kv-memory, kv-tiered, memory, sql-bypass, sql-cold, sql-first, sql-load, sql-memory" ;;
esac
say "Written: $OUT/$NAME.json"
