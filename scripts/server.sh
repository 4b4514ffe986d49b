#!/usr/bin/env bash
# Starts and stops a private MariaDB with Terrace, on loopback.
#   server.sh start DIR PORT [mariadbd options...]    server.sh stop|kill9|status DIR
# In DIR: data (the data directory), plugins, sock, pid, error.log.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
PLUGIN=${TERRACE_PLUGIN:-$TARGET/mariadb/ha_terrace.so}

command=${1:?start, stop, kill9 or status}
dir=$(realpath -m "${2:?a directory}")
ended() { # there is no such process, or it is a zombie with no thread left
  kill -0 "$1" 2>/dev/null || return 0
  grep -qs '^State:.Z' "/proc/$1/status" && [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -le 1 ]
}

own() { # the process is a server of this directory, not another one that reused its number; a process being killed has no command line
  [ "$(cat "/proc/$1/comm" 2>/dev/null)" = mariadbd ] || return 1
  local line; line=$(tr '\0' '\n' <"/proc/$1/cmdline") || return 1
  [ -z "$line" ] || grep -qxF -e "--datadir=$dir/data" <<<"$line"
}
alive() { local pid; [ -s "$dir/pid" ] && pid=$(cat "$dir/pid") && own "$pid" && ! ended "$pid"; }

gone() { # waits for the end of a process: gone PID SECONDS
  local pid=$1 until=$((SECONDS + $2))
  until ended "$pid"; do
    [ $SECONDS -le $until ] || return 1
    sleep 0.03
  done
}

# Makes an empty data directory with the installed server. It takes seconds, so it is made once and kept in the cache.
new_data() {
  local version new user=
  version=$(dpkg-query -W -f '${Version}' mariadb-server)
  new=$CACHE/data-${version#*:}
  [ "$(id -u)" = 0 ] && user=--user=root
  mkdir -p "$CACHE"
  (
    flock 9
    [ -d "$new" ] && exit 0
    rm -rf "$new.part"
    mariadb-install-db --no-defaults $user --datadir="$new.part" --auth-root-authentication-method=normal --skip-test-db \
      >"$new.log" 2>&1 || { tail -20 "$new.log" >&2; fail "making the data directory failed"; }
    mv "$new.part" "$new"
  ) 9>"$new.lock" || return 1
  echo "$new"
}

case $command in
start)
  port=${3:?a port}; shift 3
  # A server that was killed a moment ago holds its files until it has ended.
  for i in $(seq 1 600); do
    alive || break
    mariadb-admin --no-defaults --socket="$dir/sock" -uroot ping >/dev/null 2>&1 && { echo "runs already: $dir"; exit 0; }
    [ "$i" -lt 600 ] || fail "process $(cat "$dir/pid") runs and does not answer; see $dir/error.log"
    sleep 0.1
  done
  [ -s "$PLUGIN" ] || fail "$PLUGIN is missing: run scripts/build.sh"
  # A directory of its own for temporary files: a starting server removes those of other servers.
  mkdir -p "$dir/plugins" "$dir/tmp"
  export TMPDIR="$dir/tmp"
  packaged=$(dpkg -L mariadb-server | grep '/plugin/.*\.so$')
  packaged=${packaged%%$'\n'*}
  ln -sf "${packaged%/*}"/*.so "$dir/plugins/"
  ln -sf "$PLUGIN" "$dir/plugins/ha_terrace.so"
  user=
  [ "$(id -u)" = 0 ] && user=--user=root
  if [ ! -d "$dir/data/mysql" ]; then
    mkdir -p "$dir/data"
    new=$(new_data)
    cp -a "$new/." "$dir/data/"
  fi
  # Root without a password comes from loopback only; the server listens nowhere else.
  mariadbd --no-defaults $user --datadir="$dir/data" --plugin-dir="$dir/plugins" --plugin-maturity=unknown \
    --plugin-load-add=ha_terrace --bind-address=127.0.0.1 --port="$port" --socket="$dir/sock" --pid-file="$dir/mariadbd.pid" \
    --log-error="$dir/error.log" --skip-name-resolve --local-infile=1 "$@" >>"$dir/out.log" 2>&1 </dev/null &
  pid=$!
  echo $pid > "$dir/pid"
  until=$((SECONDS + 180))
  while [ $SECONDS -le $until ]; do
    # The socket exists once the server listens, at the end of its start.
    [ ! -S "$dir/sock" ] || ! mariadb-admin --no-defaults --socket="$dir/sock" -uroot ping >/dev/null 2>&1 || exit 0
    kill -0 $pid 2>/dev/null || { tail -20 "$dir/error.log" >&2; fail "the server ended; see $dir/error.log"; }
    sleep 0.03
  done
  tail -20 "$dir/error.log" >&2
  fail "the server did not answer within three minutes"
  ;;
stop)
  alive || exit 0
  pid=$(cat "$dir/pid"); kill "$pid"
  gone "$pid" 150 || fail "process $pid did not end within minutes"
  rm -f "$dir/pid"
  ;;
kill9)
  alive || exit 0
  pid=$(cat "$dir/pid"); kill -9 "$pid" 2>/dev/null || true  # it may have ended by itself
  gone "$pid" 60 || fail "process $pid did not end"
  rm -f "$dir/pid"
  ;;
status)
  if alive; then echo "runs, process $(cat "$dir/pid")"; else echo "does not run"; exit 1; fi
  ;;
*) fail "unknown command $command" ;;
esac
