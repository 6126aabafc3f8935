// Streams and events on the simulated GPU: programs that order what they must, and the same programs without one wait.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <ratio>
#include <thread>
#include <vector>

#include "simgpu/simulated.h"

namespace meshfuse {
namespace {

using cuda::DevicePointer;
using cuda::Stream;

constexpr size_t kOrdered = 1000;
constexpr size_t kOrderedBytes = kOrdered * sizeof(float);
constexpr const char* kUnordered = "nothing orders the two";

// Pinned: 0, 1, 2, ...
float* counted(Simulated& gpu) {
  float* const host = gpu.pinned(kOrdered);
  std::iota(host, host + kOrdered, 0.0F);
  return host;
}

void expectTwice(const float* z) {
  for (size_t i = 0; i < kOrdered; i++) {
    require(z[i] == 2 * static_cast<float>(i), "z is twice x");
  }
}

// x goes to the device on one stream, the kernel runs on another, and z comes back on a third one.
void onThreeStreams(Simulated& gpu, bool waitsForX, bool waitsForZ, bool waitsOnTheHost) {
  const cuda::Function twice = gpu.kernel(kTwice, "twice");
  float* const x = counted(gpu);
  float* const z = gpu.pinned(kOrdered);
  const DevicePointer dx = gpu.allocate(kOrderedBytes);
  const DevicePointer dz = gpu.allocate(kOrderedBytes);
  const Stream in = gpu.stream();
  const Stream run = gpu.stream();
  const Stream out = gpu.stream();
  const cuda::Event hasX = gpu.event();
  const cuda::Event hasZ = gpu.event();
  gpu.expect(gpu.copyToDeviceAsync(dx, x, kOrderedBytes, in), "copy");
  gpu.expect(gpu.eventRecord(hasX, in), "record");
  if (waitsForX) {
    gpu.expect(gpu.streamWaitEvent(run, hasX, 0), "wait");
  }
  gpu.launch(twice, 16, 64, TwiceArguments{dx, dz, kOrdered}, run);
  gpu.expect(gpu.eventRecord(hasZ, run), "record");
  if (waitsForZ) {
    gpu.expect(gpu.streamWaitEvent(out, hasZ, 0), "wait");
  }
  gpu.expect(gpu.copyToHostAsync(z, dz, kOrderedBytes, out), "copy");
  if (waitsOnTheHost) {
    gpu.expect(gpu.streamSynchronize(out), "synchronize");
    expectTwice(z);
  }
}

TEST(SimulatedOrder, EventsOrderStreams) {
  expectFine([](Simulated& gpu) { onThreeStreams(gpu, true, true, true); });
}

TEST(SimulatedOrder, AMissingWaitForACopyIsFound) {
  expectReport("cuLaunchKernelEx of twice.*(written|" + std::string(kUnordered) + ")",
               [](Simulated& gpu) { onThreeStreams(gpu, false, true, true); });
}

TEST(SimulatedOrder, AMissingWaitForAKernelIsFound) {
  expectReport("(written|" + std::string(kUnordered) + ")",
               [](Simulated& gpu) { onThreeStreams(gpu, true, false, true); });
}

// An event that is recorded before the work that it is to stand for
TEST(SimulatedOrder, AnEventRecordedTooSoonIsFound) {
  const auto program = [](bool isTooSoon) {
    return [=](Simulated& gpu) {
      const DevicePointer a = gpu.allocate(kOrderedBytes);
      const Stream first = gpu.stream();
      const Stream second = gpu.stream();
      const cuda::Event event = gpu.event();
      if (isTooSoon) {
        gpu.expect(gpu.eventRecord(event, first), "record");
      }
      gpu.expect(gpu.fillAsync(a, 1, kOrderedBytes, first), "fill");
      if (!isTooSoon) {
        gpu.expect(gpu.eventRecord(event, first), "record");
      }
      gpu.expect(gpu.streamWaitEvent(second, event, 0), "wait");
      gpu.expect(gpu.fillAsync(a, 2, kOrderedBytes, second), "fill");
      gpu.expect(gpu.streamSynchronize(second), "synchronize");
      gpu.expect(gpu.streamSynchronize(first), "synchronize");
    };
  };
  expectFine(program(false));
  expectReport(kUnordered, program(true));
}

TEST(SimulatedOrder, TheHostOrdersWhatItHasWaitedFor) {
  const auto program = [](bool waits) {
    return [=](Simulated& gpu) {
      const DevicePointer a = gpu.allocate(kOrderedBytes);
      const Stream first = gpu.stream();
      const Stream second = gpu.stream();
      gpu.expect(gpu.fillAsync(a, 1, kOrderedBytes, first), "fill");
      if (waits) {
        gpu.expect(gpu.streamSynchronize(first), "synchronize");
      }
      gpu.expect(gpu.fillAsync(a, 2, kOrderedBytes, second), "fill");
      gpu.expect(gpu.contextSynchronize(), "synchronize");
    };
  };
  expectFine(program(true));
  expectReport(kUnordered, program(false));
}

// The call may return when the driver has taken a copy of pageable memory; the bytes reach the device later.
TEST(SimulatedOrder, ACopyFromPageableMemoryIsToBeWaitedFor) {
  const auto program = [](bool waits) {
    return [=](Simulated& gpu) {
      const std::vector<float> host(kOrdered, 1);
      const DevicePointer a = gpu.allocate(kOrderedBytes);
      const DevicePointer b = gpu.allocate(kOrderedBytes);
      const Stream in = gpu.stream();
      gpu.expect(gpu.copyToDeviceAsync(a, host.data(), kOrderedBytes, in), "copy");
      if (waits) {
        gpu.expect(gpu.streamSynchronize(in), "synchronize");
      }
      gpu.expect(gpu.copyOnDeviceAsync(b, a, kOrderedBytes, gpu.stream()), "copy");
      gpu.expect(gpu.contextSynchronize(), "synchronize");
    };
  };
  expectFine(program(true));
  expectReport("cuMemcpyDtoDAsync.*(written|" + std::string(kUnordered) + ")", program(false));
}

TEST(SimulatedOrder, ReadersNeedNoOrderAmongThemselves) {
  expectFine([](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(kOrderedBytes);
    const Stream first = gpu.stream();
    gpu.expect(gpu.fillAsync(a, 1, kOrderedBytes, first), "fill");
    gpu.expect(gpu.streamSynchronize(first), "synchronize");
    for (int i = 0; i < 4; i++) {
      gpu.expect(gpu.copyOnDeviceAsync(gpu.allocate(kOrderedBytes), a, kOrderedBytes, gpu.stream()), "copy");
    }
  });
}

// The host reads pinned memory after it has waited for the work that writes it, even if that has ended.
TEST(SimulatedOrder, PinnedMemoryIsReadAfterAWait) {
  const auto copied = [](bool waits, bool isLate) {
    return [=](Simulated& gpu) {
      const DevicePointer a = gpu.allocate(kOrderedBytes);
      const Stream stream = gpu.stream();
      float* const host = gpu.pinned(kOrdered);
      host[0] = 1;
      gpu.expect(gpu.fillAsync(a, 0, kOrderedBytes, stream), "fill");
      gpu.expect(gpu.copyToHostAsync(host, a, kOrderedBytes, stream), "copy");
      if (isLate) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      if (waits) {
        gpu.expect(gpu.streamSynchronize(stream), "synchronize");
        require(host[0] == 0, "the copy has ended");
      }
      require(host[1] == 0, "no value at all");
      gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    };
  };
  expectFine(copied(true, false));
  expectReport("the host reads pinned memory that cuMemcpyDtoHAsync", copied(false, false));
  expectReport("the host reads pinned memory that cuMemcpyDtoHAsync", copied(false, true));
}

// A kernel may write where a parameter points.
TEST(SimulatedOrder, PinnedMemoryOfAKernelIsReadAfterAWait) {
  const auto launched = [](bool waits) {
    return [=](Simulated& gpu) {
      const cuda::Function one = gpu.kernel(R"(//@ kernel
struct Arguments {
  float* z;
};
extern "C" __global__ void __launch_bounds__(64) one(const __grid_constant__ Arguments args) {
  if (threadIndex() == 0) *args.z = 1;
}
)",
                                            "one");
      const float* const z = gpu.pinned(1);
      const Stream stream = gpu.stream();
      gpu.launch(one, 1, 64, z, stream);
      if (waits) {
        gpu.expect(gpu.streamSynchronize(stream), "synchronize");
      }
      require(*z == 1, "the kernel writes 1");
    };
  };
  expectFine(launched(true));
  expectReport("the host reads pinned memory that cuLaunchKernelEx of one", launched(false));
}

// The host may read what the device reads, and writes it after a wait.
TEST(SimulatedOrder, PinnedMemoryThatIsCopiedIsWrittenAfterAWait) {
  const auto program = [](bool writes, bool waits) {
    return [=](Simulated& gpu) {
      float* const host = counted(gpu);
      const DevicePointer a = gpu.allocate(kOrderedBytes);
      const Stream stream = gpu.stream();
      gpu.expect(gpu.copyToDeviceAsync(a, host, kOrderedBytes, stream), "copy");
      if (waits) {
        gpu.expect(gpu.streamSynchronize(stream), "synchronize");
      }
      require(host[1] == 1, "as before");
      if (writes) {
        host[1] = 2;
      }
      gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    };
  };
  expectFine(program(false, false));
  expectFine(program(true, true));
  expectReport("the host writes pinned memory that cuMemcpyHtoDAsync", program(true, false));
}

TEST(SimulatedOrder, QueriesSayWhenWorkHasEnded) {
  expectFine([](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(kOrderedBytes);
    const Stream stream = gpu.stream();
    const cuda::Event event = gpu.event();
    require(gpu.eventQuery(event) == cuda::Result::Success, "an event that was never recorded lets all pass");
    gpu.expect(gpu.fillAsync(a, 1, kOrderedBytes, stream), "fill");
    gpu.expect(gpu.eventRecord(event, stream), "record");
    while (gpu.eventQuery(event) == cuda::Result::NotReady) {
    }
    while (gpu.streamQuery(stream) == cuda::Result::NotReady) {
    }
    gpu.expect(gpu.fillAsync(a, 2, kOrderedBytes, gpu.stream()), "fill");  // the query has told the host
  });
}

TEST(SimulatedOrder, EventsTellTheTimeBetweenThem) {
  expectFine([](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(kOrderedBytes);
    const Stream stream = gpu.stream();
    cuda::Event begin = nullptr;
    cuda::Event end = nullptr;
    gpu.expect(gpu.eventCreate(&begin, 0), "cuEventCreate");
    gpu.expect(gpu.eventCreate(&end, 0), "cuEventCreate");
    float time = 0;
    const auto between = [&](cuda::Event from, cuda::Event to) { return gpu.eventElapsedTime(&time, from, to); };
    require(between(begin, end) == cuda::Result::InvalidHandle, "events that were never recorded");
    const auto started = std::chrono::steady_clock::now();
    gpu.expect(gpu.eventRecord(begin, stream), "record");
    int timesLeft = 0;
    for (int i = 0; i < 20; i++) {
      gpu.expect(gpu.fillAsync(a, 1, kOrderedBytes, stream), "fill");
      gpu.expect(gpu.eventRecord(end, stream), "record");
      timesLeft += between(begin, end) == cuda::Result::NotReady ? 1 : 0;
    }
    require(timesLeft > 0, "at times an event has not ended after the call");
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    const std::chrono::duration<float, std::milli> ofHost = std::chrono::steady_clock::now() - started;
    gpu.expect(between(begin, end), "cuEventElapsedTime");
    require(time > 0 && time <= ofHost.count(), "the time of the work is less than that of the host");
    const float forward = time;
    gpu.expect(between(end, begin), "cuEventElapsedTime");
    require(time == -forward, "backward");
  });
}

TEST(SimulatedOrder, EventsWithoutTimingTellNone) {
  expectFine([](Simulated& gpu) {
    const Stream stream = gpu.stream();
    const cuda::Event event = gpu.event();
    gpu.expect(gpu.eventRecord(event, stream), "record");
    gpu.expect(gpu.streamSynchronize(stream), "synchronize");
    float time = 0;
    require(gpu.eventElapsedTime(&time, event, event) == cuda::Result::InvalidHandle, "it measures no time");
    require(gpu.eventElapsedTime(nullptr, event, event) == cuda::Result::InvalidValue, "nowhere to put it");
  });
}

}  // namespace
}  // namespace meshfuse
