// Template: one way to compute groups of ops. It judges a group, estimates the cost of its kernel or library call for the group, and
// writes this step.
//
//   Verdict verdict = judge(group, device, allTemplates());
//   verdict.judgement->cost;                                     // of the cheapest step for the group
//   std::get<KernelPlan>(verdict.judgement->write()).program;    // its tile program, if a kernel executes it
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schedule/group.h"

namespace meshfuse {

// The cost of a step, in bytes of memory traffic.
struct Cost {
  static constexpr int64_t kFlopsPerByte = 16;  // that a device computes while it moves a byte
  int64_t bytes = 0;                            // read and written, each tensor of the step once
  int64_t launch = 0;                           // bytes that the device moves in the time of one launch
  int64_t flops = 0;                            // of contractions
  int64_t total() const { return std::max(bytes, flops / kFlopsPerByte) + launch; }
};
// The cost of a step that reads each input and writes each output once.
[[nodiscard]] Cost costOf(const Group& group, const DeviceInfo& device);

// The largest number of ops in one kernel. Compilers take more than linear time for straight code, and next to that much arithmetic the
// cost of another round trip through memory is small.
inline constexpr size_t kMaxKernelOps = 512;
// The largest number of tensors of a kernel that computes groups which do not read each other.
inline constexpr size_t kMaxKernelTensors = 64;

// The facts that a template found about a group it accepts.
class Judgement {
 public:
  virtual ~Judgement() = default;
  // The kernel, in whose program tile::verify() finds nothing, or the library call. It computes all outputs of the group.
  [[nodiscard]] virtual std::variant<KernelPlan, LibraryCall> write() const = 0;
  // True if the step, when it writes an element of `output`, reads `input` at most at the same position.
  [[nodiscard]] virtual bool readsWhereItWrites(const TensorView* output, const TensorView* input) const = 0;
  // Why this kernel is worse than two kernels that compute a part of its group each; nothing if it is not.
  [[nodiscard]] virtual std::optional<std::string> refuseParts(const Judgement& a, const Judgement& b) const = 0;

  Group group;
  bool callsLibrary = false;    // else a kernel
  bool writesAnyLayout = true;  // of its results; else row-major ones only
  std::string_view kind;        // of step, as dumps and explain name it: "reduction"
  Cost cost;
  std::vector<IntExpr> loops;  // extents it loops over, in any order
  int64_t positions = 1;       // their product, with a typical extent where one is unknown

 protected:
  explicit Judgement(Group g) : group(std::move(g)) {}
};

// A judgement, or why there is none: no reason if the group is not of the template's form and other templates will say more.
struct Verdict {
  std::unique_ptr<const Judgement> judgement;
  std::string refusal;
};

struct Template {
  std::string_view name;
  Verdict (*judge)(const Group& group, const DeviceInfo& device);
};

[[nodiscard]] std::span<const Template> allTemplates();

// The cheapest judgement of several templates, at equal cost the first; else the reasons of the refusals.
[[nodiscard]] Verdict judge(const Group& group, const DeviceInfo& device, std::span<const Template> templates);

// Whether a kernel template that accepts these ops, in topological order, also accepts them with `next` at the end, so that no judgement
// is needed: `next` is elementwise, has one shape and reads only the last op, which is such an op too, and inputs of the fusion. No
// op may be a reduction, because sweeps recompute the values between two reductions.
[[nodiscard]] bool takesUnjudged(std::span<Expr* const> exprs, const Expr& next);

}  // namespace meshfuse
