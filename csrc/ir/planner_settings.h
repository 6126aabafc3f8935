// What a user may ask of the planner of redistributions. It is part of the program: its text gives the same plans everywhere.
//
//   fusion.setPlanner({.bound = 4096, .forbid = {"all_to_all"}, .beta = {{"dp", 8}}});
//   planner {bound: 4096, forbid: all_to_all, beta dp: 8}
//
// Costs are in elements that a rank receives over a plain link. What names axes and moves that there are is judged by check-annotations.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

enum class DirectChoice : uint8_t {
  Fallback,  // ranks send each other tiles directly only where there is no chain of collectives
  Priced,    // the cheaper of both
};

struct PlannerSettings {
  // Local elements that every intermediate state may have, where that is more than both ends have.
  std::optional<int64_t> bound = {};
  DirectChoice direct = DirectChoice::Priced;
  // Moves that are left out unless there is no other way: permute, all_to_all, all_gather, reduce_scatter, all_reduce, transfer.
  std::vector<std::string> forbid = {};
  std::map<std::string, double> alpha = {};  // cost of a call, or a message, along an axis of this name; 1 where absent
  std::map<std::string, double> beta = {};   // cost of an element along it; 1 where absent
  // Cost of an element between meshes of different ranks, which are taken to be further apart than those of one.
  double betaBetween = 1.25;

  friend bool operator==(const PlannerSettings&, const PlannerSettings&) = default;
};

// bound: 4096, forbid: all_to_all; empty for those that are as by default.
[[nodiscard]] std::string toString(const PlannerSettings& settings);
// Adds one of the parts of such a text. UserError where it is none.
void readPlannerSetting(std::string_view part, PlannerSettings& settings);

}  // namespace meshfuse
