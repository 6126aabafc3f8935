// A call of an annotated program on all ranks of a description of machines, as discrete events with the times of the cost model: nothing
// runs, and ranks that hold parts of equal sizes and take part in the same transfers are one class, compiled once.
//
//   const Simulation s = simulateCall(fusion, shapes, {.machines = 128, .devicesPerMachine = 8});
//   s.seconds                     of the call
//   s.classes[0].idle(s.seconds)  share of the time in which neither kernels nor collectives of such a rank run
//
// A step begins when the step before it on its queue and the steps that it waits for have ended; a collective also not before the ranks of
// its team have come to theirs. Deadlock is checked too. For the check, each rank makes its collectives one at a time, in the order of the
// program, and a collective ends only when every class that takes part has come to it. If all ranks come to the end of the program, one
// order of all collectives exists that each rank follows, so none waits forever. Else `blocked` names the steps at which ranks wait.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "autoplan/machine.h"

namespace meshfuse {

class Fusion;
struct HostProgram;

struct SimulatedStep {
  double begin = 0;  // seconds since the begin of the call
  double end = 0;
};

struct SimulatedClass {
  int64_t rank = 0;  // the first one
  int64_t ranks = 0;
  std::shared_ptr<const HostProgram> program;  // of the first one
  std::vector<SimulatedStep> steps;            // of the program; of a blocked call the first ones
  double kernels = 0;                          // seconds in which kernels, library calls and copies run
  double busy = 0;                             // seconds in which these or collectives run

  double idle(double seconds) const { return seconds > 0 ? 1 - busy / seconds : 0; }
  int64_t peakBytes() const;  // arguments, results and arena
};

struct Simulation {
  std::vector<SimulatedClass> classes;  // by first rank
  double seconds = 0;                   // of the slowest class
  double idle = 0;                      // mean of all ranks
  int64_t collectives = 0;              // of all ranks together, each counted once
  // Ranks of a class exchange blocks of different sizes: the times are those of the blocks of its first rank.
  bool isOfFirstRanks = false;
  std::vector<std::string> blocked;  // "rank 3 waits in all-gather T5 for rank 1"
};

// `shapes`: one entry for each input, as concretize() takes them. Ranks outside of all meshes run nothing. UserErrors as of concretize() and
// compile(), and for more than 256 classes.
[[nodiscard]] Simulation simulateCall(const Fusion& annotated, const std::vector<std::vector<int64_t>>& shapes,
                                      const DistributedConfig& machines);

// Programs of the first rank of each class, all with constant sizes. `classOf`: by rank. isOfFirstRanks stays false.
[[nodiscard]] Simulation simulatePrograms(std::span<const std::shared_ptr<const HostProgram>> programs,
                                          const std::vector<int64_t>& classOf, const DistributedConfig& machines);

}  // namespace meshfuse
