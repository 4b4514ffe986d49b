#!/usr/bin/env bash
# mariabackup of the installed server's version, unpacked into the cache. Prints its path, or nothing if the archive has no such version.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/install.sh" >&2
VERSION=$(dpkg-query -W -f '${Version}' mariadb-server)
DIR=$CACHE/mariabackup-${VERSION#*:}
PROGRAM=$DIR/usr/bin/mariadb-backup
if [ ! -s "$PROGRAM" ]; then
  rm -rf "$DIR"; mkdir -p "$DIR"
  (cd "$DIR" && apt-get download -o APT::Sandbox::User=root -qq mariadb-backup="$VERSION" && dpkg-deb -x ./*.deb . && rm -f ./*.deb) >&2 || { rm -rf "$DIR"; exit 0; }
fi
[ -s "$PROGRAM" ] && echo "$PROGRAM"
