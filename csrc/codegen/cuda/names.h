// Identifiers of a kernel: readable where possible, never a word of the language or of the runtime functions.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace meshfuse::cuda {

class Names {
 public:
  // `wanted` as an identifier: other characters are replaced, and a number is appended if the name is taken.
  std::string fresh(std::string_view wanted);

 private:
  std::set<std::string, std::less<>> taken_;
};

}  // namespace meshfuse::cuda
