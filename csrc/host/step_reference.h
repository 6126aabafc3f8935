// StepReference: what a step computes, as a fusion of its own. It is made when it is first read: verification, descriptions and predictions
// read it, other calls do not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace meshfuse {

class Fusion;
struct Group;

// Copies share one fusion. Several threads may read it.
class StepReference {
 public:
  StepReference() = default;                               // none
  StepReference(std::shared_ptr<const Fusion> reference);  // NOLINT(google-explicit-constructor): is this fusion
  // As referenceOf(): of a group of `local`, with these values of its coordinates.
  StepReference(std::shared_ptr<const Fusion> local, const Group& group,
                const std::map<std::string, int64_t, std::less<>>& coordinates);

  [[nodiscard]] explicit operator bool() const { return state_ != nullptr; }
  // InternalError if there is none.
  [[nodiscard]] const std::shared_ptr<const Fusion>& fusion() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace meshfuse
