#!/usr/bin/env bash
# Runs every fuzzer of a build folder for some seconds over its seed corpus; stops at the first find.
#   fuzz_smoke.sh BUILD_DIR SECONDS
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
n=0
for program in "$root/$1"/fuzz_*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  name="$(basename "$program")"
  seeds="$root/tests/fuzz/corpus/${name#fuzz_}"
  work="$root/$1/corpus/$name"
  mkdir -p "$work"
  echo "== $name: $2 s"
  "$program" -max_total_time="$2" -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$work/" "$work" $([ -d "$seeds" ] && echo "$seeds")
  n=$((n + 1))
done
if [ "$n" -eq 0 ]; then
  echo "fuzz_smoke: no fuzzer in $1" >&2
  exit 1
fi
echo "fuzz_smoke: $n fuzzers, no finding"
