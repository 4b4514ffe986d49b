#!/usr/bin/env bash
# Runs the server's own test suites with Terrace and with InnoDB: SUITE, or all known ones. See tests/mtr/suites.py.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
"$ROOT/scripts/build.sh" >/dev/null
VERSION=$(dpkg-query -W -f '${Version}' mariadb-server)
PACKAGES=$CACHE/mtr-${VERSION#*:}
if [ ! -e "$PACKAGES/complete" ]; then
  say "Fetching the test packages of MariaDB ${VERSION#*:}"
  rm -rf "$PACKAGES"; mkdir -p "$PACKAGES/root"
  (cd "$PACKAGES" && apt-get download -qq "mariadb-test=$VERSION" "mariadb-test-data=$VERSION") 2>/dev/null ||
    fail "the archive has no mariadb-test of $VERSION: run apt-get update"
  for p in "$PACKAGES"/*.deb; do dpkg -x "$p" "$PACKAGES/root"; rm "$p"; done
  touch "$PACKAGES/complete"
fi
command -v patch >/dev/null || { $SUDO apt-get update -qq; $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq patch >/dev/null; }
exec python3 "$ROOT/tests/mtr/suites.py" --packages "$PACKAGES/root" --plugin "$TARGET/mariadb/ha_terrace.so" --out "$TARGET/suites" "$@"
