#!/usr/bin/env bash
# Runs one fuzz target under libFuzzer, guided by coverage, for TIME seconds: fuzz.sh <name>
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$ROOT"
name=${1:-}
names=$(sed -n 's/^name = "\(.*\)"/\1/p' fuzz/Cargo.toml | grep -vx -e terrace-fuzz -e samples)
if ! grep -qx "$name" <<<"$names"; then
    echo "NAME=one of: $(tr '\n' ' ' <<<"$names")" >&2
    exit 2
fi
# libFuzzer's instrumentation needs a nightly compiler, and cargo-fuzz drives it; both are installed if they are missing.
if ! rustc +nightly --version >/dev/null 2>&1; then
    command -v rustup >/dev/null || fail "a nightly compiler is missing, and rustup, which installs it"
    say "Installing a nightly compiler"
    retry rustup toolchain install nightly --profile minimal
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    say "Installing cargo-fuzz"
    # Not into the target directory of the engine: `make clean` and other builds use that.
    retry env -u CARGO_TARGET_DIR cargo install --locked --quiet cargo-fuzz
fi
need g++
cargo run --quiet --manifest-path fuzz/Cargo.toml --no-default-features --bin samples
say "Fuzzing $name for ${TIME:-60} seconds"
cargo +nightly fuzz run "$name" -- -max_total_time="${TIME:-60}" -timeout=60 -rss_limit_mb=2048 -len_control=0 \
    -max_len=262144 -print_final_stats=1
