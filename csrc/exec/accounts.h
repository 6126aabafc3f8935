// What a rank says of the calls it makes, for the error that all get where two ranks call for different things.
//
// Nothing is said while calls meet. Ranks have agreed on every plan that they run, so each knows what the others' plans are for: the
// one that finds a difference tells all. Who makes a plan, or refuses its arguments, says so when it comes to compare plans.
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

// Begins what a rank says that refuses a call because of its user's mistake.
inline constexpr std::string_view kBadCall = "bad call: ";
// Begins what a rank says that has made a plan; its account follows in the next lines.
inline constexpr std::string_view kMakesAPlan = "plan ";

struct ArgumentAccount {
  std::string input;  // input 0 (T0)
  std::string type;
  std::string given;  // [4, 6], or the value of a scalar that shapes depend on
  std::string whole;  // of which it is a part
};

struct CallAccount {
  std::string fusion;  // a hash of its text
  std::string plan;    // a hash: the same on all ranks
  std::vector<ArgumentAccount> arguments;
  std::string text;  // of the fusion

  // As a message of at most about `bytes`: what does not fit is left out at the end.
  std::string toString(size_t bytes) const;
  static CallAccount parse(std::string_view text);
};

// wholes: as globalSizes() gives them. plan: the program of all ranks, as text.
[[nodiscard]] CallAccount accountOf(const Fusion& fusion, std::span<const Argument> inputs,
                                    const std::vector<std::vector<int64_t>>& wholes, std::string_view plan);

// `line 3: rank 0 has "..", rank 1 has ".."`
[[nodiscard]] std::string firstDifference(const std::string& a, const std::string& b, int rankA, int rankB);

// A plan that may run, as long as this lives.
struct PlanAccount {
  CallAccount call;
  uint64_t identity = 0;  // see programNumber()
  int communications = 0;
};

// The plans of a rank that may run.
class PlanAccounts final : public Communicator::Programs {
 public:
  // Of the communicator's rank, from now on.
  static void add(Communicator& communicator, const std::shared_ptr<const PlanAccount>& plan);

  std::optional<std::string> difference(const Call& a, const Call& b) const override;

 private:
  struct Said;
  Said said(const Call& call) const;
  std::shared_ptr<const PlanAccount> find(uint32_t program) const;

  mutable std::mutex mutex_;
  mutable std::vector<std::weak_ptr<const PlanAccount>> plans_;
};

}  // namespace meshfuse
