// Settings of the planner of redistributions. They are part of the program and of its text, so a text gives the same plans everywhere.
//
//   fusion.setPlanner({.bound = 4096, .forbid = {"all_to_all"}, .beta = {{"dp", 8}}});
//   planner {bound: 4096, forbid: all_to_all, beta dp: 8}
//
// The unit of costs is one element received over a link of cost 1. The pass check-annotations checks the names of axes and moves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

enum class DirectChoice : uint8_t {
  Fallback,  // direct transfers of tiles only if there is no chain of collectives
  Priced,    // the cheaper of a chain and a direct transfer
};

struct PlannerSettings {
  // The largest number of elements that an intermediate state may have on a rank. No effect if the first or last state has more.
  std::optional<int64_t> bound = {};
  DirectChoice direct = DirectChoice::Priced;
  // Moves that are used only if there is no other way: permute, all_to_all, all_gather, reduce_scatter, all_reduce, transfer.
  std::vector<std::string> forbid = {};
  std::map<std::string, double> alpha = {};  // cost of a call, or a message, along an axis of this name; 1 where absent
  std::map<std::string, double> beta = {};   // cost of an element along it; 1 where absent
  // Cost of an element between two meshes of different ranks: a link between meshes is assumed to be slower than a link inside a mesh.
  double betaBetween = 1.25;
  // Bytes that arguments, results and arena of a rank may have: collectives begin early only as far as these fit.
  std::optional<int64_t> memory = {};

  friend bool operator==(const PlannerSettings&, const PlannerSettings&) = default;
};

// The cost of an axis in `alpha` or `beta`.
[[nodiscard]] double costAlong(const std::string& axis, const std::map<std::string, double>& costs);

// bound: 4096, forbid: all_to_all; settings with default values are left out.
[[nodiscard]] std::string toString(const PlannerSettings& settings);
// Reads one entry of such a text into `settings`. UserError if it is malformed.
void readPlannerSetting(std::string_view part, PlannerSettings& settings);

}  // namespace meshfuse
