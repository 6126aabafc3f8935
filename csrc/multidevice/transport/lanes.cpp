#include "multidevice/transport/lanes.h"

#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

constexpr std::string_view kTeam = ".team";

}  // namespace

Communicator* Lanes::of(const Team& team, int64_t rank, int64_t size, const Make& make) {
  static_cast<void>(positionInTeam(team, rank, size, Collective::Barrier));
  std::lock_guard lock(mutex_);
  std::unique_ptr<Communicator>& lane = lanes_[team.ranks];
  if (lane == nullptr) {
    lane = make();
  }
  return lane.get();
}

std::string laneName(std::string_view world, const Team& team) {
  constexpr size_t kNamed = 16;
  std::string name = fmt::format("{}{}", world, kTeam);
  if (team.ranks.size() > kNamed) {
    return fmt::format("{}-of-{}-{:016x}", name, team.ranks.size(), teamHash(team));
  }
  for (int64_t r : team.ranks) {
    name += fmt::format("-{}", r);
  }
  return name;
}

std::vector<int64_t> ranksNamed(std::string_view lane) {
  const size_t team = lane.rfind(kTeam);
  std::vector<int64_t> ranks;
  const char* at = team == std::string_view::npos ? nullptr : lane.data() + team + kTeam.size();
  const char* const end = lane.data() + lane.size();
  while (at != nullptr && at + 1 < end && *at == '-') {
    int64_t rank = 0;
    const auto read = std::from_chars(at + 1, end, rank);
    if (read.ec != std::errc()) {
      return {};
    }
    ranks.push_back(rank);
    at = read.ptr;
  }
  return at == end ? ranks : std::vector<int64_t>();
}

}  // namespace meshfuse
