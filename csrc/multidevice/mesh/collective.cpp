#include "multidevice/mesh/collective.h"

#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

std::optional<Collective> parseCollective(std::string_view identifier) {
  const auto kind = std::ranges::find(kCollectiveTraits, identifier, &CollectiveTraits::identifier);
  return kind == kCollectiveTraits.end() ? std::nullopt
                                         : std::optional(static_cast<Collective>(kind - kCollectiveTraits.begin()));
}

std::string identifiersOf(const std::function<bool(const CollectiveTraits&)>& property) {
  return joined(filtered(kCollectiveTraits, property), ", ", &CollectiveTraits::identifier);
}

std::string callName(Collective collective, BlockForm form) {
  switch (form) {
    case BlockForm::Equal:
      return std::string(name(collective));
    case BlockForm::Counted:
      return fmt::format("{}-v", name(collective));
    case BlockForm::Permutation:
      return std::string(kPermute);
  }
  return "";
}

void throwAmountUnknown(Collective collective) {
  throwInternalError(fmt::format(
      "[collective] the amount that a rank receives in a {} does not follow from the sizes of operand and result",
      name(collective)));
}

}  // namespace meshfuse
