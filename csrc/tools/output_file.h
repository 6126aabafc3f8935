// Writes the files of subcommands.
#pragma once

#include <string>
#include <string_view>

namespace meshfuse {

// UserError naming the path if it cannot be written.
void writeOutputFile(const std::string& path, std::string_view bytes);

// The same for a file that appears whole or not at all, as an AtomicFile does. The error begins with `[what]`.
void writeWhole(std::string_view what, const std::string& path, std::string_view bytes);

}  // namespace meshfuse
