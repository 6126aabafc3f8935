// Picks the runtime functions that a kernel uses.
//
// A file of runtime/cuda is a sequence of sections; each starts with a line `//@ name [device] [other sections it
// needs]`. `device` marks functions that only a GPU can run: the emulator has its own version of these functions and compiles all others as
// they are.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace meshfuse {

// The sections of these names and all they need, in the order of the files, each with its heading. InternalError for a
// name that no file has.
[[nodiscard]] std::string runtimeSections(const std::set<std::string, std::less<>>& names);

// The heading of the kernel's own part.
inline constexpr std::string_view kKernelHeading = "//@ kernel\n";

}  // namespace meshfuse
