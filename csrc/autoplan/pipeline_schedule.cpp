#include "autoplan/pipeline_schedule.h"

#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

// Turn k of a pass on a group, in the order of its micro-batches.
PipelineTurn turnOf(const PipelineSchedule& s, int64_t group, int64_t k, bool isBackward) {
  const int64_t round = s.groups * s.virtualStages;
  const int64_t visit = k % round / s.groups;
  const int64_t which = isBackward ? s.virtualStages - 1 - visit : visit;
  return {which * s.groups + group, s.virtualStages == 1 ? k : k / round * s.groups + k % s.groups, isBackward};
}

}  // namespace

std::vector<std::vector<PipelineTurn>> turnsOf(const PipelineSchedule& s) {
  invariant(s.virtualStages == 1 || s.microBatches % s.groups == 0,
            "[autoplan] an interleaved schedule of {} groups has {} micro-batches", s.groups, s.microBatches);
  std::vector<std::vector<PipelineTurn>> turns(s.groups);
  const int64_t all = s.microBatches * s.virtualStages;
  for (int64_t group = 0; group < s.groups; group++) {
    const int64_t after = s.groups - 1 - group;
    const int64_t ahead = s.virtualStages == 1 ? after + 1 : 2 * after + (s.virtualStages - 1) * s.groups + 1;
    int64_t forward = 0;
    int64_t backward = 0;
    while (forward < all || (s.hasBackward && backward < all)) {
      const bool goesForward = forward < all && (!s.hasBackward || forward - backward < ahead);
      int64_t& k = goesForward ? forward : backward;
      turns[group].push_back(turnOf(s, group, k++, !goesForward));
    }
  }
  return turns;
}

std::vector<int64_t> microBatchesInFlight(const PipelineSchedule& s) {
  std::vector<int64_t> most(s.stages(), 1);
  std::vector<int64_t> now(s.stages(), 0);
  for (const std::vector<PipelineTurn>& turns : turnsOf(s)) {
    for (const PipelineTurn& turn : turns) {
      now[turn.stage] += turn.isBackward ? -1 : 1;
      most[turn.stage] = s.hasBackward ? std::max(most[turn.stage], now[turn.stage]) : 1;
    }
  }
  return most;
}

double secondsOf(const PipelineSchedule& s, const std::vector<StageSeconds>& stages) {
  constexpr double kNotYet = -1;
  const std::vector<std::vector<PipelineTurn>> turns = turnsOf(s);
  std::vector<double> ends(2 * s.stages() * s.microBatches, kNotYet);
  const auto endOf = [&](int64_t stage, int64_t microBatch, bool isBackward) -> double& {
    return ends[(stage * s.microBatches + microBatch) * 2 + (isBackward ? 1 : 0)];
  };
  // When the turn that it needs has ended: the forward pass before it, the backward pass after it, or the forward pass of the last stage.
  const auto readyAt = [&](const PipelineTurn& turn) {
    if (!turn.isBackward) {
      return turn.stage == 0 ? 0 : endOf(turn.stage - 1, turn.microBatch, false);
    }
    const bool isLast = turn.stage + 1 == s.stages();
    return isLast ? endOf(turn.stage, turn.microBatch, false) : endOf(turn.stage + 1, turn.microBatch, true);
  };
  std::vector<double> freeAt(s.groups, 0.0);
  std::vector<int64_t> done(s.groups, 0);
  for (bool moves = true; moves;) {
    moves = false;
    for (int64_t group = 0; group < s.groups; group++) {
      for (; done[group] < std::ssize(turns[group]); done[group]++) {
        const PipelineTurn& turn = turns[group][done[group]];
        const double ready = readyAt(turn);
        if (ready == kNotYet) {
          break;
        }
        const StageSeconds& seconds = stages[turn.stage];
        freeAt[group] = std::max(freeAt[group], ready) + (turn.isBackward ? seconds.backward : seconds.forward);
        endOf(turn.stage, turn.microBatch, turn.isBackward) = freeAt[group];
        moves = true;
      }
    }
  }
  for (int64_t group = 0; group < s.groups; group++) {
    invariant(done[group] == std::ssize(turns[group]), "[autoplan] group {} waits for a turn that never ends", group);
    for (int64_t stage = group; stage < s.stages(); stage += s.groups) {
      freeAt[group] += stages[stage].update;
    }
  }
  return std::ranges::max(freeAt);
}

}  // namespace meshfuse
