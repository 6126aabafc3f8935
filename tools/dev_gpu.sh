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

# bundle [FILE]: the sources of the last commit and the script that builds and checks them on a machine with GPUs
bundle() {
  local file=${1:-build/meshfuse_gpu_checks.tar.gz} folder=meshfuse_gpu_checks
  mkdir -p "$(dirname "$file")"
  git archive --format=tar.gz --prefix="$folder/" -o "$file" HEAD
  echo "$file: unpack it on a machine with GPUs and run $folder/tools/run_gpu_checks; see docs/gpu.md"
}
