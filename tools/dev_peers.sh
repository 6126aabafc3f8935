# Part of tools/dev: meshfuse against JAX and PyTorch, see benchmarks/peers/run.py.

# An environment of its own for the peers, from PyPI: 6 GB, as PyTorch comes with the libraries of CUDA
setup_peers() {
  local environment=build/peers_env
  cmp -s benchmarks/peers/requirements.txt "$environment/installed" && return
  echo "installing JAX and PyTorch into $environment"
  python3 -m venv "$environment"
  "$environment/bin/python" -m pip install -q -r benchmarks/peers/requirements.txt
  cp benchmarks/peers/requirements.txt "$environment/installed"
}

# peers [--check] [PART_OF_A_NAME...]
peers() {
  local check=0 parts=() argument
  for argument in "$@"; do
    if [ "$argument" = --check ]; then check=1; else parts+=("$argument"); fi
  done
  setup
  setup_peers
  build release peers_meshfuse_side
  mkdir -p build/bench
  TORCHINDUCTOR_CACHE_DIR=$PWD/build/peers_env/inductor build/peers_env/bin/python benchmarks/peers/run.py \
    --json build/bench/peers.json build/release/bin/peers_meshfuse_side "${parts[@]}"
  [ "$check" = 0 ] || python3 tools/bench_table.py --check build/bench/peers.json
}
