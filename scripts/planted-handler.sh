#!/usr/bin/env bash
# Checks that the SQL tests find each bug that is planted in the handler (mariadb/foreign/planted.h): builds it with the bugs, and plays the tests on it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/build.sh" >/dev/null
OUT=$TARGET/mariadb-planted
make --no-print-directory -C "$ROOT/mariadb" -j"$(nproc)" PLANTED=1 HEADERS="$("$ROOT/scripts/server-headers.sh")" OUT="$OUT" ENGINE="$TARGET/release/libterrace_sql.a"
cd "$ROOT" && TERRACE_PLUGIN=$OUT/ha_terrace.so exec "$("$ROOT/scripts/python.sh")" -m pytest -q tests/sql/foreign_keys/test_planted.py "$@"
