// The lanes of a communicator: the data that a transport keeps for each team's own communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

class Lanes {
 public:
  using Make = std::function<std::unique_ptr<Communicator>()>;
  // The lane of `team` for this rank of a world of `size`, created at the first call; one thread at a time creates a lane.
  Communicator* of(const Team& team, int64_t rank, int64_t size, const Make& make);

  // Calls f(lane) for each lane so far, in the order of the teams. Lanes are not created meanwhile, but their calls go on.
  template <class F>
  void forEach(const F& f) const {
    std::lock_guard lock(mutex_);
    for (const auto& [team, lane] : lanes_) {
      if (lane != nullptr) {
        f(*lane);
      }
    }
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::vector<int64_t>, std::unique_ptr<Communicator>> lanes_;
};

// The name of a lane's records.
[[nodiscard]] std::string laneName(std::string_view world, const Team& team);
// The ranks in such a name; nothing for other names, and for teams that are too large for a name.
[[nodiscard]] std::vector<int64_t> ranksNamed(std::string_view lane);

}  // namespace meshfuse
