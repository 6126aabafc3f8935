#include "device/cpu/orc/run_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/thread_pool.h"
#include "sanitized.h"
#include "tensor/allocator.h"
#include "tile/interpreter.h"

namespace meshfuse {

namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kPattern = 0xA5;

}  // namespace

int64_t partsOf(const tile::Program& program, const std::vector<int64_t>& sizes) {
  int64_t parts = 1;
  for (const tile::GridDim& g : program.grid) {
    parts *= g.count.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
      for (size_t i = 0; i < sizes.size(); i++) {
        if (program.sizes[i].name == symbol) {
          return sizes[i];
        }
      }
      return std::nullopt;
    });
  }
  return parts;
}

void runKernel(const CpuKernel& kernel, const std::vector<uint64_t>& slots, int64_t parts) {
  auto bytes = static_cast<size_t>(kernel.scratchBytes(slots.data()));
  ThreadPool pool({.threads = 2, .spin = false});
  PooledAllocator allocator;
  std::vector<unsigned char*> scratch;
  for (int t = 0; t < pool.threads(); t++) {
    scratch.push_back(static_cast<unsigned char*>(allocator.allocate(bytes + 2 * kGuard)));
    std::memset(scratch.back(), kPattern, bytes + 2 * kGuard);
  }
  pool.run(
      parts,
      [&](int64_t begin, int64_t end, int worker) {
        for (int64_t step = 1; begin < end; step++) {
          int64_t next = std::min(end, begin + step);
          kernel.run(slots.data(), begin, next, scratch[worker] + kGuard);
          begin = next;
        }
      },
      3);
  for (unsigned char* s : scratch) {
    auto isPattern = [](unsigned char c) { return c == kPattern; };
    EXPECT_TRUE(std::all_of(s, s + kGuard, isPattern) &&
                std::all_of(s + kGuard + bytes, s + 2 * kGuard + bytes, isPattern))
        << "scratch was overrun";
    allocator.deallocate(s, bytes + 2 * kGuard);
  }
}

void compareWithInterpreter(const tile::Example& example, const CpuKernel& kernel, double steps) {
  const tile::Program& program = example.program;
  tile::Call ours(example);
  tile::Call theirs(example);
  runKernel(kernel, ours.slots(), partsOf(program, example.sizes));
  tile::interpret(program, theirs.slots());
  EXPECT_TRUE(ours.guardsIntact()) << "written outside of a tensor";
  for (int i = 0; i < std::ssize(program.tensors); i++) {
    const tile::TensorParam& t = program.tensors[i];
    if (t.memory == tile::Memory::Scratch || t.memory == tile::Memory::Workspace) {
      continue;
    }
    std::vector<double> a = ours.values(i);
    std::vector<double> b = theirs.values(i);
    double largest = 0;
    for (double x : b) {
      largest = std::isfinite(x) ? std::max(largest, std::abs(x)) : largest;
    }
    double unit = isFloatingPoint(t.dtype) ? std::ldexp(1.0, 1 - info(t.dtype).mantissaBits) : 0;
    for (size_t k = 0; k < b.size(); k++) {
      double scale = std::max({std::abs(a[k]), std::abs(b[k]), largest * 1e-2});
      bool same = a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k]));
      if (!same && !(std::abs(a[k] - b[k]) <= steps * unit * scale)) {
        ADD_FAILURE() << t.name << "[" << k << "]: compiled " << a[k] << ", interpreted " << b[k];
        return;
      }
    }
  }
}

std::vector<CpuTarget> testedTargets() {
  CpuTarget host = hostTarget();
  std::vector<CpuTarget> list{host};
  for (int bytes : {32, 16}) {
    if (bytes < host.vectorBytes && !(kSanitized && bytes == 32)) {
      list.push_back(narrowerTarget(host, bytes));
    }
  }
  return list;
}

}  // namespace meshfuse
