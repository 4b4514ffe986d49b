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
# The server's source package of a version, into a directory. Fails if the archive lacks it.
fetch_source() {
  local version=$1 dir=$2
  ls "$dir"/mariadb_*.orig.tar.gz >/dev/null 2>&1 && return 0
  rm -rf "$dir"; mkdir -p "$dir"
  (cd "$dir" && apt-get source $(source_list) --download-only -qq mariadb="$version") >/dev/null 2>&1 || { rm -rf "$dir"; return 1; }
}
say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
