#!/usr/bin/env bash
# Puts the C interface of the embedded store into a place: install-c.sh PREFIX. Header, static and shared library, pkg-config file.
# BUILT names a directory with libraries that are built already; without it they are built here, optimized.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
PREFIX=${1:?usage: install-c.sh PREFIX}
if [ -z "${BUILT:-}" ]; then
  (cd "$ROOT" && cargo build --release -p terrace-capi)
  BUILT=$TARGET/release
fi
mkdir -p "$PREFIX/include" "$PREFIX/lib/pkgconfig"
PREFIX=$(cd "$PREFIX" && pwd)
cp "$ROOT/crates/capi/include/terrace.h" "$PREFIX/include/"
cp "$BUILT/libterrace_c.a" "$BUILT/libterrace_c.so" "$PREFIX/lib/"
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -1)
cat >"$PREFIX/lib/pkgconfig/terrace.pc" <<PC
prefix=$PREFIX
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: terrace
Description: An embedded tiered store
Version: $VERSION
Cflags: -I\${includedir}
Libs: -L\${libdir} -lterrace_c
Libs.private: -lcurl -lpthread -ldl -lm
PC
