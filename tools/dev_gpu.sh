# Part of tools/dev: GPUs, and the simulated ones of tests/simgpu.

# on_simulated_gpus N COMMAND...: runs a command with N simulated GPUs
on_simulated_gpus() {
  local devices=$1
  shift
  env MESHFUSE_TEST_DEVICE=cuda MESHFUSE_CUDA_LIBRARIES="$PWD/build/release/simgpu" SIMGPU_DEVICES="$devices" "$@"
}

# fuzz_gpus PROGRAMS ORDERS [FIRST_SEED]: random programs on two ranks with a simulated GPU each, every one with so many orders of its streams
fuzz_gpus() {
  setup
  build release test_fuzz
  MESHFUSE_FUZZ_PROGRAMS=${1:-300} MESHFUSE_FUZZ_ORDERS=${2:-5} MESHFUSE_FUZZ_FIRST=${3:-1} on_simulated_gpus 2 \
    build/release/bin/test_fuzz --gtest_filter='FuzzOnGpus.*'
}

# bundle [FILE]: what run_gpu_checks needs, built, for a machine with GPUs that has neither a package manager nor a network
bundle() {
  local file=${1:-build/meshfuse_gpu_checks.tar.gz} build=build/bundle folder=build/meshfuse_gpu_checks name
  local -a switches=() targets
  setup
  for name in LLVM UCX PMIX SODIUM ONEDNN; do switches+=("-DMESHFUSE_WITH_$name=OFF"); done
  # shellcheck disable=SC2016
  cmake --preset release -B "$build" -DCMAKE_CXX_FLAGS_RELEASE="-O2 -g0" -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' -DMESHFUSE_TEST_FILES=. "${switches[@]}" >"$build.log" 2>&1 ||
    { cat "$build.log"; exit 1; }
  read -ra targets < <(tools/run_gpu_checks --targets)
  ninja -C "$build" -j "${MESHFUSE_JOBS:-$(nproc)}" "${targets[@]}"

  rm -rf "$folder"
  mkdir -p "$folder/bin" "$folder/lib"
  # the emulator of kernels compiles its own sources and those of kernels there; the language model reads csrc
  git archive HEAD csrc runtime tests/simt/device tests/tools tests/not_on_gpus.txt tools/run_gpu_checks benchmarks/gpu_peers.py benchmarks/gpu_static docs/gpu.md | tar -x -C "$folder"
  for name in "${targets[@]}"; do strip -o "$folder/bin/$name" "$build/bin/$name"; done
  # all libraries but those of the C library, which must fit the system's loader
  ldd "$folder"/bin/* | awk '$3 ~ "^/" && $1 !~ /^(libc|libm|libdl|librt|libpthread)\.so/ { print $3 }' | sort -u | xargs cp -L -t "$folder/lib"
  strip "$folder"/lib/*
  tar -C "$(dirname "$folder")" -czf "$file" "$(basename "$folder")"
  echo "$file: unpack it on a machine with GPUs and run $(basename "$folder")/tools/run_gpu_checks; see docs/gpu.md"
}
