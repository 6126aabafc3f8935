// Template: one way to write kernels. It judges a group of ops, estimates the cost of its kernel for the group, and writes this kernel.
//
//   Verdict verdict = judge(group, device, kernelTemplates());
//   verdict.judgement->cost;              // of the cheapest kernel for the group
//   verdict.judgement->write().program;   // its tile program
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/group.h"

namespace meshfuse {

// The cost of a kernel, in bytes of memory traffic.
struct Cost {
  int64_t bytes = 0;   // read and written, each tensor of the kernel once
  int64_t launch = 0;  // bytes that the device moves in the time of one launch
  int64_t total() const { return bytes + launch; }
};
// The cost of a kernel that reads each input and writes each output once.
[[nodiscard]] Cost costOf(const Group& group, const DeviceInfo& device);

// The largest number of tensors of a kernel that computes groups which do not read each other.
inline constexpr size_t kMaxKernelTensors = 64;

// The facts that a template found about a group it accepts.
class Judgement {
 public:
  virtual ~Judgement() = default;
  // The kernel. It verifies and computes all outputs of the group.
  [[nodiscard]] virtual KernelPlan write() const = 0;
  // True if the kernel, when it writes an element of `output`, reads `input` at most at the same position.
  [[nodiscard]] virtual bool readsWhereItWrites(const TensorView* output, const TensorView* input) const = 0;
  // Why this kernel is worse than two kernels that compute a part of its group each; nothing if it is not.
  [[nodiscard]] virtual std::optional<std::string> refuseParts(const Judgement& a, const Judgement& b) const = 0;

  Group group;
  std::string_view kind;  // of kernel, as dumps and explain name it: "reduction"
  Cost cost;
  std::vector<IntExpr> loops;  // extents it loops over, in any order
  int64_t positions = 1;       // their product, with a typical extent where one is unknown

 protected:
  explicit Judgement(Group g) : group(std::move(g)) {}
};

// A judgement, or why there is none.
struct Verdict {
  std::unique_ptr<const Judgement> judgement;
  std::string refusal;
};

struct Template {
  std::string_view name;
  Verdict (*judge)(const Group& group, const DeviceInfo& device);
};

[[nodiscard]] std::span<const Template> kernelTemplates();

// The cheapest judgement of several templates, at equal cost the first; else the reason of each refusal.
[[nodiscard]] Verdict judge(const Group& group, const DeviceInfo& device, std::span<const Template> templates);

}  // namespace meshfuse
