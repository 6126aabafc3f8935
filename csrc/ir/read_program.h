// A program that someone wrote, from its text: parsed, and all rules of the IR checked, with the place in the text of what is wrong.
#pragma once

#include <memory>
#include <string_view>

namespace meshfuse {

class Fusion;

// UserError "FILE:LINE:COLUMN: what, got, expected": of malformed text, of a symbol that stands in the extents of no input and names no
// mesh axis, and one line for each rule that verify() of ir/text.h finds broken.
[[nodiscard]] std::unique_ptr<Fusion> readProgram(std::string_view text, std::string_view file);

}  // namespace meshfuse
