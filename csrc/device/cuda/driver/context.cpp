#include "device/cuda/driver/context.h"

#include "base/error.h"
#include "device/cuda/driver/library.h"

namespace meshfuse {

namespace {

int attributeOf(cuda::DeviceNumber device, cuda::DeviceAttribute attribute) {
  int value = 0;
  succeed(loadedDriver().deviceGetAttribute(&value, attribute, device), "cuDeviceGetAttribute", "device {}", device);
  return value;
}

GpuFacts factsOf(cuda::DeviceNumber device, int major) {
  using enum cuda::DeviceAttribute;
  const auto ask = [&](cuda::DeviceAttribute attribute) { return int64_t{attributeOf(device, attribute)}; };
  return {.processors = ask(Processors),
          .threads = ask(ThreadsOfAProcessor),
          .registers = ask(RegistersOfAProcessor),
          .sharedBytes = ask(SharedBytesOfAProcessor),
          .sharedBytesOfBlock = ask(MostSharedBytesOfABlock),
          .accessBytes = major >= 10 ? 32 : 16,
          // memory transfers data twice in each cycle
          .bytesPerMicrosecond = 2 * ask(MemoryKilohertz) * (ask(MemoryBits) / 8) / 1000};
}

}  // namespace

CudaContext::CudaContext(int64_t index) : index_(index), name_("cuda:" + std::to_string(index)) {
  const DriverLibrary& d = loadedDriver();
  int count = 0;
  succeed(d.deviceGetCount(&count), "cuDeviceGetCount", "the driver");
  deviceCheck(index >= 0 && index < count, "[cuda] there is no device cuda:{}; the driver has {}, numbered from 0",
              index, count);
  succeed(d.deviceGet(&device_, index), "cuDeviceGet", "device {}", index);
  place_ = fmt::format("{:04x}:{:02x}:{:02x}", attributeOf(device_, cuda::DeviceAttribute::PciDomain),
                       attributeOf(device_, cuda::DeviceAttribute::PciBus),
                       attributeOf(device_, cuda::DeviceAttribute::PciDevice));
  const int major = attributeOf(device_, cuda::DeviceAttribute::ComputeCapabilityMajor);
  const int minor = attributeOf(device_, cuda::DeviceAttribute::ComputeCapabilityMinor);
  architecture_ = fmt::format("sm_{}{}{}", major, minor, major >= 9 ? "a" : "");
  lastCacheBytes_ = attributeOf(device_, cuda::DeviceAttribute::L2CacheBytes);
  facts_ = factsOf(device_, major);
  succeed(d.primaryContextRetain(&context_, device_), "cuDevicePrimaryCtxRetain", "device {}", index);
}

CudaContext::~CudaContext() { driverLibrary().primaryContextRelease(device_); }

CurrentContext::CurrentContext(const CudaContext& context) {
  succeed(loadedDriver().contextPush(context.context()), "cuCtxPushCurrent", "{}", context.name());
}

CurrentContext::~CurrentContext() {
  cuda::Context gone = nullptr;
  driverLibrary().contextPop(&gone);
}

}  // namespace meshfuse
