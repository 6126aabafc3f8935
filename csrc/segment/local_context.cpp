#include "segment/local_context.h"

#include <fmt/ranges.h>

#include "ir/fusion.h"
#include "tensor/tensor.h"

namespace meshfuse {

Layout LocalContext::layoutOf(const TensorView* tensor) const {
  const auto known = layouts.find(tensor->id());
  return known != layouts.end() ? known->second : Layout{contiguousStrides(tensor->constantShape())};
}

std::string toText(const Fusion& fusion, const LocalContext& context) {
  std::string text = fusion.toString();
  for (const auto& [id, layout] : context.layouts) {
    text += fmt::format("# T{} strides [{}] alignment {}{}\n", id, fmt::join(layout.strides, ", "), layout.alignment,
                        context.views.contains(id) ? " view" : "");
  }
  return text;
}

}  // namespace meshfuse
