#!/usr/bin/env bash
# MyRocks of the installed server's version, unpacked into the cache. Prints its library's path, or nothing if the
# archive has no such version.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/install.sh" >&2
VERSION=$(dpkg-query -W -f '${Version}' mariadb-server)
DIR=$CACHE/myrocks-${VERSION#*:}
SO=$DIR/usr/lib/mysql/plugin/ha_rocksdb.so
if [ ! -s "$SO" ] || [ ! -e "$DIR/depends" ]; then
  rm -rf "$DIR"; mkdir -p "$DIR"
  (cd "$DIR" && apt-get download -o APT::Sandbox::User=root -qq mariadb-plugin-rocksdb="$VERSION" && dpkg-deb -x ./*.deb . && dpkg-deb -f ./*.deb Depends >depends && rm -f ./*.deb) >&2 || { rm -rf "$DIR"; exit 0; }
fi
# The server cannot load it without the libraries on which its package depends.
if ldd "$SO" | grep -q 'not found'; then
  LIBRARIES=$(tr ',' '\n' <"$DIR/depends" | sed -n 's/^ *\(lib[^ (|]*\).*/\1/p')
  say "Installing$(printf ' %s' $LIBRARIES)" >&2
  retry $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $APT_PATIENCE --no-install-recommends $LIBRARIES >&2
fi
echo "$SO"
