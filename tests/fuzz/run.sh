#!/usr/bin/env bash
# Runs every fuzz target for so many seconds, or only the named ones:
#   tests/fuzz/run.sh [SECONDS, default 300] [TARGET...]
# Coverage-guided libFuzzer with the toolchain of the repository: the flags are those that cargo-fuzz
# sets, without its sanitizers, which need a nightly one. The corpus that a run finds stays in
# target/fuzz/corpus; an input that breaks a rule lies beside it in target/fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-300}
[ $# -gt 0 ] && shift
target=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}/fuzz
if [ $# -eq 0 ]; then
  set -- server_sent_events frames front_matter edit schema
fi
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares"
# With a target named, build scripts and macros are built without the flags.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --locked --quiet --target "$host" --target-dir "$target"
for name in "$@"; do
  corpus=$target/corpus/$name artifacts=$target/artifacts/$name/
  mkdir -p "$corpus" "$artifacts"
  seeds=()
  [ -d "seeds/$name" ] && seeds+=("seeds/$name")
  echo "== $name, $seconds s"
  # 4 kB is enough for every rule of these readers; a single input may take 10 s.
  if ! "$target/$host/release/$name" "$corpus" "${seeds[@]}" -max_total_time="$seconds" -max_len=4096 \
    -timeout=10 -rss_limit_mb=1024 -artifact_prefix="$artifacts" -print_final_stats=1 \
    >"$target/$name.log" 2>&1; then
    tail -40 "$target/$name.log" >&2
    exit 1
  fi
  grep -E "^stat::number_of_executed_units|DONE" "$target/$name.log"
done
