// Suggestions in errors about an unknown name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace meshfuse {

// "; did you mean run?" with the word at the smallest edit distance from `word`; nothing if none is near. Empty words are none.
[[nodiscard]] std::string nearestWord(std::string_view word, std::span<const std::string> words);

}  // namespace meshfuse
