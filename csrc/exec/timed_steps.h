// The times of the steps of a program: measured, and predicted for a description of machines.
//
//   const Profile measured = timeSteps(cache, inputs, comm, 0.1);
//   const std::vector<double> predicted = predictSteps(*cache.hostProgram(), machines);   // one for each step of `measured`
#pragma once

#include <cstdint>
#include <vector>

#include "autoplan/machine.h"
#include "exec/profile.h"
#include "tensor/argument.h"

namespace meshfuse {

class Communicator;
class FusionExecutorCache;
struct HostProgram;

// The time of a call and those of its steps, from what each rank measured, in this order. That of the call is the longest. Where ranks share
// processors, a rank that ends first leaves its processor to the others, so their last steps take less time than in a longer program. The
// times of steps are therefore the means of all ranks, scaled to the sum on the rank whose steps take longest; if ranks have different numbers
// of steps, those of `rank`.
[[nodiscard]] std::vector<double> timesOfRanks(const std::vector<std::vector<double>>& measured, int64_t rank);

// Of rounds of calls that begin on all ranks together, the fastest one: the means of its calls, as timesOfRanks() combines them. Other numbers
// are those of this rank. A step includes its waits for peers and for processors.
// Collective; each rank calls with its own inputs. `seconds`: the time that the measurement takes, about; at least 5 calls are made.
[[nodiscard]] Profile timeSteps(FusionExecutorCache& cache, const std::vector<Argument>& inputs, Communicator& comm,
                                double seconds);

// Seconds of each step of this rank, as autoParallelize() computes times: a kernel takes the longest of its computations and its memory
// accesses, and a launch; a collective the time of its link. All sizes are constants.
[[nodiscard]] std::vector<double> predictSteps(const HostProgram& program, const DistributedConfig& machines);

}  // namespace meshfuse
