// Devices for tests that pass all work to another device.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/device.h"

namespace meshfuse {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::shared_ptr<Device> to) : to_(std::move(to)) {}
  DeviceId id() const override { return to_->id(); }
  const DeviceInfo& info() const override { return to_->info(); }
  std::optional<int64_t> memoryBytes() const override { return to_->memoryBytes(); }
  std::optional<MemoryUse> memoryUse() const override { return to_->memoryUse(); }
  void resetMost() override { to_->resetMost(); }
  bool isHostMemory() const override { return to_->isHostMemory(); }
  std::shared_ptr<void> allocate(int64_t bytes) override { return to_->allocate(bytes); }
  void read(void* host, const void* memory, int64_t bytes) override { to_->read(host, memory, bytes); }
  void write(void* memory, const void* host, int64_t bytes) override { to_->write(memory, host, bytes); }
  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    return to_->compile(programs);
  }
  int64_t scratchBytes(const Kernel& kernel, std::span<const uint64_t> slots) const override {
    return to_->scratchBytes(kernel, slots);
  }
  void expectRoutine(const Expr& op) const override { to_->expectRoutine(op); }
  std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions& options) const override {
    return to_->routine(op, options);
  }
  std::optional<std::string_view> routineName(const Expr& op) const override { return to_->routineName(op); }
  std::unique_ptr<Queue> makeQueue() override { return to_->makeQueue(); }
  std::unique_ptr<Event> makeEvent() override { return to_->makeEvent(); }
  std::unique_ptr<Timer> makeTimer(int64_t points) override { return to_->makeTimer(points); }
  Listings listings(const tile::Program& program) override { return to_->listings(program); }

 protected:
  const std::shared_ptr<Device> to_;
};

// Compiles other programs than it is given.
class ChangingDevice final : public ForwardingDevice {
 public:
  using Change = std::function<std::vector<tile::Program>(std::span<const tile::Program>)>;
  ChangingDevice(std::shared_ptr<Device> to, Change change)
      : ForwardingDevice(std::move(to)), change_(std::move(change)) {}
  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    return to_->compile(change_(programs));
  }

 private:
  const Change change_;
};

}  // namespace meshfuse
