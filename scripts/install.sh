#!/usr/bin/env bash
# Installs what a fresh Debian 12 lacks: the newest MariaDB server whose source is in the archive, and what building the handler needs.
# Quick if everything is installed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
export DEBIAN_FRONTEND=noninteractive

NEEDED="bison cmake g++ make pkg-config dpkg-dev libncurses-dev libssl-dev zlib1g-dev libpcre2-dev libfmt-dev libcurl4-openssl-dev python3-venv xfsprogs"
STAMP=$CACHE/server-version

RUST=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$ROOT/Cargo.toml")
command -v cargo >/dev/null || fail "Rust is missing: install $RUST or newer with rustup, then run this again"
HAVE=$(cargo --version | awk '{print $2}')
[ "$(printf '%s\n' "$RUST" "$HAVE" | sort -V | head -1)" = "$RUST" ] || fail "Rust is $HAVE, and $RUST or newer is needed (Debian's own is too old): install it with rustup, then run this again"

have() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }
missing=
for p in $NEEDED mariadb-server mariadb-client; do have "$p" || missing="$missing $p"; done
if [ -z "$missing" ] && [ -s "$STAMP" ] && [ "$(dpkg-query -W -f '${Version}' mariadb-server)" = "$(cat "$STAMP")" ]; then
  exit 0
fi

mkdir -p "$CACHE"
say "Reading the package lists"
retry $SUDO apt-get update -qq $APT_PATIENCE
# Source packages too, in a list of its own.
OPTIONS=$(source_list)
retry $SUDO apt-get update -qq $APT_PATIENCE $OPTIONS -o APT::Get::List-Cleanup=0

# The newest version that has both a binary and a source: the newest security build may lack its source.
VERSION=
for v in $(apt-cache madison mariadb-server | awk -F'|' '/Packages/{gsub(/ /,"",$2); print $2}' | sort -rVu); do
  say "Looking for the source of mariadb $v"
  if fetch_source "$v" "$CACHE/source-${v#*:}"; then VERSION=$v; break; fi
done
[ -n "$VERSION" ] || fail "no version of mariadb-server has both a binary and a source package in the archive"

say "Installing mariadb-server $VERSION and what building needs"
# The packaged service must not start: Terrace runs a server of its own.
POLICY=/usr/sbin/policy-rc.d
made=
if [ ! -e $POLICY ]; then
  printf '#!/bin/sh\nexit 101\n' | $SUDO tee $POLICY >/dev/null
  $SUDO chmod +x $POLICY
  made=1
fi
trap '[ -z "$made" ] || $SUDO rm -f $POLICY' EXIT
retry $SUDO apt-get install -y -qq $APT_PATIENCE --no-install-recommends --allow-downgrades $NEEDED \
  mariadb-server="$VERSION" mariadb-client="$VERSION" mariadb-server-core="$VERSION" mariadb-client-core="$VERSION" \
  mariadb-common="$VERSION" libmariadb3="$VERSION" >"$CACHE/apt.log" 2>&1 || { tail -20 "$CACHE/apt.log" >&2; fail "installing failed"; }
dpkg-query -W -f '${Version}' mariadb-server > "$STAMP"
