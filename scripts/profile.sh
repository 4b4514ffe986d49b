#!/usr/bin/env bash
# Records the profile with which the handler's engine is compiled (crates/sql/profile): makes an instrumented build, runs bench/training.py on it,
# and writes its counts. Takes ten minutes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/install.sh"
need llvm sysbench
HEADERS=$("$ROOT/scripts/server-headers.sh")
BUILD=$TARGET/profile
mkdir -p "$BUILD"
RAW=$(mktemp -d)
trap 'rm -rf "$RAW"' EXIT
say "Building the instrumented engine"
export CARGO_ENCODED_RUSTFLAGS=-Cprofile-generate=$BUILD/others$'\x1f'$(profiled)
(cd "$ROOT" && cargo build --release -p terrace-sql --target-dir "$BUILD")
make --no-print-directory -C "$ROOT/mariadb" -j"$(nproc)" HEADERS="$HEADERS" OUT="$BUILD/mariadb" ENGINE="$BUILD/release/libterrace_sql.a" \
  LDFLAGS="${LDFLAGS:-} -Wl,-u,__llvm_profile_runtime"
say "Running the training workload"
mkdir "$RAW/servers"
TERRACE_PLUGIN=$BUILD/mariadb/ha_terrace.so LLVM_PROFILE_FILE=$RAW/%p.profraw "$("$ROOT/scripts/python.sh")" "$ROOT/bench/training.py" "$RAW/servers"
say "Writing the profile"
python3 "$ROOT/scripts/profile_text.py" "$RAW/text" "$RAW"/*.profraw
OUT=$ROOT/crates/sql/profile
llvm-profdata merge -sparse "$RAW/text" -o "$OUT/engine.profdata"
rustc -V > "$OUT/compiler"
say "Written: $OUT/engine.profdata"
