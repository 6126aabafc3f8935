// The files of runtime/cuda, compiled into the library by CMake.
#pragma once

#include <string_view>

namespace meshfuse {

// The text of the file of that name, such as `memory.cuh`; empty if there is none.
[[nodiscard]] std::string_view runtimeText(std::string_view file);

}  // namespace meshfuse
