#include "device/cuda/nvrtc/device_runner.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "device/cuda/nvrtc/driver.h"

namespace meshfuse {

namespace {

constexpr int64_t kGuard = 256;  // bytes before and after a tensor; keeps the alignment of the memory
constexpr char kGuardByte = 0x5a;
constexpr int64_t kUnwritten = 0xff;  // NaN, -1

// A tensor on the device, between guards.
class Resident {
 public:
  Resident(const simt::TensorMemory& host, tile::Memory role)
      : host_(host),
        role_(role),
        lead_(kGuard + (kGuard - host.below % kGuard) % kGuard),  // aligns the base pointer, which may be inside
        image_(lead_ + host.bytes + kGuard, kGuardByte),
        memory_(std::ssize(image_)) {
    if (role == tile::Memory::Output) {  // what the host has there may be an earlier result
      std::memset(image_.data() + lead_, kUnwritten, host.bytes);
    } else {
      std::memcpy(image_.data() + lead_, host.begin, host.bytes);
    }
    memory_.write(image_.data(), memory_.bytes());
  }

  uint64_t basePointer() const { return memory_.address() + static_cast<uint64_t>(lead_ + host_.below); }

  // False if the kernel wrote around the tensor.
  bool fetch() {
    memory_.read(image_.data(), memory_.bytes());
    if (role_ != tile::Memory::Input) {
      std::memcpy(host_.begin, image_.data() + lead_, host_.bytes);
    }
    auto intact = [](char c) { return c == kGuardByte; };
    return std::all_of(image_.begin(), image_.begin() + lead_, intact) &&
           std::all_of(image_.begin() + lead_ + host_.bytes, image_.end(), intact);
  }

  int64_t tensor() const { return host_.tensor; }

 private:
  simt::TensorMemory host_;
  tile::Memory role_;
  int64_t lead_;
  std::vector<char> image_;
  CudaMemory memory_;
};

void runOne(const simt::Launch& launch, const CudaDevice& device, NvrtcCompiler& compiler, simt::Result& result) {
  const CudaSource& source = launch.kernel.source;
  Cubin cubin = compiler.compileCubin(source.text, device.architecture());
  result.text = cubin.text;
  simt::LaunchPlan plan = simt::planLaunch(launch);
  CudaKernel kernel(cubin.bytes, source.entry, plan.sharedBytes);
  std::vector<uint64_t> slots = launch.slots;
  std::vector<std::unique_ptr<Resident>> residents;
  auto parameter = [&](int64_t tensor) -> const tile::TensorParam& { return launch.kernel.program->tensors[tensor]; };
  for (const simt::TensorMemory& tensor : plan.tensors) {
    residents.push_back(std::make_unique<Resident>(tensor, parameter(tensor.tensor).memory));
    slots[tensor.slot] = residents.back()->basePointer();
  }
  CudaMemory refused(sizeof(RefusedIndexRecord));
  if (launch.kernel.program->checksIndices()) {
    refused.write(&result.refused, refused.bytes());
    slots.push_back(refused.address());
  }
  auto start = std::chrono::steady_clock::now();
  kernel.launch(
      {.blocks = plan.blocks, .threads = source.threads, .cluster = source.cluster, .sharedBytes = plan.sharedBytes},
      slots, nullptr);
  device.synchronize();
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (launch.kernel.program->checksIndices()) {
    refused.read(&result.refused, refused.bytes());
  }
  for (const std::unique_ptr<Resident>& r : residents) {
    if (!r->fetch()) {
      result.faults.push_back(fmt::format("{}: bytes around the tensor were written", parameter(r->tensor()).name));
    }
  }
}

}  // namespace

std::vector<simt::Result> runOnDevice(std::span<const simt::Launch> launches, const CudaDevice& device,
                                      NvrtcCompiler& compiler) {
  std::vector<simt::Result> results(launches.size());
  for (size_t i = 0; i < launches.size(); i++) {
    try {
      runOne(launches[i], device, compiler, results[i]);
    } catch (const DeviceError& error) {
      results[i].faults.emplace_back(error.what());
    }
    results[i].faultCount = std::ssize(results[i].faults);
  }
  return results;
}

}  // namespace meshfuse
