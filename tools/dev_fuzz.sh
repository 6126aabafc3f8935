# Part of tools/dev: the fuzzers of tests/decoders, guided by coverage.

# fuzz SECONDS [NAME...]: each decoder for so long, as many at a time as there are cores. Counts those without a finding whose inputs
# reach 90% of the lines that read them.
# fuzz --keep [NAME...]: adds to tests/decoders/corpus what reaches lines that its files do not reach
fuzz() {
  local what=${1:-30} name reached passed=0 failed=0
  shift || true
  local -a names=("$@")
  [ ${#names[@]} -gt 0 ] || mapfile -t names < <(grep -o '{"[a-z]*"' tests/decoders/decoders.cpp | tr -d '{"')
  build asan fuzz_decoders
  mkdir -p build/fuzz/findings build/fuzz/profiles
  collect_programs build/fuzz/programs
  export ASAN_OPTIONS=detect_leaks=0  # compiled once for all inputs, and looked for in the tests
  if [ "$what" = --keep ]; then
    for name in "${names[@]}"; do
      mkdir -p "build/fuzz/corpus/$name" "tests/decoders/corpus/$name"
      LLVM_PROFILE_FILE=build/fuzz/profiles/merge MESHFUSE_DECODER=$name build/asan/bin/fuzz_decoders -set_cover_merge=1 -use_counters=0 \
        "tests/decoders/corpus/$name" "build/fuzz/corpus/$name" 2>&1 | grep 'MERGE-OUTER.*new' || true
    done
    return
  fi
  printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I{} bash -c 'source tools/dev_fuzz.sh; fuzz_one "$@"' _ {} "$what" || true
  for name in "${names[@]}"; do
    if ! grep -q '^Done ' "build/fuzz/$name.log"; then
      failed=$((failed + 1))
      printf 'failed: %s\n' "$name"
      grep -v '^#' "build/fuzz/$name.log" | tail -n 40 | sed 's/^/    /'
    elif reached=$(python3 tests/decoders/coverage.py build/asan build/fuzz/profiles "$name"); then
      passed=$((passed + 1))
      printf '  %-10s %s; %s\n' "$name" "$(grep -o '^Done .*' "build/fuzz/$name.log")" "$reached"
    else
      failed=$((failed + 1))
      printf 'failed: %s: %s\n' "$name" "$reached"
    fi
  done
  echo "$passed passed, $failed failed, 0 skipped"
  [ "$failed" = 0 ]
}

# collect_programs DIR: each program of the files of the tests, as a file
collect_programs() {
  mkdir -p "$1"
  find tests -name '*.fir' -not -path '*/corpus/*' | while read -r name; do
    awk -v out="$1/${name//\//_}" '/^ *fusion \{/ {file = out "." ++n} file {print > file} /^ *\}$/ {if (file) close(file); file = ""}' "$name"
  done
}

# fuzz_one NAME SECONDS
fuzz_one() {
  local -a seeds=("tests/decoders/corpus/$1")
  [ "$1" = fir ] && seeds+=(build/fuzz/programs)
  mkdir -p "build/fuzz/corpus/$1" "tests/decoders/corpus/$1"
  LLVM_PROFILE_FILE=build/fuzz/profiles/$1.profraw MESHFUSE_DECODER=$1 build/asan/bin/fuzz_decoders -max_total_time="$2" -timeout=60 \
    -rss_limit_mb=3000 -malloc_limit_mb=1000 -max_len=4096 -artifact_prefix="build/fuzz/findings/$1-" \
    "build/fuzz/corpus/$1" "${seeds[@]}" >"build/fuzz/$1.log" 2>&1
}
