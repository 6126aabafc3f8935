// Schedules of pipelines by hand, simulated event by event: the reference for pipeline_schedule.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <queue>
#include <set>
#include <tuple>
#include <vector>

#include "autoplan/pipeline_schedule.h"
#include "base/ranges.h"

namespace meshfuse {

// By hand: warm-up, turns in pairs, the rest.
inline std::vector<std::vector<PipelineTurn>> turnsByHand(const PipelineSchedule& s) {
  std::vector<std::vector<PipelineTurn>> all(s.groups);
  for (int64_t group = 0; group < s.groups; group++) {
    std::vector<PipelineTurn> forward;
    std::vector<PipelineTurn> backward;
    if (s.virtualStages == 1) {
      for (int64_t k = 0; k < s.microBatches; k++) {
        forward.push_back({group, k, false});
        backward.push_back({group, k, true});
      }
    } else {
      for (int64_t round = 0; round < s.microBatches; round += s.groups) {
        for (int64_t v = 0; v < s.virtualStages; v++) {
          for (int64_t k = round; k < round + s.groups; k++) {
            forward.push_back({v * s.groups + group, k, false});
            backward.push_back({(s.virtualStages - 1 - v) * s.groups + group, k, true});
          }
        }
      }
    }
    if (!s.hasBackward) {
      all[group] = forward;
      continue;
    }
    const int64_t after = s.groups - 1 - group;
    const int64_t warm = s.virtualStages == 1 ? after : 2 * after + (s.virtualStages - 1) * s.groups;
    const int64_t count = std::ssize(forward);
    int64_t f = 0;
    int64_t b = 0;
    for (; f < std::min(warm, count); f++) {
      all[group].push_back(forward[f]);
    }
    while (f < count) {
      all[group].push_back(forward[f++]);
      all[group].push_back(backward[b++]);
    }
    while (b < count) {
      all[group].push_back(backward[b++]);
    }
  }
  return all;
}

// Events in the order of time: a group starts its next turn when it is free and the message that the turn needs is there.
inline double simulated(const PipelineSchedule& s, const std::vector<StageSeconds>& stages) {
  const auto turns = turnsByHand(s);
  std::vector<size_t> next(s.groups, 0);
  std::vector<bool> isBusy(s.groups, false);
  std::set<std::tuple<int64_t, int64_t, bool>> arrived;  // by stage, micro-batch, pass
  for (int64_t k = 0; k < s.microBatches; k++) {
    arrived.insert({0, k, false});
  }
  using Event = std::tuple<double, int64_t>;  // the end of a group's turn
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  double now = 0;
  std::vector<double> ends(s.groups, 0.0);
  const auto start = [&] {
    for (int64_t g = 0; g < s.groups; g++) {
      if (isBusy[g] || next[g] == turns[g].size()) {
        continue;
      }
      const PipelineTurn& turn = turns[g][next[g]];
      if (arrived.contains({turn.stage, turn.microBatch, turn.isBackward})) {
        isBusy[g] = true;
        events.emplace(now + (turn.isBackward ? stages[turn.stage].backward : stages[turn.stage].forward), g);
      }
    }
  };
  for (start(); !events.empty(); start()) {
    int64_t g = 0;
    std::tie(now, g) = events.top();
    events.pop();
    const PipelineTurn& turn = turns[g][next[g]++];
    isBusy[g] = false;
    ends[g] = now;
    if (!turn.isBackward && turn.stage + 1 < s.stages()) {
      arrived.insert({turn.stage + 1, turn.microBatch, false});
    } else if (!turn.isBackward) {
      arrived.insert({turn.stage, turn.microBatch, true});
    } else if (turn.stage > 0) {
      arrived.insert({turn.stage - 1, turn.microBatch, true});
    }
  }
  for (const int64_t stage : indices(stages)) {
    ends[stage % s.groups] += stages[stage].update;
  }
  for (int64_t g = 0; g < s.groups; g++) {
    EXPECT_EQ(next[g], turns[g].size()) << "group " << g << " waits for ever";
  }
  return std::ranges::max(ends);
}

}  // namespace meshfuse
