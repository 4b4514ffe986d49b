#!/bin/bash
# Stands for redis-server in Redis's test suite: starts `terrace kv` (TERRACE names the binary) with the suite's configuration file, in the directory that
# `dir` names and with data in memory alone, and says in its log what the suite waits for. See scripts/kv-suite.sh.
CONF=$(realpath "$1")
shift
DIR=$(sed -n 's/^dir //p' "$CONF" | tail -1)
grep -v '^dir ' "$CONF" >"$CONF.memory"
cd "${DIR:-.}" || exit
echo "terrace PID: $$"
exec "$TERRACE" kv "$CONF.memory" "$@" 2> >(sed -u 's/.*ready to accept connections/Ready to accept connections/')
