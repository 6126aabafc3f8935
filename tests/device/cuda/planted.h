// Faults of the host side that are planted into programs on the simulated GPU, each in a process of its own, and how the process ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/sums_beside_work.h"
#include "device/device.h"
#include "host/executor.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

inline constexpr int kPlantedRanks = 2;
inline constexpr int kPlantedCalls = 3;

// How the process of a program has ended.
enum class End : uint8_t { Right = 0, Wrong = 3, Error = 4, Reported = 86 };
struct Ended {
  End end = End::Right;
  std::string text;  // what it has printed
};

class GpuPlanted : public testing::Test {
 protected:
  void SetUp() override {
    const char* const libraries = std::getenv("MESHFUSE_CUDA_LIBRARIES");
    if (libraries == nullptr || !std::filesystem::exists(std::string(libraries) + "/simgpu_engine")) {
      GTEST_SKIP() << "needs the simulated GPU: set MESHFUSE_CUDA_LIBRARIES";
    }
  }

  // Runs body() in a process of its own with this value of SIMGPU_PLANT. body: whether the results were right.
  static Ended run(const std::string& plant, const std::function<bool()>& body) {
    std::array<int, 2> pipe = {};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(pipe[1], STDERR_FILENO);
      setenv("SIMGPU_PLANT", plant.c_str(), 1);
      End end = End::Error;
      try {
        end = body() ? End::Right : End::Wrong;
      } catch (const Error& error) {
        fprintf(stderr, "%s\n", error.what());
      }
      _exit(static_cast<int>(end));
    }
    close(pipe[1]);
    Ended ended;
    std::array<char, 4096> bytes = {};
    for (ssize_t n = 0; (n = read(pipe[0], bytes.data(), bytes.size())) > 0;) {
      ended.text.append(bytes.data(), n);
    }
    close(pipe[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << ended.text;
    ended.end = static_cast<End>(WEXITSTATUS(status));
    return ended;
  }

  // Some calls of a program on two ranks, each with tensors of its own. change: of the host program of rank 1, or of all.
  static bool callsAreRight(
      const std::function<void(HostProgram&)>& change = nullptr, bool isOfAllRanks = false,
      const std::function<std::unique_ptr<Fusion>()>& program = [] { return sumsBesideWork(kPlantedRanks); }) {
    std::array<bool, kPlantedRanks> isRight = {};
    const auto body = [&](Communicator& comm) {
      FusionExecutorCache cache(program(), {.communicator = &comm, .threads = 1});
      FusionExecutorCache stepwise(program(), {.communicator = &comm, .threads = 1, .verify = Verify::Always});
      isRight[comm.rank()] = true;
      std::unique_ptr<Binding> changed;
      for (int call = 0; call < kPlantedCalls; call++) {
        const DeviceId gpu = DeviceId::cuda(comm.rank());
        const std::vector<Argument> arguments = moved(argumentsOf(cache.fusion(), comm.rank(), call), gpu);
        std::vector<Tensor> results = cache.runFusionWithInputs(arguments);
        if (change != nullptr) {
          HostProgram host = *cache.hostProgram();
          if (isOfAllRanks || comm.rank() == 1) {
            change(host);
          }
          changed = std::make_unique<Binding>(std::make_shared<const HostProgram>(std::move(host)), comm);
          changed->run(comm, arguments, results);
        }
        const std::vector<Tensor> expected = stepwise.runFusionWithInputs(arguments);
        for (const int64_t i : indices(expected)) {
          isRight[comm.rank()] = isRight[comm.rank()] && results[i].toVector() == expected[i].toVector();
        }
      }
    };
    runLoopback(kPlantedRanks, body, {.deadline = std::chrono::milliseconds(10'000)});
    return std::ranges::all_of(isRight, std::identity());
  }
};

}  // namespace meshfuse
