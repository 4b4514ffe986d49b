#!/usr/bin/env bash
# Puts a C interface into a place: install-c.sh PREFIX [NAME]. Headers, static and shared library, pkg-config file. NAME is terrace, the embedded store
# (default), or terrace_files, the client of `terrace files`.
# BUILT names a directory with libraries that are built already; without it they are built here, optimized.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
PREFIX=${1:?usage: install-c.sh PREFIX [NAME]}
NAME=${2:-terrace}
case $NAME in
terrace) CRATE=capi LIBRARY=terrace_c ABOUT="An embedded tiered store" ;;
terrace_files) CRATE=files-capi LIBRARY=terrace_files_c ABOUT="A cache of an object store's files: the client" ;;
*) fail "there is no interface $NAME" ;;
esac
if [ -z "${BUILT:-}" ]; then
  (cd "$ROOT" && cargo build --release -p terrace-$CRATE)
  BUILT=$TARGET/release
fi
mkdir -p "$PREFIX/include" "$PREFIX/lib/pkgconfig"
PREFIX=$(cd "$PREFIX" && pwd)
cp "$ROOT/crates/$CRATE/include/"* "$PREFIX/include/"
cp "$BUILT/lib$LIBRARY.a" "$BUILT/lib$LIBRARY.so" "$PREFIX/lib/"
VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml" | head -1)
cat >"$PREFIX/lib/pkgconfig/$NAME.pc" <<PC
prefix=$PREFIX
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $NAME
Description: $ABOUT
Version: $VERSION
Cflags: -I\${includedir}
Libs: -L\${libdir} -l$LIBRARY
Libs.private: -lcurl -lpthread -ldl -lm
PC
