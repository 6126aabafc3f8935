// Call descriptors: the program and the arguments of a rank's call, for the error of all ranks if two ranks make different calls.
//
// A run sends no descriptors. Ranks have agreed on every plan that they run, so each rank has the descriptors of all plans: the rank that
// finds a difference composes the error for all. A rank that compiles or refuses a call sends its descriptor or error in its exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/communicator.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;

// Begins the message of a rank that refuses a call with a UserError; its text follows.
inline constexpr std::string_view kRefusal = "bad call: ";
// Begins the message of a rank that compares a new plan; the descriptor follows in the next lines.
inline constexpr std::string_view kNewPlan = "plan ";

struct ArgumentDescriptor {
  std::string input;  // input 0 (T0)
  std::string type;
  std::string local;  // sizes on this rank, [4, 6], or the value of a scalar that shapes depend on
  std::string global;
};

struct CallDescriptor {
  std::string fusion;  // a hash of its text
  std::string plan;    // a hash: the same on all ranks
  std::vector<ArgumentDescriptor> arguments;
  std::string text;  // of the fusion

  // A message of at most about `bytes`; lines that do not fit are left out.
  std::string toString(size_t bytes) const;
  static CallDescriptor parse(std::string_view text);
};

// Of all calls of a fusion: without arguments and plan.
[[nodiscard]] CallDescriptor descriptorOf(const Fusion& fusion);
// globalSizes: as the function of this name returns them.
[[nodiscard]] std::vector<ArgumentDescriptor> argumentDescriptors(const Fusion& fusion,
                                                                  std::span<const Argument> inputs,
                                                                  const std::vector<std::vector<int64_t>>& globalSizes);

// `line 3: rank 0 has "..", rank 1 has ".."`
[[nodiscard]] std::string firstDifference(const std::string& a, const std::string& b, int64_t rankA, int64_t rankB);

// The descriptor of a plan that may run. After its destruction the plan must not run.
struct PlanDescriptor {
  CallDescriptor call;
  uint64_t identity = 0;  // see programNumber()
  int64_t communications = 0;
};

// The plans that a rank may run.
class PlanDescriptors final : public Communicator::Programs {
 public:
  static void add(Communicator& communicator, const std::shared_ptr<const PlanDescriptor>& plan);

  std::optional<std::string> difference(const Call& a, const Call& b) const override;

 private:
  struct Activity;
  Activity activityIn(const Call& call) const;
  std::shared_ptr<const PlanDescriptor> find(uint32_t program) const;

  mutable std::mutex mutex_;
  mutable std::vector<std::weak_ptr<const PlanDescriptor>> plans_;
};

}  // namespace meshfuse
