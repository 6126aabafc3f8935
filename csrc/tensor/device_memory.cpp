#include "tensor/device_memory.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<DeviceMemory>> devices;  // never removed: tensors refer to them

  DeviceMemory* find(DeviceId id) const {
    const auto found = std::ranges::find(devices, id, &DeviceMemory::id);
    return found == devices.end() ? nullptr : found->get();
  }
};

Registry& registry() {
  static auto* const registry = new Registry;  // never destroyed: tensors may outlive any other static object
  return *registry;
}

std::atomic<DeviceMemory*> memoryOfDefault{nullptr};  // null: the CPU

}  // namespace

void registerDevice(std::shared_ptr<DeviceMemory> memory) {
  check(memory != nullptr, "[device] the device is null; give one");
  const DeviceId id = memory->id();
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  check(id.kind != DeviceId::Kind::Cpu, "[device] the CPU is always there; register a device of another kind");
  check(r.find(id) == nullptr, "[device] there is a device {} already; give another index", id.toString());
  r.devices.push_back(std::move(memory));
}

DeviceMemory& registeredDevice(DeviceId id) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  DeviceMemory* const found = r.find(id);
  if (found == nullptr) {
    const auto nameOf = [](const std::shared_ptr<DeviceMemory>& d) { return ", " + d->id().toString(); };
    throwUserError(
        fmt::format("[device] there is no device {}; there are: cpu{}", id.toString(), joined(r.devices, "", nameOf)));
  }
  return *found;
}

void setDefaultDevice(DeviceId id) { memoryOfDefault = id == DeviceId::cpu() ? nullptr : &registeredDevice(id); }

DeviceId defaultDevice() {
  const DeviceMemory* const memory = memoryOfDefault;
  return memory == nullptr ? DeviceId::cpu() : memory->id();
}

}  // namespace meshfuse
