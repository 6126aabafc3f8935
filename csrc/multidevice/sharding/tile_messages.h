// Which devices send which tiles, if every device of one mesh reads parts of tiles that devices of another mesh, or of the same, hold.
//
// A reader keeps what it holds. Of several holders of a tile, the one sends it that has sent the fewest elements so far; of these the one
// that differs from the reader in the fewest coordinates, if there is one mesh; then the first.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

struct TileMessage {
  int64_t from = 0;  // device ids
  int64_t to = 0;
  int64_t elements = 0;
  int64_t tile = 0;
};

struct TileMessages {
  std::vector<TileMessage> messages;  // receivers in the order of their mesh
  std::vector<TileMessage> kept;      // from == to
  int64_t received = 0;               // by the busiest device
  int64_t sent = 0;
  int64_t peers = 0;             // the most messages into or out of one device
  std::vector<int64_t> crossed;  // on one mesh: axes in which a sender and its receiver differ, ascending
};

// `holders`: by tile, positions in `from`, ascending. `shared`: the elements of a tile that the device at a position in `to` reads.
[[nodiscard]] TileMessages tileMessages(const DeviceMesh& from, const DeviceMesh& to,
                                        const std::vector<std::vector<int64_t>>& holders,
                                        const std::function<int64_t(int64_t tile, int64_t reader)>& shared);

}  // namespace meshfuse
