// Random programs on two ranks with a GPU each: right results in every order that the streams of a simulated GPU allow.
//
//   tools/dev fuzz_gpus 300 5     300 programs in 5 orders each
//
// Each program is called three times with tensors of its own, so its graphs are made and replayed; its collectives and their bytes are those
// of its plan. Where each rank has a GPU of its own, a fourth call takes the memory of the plan, to the byte.
//
// Then each kernel of random programs: a GPU gives what the emulator gives.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/cuda/device_runner.h"
#include "device/open.h"
#include "fuzz/checks.h"
#include "fuzz/kernels.h"
#include "fuzz/minimize.h"
#include "fuzz/program.h"

namespace meshfuse::fuzz {

namespace {

constexpr int kRanks = 2;

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// What is wrong with a program in one of the orders; nothing if it is right in all.
std::optional<Failure> failureOf(const Program& program, uint64_t orders) {
  const char* const device = std::getenv("MESHFUSE_TEST_DEVICE");
  for (uint64_t order = 1; order <= orders; order++) {
    setenv("SIMGPU_SEED", std::to_string(1000 * program.seed + order).c_str(), 1);  // read by the engine of the child
    if (std::optional<Failure> f = checkOnDevicesInChild(program, device)) {
      f->message += fmt::format("\nSIMGPU_SEED={}", std::getenv("SIMGPU_SEED"));
      return f;
    }
  }
  return std::nullopt;
}

TEST(FuzzOnGpus, ResultsDoNotDependOnTheOrderOfStreams) {
  if (std::getenv("MESHFUSE_TEST_DEVICE") == nullptr) {
    GTEST_SKIP() << "needs a GPU or a simulated one: set MESHFUSE_TEST_DEVICE=cuda";
  }
  setenv("MESHFUSE_CACHE_DIR", "off", 1);
  const uint64_t wanted = setting("MESHFUSE_FUZZ_PROGRAMS", 30);
  const uint64_t orders = setting("MESHFUSE_FUZZ_ORDERS", 5);
  uint64_t programs = 0;
  int failures = 0;
  for (uint64_t seed = setting("MESHFUSE_FUZZ_FIRST", 1); programs < wanted && failures < 5; seed++) {
    const Program program = randomProgram(seed);
    if (program.ranks != kRanks) {
      continue;
    }
    const std::optional<Failure> failure = failureOf(program, orders);
    programs++;
    if (failure) {
      failures++;
      const Program small = minimize(program, [&](const Program& p) {
        const std::optional<Failure> f = p.ranks == kRanks ? failureOf(p, orders) : std::nullopt;
        return f && f->stage == failure->stage && f->message.substr(0, 12) == failure->message.substr(0, 12);
      });
      ADD_FAILURE() << "seed " << seed << ", mesh " << program.mesh << ", " << failure->stage << ": "
                    << failure->message.substr(0, 3000) << "\nsmaller:\n"
                    << small.fusion->toString();
    }
  }
  fmt::print("{} programs in {} orders each\n", programs, orders);
}

// Copies of what the kernels have written.
std::vector<Tensor> resultsOf(const KernelCases& kernels) {
  std::vector<Tensor> results;
  for (const std::unique_ptr<KernelCase>& k : kernels) {
    for (const KernelCase::Output& o : k->outputs) {
      results.push_back(k->memory[o.slot].clone());
    }
  }
  return results;
}

// Not of the suite above: after a program has used a GPU, it starts no processes that use one.
TEST(KernelsOnGpus, GiveWhatTheEmulatorGives) {
  if (std::getenv("MESHFUSE_TEST_DEVICE") == nullptr) {
    GTEST_SKIP() << "needs a GPU or a simulated one: set MESHFUSE_TEST_DEVICE=cuda";
  }
  const std::shared_ptr<Device> gpu = openDevice(DeviceId::cuda(0));
  const uint64_t wanted = setting("MESHFUSE_FUZZ_PROGRAMS", 10);
  KernelCases kernels;
  const uint64_t first = setting("MESHFUSE_FUZZ_FIRST", 1);
  for (uint64_t seed = first; seed < first + wanted; seed++) {
    std::ranges::move(kernelsOf(randomProgram(seed), gpu->info(), -1), std::back_inserter(kernels));
  }
  const std::vector<std::string> emulated = emulateKernels(kernels, {});
  const std::vector<Tensor> expected = resultsOf(kernels);
  const std::vector<std::string> run =
      emulateKernels(kernels, {}, [&](std::span<const simt::Launch> launches) { return runOnDevice(launches, *gpu); });
  const std::vector<Tensor> got = resultsOf(kernels);
  for (size_t i = 0; i < kernels.size(); i++) {
    EXPECT_EQ(emulated[i], "") << "emulator, seed " << kernels[i]->seed << "\n" << kernels[i]->fusion;
    EXPECT_EQ(run[i], "") << "GPU, seed " << kernels[i]->seed << "\n" << kernels[i]->fusion;
  }
  int64_t elements = 0;
  int64_t others = 0;
  for (size_t i = 0; i < expected.size(); i++) {
    const std::vector<double> a = expected[i].toVector();
    const std::vector<double> b = got[i].toVector();
    elements += std::ssize(a);
    for (size_t k = 0; k < a.size(); k++) {
      others += a[k] == b[k] || (a[k] != a[k] && b[k] != b[k]) ? 0 : 1;
    }
  }
  fmt::print(
      "{} kernels of {} programs: {} of {} elements differ from those of the emulator, all within their bounds\n",
      kernels.size(), wanted, others, elements);
  EXPECT_GE(kernels.size(), wanted);
}

}  // namespace

}  // namespace meshfuse::fuzz
