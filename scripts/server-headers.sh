#!/usr/bin/env bash
# Makes the server's headers, which its packages lack: unpacks its source package, configures it as the package is, and makes the generated
# headers. Keeps them in a cache outside the repository, by version. Prints the directory.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VERSION=$(dpkg-query -W -f '${Version}' mariadb-server)
PLAIN=${VERSION#*:}
DIR=$CACHE/headers-$PLAIN
if [ ! -e "$DIR/complete" ]; then
  {
    say "Unpacking the source of MariaDB $PLAIN"
    rm -rf "$DIR"; mkdir -p "$DIR"
    fetch_source "$VERSION" "$CACHE/source-$PLAIN" || fail "the archive has no source of mariadb $VERSION"
    mkdir "$DIR/tree" "$DIR/build"
    tar xzf "$CACHE/source-$PLAIN"/mariadb_*.orig.tar.gz -C "$DIR/tree" --strip-components=1
    say "Configuring the source (about a minute)"
    cd "$DIR/build"
    off=
    for p in ROCKSDB MROONGA SPIDER CONNECT OQGRAPH COLUMNSTORE S3 AUTH_PAM AUTH_GSSAPI AUTH_GSSAPI_CLIENT; do off="$off -DPLUGIN_$p=NO"; done
    cmake -G "Unix Makefiles" "$DIR/tree" -DBUILD_CONFIG=mysql_release -DIGNORE_AIO_CHECK=YES $off \
      -DWITH_SSL=system -DWITH_ZLIB=system -DWITH_PCRE=system -DWITH_LIBFMT=system > cmake.log 2>&1 || { tail -20 cmake.log; fail "configuring failed: $DIR/build/cmake.log"; }
    make GenError mysqlservices > make.log 2>&1 || { tail -20 make.log; fail "making the headers failed: $DIR/build/make.log"; }
    touch "$DIR/complete"
  } >&2
fi
echo "$DIR"
