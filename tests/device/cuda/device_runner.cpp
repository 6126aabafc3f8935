#include "device/cuda/device_runner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "codegen/cuda/emit.h"

namespace meshfuse {

namespace {

constexpr int64_t kGuard = 256;  // bytes before and after a tensor; keeps the alignment of the memory
constexpr char kGuardByte = 0x5a;
constexpr int64_t kUnwritten = 0xff;  // NaN, -1

// A tensor on the device, between guards.
class Resident {
 public:
  Resident(const simt::TensorMemory& host, tile::Memory role, Device& device)
      : host_(host),
        role_(role),
        lead_(kGuard + (kGuard - host.below % kGuard) % kGuard),  // aligns the base pointer, which may be inside
        image_(lead_ + host.bytes + kGuard, kGuardByte),
        device_(device),
        memory_(device.allocate(std::ssize(image_))) {
    if (role == tile::Memory::Output) {  // what the host has there may be an earlier result
      std::memset(image_.data() + lead_, kUnwritten, host.bytes);
    } else {
      std::memcpy(image_.data() + lead_, host.begin, host.bytes);
    }
    device_.write(memory_.get(), image_.data(), std::ssize(image_));
  }

  uint64_t basePointer() const {
    return std::bit_cast<uint64_t>(memory_.get()) + static_cast<uint64_t>(lead_ + host_.below);
  }

  // False if the kernel wrote around the tensor.
  bool fetch() {
    device_.read(image_.data(), memory_.get(), std::ssize(image_));
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
  Device& device_;
  std::shared_ptr<void> memory_;
};

void runOne(const simt::Launch& launch, Device& device, simt::Result& result) {
  const tile::Program& program = *launch.kernel.program;
  result.text = hashText(emitCuda(program).text);
  invariant(result.text == hashText(launch.kernel.source.text),
            "[device runner] {}: the text is not that of the program", program.name);
  const simt::LaunchPlan plan = simt::planLaunch(launch);
  const std::shared_ptr<const Kernel> kernel = device.compile({&program, 1})[0];
  std::vector<uint64_t> slots = launch.slots;
  std::vector<std::unique_ptr<Resident>> residents;
  auto parameter = [&](int64_t tensor) -> const tile::TensorParam& { return program.tensors[tensor]; };
  for (const simt::TensorMemory& tensor : plan.tensors) {
    residents.push_back(std::make_unique<Resident>(tensor, parameter(tensor.tensor).memory, device));
    slots[tensor.slot] = residents.back()->basePointer();
  }
  const std::unique_ptr<Queue> queue = device.makeQueue();
  auto start = std::chrono::steady_clock::now();
  queue->launch({.kernel = *kernel, .name = program.name, .slots = slots, .checksIndices = program.checksIndices()});
  queue->wait();
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  for (const std::unique_ptr<Resident>& r : residents) {
    if (!r->fetch()) {
      result.faults.push_back(fmt::format("{}: bytes around the tensor were written", parameter(r->tensor()).name));
    }
  }
}

}  // namespace

std::vector<simt::Result> runOnDevice(std::span<const simt::Launch> launches, Device& device) {
  std::vector<simt::Result> results(launches.size());
  for (size_t i = 0; i < launches.size(); i++) {
    try {
      runOne(launches[i], device, results[i]);
    } catch (const Error& error) {
      results[i].faults.emplace_back(error.what());
    }
    results[i].faultCount = std::ssize(results[i].faults);
  }
  return results;
}

}  // namespace meshfuse
