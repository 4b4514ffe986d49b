#!/usr/bin/env bash
# Builds the engine's library and the handler. Prints the handler's directory last.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/install.sh" >&2
HEADERS=$("$ROOT/scripts/server-headers.sh")
# The recorded profile (scripts/profile.sh) is used if the compiler is the one that recorded it: another one names functions differently.
PROFILE=$ROOT/crates/sql/profile
if [ "$(rustc -V)" = "$(cat "$PROFILE/compiler")" ]; then
  flags=${RUSTFLAGS:-}
  export CARGO_ENCODED_RUSTFLAGS=${flags:+${flags// /$'\x1f'}$'\x1f'}-Cprofile-use=$PROFILE/engine.profdata$'\x1f'$(profiled)
  say "Building the engine" >&2
else
  say "Building the engine, a tenth slower than with $(cat "$PROFILE/compiler"): the profile was recorded with that compiler (make profile records one with yours)" >&2
fi
(cd "$ROOT" && cargo build --release -p terrace-sql) >&2
say "Building the handler" >&2
make --no-print-directory -C "$ROOT/mariadb" -j"$(nproc)" HEADERS="$HEADERS" OUT="$TARGET/mariadb" ENGINE="$TARGET/release/libterrace_sql.a" >&2
echo "$TARGET/mariadb"
