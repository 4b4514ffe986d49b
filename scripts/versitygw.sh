#!/usr/bin/env bash
# Builds versitygw, an S3 server over a directory, into the cache, and prints its path: a server of other people's for the tests of `terrace files`. Where there is no
# Go, or its modules cannot be had, it says so and prints nothing; the tests that need it are skipped then.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VERSION=v1.8.0
BIN=$CACHE/versitygw-$VERSION/versitygw
if [ ! -x "$BIN" ]; then
  command -v go >/dev/null || { echo "versitygw is not built: there is no go command" >&2; exit 0; }
  say "Building versitygw $VERSION" >&2
  if ! GOBIN=$CACHE/versitygw-$VERSION retry go install "github.com/versity/versitygw/cmd/versitygw@$VERSION" >&2; then
    echo "versitygw is not built: go install failed" >&2
    exit 0
  fi
fi
echo "$BIN"
