# Shared by the scripts: where things are. Sourced, not run.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
SUDO=
[ "$(id -u)" = 0 ] || SUDO=sudo
# The machine's own Debian archives as a list of source packages. Prints apt's options for it.
source_list() {
  local list=$CACHE/deb-src.list
  [ -s "$list" ] || apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' "Created-By: Packages" |
    awk '$1 == "Debian" { print "deb-src", $2, $3, $4 }' | sort -u > "$list"
  [ -s "$list" ] || fail "no Debian archive in apt's lists: run apt-get update"
  echo "-o Dir::Etc::sourcelist=$list -o Dir::Etc::sourceparts=/dev/null"
}
# The server's source package of a version, into a directory. Fails if the archive lacks it; what the network spoils is tried again.
fetch_source() {
  local version=$1 dir=$2 wait
  ls "$dir"/mariadb_*.orig.tar.gz >/dev/null 2>&1 && return 0
  for wait in 5 20 60 0; do
    rm -rf "$dir" "$dir.part"; mkdir -p "$dir.part"
    if (cd "$dir.part" && apt-get source $(source_list) $APT_PATIENCE --download-only -qq mariadb="$version") >"$dir.part/log" 2>&1; then
      mv "$dir.part" "$dir"
      return 0
    fi
    # The archive has gone on to a newer version, which is no fault of the network.
    if grep -qiE "can ?not find version|unable to find a source package|404 +Not Found" "$dir.part/log"; then break; fi
    tail -2 "$dir.part/log" >&2
    sleep $wait
  done
  rm -rf "$dir.part"
  return 1
}
# For apt: a connection that fails is tried again, and another apt that is at work (a new machine's own upgrade) is waited for.
APT_PATIENCE="-o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
# Runs a command that needs the network; again, up to four times, if it fails.
retry() {
  local wait
  for wait in 5 20 60; do
    "$@" && return 0
    printf 'once more in %s seconds: %s\n' "$wait" "$*" >&2
    sleep $wait
  done
  "$@"
}
say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
# Installs Debian packages that are missing.
need() {
  local p missing=
  for p in "$@"; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"; done
  [ -n "$missing" ] || return 0
  say "Installing$missing"
  retry $SUDO apt-get update -qq $APT_PATIENCE
  retry $SUDO env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $APT_PATIENCE --no-install-recommends $missing >/dev/null
}
# Flags for the compiler that go with every profile, as it is recorded and as it is used: no values, no counts of what is chosen without a branch (in a
# branch not taken, the choice may be of bytes that nobody has set), and no words about functions that have changed since.
profiled() { echo "-Cllvm-args=-disable-vp -pgo-instr-select=false -no-pgo-warn-mismatch"; }
