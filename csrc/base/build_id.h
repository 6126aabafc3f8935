// Which build of this library runs.
#pragma once

#include <string>

namespace meshfuse {

// The identifier that the linker has given to the binary that contains this library, in hexadecimal: builds from different code have different
// ones. Empty if the linker gives none.
[[nodiscard]] const std::string& buildId();

}  // namespace meshfuse
