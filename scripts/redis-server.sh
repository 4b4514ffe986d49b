#!/usr/bin/env bash
# Prints a redis-server 7.0 for tests that compare with it: the machine's own, or the program of Debian's redis-tools under that name (the checker of RDB files is the server).
set -euo pipefail
. "$(dirname "$0")/lib.sh"
if command -v redis-server; then exit; fi
need redis-tools >&2
mkdir -p "$CACHE/redis"
ln -sf "$(command -v redis-check-rdb)" "$CACHE/redis/redis-server"
echo "$CACHE/redis/redis-server"
