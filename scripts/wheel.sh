#!/usr/bin/env bash
# Builds the Python module's wheel and installs it into a directory of its own, whose path is printed, for PYTHONPATH. `wheel.sh dev`: as quickly as tests
# are built; `wheel.sh release`: to be used.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
PROFILE=${1:-release}
VENV=$CACHE/venv-module
if [ ! -e "$VENV/complete-3" ]; then
  say "Making a Python environment for the module" >&2
  python3 -m venv "$VENV"
  retry "$VENV/bin/pip" install -q --disable-pip-version-check --retries 10 --timeout 60 maturin==1.16.0 mypy==2.4.1 mypy_extensions==1.2.0 typing_extensions==4.16.0 \
    pathspec==1.1.1 librt==0.17.0 ast_serialize==0.13.1 pytest==8.3.4 pytest-timeout==2.4.0 iniconfig==2.3.1 packaging==26.4 pluggy==1.7.0 fsspec==2026.9.0 >&2
  touch "$VENV/complete-3"
fi
OUT=$TARGET/python
[ "$PROFILE" = dev ] || OUT=$TARGET/python-$PROFILE
rm -rf "$OUT"
mkdir -p "$OUT"
export PATH="$VENV/bin:$PATH" CARGO_TARGET_DIR="$TARGET" PIP_DISABLE_PIP_VERSION_CHECK=1
MATURIN_PEP517_ARGS="--locked --profile $PROFILE" pip wheel -q --no-deps --no-build-isolation --wheel-dir "$OUT" "$ROOT/python" >&2
pip install -q --no-deps --no-index --target "$OUT/site" "$OUT"/terrace-*-abi3-*.whl >&2
echo "$OUT/site"
