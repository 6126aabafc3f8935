#include "simgpu/simulated.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace meshfuse {

namespace {

// Beside the folder of the test binaries
const char* useStandIns() {
  const std::filesystem::path build = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
  setenv("MESHFUSE_CUDA_LIBRARIES", (build / "simgpu").c_str(), 1);
  return "";
}

constexpr int kSeeds = 3;

void runWith(int seed, const SimulatedProgram& program) {
  setenv("SIMGPU_SEED", std::to_string(seed).c_str(), 1);
  constexpr unsigned kMostSeconds = 100;
  alarm(kMostSeconds);  // a program that hangs fails its test, and the other tests run
  Simulated gpu;
  program(gpu);
  Simulated::expect(gpu.contextSynchronize(), "cuCtxSynchronize");
  std::_Exit(0);
}

}  // namespace

const char* const kTwice = R"(//@ kernel
struct Arguments {
  const float* x;
  float* z;
  long long n;
};
extern "C" __global__ void __launch_bounds__(64) twice(const __grid_constant__ Arguments args) {
  const long long i = blockIndex() * 64ll + threadIndex();
  if (i < args.n) storeOne<0>(args.z + i, 2 * loadOne<2>(args.x + i, 1), 2);
}
)";

Simulated::Simulated() : VendorLibrary({std::string(useStandIns()) + "libcuda.so.1"}) {
  MESHFUSE_CUDA_DRIVER_CALLS(MESHFUSE_VENDOR_FIND);
  MESHFUSE_FURTHER_DRIVER_CALLS(MESHFUSE_VENDOR_FIND);
  require(usable(), reason().c_str());
  expect(init(0), "cuInit");
  cuda::Context context = nullptr;
  expect(primaryContextRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  expect(contextPush(context), "cuCtxPushCurrent");
}

void Simulated::expect(cuda::Result result, const char* call) {
  if (result != cuda::Result::Success) {
    std::fprintf(stderr, "%s returned %d\n", call, static_cast<int>(result));
    std::_Exit(1);
  }
}

cuda::DevicePointer Simulated::allocate(size_t bytes) {
  cuda::DevicePointer memory = 0;
  expect(memoryAllocate(&memory, bytes), "cuMemAlloc");
  return memory;
}

cuda::Stream Simulated::stream() {
  cuda::Stream stream = nullptr;
  expect(streamCreate(&stream, cuda::kNonBlockingStream), "cuStreamCreate");
  return stream;
}

cuda::Event Simulated::event() {
  cuda::Event event = nullptr;
  expect(eventCreate(&event, cuda::kEventWithoutTiming), "cuEventCreate");
  return event;
}

float* Simulated::pinned(size_t count) {
  void* memory = nullptr;
  expect(pinnedAllocate(&memory, count * sizeof(float), cuda::kPortableMemory), "cuMemHostAlloc");
  return static_cast<float*>(memory);
}

cuda::MemoryPool Simulated::pool() {
  cuda::MemoryPool pool = nullptr;
  const cuda::PoolProperties properties{.type = cuda::AllocationType::Pinned,
                                        .location = {.type = cuda::LocationType::Device, .id = 0}};
  expect(poolCreate(&pool, &properties), "cuMemPoolCreate");
  return pool;
}

cuda::Function Simulated::kernel(const std::string& text, const std::string& name, const std::string& arch,
                                 cuda::Module* loaded) {
  const NvrtcSimulated nvrtc;
  require(nvrtc.usable(), nvrtc.reason().c_str());
  nvrtc::Program program = nullptr;
  const std::string option = "--gpu-architecture=" + arch;
  const char* options[] = {option.c_str(), "--std=c++20"};
  require(nvrtc.createProgram(&program, text.c_str(), "kernel.cu", 0, nullptr, nullptr) == nvrtc::Result::Success &&
              nvrtc.compileProgram(program, 2, options) == nvrtc::Result::Success,
          "the simulated NVRTC refuses a text");
  size_t bytes = 0;
  nvrtc.getCubinSize(program, &bytes);
  std::string cubin(bytes, '\0');
  nvrtc.getCubin(program, cubin.data());
  cuda::Module module = nullptr;
  expect(moduleLoadData(&module, cubin.data()), "cuModuleLoadData");
  if (loaded != nullptr) {
    *loaded = module;
  }
  cuda::Function function = nullptr;
  expect(moduleGetFunction(&function, module, name.c_str()), "cuModuleGetFunction");
  return function;
}

NvrtcSimulated::NvrtcSimulated() : VendorLibrary({std::string(useStandIns()) + "libnvrtc.so.13"}) {
  MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_FIND);
}

void require(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "not so: %s\n", what);
    std::_Exit(1);
  }
}

void expectFine(const SimulatedProgram& program) {
  for (int seed = 1; seed <= kSeeds; seed++) {
    SCOPED_TRACE(seed);
    EXPECT_EXIT(runWith(seed, program), testing::ExitedWithCode(0), "");
  }
}

void expectReport(const std::string& text, const SimulatedProgram& program) {
  constexpr int kReported = 86;
  for (int seed = 1; seed <= kSeeds; seed++) {
    SCOPED_TRACE(seed);
    EXPECT_EXIT(runWith(seed, program), testing::ExitedWithCode(kReported), text);
  }
}

}  // namespace meshfuse
