#include <limits>

#include "decoders/decoders.h"
#include "exec/call_descriptor.h"

namespace meshfuse {

// The messages of two ranks that compare their calls, each of the half of the bytes.
void readCall(std::string_view bytes) {
  const std::string_view first = bytes.substr(0, bytes.size() / 2);
  const std::string_view second = bytes.substr(bytes.size() / 2);
  const PlanDescriptors plans;
  static_cast<void>(plans.difference({.rank = 0, .message = first}, {.rank = 1, .message = second}));
  const std::string all = CallDescriptor::parse(first).toString(std::numeric_limits<size_t>::max());
  require(CallDescriptor::parse(all).toString(std::numeric_limits<size_t>::max()) == all,
          "a descriptor, written and read again, differs");
  const std::string part = CallDescriptor::parse(all).toString(bytes.size());
  require(part.size() <= all.size(), "a part of a descriptor is longer than all of it");
}

}  // namespace meshfuse
