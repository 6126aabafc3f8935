#include "host/step_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/ranges.h"

namespace meshfuse {

namespace {

// For each step the earlier steps that it must follow: both use the same memory, and one of them writes it. Steps that follow through
// another step may be left out.
std::vector<std::vector<int64_t>> dependencies(std::span<const StepUse> steps) {
  struct Memory {
    int64_t writer = -1;
    std::vector<int64_t> readers;  // since it was written
  };
  std::map<int64_t, Memory> memories;
  std::vector<std::vector<int64_t>> result(steps.size());
  for (const int64_t i : indices(steps)) {
    const auto after = [&](int64_t step) {
      if (step >= 0 && step != i && !contains(result[i], step)) {
        result[i].push_back(step);
      }
    };
    for (const int64_t m : steps[i].reads) {
      after(memories[m].writer);
      memories[m].readers.push_back(i);
    }
    for (const int64_t m : steps[i].writes) {
      after(memories[m].writer);
      std::ranges::for_each(memories[m].readers, after);
      memories[m] = {.writer = i};
    }
  }
  return result;
}

// For each step the first collective that depends on it; the number of steps if there is none.
std::vector<int64_t> nextCollectives(std::span<const StepUse> steps, const std::vector<std::vector<int64_t>>& before) {
  std::vector<int64_t> next(steps.size(), std::ssize(steps));
  for (int64_t i = std::ssize(steps); i-- > 0;) {
    const int64_t own = steps[i].queue != 0 ? i : next[i];
    for (const int64_t earlier : before[i]) {
      next[earlier] = std::min(next[earlier], own);
    }
  }
  return next;
}

class Scheduler {
 public:
  Scheduler(std::span<const StepUse> steps, int64_t ahead, int64_t early)
      : steps_(steps),
        ahead_(ahead),
        early_(early),
        before_(dependencies(steps)),
        next_(nextCollectives(steps, before_)),
        issued_(steps.size(), -1) {
    for (const int64_t i : indices(steps)) {
      (steps[i].queue == 0 ? work_ : collectives_).push_back(i);
    }
  }

  StepSchedule run() {
    while (std::ssize(schedule_.steps) < std::ssize(steps_)) {
      if (!collectives_.empty() && isNear(collectives_.front()) && isReady(collectives_.front())) {
        issue(collectives_.front());
        collectives_.erase(collectives_.begin());
        continue;
      }
      const auto best = std::ranges::min_element(candidates(), {}, [this](int64_t step) { return rank(step); });
      const int64_t chosen = *best;
      issue(chosen);
      std::erase(work_, chosen);
    }
    return std::move(schedule_);
  }

 private:
  bool isNear(int64_t collective) const { return work_.empty() || collective <= work_.front() + early_; }

  bool isReady(int64_t step) const {
    return std::ranges::all_of(before_[step], [this](int64_t earlier) { return issued_[earlier] >= 0; });
  }

  const std::vector<int64_t>& candidates() {
    candidates_.clear();
    for (const int64_t step : work_) {
      if (step > work_.front() + ahead_) {
        break;
      }
      if (isReady(step)) {
        candidates_.push_back(step);
      }
    }
    return candidates_;
  }

  // Whether a step would wait for a collective for which no step of the device has waited.
  bool waits(int64_t step) const {
    return std::ranges::any_of(before_[step], [this](int64_t earlier) {
      return steps_[earlier].queue != 0 && (lastWork_ < 0 || !happens_(issued_[earlier], lastWork_));
    });
  }

  // The smallest one is issued first.
  std::tuple<bool, int64_t, int64_t> rank(int64_t step) const { return {waits(step), next_[step], step}; }

  void issue(int64_t step) {
    issued_[step] = std::ssize(schedule_.steps);
    schedule_.steps.push_back(step);
    auto positions = mapped(before_[step], [this](int64_t earlier) { return issued_[earlier]; });
    if (steps_[step].queue != 0 && early_ < std::ssize(steps_) && lastWork_ >= 0) {
      // it could begin earlier, so that blocks of work that has ended would not be free for later work
      positions.push_back(lastWork_);
    }
    schedule_.orders.push_back(happens_.appendAfter(steps_[step].queue, positions));
    if (steps_[step].queue == 0) {
      lastWork_ = issued_[step];
    }
  }

  const std::span<const StepUse> steps_;
  const int64_t ahead_;
  const int64_t early_;
  const std::vector<std::vector<int64_t>> before_;
  const std::vector<int64_t> next_;
  std::vector<int64_t> issued_;       // by step: its position in the schedule
  std::vector<int64_t> work_;         // of the device, not issued
  std::vector<int64_t> collectives_;  // not issued
  std::vector<int64_t> candidates_;
  HappensBefore happens_;
  int64_t lastWork_ = -1;  // position of the last step of the device
  StepSchedule schedule_;
};

}  // namespace

StepSchedule scheduleSteps(std::span<const StepUse> steps, int64_t ahead, int64_t early) {
  return Scheduler(steps, ahead, early).run();
}

}  // namespace meshfuse
