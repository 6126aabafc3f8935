// Reads a program that a user wrote: parses the text and checks all rules of the IR. Errors name the place in the text.
#pragma once

#include <memory>
#include <string_view>

namespace meshfuse {

class Fusion;

// UserError "FILE:LINE:COLUMN: what, got, expected" for malformed text, and for a symbol that neither occurs in the extents of an input
// nor names a mesh axis. The error has one line for each rule that verify() of ir/text.h finds broken.
[[nodiscard]] std::unique_ptr<Fusion> readProgram(std::string_view text, std::string_view file);

}  // namespace meshfuse
