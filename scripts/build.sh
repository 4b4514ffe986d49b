#!/usr/bin/env bash
# Builds the engine's library and the handler. Prints the handler's directory last.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/install.sh" >&2
HEADERS=$("$ROOT/scripts/server-headers.sh")
say "Building the engine" >&2
(cd "$ROOT" && cargo build --release -p terrace-sql) >&2
say "Building the handler" >&2
make --no-print-directory -C "$ROOT/mariadb" -j"$(nproc)" HEADERS="$HEADERS" OUT="$TARGET/mariadb" ENGINE="$TARGET/release/libterrace_sql.a" >&2
echo "$TARGET/mariadb"
