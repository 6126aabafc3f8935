// Kernels and modules on the simulated GPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "simgpu/simulated.h"

namespace meshfuse {
namespace {

using cuda::DevicePointer;
using cuda::Result;
using cuda::Stream;

constexpr size_t kLength = 300;
constexpr size_t kElementBytes = kLength * sizeof(float);

struct Twice {
  explicit Twice(Simulated& gpu)
      : function(gpu.kernel(kTwice, "twice")), x(gpu.allocate(kElementBytes)), z(gpu.allocate(kElementBytes)) {
    std::vector<float> host(kLength, 1.5F);
    gpu.expect(gpu.copyToDevice(x, host.data(), kElementBytes), "cuMemcpyHtoD");
  }
  cuda::Function function;
  DevicePointer x;
  DevicePointer z;
};

TEST(SimulatedKernels, Run) {
  expectFine([](Simulated& gpu) {
    const Twice twice(gpu);
    const Stream stream = gpu.stream();
    gpu.launch(twice.function, 5, 64, TwiceArguments{twice.x, twice.z, kLength}, stream);
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    std::vector<float> z(kLength);
    gpu.expect(gpu.copyToHost(z.data(), twice.z, kElementBytes), "cuMemcpyDtoH");
    require(z == std::vector<float>(kLength, 3.0F), "twice");
  });
}

TEST(SimulatedKernels, AccessBeyondTheEnd) {
  expectReport("cuLaunchKernelEx of twice.*load of bytes 1200 to 1204 of the 1200 bytes of cuMemAlloc",
               [](Simulated& gpu) {
                 const Twice twice(gpu);
                 gpu.launch(twice.function, 5, 64, TwiceArguments{twice.x, twice.z, kLength + 1}, gpu.stream());
                 gpu.contextSynchronize();
               });
}

TEST(SimulatedKernels, ReadsOfWhatNobodyWrote) {
  expectReport("load of bytes that nobody has written", [](Simulated& gpu) {
    const Twice twice(gpu);
    gpu.launch(twice.function, 5, 64, TwiceArguments{gpu.allocate(kElementBytes), twice.z, kLength}, gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedKernels, HostPointers) {
  expectReport("load of no allocation", [](Simulated& gpu) {
    const Twice twice(gpu);
    std::vector<float> host(kLength);
    const auto address = reinterpret_cast<DevicePointer>(host.data());
    gpu.launch(twice.function, 5, 64, TwiceArguments{address, twice.z, kLength}, gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedKernels, Misaligned) {
  expectReport("misaligned access of 4 bytes", [](Simulated& gpu) {
    const Twice twice(gpu);
    gpu.launch(twice.function, 5, 64, TwiceArguments{twice.x, twice.z + 2, kLength - 1}, gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedKernels, ACrashIsReported) {
  expectReport("the kernel ended with signal", [](Simulated& gpu) {
    const cuda::Function crash = gpu.kernel(R"(//@ kernel
struct Arguments { int* nowhere; };
extern "C" __global__ void crash(const __grid_constant__ Arguments args) { *args.nowhere = 1; }
)",
                                            "crash");
    gpu.launch(crash, 1, 32, DevicePointer{16}, gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedKernels, TextsThatAreNoKernels) {
  expectReport("does not compile for the host", [](Simulated& gpu) {
    gpu.kernel("//@ kernel\nextern \"C\" __global__ void wrong(int) { +; }\n", "wrong");
  });
}

TEST(SimulatedKernels, LaunchesThatTheDriverRefuses) {
  expectFine([](Simulated& gpu) {
    const Twice twice(gpu);
    TwiceArguments arguments{twice.x, twice.z, kLength};
    void* parameters[] = {&arguments};
    cuda::LaunchConfig fine{.gridX = 5, .gridY = 1, .gridZ = 1, .blockX = 64, .blockY = 1, .blockZ = 1};
    fine.stream = gpu.stream();
    const auto launched = [&](cuda::LaunchConfig config) {
      return gpu.launchKernel(&config, twice.function, parameters, nullptr);
    };
    cuda::LaunchConfig config = fine;
    config.gridX = 0;
    require(launched(config) == Result::InvalidValue, "no blocks");
    config = fine;
    config.blockX = 1025;
    require(launched(config) == Result::InvalidValue, "too many threads");
    config = fine;
    config.sharedBytes = (48 << 10) + 1;
    require(launched(config) == Result::InvalidValue, "more shared memory than was asked for");
    gpu.expect(gpu.functionSetAttribute(twice.function, cuda::FunctionAttribute::MaxDynamicSharedBytes, 64 << 10),
               "set");
    require(launched(config) == Result::Success, "now it is asked for");
    require(gpu.functionSetAttribute(twice.function, cuda::FunctionAttribute::MaxDynamicSharedBytes, 228 << 10) ==
                Result::InvalidValue,
            "more than a block can have");
    cuda::LaunchAttribute cluster{.id = cuda::LaunchAttributeId::ClusterDimension};
    cluster.value.clusterDim = {2, 1, 1};
    config = fine;
    config.attributes = &cluster;
    config.attributeCount = 1;
    require(launched(config) == Result::InvalidValue, "5 blocks are no clusters of 2");
  });
}

TEST(SimulatedKernels, ImagesThatTheDriverRefuses) {
  expectFine([](Simulated& gpu) {
    cuda::Module module = nullptr;
    const std::string noImage(100, 'x');
    require(static_cast<int>(gpu.moduleLoadData(&module, noImage.data())) == 200, "no image");
    require(gpu.moduleUnload(nullptr) == Result::InvalidHandle, "no module");
  });
}

TEST(SimulatedNvrtc, RefusesWhatTheRealOneRefuses) {
  const NvrtcSimulated nvrtc;
  ASSERT_TRUE(nvrtc.usable()) << nvrtc.reason();
  int major = 0;
  int minor = 0;
  ASSERT_EQ(nvrtc.version(&major, &minor), nvrtc::Result::Success);
  EXPECT_EQ(minor, 900);  // of no real one: its cubins must not be taken for real ones in a cache on disk
  nvrtc::Program program = nullptr;
  EXPECT_EQ(nvrtc.createProgram(&program, nullptr, "x", 0, nullptr, nullptr), nvrtc::Result::InvalidInput);
  ASSERT_EQ(nvrtc.createProgram(&program, kTwice, "x", 0, nullptr, nullptr), nvrtc::Result::Success);
  for (const char* option :
       {"--gpu-architecture=sm_91", "--gpu-architecture=sm_90b", "--gpu-architecture=sm_80a", "--fast"}) {
    EXPECT_EQ(static_cast<int>(nvrtc.compileProgram(program, 1, &option)), 5) << option;
  }
  size_t bytes = 0;
  ASSERT_EQ(nvrtc.getProgramLogSize(program, &bytes), nvrtc::Result::Success);
  std::string log(bytes, '\0');
  nvrtc.getProgramLog(program, log.data());
  EXPECT_NE(log.find("unrecognized option --fast"), std::string::npos) << log;
  const char* option = "--gpu-architecture=sm_90a";
  EXPECT_EQ(nvrtc.compileProgram(program, 1, &option), nvrtc::Result::Success);
  nvrtc::Program again = program;
  EXPECT_EQ(nvrtc.destroyProgram(&program), nvrtc::Result::Success);
  EXPECT_EQ(static_cast<int>(nvrtc.destroyProgram(&again)), 4);
}

}  // namespace
}  // namespace meshfuse
