#include "segment/local_context.h"

#include <fmt/ranges.h>

#include "ir/fusion.h"

namespace meshfuse {

std::string toText(const Fusion& fusion, const LocalContext& context) {
  std::string text = fusion.toString();
  for (const auto& [id, layout] : context.layouts) {
    text += fmt::format("# T{} strides [{}] alignment {}{}\n", id, fmt::join(layout.strides, ", "), layout.alignment,
                        context.views.contains(id) ? " view" : "");
  }
  return text;
}

}  // namespace meshfuse
