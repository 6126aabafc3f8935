# Part of tools/dev: run all tests and count test cases. Each binary leaves a JSON report in the results folder; one that
# fails without a failed case in its report (a crash, a timeout, a leak) counts as one failed case.

# count_report FILE: "passed failed skipped"
count_report() {
  awk '
    /^  "tests":/    { gsub(/[^0-9]/, ""); tests = $0 }
    /^  "failures":/ { gsub(/[^0-9]/, ""); failures = $0 }
    /^  "disabled":/ { gsub(/[^0-9]/, ""); skipped += $0 }
    /"result": "SKIPPED"/ { skipped++ }
    END { print tests - failures - skipped, failures + 0, skipped + 0 }' "$1"
}

# failed_cases FILE: the names of the failed test cases, one a line, each followed by the first lines of what it printed, indented
failed_cases() {
  awk '
    function text(line) { sub(/^ *"failure": "/, "", line); sub(/",?$/, "", line); gsub(/\\"/, "\"", line); gsub(/\\\//, "/", line); return line }
    BEGIN { FS = "\"" }
    /^ *"name":/ { name = $4 }
    /^ *"classname":/ { suite = $4 }
    /^ *"failures": \[/ { print suite "." name; shown = 0 }
    /^ *"failure":/ {
      lines = split(text($0), line, /\\n/)
      for (i = 1; i <= lines && shown < 30; i++) { print "    " line[i]; shown++ }
    }' "$1"
}

# running_case NAME: ` in CASE`, the test case in which the run of ctest with this name ended; reads the log of ctest in the results folder
running_case() {
  awk -v name="$1" '
    / Testing: / { here = ($NF == name); running = "" }
    here && /\[ RUN / { running = $NF }
    here && /\[ +(OK|FAILED|SKIPPED) +\] .*\)$/ { running = "" }
    here && running != "" { last = running }
    here && running == "" { last = "" }
    END { if (last != "") printf " in %s", last }' "$results/ctest.log" 2>/dev/null
}

# add_report NAME EXIT_STATUS: adds the report of one run to passed, failed, skipped; says what failed in lines `failed: ...`
add_report() {
  local file=$results/$1.json p=0 f=0 s=0
  if [ -s "$file" ]; then
    read -r p f s < <(count_report "$file")
    failed_cases "$file" | sed "/^ /!s/^/failed: $1: /"
  fi
  if [ "$f" = 0 ] && { [ "$2" != 0 ] || [ ! -s "$file" ]; }; then
    echo "failed: $1: ended badly (a crash, a timeout or a leak) without a failed test case$(running_case "$1")"
    f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# run_binary BUILD NAME FILTER: the tests of a binary; the results folder gets what it prints, its exit status and its report
run_binary() {
  local status=0
  GTEST_OUTPUT="json:$results/$2.json" timeout 600 "$1/bin/test_$2" --gtest_brief=1 --gtest_filter="$3" </dev/null >"$results/$2.log" 2>&1 || status=$?
  echo "$status" >"$results/$2.status"
}

# report_binary NAME: prints and adds what run_binary left
report_binary() {
  echo "== $1"
  cat "$results/$1.log"
  add_report "$1" "$(cat "$results/$1.status")"
}

# run_under_mpirun RANKS BINARY [SUFFIX]: SUFFIX is added to the name of the report, which rank 0 alone writes
run_under_mpirun() {
  local n=$1 binary=$2 status=0 name under=
  [ "$preset" != asan ] || under=tools/leak_checked
  name=$(basename "$binary")${3:-}_np$1
  name=${name#test_}
  echo "== $name under mpirun"
  # shellcheck disable=SC2016  # the shell of each rank expands these
  ranks "$n" timeout -k 10 600 bash -c '
    [ "$OMPI_COMM_WORLD_RANK" = 0 ] && export GTEST_OUTPUT="json:$1"
    exec "$0"' "$binary" "$results/$name.json" </dev/null || status=$?
  add_report "$name" "$status"
}

# The scenarios once more, on simulated GPUs; the processes are one job
run_on_simulated_gpus_under_mpirun() {
  local job
  job=$(mktemp -d)
  MESHFUSE_TEST_DEVICE=cuda MESHFUSE_CUDA_LIBRARIES=$PWD/build/release/simgpu SIMGPU_DEVICES=$1 SIMGPU_JOB=$job SIMGPU_REPORT_WAITS=1 \
    GTEST_FILTER="-$(awk '$1 == "multidevice" { print $2 }' tests/not_on_gpus.txt | paste -sd:)" run_under_mpirun "$1" build/release/bin/test_multidevice _on_simulated_gpu
  rm -rf "$job"
}

run_tests() {
  local preset=release passed=0 failed=0 skipped=0 name status results
  case ${1:-} in
    release | asan | tsan)
      preset=$1
      shift
      ;;
  esac
  setup
  local selection=()
  if [ "$preset" = tsan ]; then  # where threads meet; all the others would build for long
    build tsan test_base test_exec test_multidevice_transport
    selection=(-L threads)
  elif [ "$preset" = release ]; then
    build release all benchmarks  # benchmarks are run elsewhere, but they must compile
  else
    build "$preset"
  fi
  results=$PWD/build/$preset/results
  rm -rf "$results"
  mkdir -p "$results"

  [ "$preset" = release ] || export UCX_MEM_EVENTS=no  # UCX and a sanitizer would both take over mmap: a crash
  export LSAN_OPTIONS="suppressions=$PWD/cmake/leaks_of_others.supp:print_suppressions=0"
  export ASAN_SYMBOLIZER_PATH=/usr/lib/llvm-19/bin/llvm-symbolizer
  export ASAN_OPTIONS=${ASAN_OPTIONS-malloc_context_size=8}  # a fifth of the time went into stacks of 30 frames of each allocation
  local log=build/$preset/Testing/Temporary/LastTestsFailed.log
  rm -f "$log"
  [ -t 1 ] || export GTEST_COLOR=no
  # two more than there are processors: ranks mostly wait
  GTEST_OUTPUT="json:$results/" ctest --test-dir "build/$preset" -j $((jobs + 2)) --output-on-failure --no-tests=ignore "${selection[@]}" "$@" \
    </dev/null || true
  cp "build/$preset/Testing/Temporary/LastTest.log" "$results/ctest.log"  # ctest -N writes another one
  while read -r name; do
    [ -n "$name" ] || continue
    status=0
    if [ -f "$log" ] && grep -q ":$name\$" "$log"; then status=1; fi
    mv "$results/test_$name.json" "$results/$name.json" 2>/dev/null || true
    add_report "$name" "$status"
  done < <(ctest --test-dir "build/$preset" -N "${selection[@]}" "$@" | sed -n 's/^ *Test *#[0-9]*: //p')

  local binary n counts=(2 3 4)
  [ "$preset" = release ] || counts=(2)  # for time
  if [ $# = 0 ]; then
    if command -v mpirun >/dev/null; then
      for binary in build/"$preset"/bin/test_multidevice build/"$preset"/bin/test_multidevice_transport; do
        [ -x "$binary" ] || continue
        for n in "${counts[@]}"; do run_under_mpirun "$n" "$binary"; done
      done
      [ "$preset" != release ] || run_on_simulated_gpus_under_mpirun 2
    else
      echo "no mpirun: the tests of many processes are skipped"
      skipped=$((skipped + 1))
    fi
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ]
}
