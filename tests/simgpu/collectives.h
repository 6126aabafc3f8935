// Communicators of the simulated NCCL for tests: ranks as threads, and their buffers.
//
//   expectFine(onRanks(2, [](Rank& rank) {
//     const cuda::DevicePointer x = rank.buffer(std::vector<float>{1, 2});
//     rank.expect(rank.allReduce(x, x, 2), "ncclAllReduce");
//     require(rank.values<float>(x, 2) == std::vector<float>{2, 4}, "the sum");
//   }));
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/api/nccl.h"
#include "simgpu/simulated.h"

namespace meshfuse {

struct NcclSimulated : VendorLibrary {
  NcclSimulated();
  MESHFUSE_NCCL_CALLS(MESHFUSE_VENDOR_MEMBER);
  MESHFUSE_FURTHER_NCCL_CALLS(MESHFUSE_VENDOR_MEMBER);
};

nccl::UniqueId uniqueId();

struct RankOptions {
  bool isBlocking = true;
  bool isDestroyed = true;  // at the end
};

// A rank of a communicator on this thread. The device is the number of the rank modulo the count of devices.
class Rank {
 public:
  Rank(int rank, int ranks, const nccl::UniqueId& id, const RankOptions& given = {});
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  // Ends the process with status 1 unless the call has succeeded, at once or in the end.
  void expect(nccl::Result result, const char* call) const;
  nccl::Result state() const;
  void synchronize() const { gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize"); }

  template <class T>
  cuda::DevicePointer buffer(const std::vector<T>& values) {
    const cuda::DevicePointer at = gpu.allocate(values.size() * sizeof(T));
    put(at, values);
    return at;
  }
  template <class T>
  void put(cuda::DevicePointer at, const std::vector<T>& values) const {
    gpu.expect(gpu.copyToDevice(at, values.data(), values.size() * sizeof(T)), "cuMemcpyHtoD");
  }
  // After all work of the stream
  template <class T>
  std::vector<T> values(cuda::DevicePointer at, size_t count) const {
    std::vector<T> all(count);
    synchronize();
    gpu.expect(gpu.copyToHost(all.data(), at, count * sizeof(T)), "cuMemcpyDtoH");
    return all;
  }

  // On the rank's stream: sums, and elements of type float
  nccl::Result allReduce(cuda::DevicePointer in, cuda::DevicePointer out, size_t count) const;
  nccl::Result broadcast(cuda::DevicePointer in, cuda::DevicePointer out, size_t count, int root) const;
  nccl::Result send(cuda::DevicePointer in, size_t count, int peer) const;
  nccl::Result receive(cuda::DevicePointer out, size_t count, int peer) const;

  mutable Simulated gpu;
  NcclSimulated nccl;
  int number;
  int count;
  RankOptions options;
  cuda::Stream stream = nullptr;
  nccl::Communicator communicator = nullptr;
};

void* bufferAt(cuda::DevicePointer p);

using RankProgram = std::function<void(Rank&)>;
SimulatedProgram onRanks(int ranks, const RankProgram& program, const RankOptions& options = {});
// The same communicator, but the program makes its ranks.
SimulatedProgram onThreads(int threads, const std::function<void(int thread, const nccl::UniqueId& id)>& program);

// Waits until all threads of a program are here. Tells the engine nothing.
class Rendezvous {
 public:
  explicit Rendezvous(int threads) : missing_(threads) {}
  void wait();

 private:
  int missing_;
};

// With environment variables that end with the test.
class CollectiveTest : public testing::Test {
 protected:
  explicit CollectiveTest(int devices = 4) { set("SIMGPU_DEVICES", std::to_string(devices)); }
  ~CollectiveTest() override;
  void set(const char* variable, const std::string& value);

 private:
  std::vector<const char*> variables_;
};

}  // namespace meshfuse
