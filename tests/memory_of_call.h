// The memory of a device that a call of a program takes, for comparison with its plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ranges.h"
#include "host/executor.h"
#include "host/program.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

// The most bytes that arguments, results and the call itself take at one time; to be compared with ProgramSizes::peakBytes. Nothing if the device
// does not count its memory, or if ranks share it. All ranks call this at the same time. `results`: of an earlier call with these arguments.
inline std::optional<int64_t> memoryOfCall(Communicator& comm, const std::shared_ptr<const HostProgram>& program,
                                           const std::vector<Argument>& arguments, std::vector<Tensor>& results) {
  Device& device = *program->device;
  std::vector<std::string> devices = comm.exchange(program->deviceId.toString());
  std::ranges::sort(devices);
  if (!device.memoryUse() || std::ranges::adjacent_find(devices) != devices.end()) {
    return std::nullopt;
  }
  std::map<const void*, int64_t> held;  // by address: bytes of arguments and results
  for (const Argument& a : arguments) {
    if (const auto* t = std::get_if<Tensor>(&a)) {
      held[t->data()] = t->nbytes();
    }
  }
  for (const Tensor& t : results) {
    held[t.data()] = t.nbytes();
  }
  device.resetMost();
  const int64_t before = device.memoryUse()->now;
  Binding(program, comm).run(comm, arguments, results);
  return sumOf(held, [](const auto& entry) { return entry.second; }) + device.memoryUse()->most - before;
}

}  // namespace meshfuse
