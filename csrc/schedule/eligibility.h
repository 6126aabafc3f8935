// What any generated kernel can hold, whatever its scheduler.
#pragma once

#include <optional>
#include <string>

#include "schedule/coordinates.h"
#include "schedule/group.h"

namespace meshfuse {

// Why no scheduler of rows takes the group: an op that is not for kernels, data indexed by data that is made inside, no common
// coordinates. Nothing if one may.
struct Eligibility {
  std::optional<std::string> reason;
  Coordinates coordinates;
};
[[nodiscard]] Eligibility rowEligibility(const Group& group);

}  // namespace meshfuse
