#include "tensor/device_memory.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "tensor/gpu_stream.h"

namespace meshfuse {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<DeviceMemory>> devices;  // never removed: tensors refer to them
  DeviceOpener opener = nullptr;

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

[[noreturn]] void throwNoStreams(DeviceId device) {
  throwUserError(fmt::format("[device] {} has no streams; expected a GPU", device.toString()));
}

}  // namespace

DeviceId DeviceId::parse(std::string_view text) {
  if (text == "cpu") {
    return cpu();
  }
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? "0" : text.substr(colon + 1);
  int32_t index = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool isNumber = read.ec == std::errc() && read.ptr == digits.data() + digits.size() && index >= 0;
  check(isNumber && (kind == "cuda" || (kind == "ext" && colon != std::string_view::npos)),
        "[device] \"{}\" is no device; expected cpu, cuda:0 (the number of a GPU), or ext:0 (a registered device)",
        text);
  return {kind == "cuda" ? Kind::Cuda : Kind::Extension, index};
}

void DeviceMemory::orderBefore(GpuStream /*stream*/) { throwNoStreams(id()); }
void DeviceMemory::orderAfter(GpuStream /*stream*/) { throwNoStreams(id()); }

void registerDevice(std::shared_ptr<DeviceMemory> memory) {
  check(memory != nullptr, "[device] the device is null; give one");
  const DeviceId id = memory->id();
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  check(id.kind != DeviceId::Kind::Cpu,
        "[device] got the CPU, which is always there; register a device of another kind");
  check(r.find(id) == nullptr, "[device] there is a device {} already; give another index", id.toString());
  r.devices.push_back(std::move(memory));
}

void openDevicesWith(DeviceOpener opener) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.opener = opener;
}

DeviceMemory& registeredDevice(DeviceId id) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  DeviceMemory* found = r.find(id);
  if (found == nullptr && r.opener != nullptr) {
    if (std::shared_ptr<DeviceMemory> opened = r.opener(id); opened != nullptr) {
      found = opened.get();
      r.devices.push_back(std::move(opened));
    }
  }
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
