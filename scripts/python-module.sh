#!/usr/bin/env bash
# Builds the Python module's wheel (wheel.sh), as quickly as tests are built, and runs its tests: pytest, mypy on the stubs and the tests, and a comparison of the
# stubs with the module. Arguments go to pytest.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
say "Building the Python module"
SITE=$("$ROOT/scripts/wheel.sh" dev)
OUT=$(dirname "$SITE")
export PATH="$CACHE/venv-module/bin:$PATH" CARGO_TARGET_DIR="$TARGET" PIP_DISABLE_PIP_VERSION_CHECK=1
if [ -z "${TERRACE:-}" ]; then
  say "Building the command, whose daemon is tested"
  cargo build --locked -p terrace-cli --manifest-path "$ROOT/Cargo.toml"
  export TERRACE=$TARGET/debug/terrace
fi
say "Testing the Python module"
export PYTHONPATH=$SITE MYPYPATH=$SITE PYTHONDONTWRITEBYTECODE=1
cd "$ROOT/python"
python -m pytest -q --timeout 900 -p no:cacheprovider "$@"
mypy --cache-dir "$OUT/mypy" -p terrace
mypy --cache-dir "$OUT/mypy" tests
# The classes of fsspec, which has no types, are of any metaclass to mypy.
cd "$OUT" && python -m mypy.stubtest --mypy-config-file "$ROOT/python/pyproject.toml" --allowlist <(printf '%s\n' 'terrace\.fsspec\..*' 'terrace\._asynchronous\..*') --ignore-missing-stub terrace
say "Testing what reads tables through terrace files, and its S3 endpoint"
if [ -z "${S3_SERVER:-}" ]; then
  cargo build --locked -p terrace-io --features object-store --example s3_server --manifest-path "$ROOT/Cargo.toml"
  export S3_SERVER=$TARGET/debug/examples/s3_server
fi
VERSITYGW=$("$ROOT/scripts/versitygw.sh")
export VERSITYGW
"$("$ROOT/scripts/python.sh" files)" -m pytest -q --timeout 900 -p no:cacheprovider "$ROOT/tests/files"
