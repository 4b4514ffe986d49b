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
# The server's source package of a version, into a directory. Fails if the archive lacks it; retries network errors.
fetch_source() {
  local version=$1 dir=$2 wait
  ls "$dir"/mariadb_*.orig.tar.gz >/dev/null 2>&1 && return 0
  for wait in 5 20 60 0; do
    rm -rf "$dir" "$dir.part"; mkdir -p "$dir.part"
    if (cd "$dir.part" && apt-get source $(source_list) $APT_PATIENCE --download-only -qq mariadb="$version") >"$dir.part/log" 2>&1; then
      mv "$dir.part" "$dir"
      return 0
    fi
    # The archive has moved to a newer version: retrying does not help.
    if grep -qiE "can ?not find version|unable to find a source package|404 +Not Found" "$dir.part/log"; then break; fi
    tail -2 "$dir.part/log" >&2
    sleep $wait
  done
  rm -rf "$dir.part"
  return 1
}
# For apt: retries failed connections, and waits for another running apt (a new machine's own upgrade).
APT_PATIENCE="-o Acquire::Retries=5 -o DPkg::Lock::Timeout=600"
# Runs a command that needs the network, up to four times.
retry() {
  local wait
  for wait in 5 20 60; do
    "$@" && return 0
    printf 'retrying in %s seconds: %s\n' "$wait" "$*" >&2
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
# Compiler flags for recording and for using a profile: no value profiling, no counts of selects (in a branch that is not taken a select may read
# uninitialized bytes), and no warnings about functions that have changed since.
profiled() { echo "-Cllvm-args=-disable-vp -pgo-instr-select=false -no-pgo-warn-mismatch"; }
