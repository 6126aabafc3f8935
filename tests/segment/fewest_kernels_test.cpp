// Small random programs, each cut in the fewest kernels that any partition of its ops has: all partitions are tried whose
// parts a kernel may hold and do not wait for each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <random>

#include "meshfuse/meshfuse.h"
#include "sanitized.h"
#include "segment/judge_siblings.h"
#include "segment/local_context.h"
#include "segment/segment.h"
#include "segment/step_graph.h"

namespace meshfuse {
namespace {

constexpr size_t kMaxOps = 7;

std::unique_ptr<Fusion> randomProgram(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  std::vector<TensorView*> made;
  const size_t inputs = 1 + below(2);
  for (size_t i = 0; i < inputs; i++) {
    TensorView* x = makeContigConcreteTensor({8, below(3) == 0 ? 12 : 8});
    fusion->addInput(x);
    made.push_back(x);
  }
  auto isMatrix = [](const TensorView* tv) { return tv->shape().size() == 2; };
  const size_t ops = 3 + below(kMaxOps - 2);
  for (size_t i = 0; i < ops; i++) {
    TensorView* x = made[below(made.size())];
    TensorView* y = made[below(made.size())];
    switch (below(8)) {
      case 0:
        made.push_back(isMatrix(x) ? sum(x, {static_cast<int64_t>(below(2))}) : exp(x));
        break;
      case 1:
        made.push_back(isMatrix(x) ? max(x, {1}) : neg(x));
        break;
      case 2:
        made.push_back(isMatrix(x) ? transpose(x, 0, 1) : exp(x));
        break;
      case 3:
        made.push_back(isMatrix(x) && isMatrix(y) && x->shape()[1] == y->shape()[0] ? matmul(x, y) : exp(x));
        break;
      case 4:
        made.push_back(exp(x));
        break;
      default:
        made.push_back(x->shape() == y->shape() ? add(x, y) : neg(x));
        break;
    }
  }
  for (TensorView* tv : made) {
    if (tv->definition() != nullptr && (fusion->uses(tv).empty() || below(4) == 0)) {
      fusion->addOutput(tv);
    }
  }
  return fusion;
}

LocalContext contextWithLibrary() {
  LocalContext context;
  context.device.refuseContraction = [](const Expr&, const std::map<int64_t, Layout>&) {
    return std::optional<std::string>();
  };
  return context;
}

// All that a kernel may hold, and the least number of kernels; sets of ops are bits.
class Exhaustive {
 public:
  Exhaustive(const Fusion& fusion, const LocalContext& context) : graph_(fusion, context), exprs_(fusion.exprs()) {
    for (size_t i = 0; i < exprs_.size(); i++) {
      for (size_t j = 0; j < i; j++) {
        const std::vector<TensorView*> ins = exprs_[i]->tensorInputs();
        if (std::find(ins.begin(), ins.end(), exprs_[j]->output()) != ins.end()) {
          reads_[i] |= 1U << j;
        }
      }
    }
  }

  int64_t fewest() {
    std::vector<uint32_t> blocks;
    best_ = std::ssize(exprs_) + 1;
    search(0, blocks);
    return best_;
  }

 private:
  bool isLibrary(size_t i) const { return exprs_[i]->kind() == ExprKind::Matmul; }

  void search(size_t next, std::vector<uint32_t>& blocks) {
    if (next == exprs_.size()) {
      if (static_cast<int64_t>(kernels(blocks)) < best_ &&
          std::all_of(blocks.begin(), blocks.end(), [&](uint32_t b) { return mayBeKernel(b); }) && isAcyclic(blocks)) {
        best_ = static_cast<int64_t>(kernels(blocks));
      }
      return;
    }
    for (size_t b = 0; b < blocks.size(); b++) {
      blocks[b] |= 1U << next;
      search(next + 1, blocks);
      blocks[b] &= ~(1U << next);
    }
    blocks.push_back(1U << next);
    search(next + 1, blocks);
    blocks.pop_back();
  }

  size_t kernels(const std::vector<uint32_t>& blocks) const {
    size_t n = 0;
    for (uint32_t b : blocks) {
      n += std::popcount(b) == 1 && isLibrary(std::countr_zero(b)) ? 0 : 1;
    }
    return n;
  }

  bool isAcyclic(std::vector<uint32_t> blocks) const {
    uint32_t done = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t& b : blocks) {
        if (b != 0 && (readBy(b) & ~b & ~done) == 0) {
          done |= b;
          b = 0;
          moved = true;
        }
      }
    }
    return std::all_of(blocks.begin(), blocks.end(), [](uint32_t b) { return b == 0; });
  }

  uint32_t readBy(uint32_t block) const {
    uint32_t reads = 0;
    for (size_t i = 0; i < exprs_.size(); i++) {
      reads |= (block >> i & 1U) != 0 ? reads_[i] : 0;
    }
    return reads;
  }

  Group groupOf(uint32_t block) const {
    std::vector<Expr*> exprs;
    for (size_t i = 0; i < exprs_.size(); i++) {
      if ((block >> i & 1U) != 0) {
        exprs.push_back(exprs_[i]);
      }
    }
    return graph_.groupOf(exprs);
  }

  // Its ops hand results to each other, directly or through others.
  bool isConnected(uint32_t block) const {
    uint32_t part = block & (~block + 1);
    for (uint32_t before = 0; before != part;) {
      before = part;
      for (size_t i = 0; i < exprs_.size(); i++) {
        const uint32_t bit = 1U << i;
        if ((block & bit) != 0 && ((part & bit) != 0 || (reads_[i] & part) != 0)) {
          part |= bit | (reads_[i] & block);
        }
      }
    }
    return part == block;
  }

  std::unique_ptr<const Judgement> judgementOf(uint32_t block) const {
    return std::move(meshfuse::judge(groupOf(block), device_, allTemplates()).judgement);
  }

  bool mayBeKernel(uint32_t block) {
    auto [it, isNew] = judged_.try_emplace(block, false);
    if (isNew) {
      const bool may = judge(block);
      judged_[block] = may;
    }
    return judged_[block];
  }

  bool judge(uint32_t block) {
    for (size_t i = 0; i < exprs_.size(); i++) {
      if ((block >> i & 1U) != 0 && isLibrary(i)) {
        return std::popcount(block) == 1;
      }
    }
    const std::unique_ptr<const Judgement> whole = judgementOf(block);
    if (whole == nullptr) {
      return false;
    }
    for (uint32_t part = (block - 1) & block; part != 0; part = (part - 1) & block) {
      const uint32_t rest = block & ~part;
      const bool chained = (readBy(part) & rest) != 0 || (readBy(rest) & part) != 0;
      if (!chained && mayBeKernel(part) && mayBeKernel(rest) &&
          !judgeSiblings(*judgementOf(part), *judgementOf(rest), *whole).refusal) {
        return true;
      }
    }
    return isConnected(block);
  }

  StepGraph graph_;
  DeviceInfo device_;
  std::vector<Expr*> exprs_;
  std::array<uint32_t, kMaxOps> reads_ = {};
  std::map<uint32_t, bool> judged_;
  int64_t best_ = 0;
};

// Which reference a group has depends on its ops, so what a kernel may hold grows and shrinks with them, and no order of joins
// finds every kernel: programs that are cut in one kernel too many are few.
TEST(FewestKernels, OfSmallRandomPrograms) {
  constexpr uint64_t kPrograms = kSanitized ? 300 : 3000;
  int64_t more = 0;
  for (uint64_t seed = 0; seed < kPrograms; seed++) {
    const std::unique_ptr<Fusion> fusion = randomProgram(seed);
    ASSERT_LE(fusion->exprs().size(), kMaxOps);
    const LocalContext context = contextWithLibrary();
    const std::vector<Segment> segments = segment(*fusion, context);
    const auto kernels = static_cast<int64_t>(std::count_if(
        segments.begin(), segments.end(), [](const Segment& s) { return s.kind == SegmentKind::Kernel; }));
    const int64_t fewest = Exhaustive(*fusion, context).fewest();
    EXPECT_GE(kernels, fewest) << "seed " << seed << "\n" << fusion->toString();
    EXPECT_LE(kernels, fewest + 1) << "seed " << seed << "\n" << fusion->toString();
    more += kernels > fewest ? 1 : 0;
  }
  EXPECT_LE(more, 10) << "of " << kPrograms;
}

}  // namespace
}  // namespace meshfuse
