// The text of a kernel for the host.
#pragma once

#include <string>
#include <string_view>

namespace meshfuse::simt {

// The text without the runtime functions that only a device has: device/prelude.h replaces those.
std::string hostText(std::string_view text);

}  // namespace meshfuse::simt
