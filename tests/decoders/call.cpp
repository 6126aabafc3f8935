#include <limits>
#include <string>

#include "decoders/decoders.h"
#include "exec/call_descriptor.h"

namespace meshfuse {

// What two ranks tell each other of their calls. The first byte chooses: whether each rank is within a program, and whether the second
// message is the first one, changed at the place that the second byte names, or the second half of the bytes.
void readCall(std::string_view bytes) {
  if (bytes.size() < 2) {
    return;
  }
  const uint32_t choice = static_cast<uint8_t>(bytes[0]);
  const size_t place = static_cast<uint8_t>(bytes[1]);
  const std::string_view rest = bytes.substr(2);
  const bool isChanged = choice % 2 != 0;
  const std::string_view first = isChanged ? rest : rest.substr(0, rest.size() / 2);
  std::string second(isChanged ? rest : rest.substr(rest.size() / 2));
  if (isChanged && place < second.size()) {
    second[place]++;
  }
  const PlanDescriptors plans;
  static_cast<void>(plans.difference({.rank = 0, .program = choice / 2 % 2, .message = first},
                                     {.rank = 1, .program = choice / 4 % 2, .message = second}));
  const std::string all = CallDescriptor::parse(first).toString(std::numeric_limits<size_t>::max());
  require(CallDescriptor::parse(all).toString(std::numeric_limits<size_t>::max()) == all,
          "a descriptor, written and read again, differs");
  const std::string part = CallDescriptor::parse(all).toString(bytes.size());
  require(part.size() <= all.size(), "a part of a descriptor is longer than all of it");
}

}  // namespace meshfuse
