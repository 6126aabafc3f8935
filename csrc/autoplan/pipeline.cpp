#include "autoplan/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kStageTries = 300;  // stages that are tried for one form of pipeline
constexpr int64_t kFewParts = 24;
constexpr double kUnequal = 0.25;  // of more parts: by which an interleaved stage differs from the average

class PipelineSearch {
 public:
  PipelineSearch(StageCosts& costs, const ProgramParts& parts, const DistributedConfig& machines,
                 const PipelineWishes& wishes)
      : costs_(costs),
        parts_(parts),
        machines_(machines),
        wishes_(wishes),
        sizes_(stageSizes(machines)),
        hasUpdate_(contains(parts.passes, PassOfProgram::Update)) {}

  std::optional<FoundPipeline> run() {
    for (const bool isComplete : {false, true}) {
      for (int64_t groups = 2; groups <= std::min(parts_.count, machines_.devices()); groups++) {
        if (wishes_.groups.value_or(groups) != groups) {
          continue;
        }
        for (int64_t v = 1; v <= kMostVirtualStages && groups * v <= parts_.count; v++) {
          const int64_t devices = machines_.devices() / groups;
          const bool isEqual = machines_.devices() % groups == 0 && contains(sizes_, devices);
          if (v > 1 && (!isEqual || wishes_.microBatches % groups != 0)) {
            continue;
          }
          form_ = {groups, v, wishes_.microBatches, parts_.hasBackward};
          inFlight_ = microBatchesInFlight(form_);
          if (!isComplete && isEqual) {
            tryEqualParts(devices);
          } else if (isComplete) {
            descend();
          }
        }
      }
    }
    if (best_) {
      best_->isLate = isLate();
      best_->bound = isLate() ? 0 : std::min(bound_, best_->seconds);
    }
    return std::move(best_);
  }

 private:
  struct Rest {
    double longest = kNever;  // 1F1B: at least this from the start of these stages; interleaved: the longest stage
    double sum = kNever;      // of the times of all stages
  };
  struct Child {
    double bound;
    double order;
    int64_t end;
    int64_t devices;
    const StagePlan* plan;
  };
  // The stages so far.
  struct Prefix {
    double sum = 0;
    double busiest = 0;                // the first bound
    double rest = 0;                   // the second one, without the sum
    std::vector<double> ofGroup = {};  // interleaved: times of its stages
    std::vector<double> start = {};    // interleaved: the times before its first stage
  };

  int64_t stages() const { return form_.stages(); }
  double microBatches() const { return static_cast<double>(form_.microBatches); }
  bool isLate() const { return std::chrono::steady_clock::now() > wishes_.deadline; }
  bool isInterleaved() const { return form_.virtualStages > 1; }

  bool fitsAt(int64_t first, int64_t devices) const {
    return first + devices <= machines_.devices() && first % std::min(devices, machines_.devicesPerMachine) == 0;
  }
  StageLink linkAt(int64_t device) const {
    return device % machines_.devicesPerMachine == 0 ? StageLink::Between : StageLink::Within;
  }

  StageOfParts stageOf(int64_t stage, int64_t begin, int64_t end, int64_t first, int64_t devices) const {
    const int64_t all = machines_.devices();
    const auto link = [&](int64_t device) {
      const StageLink around = machines_.machines > 1 ? StageLink::Between : StageLink::Within;
      return device % all == 0 ? around : linkAt(device);
    };
    return {.begin = begin,
            .end = end,
            .devices = devices,
            .before = begin == 0 ? StageLink::None : link(first),
            .after = end == parts_.count ? StageLink::None : link(first + devices),
            .inFlight = inFlight_[stage],
            .memory = machines_.memoryPerDevice / static_cast<double>(form_.virtualStages)};
  }

  // A stage of these parts takes at least so long, with its part of the update.
  double lowest(int64_t begin, int64_t end, int64_t devices) {
    std::vector<double>& sums = lowest_[devices];
    if (sums.empty()) {
      sums.push_back(0);
      for (int64_t part = 0; part < parts_.count; part++) {
        sums.push_back(sums.back() + costs_.least(part, part + 1, devices));
      }
    }
    return sums[end] - sums[begin];
  }

  // Of the fastest number of devices: what parts before and after the range take at least.
  double lowestAround(int64_t begin, int64_t end) {
    if (fastest_.empty()) {
      fastest_ = work_ = {0};
      for (int64_t part = 0; part < parts_.count; part++) {
        double least = kNever;
        double work = kNever;
        for (const int64_t devices : sizes_) {
          const double t = lowest(part, part + 1, devices);
          least = std::min(least, t);
          work = std::min(work, t * static_cast<double>(devices));
        }
        fastest_.push_back(fastest_.back() + least);
        work_.push_back(work_.back() + work);
      }
    }
    return fastest_[begin] + fastest_.back() - fastest_[end];
  }

  // The longest of stages of these parts takes at least so long, if they have so many devices in all.
  double longestOf(int64_t begin, int64_t end, int64_t devices) const {
    return devices == 0 ? 0 : (work_[end] - work_[begin]) / static_cast<double>(devices);
  }

  bool isUnequal(double t, int64_t devices) {
    const double average = lowest(0, parts_.count, devices) / static_cast<double>(stages());
    return parts_.count > kFewParts && std::abs(t - average) > kUnequal * average;
  }

  // What a pipeline takes at least if one of its stages takes t with its part of the update, and all others together `others`.
  double leastWith(double t, double others) const { return microBatches() * t + (hasUpdate_ ? 0 : others); }

  // Stages of about equal times, for a first pipeline.
  void tryEqualParts(int64_t devices) {
    std::vector<int64_t> ends;
    int64_t begin = 0;
    for (int64_t stage = 0; stage < stages(); stage++) {
      const double goal =
          lowest(0, parts_.count, devices) * static_cast<double>(stage + 1) / static_cast<double>(stages());
      const int64_t most = parts_.count - (stages() - 1 - stage);
      int64_t end = begin + 1;
      while (end < most && std::abs(lowest(0, end + 1, devices) - goal) <= std::abs(lowest(0, end, devices) - goal)) {
        end++;
      }
      begin = stage + 1 == stages() ? parts_.count : end;
      ends.push_back(begin);
    }
    std::vector<StageOfParts> found;
    begin = 0;
    for (const int64_t stage : indices(ends)) {
      found.push_back(stageOf(stage, begin, ends[stage], stage % form_.groups * devices, devices));
      begin = ends[stage];
    }
    consider(found);
  }

  void consider(const std::vector<StageOfParts>& stages) {
    FoundPipeline found{.schedule = form_, .stages = stages, .plans = {}, .firstDevices = {}};
    int64_t device = 0;
    for (const StageOfParts& stage : stages) {
      const std::optional<StagePlan>& plan = costs_.of(stage);
      if (!plan) {
        return;
      }
      found.plans.push_back(*plan);
      found.firstDevices.push_back(device);
      device = (device + stage.devices) % machines_.devices();
    }
    found.seconds = secondsOf(form_, mapped(found.plans, &StagePlan::seconds));
    if (!best_ || found.seconds < best_->seconds) {
      best_ = std::move(found);
    }
  }

  double best() const { return best_ ? best_->seconds : kNever; }

  // Calls f(end, devices, plan) for each stage that may begin here.
  template <class F>
  void forEachStage(int64_t stage, int64_t begin, int64_t first, const F& f) {
    const int64_t after = stages() - 1 - stage;
    for (const int64_t devices : sizes_) {
      if (isInterleaved() ? devices * form_.groups != machines_.devices() : !fitsAt(first, devices)) {
        continue;
      }
      for (int64_t end = after == 0 ? parts_.count : begin + 1; end <= parts_.count - after; end++) {
        const double t = lowest(begin, end, devices);
        if (isLate() || leastWith(t, lowestAround(begin, end)) >= best()) {
          break;
        }
        const int64_t before = isInterleaved() ? devices * stage : first;
        const int64_t behind = isInterleaved() ? devices * after : machines_.devices() - first - devices;
        const double longest = std::max(longestOf(0, begin, before), longestOf(end, parts_.count, behind));
        if (leastWith(longest, 0) >= best() || (isInterleaved() && isUnequal(t, devices))) {
          continue;
        }
        const auto& plan = costs_.of(stageOf(stage, begin, end, first, devices));
        if (plan) {
          f(end, devices, *plan);
        }
      }
    }
  }

  int64_t next(int64_t first, int64_t devices) const {
    return isInterleaved() ? (first + devices) % machines_.devices() : first + devices;
  }

  const Rest& rest(int64_t stage, int64_t begin, int64_t first) {
    const auto [known, isNew] = rests_.try_emplace({stage, begin, first});
    if (isNew && stage == stages()) {
      const bool isEnd = begin == parts_.count && first == (isInterleaved() ? 0 : machines_.devices());
      known->second = isEnd ? Rest{0, 0} : Rest{};
    } else if (isNew) {
      Rest least;
      forEachStage(stage, begin, first, [&](int64_t end, int64_t devices, const StagePlan& plan) {
        const Rest& after = rest(stage + 1, end, next(first, devices));
        const double t = plan.ofMicroBatch();
        least.longest = std::min(least.longest, isInterleaved() ? std::max(t, after.longest)
                                                                : std::max(microBatches() * t, t + after.longest));
        least.sum = std::min(least.sum, t + after.sum);
      });
      known->second = least;
    }
    return rests_.at({stage, begin, first});
  }

  Prefix extended(const Prefix& prefix, int64_t stage, const StagePlan& plan) const {
    Prefix more = prefix;
    const double t = plan.ofMicroBatch();
    more.sum += t;
    if (isInterleaved()) {
      const int64_t group = stage % form_.groups;
      if (stage < form_.groups) {
        more.start.push_back(prefix.sum);
        more.ofGroup.push_back(0);
      }
      more.ofGroup[group] += t;
      more.busiest = std::max(prefix.busiest, more.start[group] + microBatches() * more.ofGroup[group]);
    } else {
      const auto inFlight = static_cast<double>(inFlight_[stage]);
      more.busiest = std::max(prefix.busiest, prefix.sum + microBatches() * t);
      more.rest = std::max(prefix.rest, (microBatches() - inFlight) * plan.seconds.forward +
                                            (microBatches() - 1) * plan.seconds.backward);
    }
    return more;
  }

  double boundOf(const Prefix& prefix, const Rest& rest) const {
    const double sum = prefix.sum + rest.sum;
    const double other =
        isInterleaved() ? microBatches() * sum / static_cast<double>(form_.groups) : prefix.sum + rest.longest;
    return std::max({prefix.busiest, sum + prefix.rest, other});
  }

  void descend() {
    rests_.clear();
    tries_ = 0;
    const double bound = boundOf({}, rest(0, 0, 0));
    if (bound < best()) {
      chosen_.clear();
      descend(0, 0, {});
      bound_ = tries_ > kStageTries ? std::min(bound_, bound) : bound_;
    }
  }

  void descend(int64_t begin, int64_t first, const Prefix& prefix) {
    const int64_t stage = std::ssize(chosen_);
    if (stage == stages()) {
      consider(chosen_);
      return;
    }
    std::vector<Child> children;
    forEachStage(stage, begin, first, [&](int64_t end, int64_t devices, const StagePlan& plan) {
      const Rest& after = rest(stage + 1, end, next(first, devices));
      const double bound = boundOf(extended(prefix, stage, plan), after);
      if (bound < best()) {
        const double longest = std::max(plan.ofMicroBatch(), after.longest);
        children.push_back({bound, isInterleaved() ? longest : bound, end, devices, &plan});
      }
    });
    std::ranges::stable_sort(children, {}, &Child::order);
    for (const Child& child : children) {
      if (child.bound < best() && ++tries_ <= kStageTries) {
        chosen_.push_back(stageOf(stage, begin, child.end, first, child.devices));
        descend(child.end, next(first, child.devices), extended(prefix, stage, *child.plan));
        chosen_.pop_back();
      }
    }
  }

  StageCosts& costs_;
  const ProgramParts& parts_;
  const DistributedConfig& machines_;
  const PipelineWishes& wishes_;
  const std::vector<int64_t> sizes_;
  const bool hasUpdate_;
  PipelineSchedule form_;
  std::vector<int64_t> inFlight_;                  // by stage
  std::map<int64_t, std::vector<double>> lowest_;  // by number of devices: of the first parts
  std::vector<double> fastest_;                    // of the first parts, with any number of devices
  std::vector<double> work_;                       // of the first parts, times devices
  std::map<std::tuple<int64_t, int64_t, int64_t>, Rest> rests_;
  int64_t tries_ = 0;
  std::vector<StageOfParts> chosen_;
  std::optional<FoundPipeline> best_;
  double bound_ = kNever;
};

// 1, 3, 6 of 6: each divides the next.
std::vector<int64_t> divisorChain(int64_t n) {
  std::vector<int64_t> chain{n};
  for (int64_t prime = 2; chain.back() > 1; prime++) {
    while (chain.back() % prime == 0) {
      chain.push_back(chain.back() / prime);
    }
  }
  std::ranges::reverse(chain);
  return chain;
}

}  // namespace

std::vector<int64_t> stageSizes(const DistributedConfig& machines) {
  std::vector<int64_t> sizes = divisorChain(machines.devicesPerMachine);
  for (const int64_t count : divisorChain(machines.machines)) {
    if (count > 1 && count < machines.machines) {
      sizes.push_back(count * machines.devicesPerMachine);
    }
  }
  if (machines.machines == 1) {
    sizes.pop_back();
  }
  return sizes;
}

std::optional<FoundPipeline> searchPipeline(StageCosts& costs, const ProgramParts& parts,
                                            const DistributedConfig& machines, const PipelineWishes& wishes) {
  return PipelineSearch(costs, parts, machines, wishes).run();
}

}  // namespace meshfuse
