// The steps into which a program was cut, on disk: a later process judges each group once, instead of all groups that segmentation tries.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "segment/segment.h"

namespace meshfuse {

class DiskCache;
class Fusion;
struct LocalContext;

// Where the steps of one program are stored.
struct StoredCut {
  DiskCache* disk = nullptr;
  Hash128 key;                            // of all that the steps follow from, and of the build
  std::optional<std::string> entry = {};  // as it was found; nothing: none
};

// The segments of an entry, before results are put in place; nothing if the entry does not cut this program.
[[nodiscard]] std::optional<std::vector<Segment>> segmentsOf(const std::string& entry, const Fusion& fusion,
                                                             const LocalContext& context);
[[nodiscard]] std::string entryOf(std::span<const Segment> segments);

}  // namespace meshfuse
