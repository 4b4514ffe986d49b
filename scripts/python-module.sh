#!/usr/bin/env bash
# Builds the Python module's wheel, as quickly as tests are built, and runs its tests: pytest, mypy on the stubs and the tests, and a comparison of the
# stubs with the module. Arguments go to pytest.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VENV=$CACHE/venv-module
if [ ! -e "$VENV/complete-2" ]; then
  say "Making a Python environment for the module"
  python3 -m venv "$VENV"
  retry "$VENV/bin/pip" install -q --disable-pip-version-check --retries 10 --timeout 60 maturin==1.16.0 mypy==2.4.1 mypy_extensions==1.2.0 typing_extensions==4.16.0 \
    pathspec==1.1.1 librt==0.17.0 ast_serialize==0.13.1 pytest==8.3.4 iniconfig==2.3.1 packaging==26.4 pluggy==1.7.0 fsspec==2026.9.0
  touch "$VENV/complete-2"
fi
OUT=$TARGET/python
rm -rf "$OUT"
mkdir -p "$OUT"
export PATH="$VENV/bin:$PATH" CARGO_TARGET_DIR="$TARGET" PIP_DISABLE_PIP_VERSION_CHECK=1
say "Building the Python module"
MATURIN_PEP517_ARGS="--locked --profile dev" pip wheel -q --no-deps --no-build-isolation --wheel-dir "$OUT" "$ROOT/python"
pip install -q --no-deps --no-index --target "$OUT/site" "$OUT"/terrace-*-abi3-*.whl
if [ -z "${TERRACE:-}" ]; then
  say "Building the command, whose daemon is tested"
  cargo build --locked -p terrace-cli --manifest-path "$ROOT/Cargo.toml"
  export TERRACE=$TARGET/debug/terrace
fi
say "Testing the Python module"
export PYTHONPATH=$OUT/site MYPYPATH=$OUT/site PYTHONDONTWRITEBYTECODE=1
cd "$ROOT/python"
python -m pytest -q -p no:cacheprovider "$@"
mypy --cache-dir "$OUT/mypy" -p terrace
mypy --cache-dir "$OUT/mypy" tests
# The classes of fsspec, which has no types, are of any metaclass to mypy.
cd "$OUT" && python -m mypy.stubtest --mypy-config-file "$ROOT/python/pyproject.toml" --allowlist <(echo 'terrace\.fsspec\..*') --ignore-missing-stub terrace
