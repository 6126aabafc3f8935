// Memory of the simulated GPU: right programs, and for each wrong use of memory a program that is reported.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/simulated.h"

namespace meshfuse {
namespace {

using cuda::DevicePointer;
using cuda::Result;
using cuda::Stream;

constexpr size_t kFloats = 256;
constexpr size_t kFloatBytes = kFloats * sizeof(float);

TEST(SimulatedMemory, PageableMemoryThereAndBack) {
  expectFine([](Simulated& gpu) {
    std::vector<float> x(kFloats, 3.5F);
    std::vector<float> z(kFloats);
    const DevicePointer a = gpu.allocate(kFloatBytes);
    gpu.expect(gpu.copyToDevice(a, x.data(), kFloatBytes), "cuMemcpyHtoD");
    gpu.expect(gpu.copyToHost(z.data(), a, kFloatBytes), "cuMemcpyDtoH");
    require(z == x, "the copy is equal");
    gpu.expect(gpu.memoryFree(a), "cuMemFree");
  });
}

TEST(SimulatedMemory, TheHostCannotTouchDeviceMemory) {
  EXPECT_DEATH(
      {
        Simulated gpu;
        *reinterpret_cast<volatile float*>(gpu.allocate(kFloatBytes)) = 1;
        std::_Exit(0);
      },
      "");
}

TEST(SimulatedMemory, OutlivesTheThreadsThatUseIt) {
  EXPECT_EXIT(
      {
        const std::vector<char> x(kFloatBytes, 7);
        DevicePointer a = 0;
        std::thread([&] {
          Simulated gpu;
          a = gpu.allocate(kFloatBytes);
          gpu.expect(gpu.copyToDevice(a, x.data(), kFloatBytes), "cuMemcpyHtoD");
        }).join();
        Simulated gpu;
        std::vector<char> z(kFloatBytes);
        gpu.expect(gpu.copyToHost(z.data(), a, kFloatBytes), "cuMemcpyDtoH");
        require(z == x, "the bytes are those of the first thread");
        gpu.expect(gpu.memoryFree(a), "cuMemFree");
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SimulatedMemory, APoolCountsWhatIsUsed) {
  expectFine([](Simulated& gpu) {
    const Stream stream = gpu.stream();
    const cuda::MemoryPool pool = gpu.pool();
    DevicePointer a = 0;
    gpu.expect(gpu.memoryAllocateAsync(&a, kFloatBytes, pool, stream), "cuMemAllocFromPoolAsync");
    gpu.expect(gpu.fillAsync(a, 1, kFloatBytes, stream), "fill");
    uint64_t used = 0;
    gpu.expect(gpu.poolGetAttribute(pool, cuda::PoolAttribute::UsedNow, &used), "attribute");
    require(used == kFloatBytes, "the pool counts the allocation");
    gpu.expect(gpu.memoryFreeAsync(a, stream), "cuMemFreeAsync");
    gpu.expect(gpu.poolGetAttribute(pool, cuda::PoolAttribute::UsedNow, &used), "attribute");
    require(used == 0, "the pool counts the free");
    gpu.expect(gpu.poolGetAttribute(pool, cuda::PoolAttribute::UsedMost, &used), "attribute");
    require(used == kFloatBytes, "the pool keeps the peak");
    gpu.expect(gpu.poolDestroy(pool), "cuMemPoolDestroy");
  });
  expectReport("memory of the pool is not freed", [](Simulated& gpu) {
    const cuda::MemoryPool pool = gpu.pool();
    DevicePointer a = 0;
    gpu.expect(gpu.memoryAllocateAsync(&a, kFloatBytes, pool, gpu.stream()), "cuMemAllocFromPoolAsync");
    gpu.poolDestroy(pool);
  });
}

// The stream of a use and that of the allocation or of the free are ordered by an event, or not at all.
void useOnAnotherStream(Simulated& gpu, bool afterAllocation, bool beforeFree) {
  const Stream own = gpu.stream();
  const Stream other = gpu.stream();
  const cuda::Event allocated = gpu.event();
  const cuda::Event used = gpu.event();
  DevicePointer a = 0;
  gpu.expect(gpu.memoryAllocateAsync(&a, kFloatBytes, gpu.pool(), own), "cuMemAllocFromPoolAsync");
  gpu.expect(gpu.eventRecord(allocated, own), "record");
  if (afterAllocation) {
    gpu.expect(gpu.streamWaitEvent(other, allocated, 0), "wait");
  }
  gpu.expect(gpu.fillAsync(a, 1, kFloatBytes, other), "fill");
  gpu.expect(gpu.eventRecord(used, other), "record");
  if (beforeFree) {
    gpu.expect(gpu.streamWaitEvent(own, used, 0), "wait");
  }
  gpu.expect(gpu.memoryFreeAsync(a, own), "cuMemFreeAsync");
  gpu.expect(gpu.contextSynchronize(), "synchronize");
}

TEST(SimulatedMemory, UsesAreOrderedAfterTheAllocationAndBeforeTheFree) {
  expectFine([](Simulated& gpu) { useOnAnotherStream(gpu, true, true); });
  expectReport("nothing orders the two|not allocated", [](Simulated& gpu) { useOnAnotherStream(gpu, false, true); });
  expectReport("nothing orders the two|no allocation", [](Simulated& gpu) { useOnAnotherStream(gpu, true, false); });
}

TEST(SimulatedMemory, UseAfterFree) {
  expectReport("no allocation has the address", [](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(kFloatBytes);
    gpu.expect(gpu.memoryFree(a), "cuMemFree");
    gpu.fillAsync(a, 1, kFloatBytes, gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedMemory, FreesAreRefusedTwice) {
  expectFine([](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(kFloatBytes);
    gpu.expect(gpu.memoryFree(a), "cuMemFree");
    require(gpu.memoryFree(a) == Result::InvalidValue, "the second free is refused");
    require(gpu.memoryFree(gpu.allocate(kFloatBytes) + 4) == Result::InvalidValue, "a free inside is refused");
    require(gpu.memoryFree(0) == Result::Success, "a free of nothing is none");
  });
}

TEST(SimulatedMemory, AccessBeyondTheEnd) {
  expectReport("bytes 0 to 1025 of the 1024 bytes of cuMemAlloc", [](Simulated& gpu) {
    gpu.fillAsync(gpu.allocate(kFloatBytes), 1, kFloatBytes + 1, gpu.stream());
    gpu.contextSynchronize();
  });
}

TEST(SimulatedMemory, ReadsOfWhatNobodyWrote) {
  expectReport("reads bytes that nobody has written, the first at 1020 of 1024", [](Simulated& gpu) {
    std::vector<float> z(kFloats);
    const DevicePointer a = gpu.allocate(kFloatBytes);
    const Stream stream = gpu.stream();
    gpu.expect(gpu.fillAsync(a, 1, kFloatBytes - 4, stream), "fill");
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    gpu.copyToHost(z.data(), a, kFloatBytes);
  });
}

TEST(SimulatedMemory, ForeignPointers) {
  expectFine([](Simulated& gpu) {
    float host = 0;
    const auto address = reinterpret_cast<DevicePointer>(&host);
    require(gpu.fillAsync(address, 0, 4, gpu.stream()) == Result::InvalidValue, "a host pointer is no device pointer");
    require(gpu.copyToDevice(address, &host, 4) == Result::InvalidValue, "a host pointer is no device pointer");
    require(gpu.copyToDevice(gpu.allocate(4), nullptr, 4) == Result::InvalidValue, "null is no host pointer");
  });
  expectReport("a device pointer is given as the host's", [](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(4);
    gpu.copyToDevice(gpu.allocate(4), reinterpret_cast<const void*>(a), 4);
  });
}

TEST(SimulatedMemory, MoreThanThereIs) {
  setenv("SIMGPU_MEMORY", "1048576", 1);
  expectFine([](Simulated& gpu) {
    DevicePointer a = 0;
    size_t free = 0;
    size_t total = 0;
    gpu.expect(gpu.memoryInfo(&free, &total), "cuMemGetInfo");
    require(free == total && total == size_t{1} << 20, "all is free");
    for (const size_t bytes : {total, total + 1, ~size_t{0}}) {
      require(gpu.memoryAllocate(&a, bytes) == Result::OutOfMemory, "there is less");
    }
    gpu.allocate(total / 2);
    gpu.expect(gpu.memoryInfo(&free, &total), "cuMemGetInfo");
    require(free == total - total / 2, "half of it is free");
    require(gpu.memoryAllocate(&a, total / 2) == Result::OutOfMemory, "a red zone needs bytes too");
    require(gpu.memoryAllocate(&a, 0) == Result::InvalidValue, "nothing is no size");
  });
  unsetenv("SIMGPU_MEMORY");
}

TEST(SimulatedMemory, FaultsOnDemand) {
  setenv("SIMGPU_FAULT", "allocate:2", 1);
  expectFine([](Simulated& gpu) {
    DevicePointer a = 0;
    gpu.allocate(4);
    require(gpu.memoryAllocate(&a, 4) == Result::OutOfMemory, "the second allocation fails");
    gpu.allocate(4);
  });
  unsetenv("SIMGPU_FAULT");
}

}  // namespace
}  // namespace meshfuse
