# Part of tools/dev: what must be installed. Quick when nothing is missing.

# Debian 12 and Ubuntu 24.04 use the same names but for LLVM, see llvm_package.
packages="g++ cmake ninja-build git python3 libfmt-dev libcli11-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev
  libucx-dev libpmix-dev libsodium-dev libdnnl-dev openmpi-bin libopenmpi-dev clang-format
  coinor-cbc"  # the last one is the referee of automatic plans in tests

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# The LLVM that is installed, else the first one that can be
llvm_package() {
  local version
  for version in 19 18 20; do
    if installed "llvm-$version-dev"; then
      echo "llvm-$version-dev"
      return
    fi
  done
  for version in 19 18 20; do
    if apt-cache show "llvm-$version-dev" >/dev/null 2>&1; then
      echo "llvm-$version-dev"
      return
    fi
  done
  echo llvm-19-dev
}

# as_root COMMAND...: exit 2 if neither root nor sudo is to be had, after saying what to type
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    sudo "$@"
  else
    return 2
  fi
}

# install PACKAGE...
install_packages() {
  local line="apt-get install -y --no-install-recommends $*"
  echo "installing: $*"
  as_root apt-get update -qq || { needs_root "$line"; return 2; }
  # shellcheck disable=SC2086 # the line is words
  as_root env DEBIAN_FRONTEND=noninteractive $line -qq >/dev/null
}

needs_root() {
  echo "Packages are missing and this needs root. Type this, then run the command again:" >&2
  echo "  sudo apt-get update && sudo $1" >&2
}

need_tool() {
  command -v "$1" >/dev/null || install_packages "$1" || exit 2
}

# A compiler of CUDA text: an installed toolkit, else the wheels of PyPI (no GPU needed), else none, said aloud.
setup_nvrtc() {
  local root wheels=.cache/nvrtc
  for root in "${CUDA_HOME:-/usr/local/cuda}" "$wheels"/nvidia/cu*; do
    if [ -e "$root/include/cuda.h" ] && compgen -G "$root/lib*/libnvrtc.so*" >/dev/null; then
      return 0
    fi
  done
  echo "fetching NVRTC from PyPI"
  if ! python3 -m pip --version >/dev/null 2>&1; then
    install_packages python3-pip || { echo "NVRTC: off: no CUDA toolkit, and no pip to fetch it; its tests are skipped"; return 0; }
  fi
  mkdir -p "$wheels"
  if python3 -m pip download -q --no-deps --retries 1 --timeout 20 --dest "$wheels" \
      'nvidia-cuda-nvrtc>=13,<14' 'nvidia-cuda-runtime>=13,<14'; then
    local wheel
    for wheel in "$wheels"/*.whl; do
      python3 -m zipfile -e "$wheel" "$wheels"
      rm "$wheel"
    done
  else
    echo "NVRTC: off: no CUDA toolkit, and PyPI gave no wheel; its tests are skipped"
  fi
}

# The oracle of tests/numpy: the NumPy of python3, else of the system's Python
setup_numpy() {
  python3 -c 'import numpy' 2>/dev/null || /usr/bin/python3 -c 'import numpy' 2>/dev/null ||
    install_packages python3-numpy || echo "NumPy: off: no package; its tests are skipped"
}

# The compiler of the preset asan, with libFuzzer
setup_clang() {
  command -v clang++-19 >/dev/null && [ -e /usr/lib/llvm-19/lib/clang/19/lib/linux/libclang_rt.fuzzer-x86_64.a ] ||
    install_packages clang-19 libclang-rt-19-dev || exit 2
}

setup() {
  if command -v dpkg-query >/dev/null; then
    local missing=() package
    for package in $packages $(llvm_package); do
      installed "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -gt 0 ]; then
      install_packages "${missing[@]}" || exit 2
    fi
  else
    echo "not a Debian or Ubuntu: install by hand what CMake asks for"
  fi
  setup_numpy
  setup_nvrtc
}
