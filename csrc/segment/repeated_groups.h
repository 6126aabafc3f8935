// RepeatedGroups: judges groups of ops, and of equal groups the first only: repeated layers have equal ones.
//
//   Verdict first = groups.judge({T2 = exp(T0), T3 = neg(T2)});
//   Verdict other = groups.judge({T9 = exp(T7), T10 = neg(T9)});   // the judgement of the first, about T7 and T10
//
// Groups are equal if their ops, tensors, layouts and scalars are, and if the numbers of their tensors and ops have the same order. The kernel
// of equal groups is written once, and bound to the tensors of each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "segment/local_context.h"

namespace meshfuse {

struct EqualGroups;
struct GroupJudge;

class RepeatedGroups {
 public:
  explicit RepeatedGroups(const LocalContext& context);

  // As LocalContext. Judgement::refuseParts() compares groups of one kernel: it is an InternalError for a judgement that stands for equal
  // groups, see standsForEqualGroups().
  Verdict judge(const Group& group);
  std::unique_ptr<const Judgement> judgementOf(const Group& group);

 private:
  struct Key {
    std::vector<int64_t> numbers;
    std::vector<const TensorView*> tensors;  // of the group, each once, as its ops read and make them
  };

  Key keyOf(const Group& group);
  int64_t numberOf(const Expr& e);
  int64_t numberOf(const TensorView& tensor);
  int64_t numberOf(const Layout& layout);
  int64_t numberOf(std::string text);

  std::shared_ptr<const GroupJudge> judge_;
  std::map<std::vector<int64_t>, std::shared_ptr<EqualGroups>> judged_;
  std::unordered_map<std::string, int64_t> texts_;  // of ops, dims and layouts; numbered as they appear
  std::unordered_map<int64_t, int64_t> ofExprs_;    // by id
  std::unordered_map<int64_t, int64_t> ofTensors_;  // by Val id
};

// True if the judgement holds facts that RepeatedGroups shares between equal groups (also if only one such group exists).
[[nodiscard]] bool standsForEqualGroups(const Judgement& judgement);

}  // namespace meshfuse
