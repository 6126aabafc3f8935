#include "multidevice/sharding/search.h"

#include <algorithm>
#include <cstdint>
#include <queue>
#include <unordered_map>

namespace meshfuse {

namespace {

constexpr double kEpsilon = 1e-9;

struct StateHash {
  size_t operator()(const SearchState& s) const {
    uint64_t h = (uint64_t{s.partial} << 32 | s.permuted) * 0x9e3779b97f4a7c15ull;
    for (DimId id : s.dims) {
      h = (h ^ id) * 1099511628211ull;
    }
    return h ^ (h >> 31);
  }
};

struct Node {
  SearchState state;
  double cost;
  double estimate;  // of the remaining steps
  int64_t previous;
  Move move;
};

constexpr int64_t kFinish = -1;  // an entry of the queue that stands for the best finished chain

struct Open {
  double total;
  int64_t order;
  double cost;
  int64_t node;
  bool operator<(const Open& other) const {  // the smallest first in std::priority_queue
    return total != other.total ? total > other.total : order > other.order;
  }
};

class Search {
 public:
  Search(PlanSpace& space, MoveMaker& maker, const SearchLimits& limits)
      : space_(space), maker_(maker), limits_(limits), bestCost_(limits.below) {}

  std::optional<FoundChain> run() {
    reach(space_.from(), 0, -1, {});
    while (!open_.empty()) {
      const Open here = open_.top();
      open_.pop();
      if (here.node == kFinish) {
        break;
      }
      if (here.cost > nodes_[here.node].cost + kEpsilon) {
        continue;
      }
      if (isGoal(nodes_[here.node].state)) {
        finish(here.node, {}, here.cost);
        break;
      }
      if (++expanded_ > limits_.maxStates) {
        break;
      }
      expand(here.node);
    }
    if (finishNode_ < 0) {
      return std::nullopt;
    }
    std::vector<Move> moves(finishMoves_.rbegin(), finishMoves_.rend());  // the last one first
    for (int64_t n = finishNode_; nodes_[n].previous >= 0; n = nodes_[n].previous) {
      moves.push_back(nodes_[n].move);
    }
    std::ranges::reverse(moves);
    return FoundChain{std::move(moves), bestCost_};
  }

 private:
  bool isGoal(const SearchState& s) const { return s.dims == space_.to().dims && s.partial == space_.to().partial; }

  bool fits(const Move& move) const { return space_.localSize(move.after) <= limits_.bound; }
  bool improves(double cost) const { return cost < bestCost_ - kEpsilon; }

  void finish(int64_t node, std::vector<Move> moves, double cost) {
    if (improves(cost)) {
      finishNode_ = node;
      finishMoves_ = std::move(moves);
      bestCost_ = cost;
      open_.push({cost, order_++, cost, kFinish});
    }
  }

  double estimate(const SearchState& state) {
    return leastCost(space_, maker_.prices(), state, PlanSpace::Ranks::Sample);
  }

  void expand(int64_t node) {
    const SearchState state = nodes_[node].state;
    const double cost = nodes_[node].cost;
    for (int64_t way = 0; way < 2; way++) {
      std::vector<Move> tail = way == 0 ? maker_.closingGathers(state) : maker_.gatherThenSlice(state);
      if (!tail.empty() && std::ranges::all_of(tail, [&](const Move& move) { return fits(move); })) {
        const double total = cost + maker_.cost(state, tail);
        finish(node, std::move(tail), total);
      }
    }
    for (const Move& move : maker_.moves(state)) {
      if (!fits(move)) {
        continue;
      }
      Move to = move;
      to.after.permuted = state.permuted | move.after.permuted;
      const bool calls = move.kind != Collective::Local;
      const double least = cost + (calls ? maker_.prices().alpha.largest(move.group) : kTieCost);
      const auto known = known_.find(to.after);
      if (!improves(least) || (known != known_.end() && nodes_[known->second].cost <= least)) {
        continue;
      }
      reach(to.after, cost + maker_.cost(state, move), node, to);
    }
  }

  void reach(const SearchState& state, double cost, int64_t previous, const Move& move) {
    auto [known, isNew] = known_.try_emplace(state, std::ssize(nodes_));
    const int64_t n = known->second;
    if (isNew) {
      nodes_.push_back({state, cost, estimate(state), previous, move});
    } else if (cost < nodes_[n].cost - kEpsilon) {
      nodes_[n].cost = cost;
      nodes_[n].previous = previous;
      nodes_[n].move = move;
    } else {
      return;
    }
    const double total = cost + nodes_[n].estimate;
    if (improves(total)) {
      open_.push({total, order_++, cost, n});
    }
  }

  PlanSpace& space_;
  MoveMaker& maker_;
  const SearchLimits& limits_;
  std::vector<Node> nodes_;
  std::unordered_map<SearchState, int64_t, StateHash> known_;
  std::priority_queue<Open> open_;
  int64_t order_ = 0;
  int64_t expanded_ = 0;
  int64_t finishNode_ = -1;
  std::vector<Move> finishMoves_;
  double bestCost_;  // of a finished chain, or the limit
};

}  // namespace

double leastCost(PlanSpace& space, const MovePrices& prices, const SearchState& state, PlanSpace::Ranks of) {
  double cost = prices.beta.least() * space.lowerBound(state, of);
  std::vector<double> betas = prices.beta.byAtom;
  std::ranges::sort(betas);
  for (int64_t k = 1; k < std::ssize(betas); k++) {
    if (betas[k] > betas[k - 1]) {
      AtomSet inside = 0;  // joined by cheaper links
      for (int64_t atom = 0; atom < space.numAtoms(); atom++) {
        inside |= prices.beta.byAtom[atom] < betas[k] ? atomBit(atom) : 0;
      }
      cost += (betas[k] - betas[k - 1]) * space.lowerBoundBetweenGroups(state, inside, of);
    }
  }
  return cost > 0 ? prices.alpha.least() + cost : 0;
}

std::optional<FoundChain> searchChain(PlanSpace& space, MoveMaker& maker, const SearchLimits& limits) {
  return Search(space, maker, limits).run();
}

}  // namespace meshfuse
