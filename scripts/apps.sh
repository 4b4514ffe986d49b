#!/usr/bin/env bash
# Other people's programs on a private server whose default engine is Terrace: go-tpc's TPC-C with its consistency check, TPC-H
# and the flights beside InnoDB, a JDBC program, SQLAlchemy. On request also what takes longer: Django's own tests, the schemas of some
# of Debian's packages, MediaWiki and WordPress, each beside InnoDB.
# WHAT="tpcc tpch plans skew jdbc orm django schemas mediawiki wordpress" picks some; TIME and WAREHOUSES set TPC-C's size. TPCH=full loads all of scale factor 1 (8.7 million rows) and checks the answers with go-tpc's own. APPS="queries schema" picks some of Django's tests, or of the schemas' packages.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
WHAT=${WHAT:-tpcc tpch plans skew jdbc orm} PORT=${PORT:-3309} OUT=$TARGET/apps
mkdir -p "$OUT"
"$ROOT/scripts/build.sh" >/dev/null

debian() { # installs a command's package if the command is missing
  command -v "$1" >/dev/null || { say "Installing $2"; $SUDO apt-get update -qq; $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $2 >/dev/null; }
}
# Debian's packages, unpacked and not installed, each in a directory of its own, from the machine's release.
PACKAGES=$CACHE/apps-$(. /etc/os-release; echo "$VERSION_ID")
unpacked() {
  local p deb missing=
  for p in "$@"; do [ -e "$PACKAGES/$p/complete" ] || missing="$missing $p"; done
  [ -n "$missing" ] || return 0
  say "Fetching$missing"
  retry $SUDO apt-get update -qq $APT_PATIENCE
  rm -rf "$PACKAGES/part"; mkdir -p "$PACKAGES/part"
  (cd "$PACKAGES/part" && retry apt-get download -o APT::Sandbox::User=root -qq $APT_PATIENCE $missing) || fail "the archive lacks one of these packages:$missing"
  for deb in "$PACKAGES"/part/*.deb; do
    p=$(dpkg-deb -f "$deb" Package)
    rm -rf "$PACKAGES/$p"; mkdir -p "$PACKAGES/$p"
    dpkg-deb -x "$deb" "$PACKAGES/$p"
    dpkg-deb -f "$deb" Version >"$PACKAGES/$p/complete"
  done
  rm -rf "$PACKAGES/part"
}
wants() { [[ " $WHAT " == *" $1 "* ]]; }

start() { "$ROOT/scripts/server.sh" start "$OUT/server" "$PORT" --default-storage-engine=Terrace --terrace-memory=268435456 --innodb-buffer-pool-size=256M; }
start
trap '"$ROOT/scripts/server.sh" stop "$OUT/server"' EXIT
sql() { mariadb --no-defaults -h127.0.0.1 -P"$PORT" -uroot "$@"; }

if wants tpcc || wants tpch; then
  debian go golang-go
  (cd "$ROOT/tests/apps/tpc" && go build -o "$OUT/go-tpc" github.com/pingcap/go-tpc/cmd/go-tpc)
  MODULE=$(cd "$ROOT/tests/apps/tpc" && go list -m -f '{{.Dir}}' github.com/pingcap/go-tpc)
fi
tpc() { "$OUT/go-tpc" -P "$PORT" "$@" 2>&1; }

if wants tpcc; then
  say "TPC-C, ${WAREHOUSES:-1} warehouse(s), ${TIME:-30} seconds"
  sql -e 'DROP DATABASE IF EXISTS tpcc; CREATE DATABASE tpcc'
  tpc tpcc prepare -D tpcc -T 2 --warehouses "${WAREHOUSES:-1}" --no-check | tail -1
  # The check's last condition sums a customer's payments.
  sql tpcc -e 'ALTER TABLE history ADD KEY customer (h_c_w_id, h_c_d_id, h_c_id)'
  tpc tpcc check -D tpcc --warehouses "${WAREHOUSES:-1}" --check-all >"$OUT/tpcc.log" || true
  tpc tpcc run -D tpcc -T 4 --warehouses "${WAREHOUSES:-1}" --time "${TIME:-30}s" | tee -a "$OUT/tpcc.log" | grep tpmC || fail "TPC-C did not finish: $OUT/tpcc.log"
  # Condition 11 holds for freshly loaded data only.
  tpc tpcc check -D tpcc --warehouses "${WAREHOUSES:-1}" >>"$OUT/tpcc.log" || true
  [ "$(grep -c 'begin to check' "$OUT/tpcc.log")" = $((23 * ${WAREHOUSES:-1})) ] || fail "TPC-C was not checked: $OUT/tpcc.log"
  ! grep -iE 'check .*failed|panic' "$OUT/tpcc.log" || fail "TPC-C's data are not consistent"
  [ "$(sql -N -e "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'tpcc' AND engine = 'Terrace'")" = 9 ] || fail "TPC-C did not run on Terrace"
fi

if wants tpch; then
  say "TPC-H"
  if [ ! -e "$OUT/tpch/complete" ]; then
    mkdir -p "$OUT/tpch"
    sql -e 'CREATE DATABASE IF NOT EXISTS tpch'
    tpc tpch prepare -D tpch --sf 1 --output-type csv --output-dir "$OUT/tpch" -T 2 >"$OUT/tpch.log"
    touch "$OUT/tpch/complete"
  fi
  PART=20
  [ "${TPCH:-}" != full ] || PART=1
  tpch() { "$("$ROOT/scripts/python.sh")" "$ROOT/tests/apps/tpch.py" --port "$PORT" --csv "$OUT/tpch" --module "$MODULE" "$@"; }
  tpch --part $PART --load
  # InnoDB reads the statistics written for it when the server starts.
  "$ROOT/scripts/server.sh" stop "$OUT/server"
  start
  tpch --plans "$OUT/tpch-plans.txt"
  if [ $PART = 1 ]; then
    tpc tpch run -D tpch_terrace --sf 1 --check --count 22 | tee "$OUT/tpch-check.log" | tail -3
    ! grep -iE 'check .*failed|error|panic' "$OUT/tpch-check.log" || fail "an answer is not TPC-H's: $OUT/tpch-check.log"
  fi
fi

if wants plans; then
  say "Plans"
  "$("$ROOT/scripts/python.sh")" "$ROOT/tests/apps/plans.py" --port "$PORT"
fi

if wants skew; then
  say "Plans over data with skew"
  "$("$ROOT/scripts/python.sh")" "$ROOT/tests/apps/skew.py" --port "$PORT"
fi

if wants jdbc; then
  say "JDBC"
  debian mvn "maven default-jdk-headless"
  (cd "$ROOT/tests/apps/jdbc" && mvn -q -B compile exec:java -DbuildDirectory="$OUT/jdbc" -Dserver="127.0.0.1:$PORT" -Dengine=Terrace)
fi

if wants orm; then
  say "SQLAlchemy"
  [ -e "$OUT/venv/complete-1" ] || { python3 -m venv "$OUT/venv"; "$OUT/venv/bin/pip" install -q --disable-pip-version-check -r "$ROOT/tests/apps/orm/requirements.txt"; touch "$OUT/venv/complete-1"; }
  "$OUT/venv/bin/python" "$ROOT/tests/apps/orm/shop.py" "$PORT" Terrace
fi

if wants django; then
  say "Django's own tests"
  DJANGO=4.2.30
  if [ ! -e "$OUT/django/complete-$DJANGO" ]; then
    rm -rf "$OUT/django"
    python3 -m venv "$OUT/django/venv"
    retry "$OUT/django/venv/bin/pip" install -q --disable-pip-version-check -r "$ROOT/tests/apps/django/requirements.txt"
    # The source package has the tests.
    retry "$OUT/django/venv/bin/pip" download -q --disable-pip-version-check --no-binary :all: --no-deps -d "$OUT/django" "Django==$DJANGO"
    mkdir -p "$OUT/django/source"
    tar -xzf "$OUT/django"/[dD]jango-$DJANGO.tar.gz -C "$OUT/django/source" --strip-components=1
    touch "$OUT/django/complete-$DJANGO"
  fi
  # Some tests convert times between zones in the server.
  mariadb-tzinfo-to-sql /usr/share/zoneinfo 2>/dev/null | sql mysql
  "$OUT/django/venv/bin/python" "$ROOT/tests/apps/django/suite.py" "$PORT" "$OUT/django/source" "$OUT/django" ${APPS:-}
fi

if wants schemas; then
  say "Schemas of Debian's packages"
  names=$(grep -v '^#' "$ROOT/tests/apps/schemas/roster.tsv" | cut -f1)
  unpacked $names
  (cd "$ROOT" && cargo build -p terrace-cli --bin terrace)
  "$("$ROOT/scripts/python.sh")" "$ROOT/tests/apps/schemas/play.py" "$PORT" "$PACKAGES" "$TARGET/debug/terrace" ${APPS:-}
fi

if wants mediawiki; then
  say "MediaWiki"
  need php-cli php-mysql php-xml php-mbstring php-intl
  unpacked mediawiki mediawiki-classes
  rm -rf "$OUT/mediawiki"; mkdir -p "$OUT/mediawiki/source"
  cp -r "$PACKAGES/mediawiki/usr/share/mediawiki/." "$PACKAGES/mediawiki-classes/usr/share/mediawiki/." "$OUT/mediawiki/source"
  # Links to the directories that an installation would have in /var.
  (cd "$OUT/mediawiki/source" && rm -f LocalSettings.php config extensions images && mv extensions-core extensions && mkdir images)
  "$("$ROOT/scripts/python.sh")" "$ROOT/tests/apps/mediawiki/wiki.py" "$PORT" "$OUT/mediawiki/source" "$OUT/mediawiki"
fi

if wants wordpress; then
  say "WordPress"
  need php-cli php-mysql php-xml php-mbstring php-intl
  unpacked wordpress
  rm -rf "$OUT/wordpress"; mkdir -p "$OUT/wordpress"
  cp -r "$PACKAGES/wordpress/usr/share/wordpress/." "$OUT/wordpress"
  cp -r "$PACKAGES/wordpress/var/lib/wordpress/wp-content/." "$OUT/wordpress/wp-content"
  cp "$ROOT/tests/apps/wordpress/wp-config.php" "$OUT/wordpress"
  "$("$ROOT/scripts/python.sh")" "$ROOT/tests/apps/wordpress/blog.py" "$PORT" "$OUT/wordpress"
fi
say "All applications passed"
