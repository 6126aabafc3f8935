#include "simgpu/collectives.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace meshfuse {

NcclSimulated::NcclSimulated() : VendorLibrary({"libnccl.so.2"}) {
  MESHFUSE_NCCL_CALLS(MESHFUSE_VENDOR_FIND);
  MESHFUSE_FURTHER_NCCL_CALLS(MESHFUSE_VENDOR_FIND);
  require(usable(), reason().c_str());
}

nccl::UniqueId uniqueId() {
  nccl::UniqueId id;
  require(NcclSimulated().uniqueId(&id) == nccl::Result::Success, "ncclGetUniqueId");
  return id;
}

void* bufferAt(cuda::DevicePointer p) { return reinterpret_cast<void*>(p); }

Rank::Rank(int rank, int ranks, const nccl::UniqueId& id, const RankOptions& given)
    : number(rank), count(ranks), options(given) {
  int devices = 0;
  gpu.expect(gpu.deviceGetCount(&devices), "cuDeviceGetCount");
  cuda::Context context = nullptr;
  gpu.expect(gpu.primaryContextRetain(&context, rank % devices), "cuDevicePrimaryCtxRetain");
  gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
  stream = gpu.stream();
  nccl::Config config;
  config.blocking = given.isBlocking ? 1 : 0;
  expect(nccl.create(&communicator, ranks, id, rank, &config), "ncclCommInitRankConfig");
}

Rank::~Rank() {
  if (options.isDestroyed) {
    synchronize();
    expect(nccl.destroy(communicator), "ncclCommDestroy");
  }
}

void Rank::expect(nccl::Result result, const char* call) const {
  while (result == nccl::Result::InProgress) {
    result = state();
  }
  require(result == nccl::Result::Success, (std::string(call) + " succeeds: " + std::to_string(int(result))).c_str());
}

nccl::Result Rank::state() const {
  nccl::Result state{};
  require(nccl.communicatorError(communicator, &state) == nccl::Result::Success, "ncclCommGetAsyncError");
  return state;
}

nccl::Result Rank::allReduce(cuda::DevicePointer in, cuda::DevicePointer out, size_t elements) const {
  return nccl.allReduce(bufferAt(in), bufferAt(out), elements, nccl::ElementType::Float, nccl::ReduceOperation::Sum,
                        communicator, stream);
}

nccl::Result Rank::broadcast(cuda::DevicePointer in, cuda::DevicePointer out, size_t elements, int root) const {
  return nccl.broadcast(bufferAt(in), bufferAt(out), elements, nccl::ElementType::Float, root, communicator, stream);
}

nccl::Result Rank::send(cuda::DevicePointer in, size_t elements, int peer) const {
  return nccl.send(bufferAt(in), elements, nccl::ElementType::Float, peer, communicator, stream);
}

nccl::Result Rank::receive(cuda::DevicePointer out, size_t elements, int peer) const {
  return nccl.receive(bufferAt(out), elements, nccl::ElementType::Float, peer, communicator, stream);
}

SimulatedProgram onThreads(int count, const std::function<void(int, const nccl::UniqueId&)>& program) {
  return [=](Simulated&) {
    const nccl::UniqueId id = uniqueId();
    std::vector<std::jthread> threads;
    for (int i = 0; i < count; i++) {
      threads.emplace_back([&, i] { program(i, id); });
    }
  };
}

SimulatedProgram onRanks(int ranks, const RankProgram& program, const RankOptions& options) {
  return onThreads(ranks, [=](int number, const nccl::UniqueId& id) {
    Rank rank(number, ranks, id, options);
    program(rank);
  });
}

void Rendezvous::wait() {
  std::atomic_ref missing(missing_);
  missing--;
  while (missing > 0) {
    std::this_thread::yield();
  }
}

CollectiveTest::~CollectiveTest() {
  for (const char* variable : variables_) {
    unsetenv(variable);
  }
}

void CollectiveTest::set(const char* variable, const std::string& value) {
  setenv(variable, value.c_str(), 1);
  variables_.push_back(variable);
}

}  // namespace meshfuse
