#include "segment/join_siblings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/extents.h"
#include "segment/judge_siblings.h"
#include "segment/repeated_groups.h"
#include "segment/step_graph.h"

namespace meshfuse {

namespace {

// Kernels compile in parallel, so joining kernels that are already long makes compilation slower.
constexpr size_t kMaxJointOps = 128;
constexpr int64_t kMaxRefusals = 8;
// In programs with few steps, a refused pair is tried again when one of the two has grown.
constexpr int64_t kFewNodes = 64;
// The table of dependencies has an entry for each pair of steps, so larger programs are not changed.
constexpr int64_t kMaxNodes = 16384;

using NodeSet = std::vector<uint64_t>;

bool isIn(const NodeSet& set, int64_t node) { return (set[static_cast<size_t>(node) / 64] >> (node % 64) & 1) != 0; }
void insert(NodeSet& set, int64_t node) { set[static_cast<size_t>(node) / 64] |= uint64_t{1} << (node % 64); }
void insertAll(NodeSet& set, const NodeSet& more) {
  for (int64_t i = 0; i < std::ssize(set); i++) {
    set[i] |= more[i];
  }
}

class SiblingJoiner {
 public:
  SiblingJoiner(StepGraph& graph, const LocalContext& context) : graph_(graph), context_(context) {}

  void run() {
    const auto count = static_cast<size_t>(graph_.size());
    before_.assign(count, NodeSet((count + 63) / 64));
    facts_.resize(count);
    for (int64_t n : graph_.inOrder()) {
      for (int64_t p : graph_.at(n).producers) {
        insert(before_[n], p);
        insertAll(before_[n], before_[p]);
      }
    }
    for (int64_t n = 0; n < graph_.size(); n++) {
      if (isKernel(n)) {
        learn(n, graph_.groupOf(graph_.at(n).exprs));
      }
    }
    for (int64_t n = 0; n < graph_.size(); n++) {
      for (int64_t at = n; at >= 0 && isKernel(at);) {
        at = joinOnce(at, n);
      }
    }
  }

 private:
  struct Facts {
    std::vector<int64_t> reads;  // Val ids, sorted
    size_t writes = 0;           // tensors
    int64_t elements = 0;        // of the largest tensor
  };

  bool isKernel(int64_t n) const { return !graph_.at(n).dead && graph_.at(n).kind == SegmentKind::Kernel; }

  void learn(int64_t n, const Group& group) {
    Facts& f = facts_[n];
    f = {.reads = mapped(group.inputs, &TensorView::id), .writes = group.outputs.size()};
    std::ranges::sort(f.reads);
    for (const Expr* e : group.exprs) {
      for (const TensorView* in : e->tensorInputs()) {
        f.elements = std::max(f.elements, usualElements(*in));
      }
      f.elements = std::max(f.elements, usualElements(*e->tensorOutput()));
    }
  }

  const Judgement& judgementOf(int64_t n) {
    StepNode& node = graph_.at(n);
    if (node.judgement == nullptr || standsForEqualGroups(*node.judgement)) {
      node.judgement = context_.judgementOf(graph_.groupOf(node.exprs));
    }
    return *node.judgement;
  }

  bool waitsFor(int64_t later, int64_t earlier) const { return isIn(before_[later], earlier); }

  // Joins a node with the best candidate up to `last`. Returns the joined node, or -1.
  int64_t joinOnce(int64_t node, int64_t last) {
    std::vector<int64_t> sharing;
    std::vector<int64_t> strangers;
    const Facts& own = facts_[node];
    for (int64_t other = last; other >= 0; other--) {
      if (other == node || !isKernel(other) || waitsFor(node, other) || waitsFor(other, node)) {
        continue;
      }
      const Facts& f = facts_[other];
      const size_t shared = countShared(own.reads, f.reads);
      if ((shared > 0 || f.elements == own.elements) && !isTooMuch(node, other, shared)) {
        (shared > 0 ? sharing : strangers).push_back(other);
      }
    }
    append(sharing, strangers);
    int64_t refusals = 0;
    for (int64_t other : sharing) {
      const auto [first, second] = std::minmax(node, other);
      std::optional<std::string> refusal = join(first, second);
      if (!refusal) {
        return first;
      }
      if (!refusal->empty()) {
        graph_.noteBoundary(first, graph_.at(second).exprs.back()->output(), *refusal);
        if (++refusals == kMaxRefusals) {
          break;
        }
      }
    }
    return -1;
  }

  static size_t countShared(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    std::vector<int64_t> shared;
    std::ranges::set_intersection(a, b, std::back_inserter(shared));
    return shared.size();
  }

  // Limits that need no judgement of a template.
  bool isTooMuch(int64_t a, int64_t b, size_t shared) const {
    const Facts& f = facts_[a];
    const Facts& g = facts_[b];
    const size_t tensors = f.reads.size() + f.writes + g.reads.size() + g.writes - shared;
    return graph_.at(a).exprs.size() + graph_.at(b).exprs.size() > kMaxJointOps || tensors > kMaxKernelTensors;
  }

  // Returns the reason of a refusal: nothing if they were joined, an empty text if the pair was tried before.
  std::optional<std::string> join(int64_t a, int64_t b) {
    const size_t ops = graph_.at(a).exprs.size() + graph_.at(b).exprs.size();
    if (!refused_.insert({a, b, graph_.size() <= kFewNodes ? ops : 0}).second) {
      return "";
    }
    std::vector<Expr*> exprs = graph_.exprsOf({a, b});
    if (std::optional<std::string> reason = delays(a, b)) {
      return reason;
    }
    Verdict joint = context_.judge(graph_.groupOf(exprs));
    if (joint.judgement == nullptr) {
      return joint.refusal;
    }
    const Judgement& first = judgementOf(a);
    const Judgement& second = judgementOf(b);
    const SiblingJudgement siblings = judgeSiblings(first, second, *joint.judgement);
    if (siblings.refusal) {
      return siblings.refusal;
    }
    const std::string who = fmt::format("{} beside {}: {}", second.group.outputs[0]->toString(),
                                        first.group.outputs[0]->toString(), siblings.gain);
    learn(a, joint.judgement->group);
    merge(a, b, std::move(exprs));
    graph_.at(a).judgement = std::move(joint.judgement);
    graph_.at(a).joins.push_back(who);
    return std::nullopt;
  }

  // A kernel that waits for a collective must not hold up one that does not, and a kernel before a collective must not be delayed.
  std::optional<std::string> delays(int64_t a, int64_t b) const {
    bool sameCommunication = true;
    bool sameLibrary = true;
    bool leads = false;
    for (int64_t n = 0; n < graph_.size(); n++) {
      const SegmentKind kind = graph_.at(n).kind;
      const bool differs = waitsFor(a, n) != waitsFor(b, n);
      if (kind == SegmentKind::Communicate) {
        sameCommunication = sameCommunication && !differs;
        leads = leads || waitsFor(n, a) || waitsFor(n, b);
      } else if (kind == SegmentKind::Library || kind == SegmentKind::Reference) {
        sameLibrary = sameLibrary && !differs;
      }
    }
    if (!sameCommunication) {
      return "one of them waits for communication";
    }
    return leads && !sameLibrary ? std::optional<std::string>("communication would start later") : std::nullopt;
  }

  void merge(int64_t a, int64_t b, std::vector<Expr*> exprs) {
    graph_.merge({a, b}, {}, std::move(exprs));
    append(graph_.at(a).joins, graph_.at(b).joins);
    if (graph_.at(a).boundary.empty()) {
      graph_.at(a).boundary = graph_.at(b).boundary;
    }
    NodeSet& before = before_[a];
    insertAll(before, before_[b]);
    for (int64_t n = 0; n < graph_.size(); n++) {
      if (waitsFor(n, a) || waitsFor(n, b)) {
        insert(before_[n], a);
        insertAll(before_[n], before);
      }
    }
  }

  StepGraph& graph_;
  const LocalContext& context_;
  std::vector<NodeSet> before_;                             // by node: all it waits for, directly or not
  std::vector<Facts> facts_;                                // by node, of kernels
  std::set<std::tuple<int64_t, int64_t, size_t>> refused_;  // with the number of their ops in small programs
};

}  // namespace

void joinSiblings(StepGraph& graph, const LocalContext& context) {
  if (graph.size() <= kMaxNodes) {
    SiblingJoiner(graph, context).run();
  }
}

}  // namespace meshfuse
