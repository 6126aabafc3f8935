// Compiler bugs on purpose: what a compiler made is changed, systematically and in one way, before it runs. The fuzzer must see each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/checks.h"
#include "fuzz/program.h"
#include "host/program.h"
#include "tile/tile.h"

namespace meshfuse::fuzz {

// One of the two is given; it says whether there was anything to change.
struct PlantedBug {
  std::string name;
  std::function<bool(tile::Program&)> kernel = {};              // in each kernel of one rank
  std::function<bool(HostProgram&, ProgramSizes&)> steps = {};  // in the steps of each of several ranks
};
[[nodiscard]] std::vector<PlantedBug> plantedBugs();

// Runs the program as compiled, but for the bug.
struct PlantedRun {
  bool applied = false;
  std::optional<std::string> difference;  // what the fuzzer sees
};
[[nodiscard]] PlantedRun runPlanted(const Program& program, const Reference& reference, const PlantedBug& bug);

}  // namespace meshfuse::fuzz
