// InputText: inputText(), formatted only where it is printed. For arguments of check(), which are made whether it fails or not.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "ir/fusion.h"

namespace meshfuse {

struct InputText {
  const Fusion& fusion;
  int64_t input;
};

}  // namespace meshfuse

template <>
struct fmt::formatter<meshfuse::InputText> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const meshfuse::InputText& text, Context& context) const {
    return fmt::formatter<std::string_view>::format(meshfuse::inputText(text.fusion, text.input), context);
  }
};
