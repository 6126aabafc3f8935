// How processes that know nothing of each other yet exchange their first words.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Every rank's message, by rank. DeviceError if a rank does not come within the deadline.
  virtual std::vector<std::string> allGather(std::string_view mine) = 0;
};

// The launcher's PMIx server; null without one (or without PMIx in this build).
[[nodiscard]] bool pmixOffered();
[[nodiscard]] std::unique_ptr<Bootstrap> connectPmix(std::chrono::milliseconds deadline);

// A star of TCP connections to rank 0, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
[[nodiscard]] bool starOffered();
[[nodiscard]] std::unique_ptr<Bootstrap> connectStar(std::chrono::milliseconds deadline);

}  // namespace meshfuse
