// Writes the files of subcommands.
#pragma once

#include <string>
#include <string_view>

namespace meshfuse {

// UserError naming the path if it cannot be written.
void writeOutputFile(const std::string& path, std::string_view bytes);

}  // namespace meshfuse
