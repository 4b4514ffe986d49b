# Shared by the scripts: where things are. Sourced, not run.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${TERRACE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/terrace}
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
SUDO=
[ "$(id -u)" = 0 ] || SUDO=sudo
say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }
