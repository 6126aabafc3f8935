#include "multidevice/sharding/tile_messages.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ranges>
#include <tuple>

#include "base/ranges.h"
#include "multidevice/mesh/plan_state.h"

namespace meshfuse {

TileMessages tileMessages(const DeviceMesh& from, const DeviceMesh& to,
                          const std::vector<std::vector<int64_t>>& holders,
                          const std::function<int64_t(int64_t tile, int64_t reader)>& shared) {
  const bool oneMesh = from == to;
  const std::vector<int64_t> sizes = from.axisSizes();
  const auto at = mapped(indices(from.devices()), [&](int64_t position) { return coordinatesAt(position, sizes); });
  std::vector<int64_t> sent(at.size());  // elements
  std::vector<int64_t> out(at.size());   // messages
  std::vector<bool> crossed(sizes.size());
  TileMessages found;
  for (int64_t reader = 0; reader < std::ssize(to.devices()); reader++) {
    const int64_t id = to.devices()[reader];
    const int64_t here = from.indexOf(id);
    int64_t received = 0;
    int64_t in = 0;
    for (int64_t tile = 0; tile < std::ssize(holders); tile++) {
      const int64_t n = shared(tile, reader);
      if (n == 0) {
        continue;
      }
      if (std::ranges::binary_search(holders[tile], here)) {
        found.kept.push_back({id, id, n, tile});
        continue;
      }
      const auto rank = [&](int64_t holder) {
        const std::vector<int64_t>& x = at[holder];
        const int64_t apart =
            !oneMesh ? 0
                     : std::inner_product(x.begin(), x.end(), at[reader].begin(), 0, std::plus(), std::not_equal_to());
        return std::tuple(sent[holder], apart, holder);
      };
      const int64_t sender = std::ranges::min(holders[tile], {}, rank);
      found.sent = std::max(found.sent, sent[sender] += n);
      found.received = std::max(found.received, received += n);
      found.peers = std::max({found.peers, ++out[sender], ++in});
      found.messages.push_back({from.devices()[sender], id, n, tile});
      for (int64_t axis = 0; oneMesh && axis < std::ssize(sizes); axis++) {
        crossed[axis] = crossed[axis] || at[sender][axis] != at[reader][axis];
      }
    }
  }
  found.crossed = filtered(std::views::iota(int64_t{0}, from.numAxes()), [&](int64_t axis) { return crossed[axis]; });
  return found;
}

}  // namespace meshfuse
