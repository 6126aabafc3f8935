// StepReference of program.h.
#include <functional>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "host/program.h"
#include "host/reference.h"
#include "ir/fusion.h"

namespace meshfuse {

struct StepReference::State {
  std::once_flag once;
  std::shared_ptr<const Fusion> made = {};
  std::shared_ptr<const Fusion> local = {};  // until it is made
  Group group = {};
  std::map<std::string, int64_t, std::less<>> coordinates = {};
};

StepReference::StepReference(std::shared_ptr<const Fusion> reference) {
  if (reference != nullptr) {
    state_ = std::make_shared<State>();
    state_->made = std::move(reference);
  }
}

StepReference::StepReference(std::shared_ptr<const Fusion> local, const Group& group,
                             const std::map<std::string, int64_t, std::less<>>& coordinates)
    : state_(std::make_shared<State>()) {
  state_->local = std::move(local);
  state_->group = group;
  state_->coordinates = coordinates;
}

const std::shared_ptr<const Fusion>& StepReference::fusion() const {
  invariant(state_ != nullptr, "[host program] a step without a reference was asked for it");
  State& s = *state_;
  std::call_once(s.once, [&] {
    if (s.made == nullptr) {
      s.made = referenceOf(*s.local, s.group, [&](const IntExpr& e) { return e.substitute(valuesIn(s.coordinates)); });
      s.local = nullptr;
      s.group = {};
    }
  });
  return s.made;
}

}  // namespace meshfuse
